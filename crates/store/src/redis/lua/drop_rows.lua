-- Removes at most `most` rows whose end has come, with their content. Returns how many.
local over = redis.call('ZRANGE', unschedule, '-inf', now, 'BYSCORE', 'LIMIT', 0, most)
for _, row in ipairs(over) do
  redis.call('ZREM', delay, row)
  redis.call('ZREM', schedule, row)
  redis.call('ZREM', refreshed, row)
  redis.call('ZREM', unschedule, row)
  redis.call('UNLINK', row_prefix .. row)
end
return #over
