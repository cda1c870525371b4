-- Takes or keeps a lease on a task for `ms` milliseconds. Begins with a write that takes no memory, so that
-- a Redis that is full grants it: delivered events make room.
local holder = redis.call('GET', lease)
if holder and holder ~= who then return 0 end
redis.call('DEL', lease)
redis.call('SET', lease, who, 'PX', ms)
return 1
