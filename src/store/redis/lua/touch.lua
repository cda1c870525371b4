-- Renews the sessions of visits, each only where `login:` still holds that user. `viewed:<token>` of each
-- visit follows the named keys. For each visit there are arguments: token, user, time, number of items, and
-- their times and ids. Returns a digit for each visit, 1 where it was that user's: one string costs less
-- than an array.
local at, held = first_arg, {}
for visit = first_key, #KEYS do
  local token, user, seen, items = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  at = at + 4
  if name_of(redis.call('HGET', login, token)) == name_of(user) then
    held[#held + 1] = '1'
    redis.call('ZADD', recent, 'GT', seen, token)
    if items > 0 then
      -- pcall: one key that is no ZSET must not hold up the visits behind it.
      redis.pcall('ZADD', KEYS[visit], 'GT', unpack(ARGV, at, at + 2 * items - 1))
      redis.pcall('ZREMRANGEBYRANK', KEYS[visit], 0, -keep - 1)
    end
  else
    held[#held + 1] = '0'
  end
  at = at + 2 * items
end
return table.concat(held)
