-- Stores what was fetched of a row, where the schedule still holds the fence. Returns whether it did.
local due = redis.call('ZSCORE', schedule, row)
if not due or tonumber(due) ~= tonumber(fence) then return 0 end
local every = redis.call('ZSCORE', delay, row)
if not every or tonumber(every) <= 0 then return 0 end
redis.call('SET', content, json)
redis.call('ZADD', schedule, due_next, row)
redis.call('ZADD', refreshed, now, row)
return 1
