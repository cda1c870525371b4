-- Reads `era`, `number`, `key` and `held` of `purges:`, and begins another era where it has to: where there
-- is none, where the table was evicted, and where the asker knows a later era, another history, or a number
-- too long ago to compare. The store was set back then, and the numbers that pages carry may mean other
-- purges. `is_new` says whether an era begins here.
--
-- The first write takes no memory. Redis lets a script go on after it although it is full, and purges need
-- little: keys of a fixed size, and a bounded list.
redis.call('HDEL', purges, '')
local function place_of(a_number)
  return (marks_before + a_number % nonces_kept) * 8
end
local function nonce_of(a_number)
  if a_number == 0 then return '' end
  return redis.call('GETRANGE', purged, place_of(a_number), place_of(a_number) + 7)
end
local era, number, key, held = unpack(redis.call('HMGET', purges, 'era', 'number', 'key', 'held'))
era, number, held = tonumber(era or ''), tonumber(number or '') or 0, tonumber(held or '') or 0
local known_era, known = tonumber(asked_era), tonumber(asked_number)
local is_new = not era or era < 1 or not key or known_era > era
if not is_new and number > 0 then is_new = redis.call('EXISTS', purged) == 0 end
if not is_new and era == known_era and known > 0 then
  is_new = known > number or number - known >= tonumber(nonces_kept)
    or nonce_of(known) ~= asked_nonce
end
if is_new then
  era, number, key, held = tonumber(next_era), 0, next_key, 0
  redis.call('HSET', purges, 'era', era, 'number', 0, 'key', key, 'held', 0)
  redis.call('UNLINK', purging, purged)
  redis.pcall('PUBLISH', purge_channel, 0)
end
