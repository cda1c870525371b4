-- Removes a record of `handover:` that has been taken over, unless a later one has its field.
if redis.call('HGET', handovers, field) ~= record then return 0 end
return redis.call('HDEL', handovers, field)
