-- The purges since the moment that the asker knows, at most `news_max`. Notes in `seen:` that `who` has seen
-- that much; an asker counts as living for `lives_ms`. Returns era and number, 1 where the table has to be
-- read, the purges, the nonce of the last of them, the key, the time in milliseconds, and the bypass switches.
local lives, time = tonumber(lives_ms), redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- What is known of another history counts as nothing.
local said = is_new and '0 0' or asked_era .. ' ' .. asked_number
redis.call('HSET', seen, who, string.format('%s %.0f', said, now))
-- `began`: since when all that ask are in here. `swept`: when those that do not ask any more were last removed.
-- That reads all of `seen:`, so not each asker does it: in a large fleet it would cost the square of the fleet.
local began, swept = unpack(redis.call('HMGET', seen, 'began', 'swept'))
began, swept = tonumber(began or ''), tonumber(swept or '')
local went_back = false
if redis.call('HLEN', seen) > 16 and not (swept and math.abs(now - swept) < lives / 3) then
  redis.call('HSET', seen, 'swept', string.format('%.0f', now))
  local all = redis.call('HGETALL', seen)
  for at = 1, #all, 2 do
    local asked = tonumber(string.match(all[at + 1], '(%d+)$') or '') or 0
    if all[at] ~= 'began' and math.abs(now - asked) > lives then
      redis.call('HDEL', seen, all[at])
      went_back = went_back or asked > now
    end
  end
end
if is_new or went_back or not began or began > now then
  redis.call('HSET', seen, 'began', string.format('%.0f', now))
end
redis.call('PEXPIRE', seen, lives)
local behind = number - known
if era ~= known_era or behind > redis.call('LLEN', purging) then
  return {era, number, 1, {}, nonce_of(number), key, now, bypasses_in_store()}
end
if behind == 0 then return {era, number, 0, {}, asked_nonce, key, now, bypasses_in_store()} end
local last = math.min(-behind + tonumber(news_max) - 1, -1)
local found = redis.call('LRANGE', purging, -behind, last)
return {era, number, 0, found, nonce_of(known + #found), key, now, bypasses_in_store()}
