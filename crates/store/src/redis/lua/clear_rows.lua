-- Removes at most `most` rows with their content. Returns whether there are more.
local rows = redis.call('ZRANGE', delay, 0, most - 1)
for _, row in ipairs(rows) do redis.call('UNLINK', row_prefix .. row) end
if #rows > 0 then
  redis.call('ZREM', delay, unpack(rows))
  return 1
end
redis.call('UNLINK', schedule, refreshed, unschedule)
return 0
