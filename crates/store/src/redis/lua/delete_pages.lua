-- Removes pages, whose keys follow the named keys, and unbooks them. Returns the bytes of pages.
for at = first_key, #KEYS do
  local before, ended = booked_for(KEYS[at])
  redis.call('UNLINK', KEYS[at])
  if before > 0 then unbook(before, ended) end
end
if redis.call('EXISTS', page_bytes) == 1 then
  redis.call('HSET', page_bytes, 'all', string.format('%.0f', all))
end
return math.max(all, 0)
