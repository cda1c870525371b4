-- Sessions behind those whose idle carts were handed on, with their times. `newest` is the time of the
-- newest that are idle.
--
-- `cartidle:` holds the time up to which all were handed on; or, where some of that time are left, the last
-- one behind a space. Its place among members of one time is found by halves, however many there are.
--
-- Returns what `cartidle:` holds, the sessions, by how much our clock is behind that of Redis, which is
-- right where they differ by more than some seconds, and 1 where `cartidle:` held a time to come and was set
-- back.
local mark, from = redis.call('GET', idle_reported) or '', 0
local seen, token = string.match(mark, '^(%S+) (.*)$')
local time = redis.call('TIME')
local behind, set_back = time[1] + time[2] / 1e6 - now, 0
if math.abs(behind) <= 5 then behind = 0 end
local done = tonumber(seen or mark)
if done and done > now + behind then
  mark, seen, set_back = string.format('%.6f', newest + behind), nil, 1
  -- First what takes no memory: Redis lets the rest through then, although it is full.
  redis.call('DEL', idle_reported)
  redis.call('SET', idle_reported, mark)
end
if seen then
  local to = redis.call('ZCOUNT', recent, '-inf', seen)
  from = redis.call('ZCOUNT', recent, '-inf', '(' .. seen)
  while from < to do
    local mid = math.floor((from + to) / 2)
    if is_behind(redis.call('ZRANGE', recent, mid, mid)[1], token) then
      to = mid
    else
      from = mid + 1
    end
  end
elseif mark ~= '' then
  from = redis.call('ZCOUNT', recent, '-inf', mark)
end
local found = redis.call('ZRANGE', recent, from, from + batch - 1, 'WITHSCORES')
return {mark, found, string.format('%.6f', behind), set_back}
