-- Counts a purge, adds it to the last ones and to the table, and tells it; only where the asker knows the
-- era. Its marks follow the named arguments. `kept` and `kept_bytes` bound the list of the last purges.
-- Returns the number, or 0.
if era ~= known_era then return 0 end
number = number + 1
for at = first_arg, #ARGV do
  redis.call('BITFIELD', purged, 'SET', 'i64', '#' .. ARGV[at], number)
end
redis.call('SETRANGE', purged, place_of(number), nonce)
local marks = table.concat(ARGV, ' ', first_arg)
local length = redis.call('RPUSH', purging, marks)
-- A first entry is the whole list: the earlier list may have been evicted.
held = length == 1 and #marks or held + #marks
while length > tonumber(kept) or (held > tonumber(kept_bytes) and length > 0) do
  held, length = held - #redis.call('LPOP', purging), length - 1
end
redis.call('HSET', purges, 'number', number, 'held', held)
redis.pcall('PUBLISH', purge_channel, number)
return number
