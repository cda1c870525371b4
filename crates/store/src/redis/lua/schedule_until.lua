-- Schedules the rows behind the arguments until a time, where the schedule has fewer than `most`, or moves
-- that time on. A row that is scheduled without an end stays as it is. Returns how many were refused.
local refused = 0
for at = first_arg, #ARGV do
  local row = ARGV[at]
  local known = tonumber(redis.call('ZSCORE', delay, row) or 0)
  if known > 0 then
    if redis.call('ZSCORE', unschedule, row) then
      redis.call('ZADD', unschedule, 'GT', end_time, row)
      if known ~= tonumber(every) then
        redis.call('ZADD', delay, every, row)
        redis.call('ZADD', schedule, due, row)
      end
    end
  elseif redis.call('ZCARD', delay) >= tonumber(most) then
    refused = refused + 1
  else
    redis.call('ZADD', delay, every, row)
    redis.call('ZADD', schedule, due, row)
    redis.call('ZADD', unschedule, end_time, row)
  end
end
return refused
