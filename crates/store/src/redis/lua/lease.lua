-- Asks for the lease on a page. Returns 1 where it is granted, 2 where another fetch has found the page
-- unshareable, else 0.
local holder = redis.call('GET', lease)
if holder == 'unshareable' then return 2 end
if holder and holder ~= who then return 0 end
redis.call('SET', lease, who, 'PX', ms)
return 1
