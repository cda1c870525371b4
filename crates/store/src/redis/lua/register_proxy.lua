-- Writes the entry of `who` with the server's time, and removes those that are older than `lives_ms`. Returns the
-- time, era and number of the purges, the state of a move, and for each proxy its field, its value, and what it has seen of purges.
-- An entry is `1 <milliseconds> <text>`; that of another version has its time in the same place.
--
-- The first write takes no memory, so that a full Redis keeps the register, too.
redis.call('HDEL', fleet, '')
local lives, time = tonumber(lives_ms), redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all, found = redis.call('HGETALL', fleet), {}
local function add(field, value)
  table.insert(found, {field, value, redis.call('HGET', seen, field) or ''})
end
for at = 1, #all, 2 do
  local field, value = all[at], all[at + 1]
  local written = tonumber(string.match(value, '^%d+ (%d+) ') or '')
  if field == who then
    -- It is written below.
  elseif not written or math.abs(now - written) > lives then
    redis.call('HDEL', fleet, field)
  else
    add(field, value)
  end
end
if #found < tonumber(most) then
  local value = string.format('1 %.0f ', now) .. entry
  redis.call('HSET', fleet, who, value)
  add(who, value)
end
redis.call('PEXPIRE', fleet, lives)
local counted = redis.call('HMGET', purges, 'era', 'number')
local state = redis.call('GET', moving) or ''
return {now, tonumber(counted[1] or '') or 0, tonumber(counted[2] or '') or 0, state, found}
