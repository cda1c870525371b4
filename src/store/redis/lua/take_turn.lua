-- Takes or keeps a lease on a task for `ms` milliseconds. Begins with a write that takes no memory, so that
-- a Redis that is full grants it: delivered events make room.
local holder = redis.call('GET', turn)
if holder and holder ~= who then return 0 end
redis.call('DEL', turn)
redis.call('SET', turn, who, 'PX', ms)
return 1
