-- Whether all living processes have seen a purge. Not known, and so no: while a process that `seen:` has
-- lost may not count itself as cut off yet (`cut_off_ms`); and where the server's clock went back, for a
-- process that asked at a time to come is removed until it asks again.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local began = tonumber(redis.call('HGET', seen, 'began') or '')
if not began or now - began < tonumber(cut_off_ms) then return 0 end
local lives, all, is_seen, went_back = tonumber(lives_ms), redis.call('HGETALL', seen), 1, false
for at = 1, #all, 2 do
  local its_era, its_number, asked = string.match(all[at + 1], '^(%d+) (%d+) (%d+)$')
  local age = its_era and now - tonumber(asked)
  if age and age < -lives then
    redis.call('HDEL', seen, all[at])
    went_back = true
  elseif age and age <= lives
    and (its_era ~= era or tonumber(its_number) < tonumber(number)) then
    is_seen = 0
  end
end
if went_back then
  redis.call('HSET', seen, 'began', string.format('%.0f', now))
  return 0
end
return is_seen
