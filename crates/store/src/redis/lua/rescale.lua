-- Makes the popularity set smaller, unless that was done within `every` seconds. The first call only begins
-- a period. At most `most` items go in a call: others wait meanwhile. Returns 0; 1 where it is done, 2
-- where there are more to remove.
local period, time = tonumber(every), tonumber(now)
local last = tonumber(redis.call('GET', rescaled) or '')
local age = last and time - last
-- Clocks differ a little; one that was set back by a whole period begins again.
if age and age < period and age > -period then return 0 end
local begins = not age or age < 0
if not begins and redis.call('ZCARD', popularity) - keep > tonumber(most) then
  redis.call('ZREMRANGEBYRANK', popularity, -most, -1)
  return 2
end
redis.call('SET', rescaled, now, 'PX', kept_ms)
if begins then return 0 end
redis.call('ZREMRANGEBYRANK', popularity, keep, -1)
redis.call('ZINTERSTORE', popularity, 1, popularity, 'WEIGHTS', factor)
return 1
