-- A step of a walk over the members of `recent:` that have no user. Returns where the next one begins, and the members.
local page = redis.call('ZSCAN', recent, cursor, 'COUNT', count)
local found = {}
for at = 1, #page[2], 2 do
  local token = page[2][at]
  if redis.call('HEXISTS', login, token) == 0 then found[#found + 1] = token end
end
return {page[1], found}
