-- Schedules a row, at most `most` of them. Returns 0 where it is refused.
if not redis.call('ZSCORE', delay, row) and redis.call('ZCARD', delay) >= tonumber(most) then
  return 0
end
redis.call('ZADD', delay, every, row)
redis.call('ZADD', schedule, now, row)
redis.call('ZREM', unschedule, row)
return 1
