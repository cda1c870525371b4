-- Removes the batch of the outbox that begins with this record.
if redis.call('LINDEX', expiring, 0) ~= first then return 0 end
redis.call('LTRIM', expiring, count, -1)
return 1
