-- Stores what was fetched of a row, where the schedule still holds the fence. Returns whether it did.
-- Without content the source has no such row: nothing is kept of it.
local due = redis.call('ZSCORE', schedule, row)
if not due or tonumber(due) ~= tonumber(fence) then return 0 end
local every = redis.call('ZSCORE', delay, row)
if not every or tonumber(every) <= 0 then return 0 end
if json == '' then redis.call('DEL', content) else redis.call('SET', content, json) end
redis.call('ZADD', schedule, due_next, row)
redis.call('ZADD', refreshed, now, row)
return 1
