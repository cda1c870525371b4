-- Takes rows that are due. Those without a delay are removed. Returns how many were removed, when the next
-- is due (or nothing), and row, delay, due time and fence of each that was taken.
local fence = string.format('%.17g', now + lease)
local due = redis.call('ZRANGE', schedule, '-inf', now, 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
local taken, removed = {}, 0
for at = 1, #due, 2 do
  local row = due[at]
  local every = redis.call('ZSCORE', delay, row)
  if every and tonumber(every) > 0 then
    redis.call('ZADD', schedule, fence, row)
    taken[#taken + 1] = row
    taken[#taken + 1] = every
    taken[#taken + 1] = due[at + 1]
    taken[#taken + 1] = fence
  else
    redis.call('ZREM', delay, row)
    redis.call('ZREM', schedule, row)
    redis.call('ZREM', refreshed, row)
    redis.call('ZREM', unschedule, row)
    redis.call('UNLINK', row_prefix .. row)
    removed = removed + 1
  end
end
return {removed, redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2] or '', taken}
