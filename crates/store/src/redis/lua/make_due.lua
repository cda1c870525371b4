-- Makes the rows behind the arguments due, unless they are due already. Returns how many are scheduled.
local known = 0
for at = first_arg, #ARGV do
  local row = ARGV[at]
  if tonumber(redis.call('ZSCORE', delay, row) or 0) > 0 then
    redis.call('ZADD', schedule, 'LT', now, row)
    known = known + 1
  end
end
return known
