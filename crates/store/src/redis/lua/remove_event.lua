-- Removes an event by its value: it may be elsewhere in the queue by now, or gone. It is mostly the first,
-- and nothing is searched then.
if redis.call('LINDEX', events, 0) == event then
  redis.call('LPOP', events)
  return 1
end
return redis.call('LREM', events, 1, event)
