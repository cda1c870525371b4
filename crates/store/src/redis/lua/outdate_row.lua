-- Removes a row's content and makes it due, unless it is about to be removed.
redis.call('UNLINK', content)
redis.call('ZREM', refreshed, row)
local every = redis.call('ZSCORE', delay, row)
if every and tonumber(every) > 0 then redis.call('ZADD', schedule, now, row) end
