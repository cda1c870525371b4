-- Switches `field` on for `lasts_ms` from now, in the name of `by`, or off where that is 0; then the field ''
-- stands for those of all routes, and not for pages, whose fields begin with '~'. Removes those that have ended, and tells the other proxies. Returns 1, or 0 if `bypasses_max`
-- others are on; then the time in milliseconds, and what is there now.
--
-- The first write takes no memory, so that a full Redis takes the switch, too.
redis.call('HDEL', bypass, '')
local time = redis.call('TIME')
local now, lasts = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(lasts_ms)
local found, last, others, is_done = bypasses_in_store(), 0, 0, 1
for at = 1, #found, 2 do
  local ends = tonumber(string.match(found[at + 1], '^%d+ (%d+) ') or '') or 0
  local is_of_route = string.sub(found[at], 1, 1) ~= '~'
  local is_switched = found[at] == field or (field == '' and is_of_route)
  if ends <= now or (is_switched and lasts == 0) then
    redis.call('HDEL', bypass, found[at])
  elseif not is_switched then
    last, others = math.max(last, ends), others + 1
  end
end
if lasts > 0 then
  if others < tonumber(bypasses_max) then
    redis.call('HSET', bypass, field, string.format('1 %.0f ', now + lasts) .. by)
    last = math.max(last, now + lasts)
  else
    is_done = 0
  end
end
if last > 0 then redis.call('PEXPIREAT', bypass, string.format('%.0f', last)) end
redis.pcall('PUBLISH', purge_channel, 'bypass')
return {is_done, now, bypasses_in_store()}
