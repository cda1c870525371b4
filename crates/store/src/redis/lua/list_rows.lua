-- The schedule from the place `first` to `last`, in the order of due times. Returns row, due time, delay and
-- time of the last good fetch of each; what is missing is empty.
local listed = {}
local due = redis.call('ZRANGE', schedule, first, last, 'WITHSCORES')
for at = 1, #due, 2 do
  listed[#listed + 1] = due[at]
  listed[#listed + 1] = due[at + 1]
  listed[#listed + 1] = redis.call('ZSCORE', delay, due[at]) or ''
  listed[#listed + 1] = redis.call('ZSCORE', refreshed, due[at]) or ''
end
return listed
