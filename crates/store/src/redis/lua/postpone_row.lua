-- Puts a row off, where the schedule still holds the fence. Returns whether it did.
local due = redis.call('ZSCORE', schedule, row)
if not due or tonumber(due) ~= tonumber(fence) then return 0 end
redis.call('ZADD', schedule, due_next, row)
return 1
