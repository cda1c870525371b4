-- The first records of the outbox, at most `most`, and none behind `bytes_max` bytes; and how many there are
-- in all.
local records, room = {}, tonumber(bytes_max)
for at = 0, most - 1 do
  local record = room > 0 and redis.call('LINDEX', expiring, at)
  if not record then break end
  records[#records + 1] = record
  room = room - #record
end
return {records, redis.call('LLEN', expiring)}
