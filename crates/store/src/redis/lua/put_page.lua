-- Stores a page where there is room, and books it. Where it is refused, an older version of it is removed.
-- `bound` is the most bytes of pages, `bound_of_new` the same with a page that is not there yet. Returns 0;
-- 1 where there is no room for a new page, 2 for any, 3 where Redis has no memory; and the bytes of pages.
local over, gone = {}, 0
local swept = tonumber(redis.call('HGET', page_bytes, 'swept') or '') or now
for level, width in ipairs(widths) do
  local first = math.floor(swept / width)
  local last = math.min(math.floor(now / width) - 1, first + reach[level] + 1)
  for at = first, last do
    local booked = tonumber(redis.call('HGET', page_bytes, bucket(level, at)) or '')
    if booked then
      over[#over + 1], gone = bucket(level, at), gone + booked
    end
  end
end
local charge, ends = #body + beside, now + tonumber(ttl_ms)
local before, ended = booked_for(page)
local sum = math.max(all - gone - before, 0) + charge
local answer = 0
if before == 0 and sum > tonumber(bound_of_new) then
  answer = 1
elseif sum > tonumber(bound) then
  answer = 2
else
  -- The first write of all: it may be refused.
  local set = redis.pcall('SET', page, body, 'PXAT', string.format('%.0f', ends))
  if type(set) == 'table' and set.err then
    if not string.find(set.err, 'OOM', 1, true) then return set end
    answer = 3
  end
end
if answer > 0 and before > 0 then redis.call('UNLINK', page) end
for _, field in ipairs(over) do redis.call('HDEL', page_bytes, field) end
all = all - gone
if before > 0 then unbook(before, ended) end
if answer == 0 then book(charge, ends) end
-- pcall: refused where Redis has no memory, and then nothing was written before it.
redis.pcall('HSET', page_bytes, 'all', string.format('%.0f', all), 'swept', string.format('%.0f', now))
return {answer, math.max(all, 0)}
