-- Renews the sessions of visits, each only where `login:` still holds that user. `viewed:<token>` of each
-- visit follows the named keys. For each visit there are arguments: token, user, time, number of items, and
-- their times and ids. Returns a digit for each visit, 1 where it was that user's: one string costs less
-- than an array. What is one key for all visits is read and written by one call.
local at, tokens, starts = first_arg, {}, {}
for visit = 1, #KEYS - first_key + 1 do
  tokens[visit], starts[visit] = ARGV[at], at
  at = at + 4 + 2 * tonumber(ARGV[at + 3])
end
if #tokens == 0 then return '' end
local users, held, seen = redis.call('HMGET', login, unpack(tokens)), {}, {}
for visit, token in ipairs(tokens) do
  at = starts[visit]
  held[visit] = name_of(users[visit]) == name_of(ARGV[at + 1]) and '1' or '0'
  if held[visit] == '1' then
    seen[#seen + 1] = ARGV[at + 2]
    seen[#seen + 1] = token
  end
end
-- The first write, and not by pcall: where Redis is full, the script ends here with the error.
if #seen > 0 then redis.call('ZADD', recent, 'GT', unpack(seen)) end
for visit = 1, #tokens do
  at = starts[visit]
  local items = tonumber(ARGV[at + 3])
  if held[visit] == '1' and items > 0 then
    -- pcall: one key that is no ZSET must not hold up the visits behind it.
    local views = KEYS[first_key + visit - 1]
    redis.pcall('ZADD', views, 'GT', unpack(ARGV, at + 4, at + 3 + 2 * items))
    redis.pcall('ZREMRANGEBYRANK', views, 0, -keep - 1)
  end
end
return table.concat(held)
