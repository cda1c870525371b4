-- Switches `field` on for `lasts_ms` from now, in the name of `by`, or off where that is 0; then the field ''
-- stands for those of all routes, and not for pages, whose fields begin with '~'. Removes those that have ended, and tells
-- the other proxies. Returns 1, or 0 if `kind_max` others of its kind are on; then the time in milliseconds, and what is
-- there now. Of pages, one that no proxy has renewed for half of its time makes room: no proxy has its rules any more.
--
-- The first write takes no memory, so that a full Redis takes the switch, too.
redis.call('HDEL', bypass, '')
local time = redis.call('TIME')
local now, lasts = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(lasts_ms)
local function is_of_pages(name) return string.sub(name, 1, 1) == '~' end
local found, last, others, is_done = bypasses_in_store(), 0, 0, 1
local first, first_ends
for at = 1, #found, 2 do
  local ends = tonumber(string.match(found[at + 1], '^%d+ (%d+) ') or '') or 0
  local is_kind = is_of_pages(found[at]) == is_of_pages(field)
  local is_switched = found[at] == field or (field == '' and is_kind)
  if ends <= now or (is_switched and lasts == 0) then
    redis.call('HDEL', bypass, found[at])
  elseif not is_switched then
    last = math.max(last, ends)
    if is_kind then
      others = others + 1
      if not first or ends < first_ends then first, first_ends = found[at], ends end
    end
  end
end
if lasts > 0 then
  if others >= tonumber(kind_max) and is_of_pages(field) and first_ends - now < lasts / 2 then
    redis.call('HDEL', bypass, first)
    others = others - 1
  end
  if others < tonumber(kind_max) then
    redis.call('HSET', bypass, field, string.format('1 %.0f ', now + lasts) .. by)
    last = math.max(last, now + lasts)
  else
    is_done = 0
  end
end
if last > 0 then redis.call('PEXPIREAT', bypass, string.format('%.0f', last)) end
if is_done == 1 then redis.pcall('PUBLISH', purge_channel, 'bypass') end
return {is_done, now, bypasses_in_store()}
