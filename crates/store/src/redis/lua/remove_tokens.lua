-- Removes the tokens that follow the named arguments with all that they have, and returns how many were there. A token
-- whose login, or if that is unknown whose last visit, was at `before` or later stays; empty: none stays.
local removed, bound = 0, tonumber(before)
for at = first_arg, #ARGV do
  local token = ARGV[at]
  local user = redis.call('HGET', login, token)
  local index = user and tokens_prefix .. name_of(user)
  local seen = redis.call('ZSCORE', recent, token) or redis.call('ZSCORE', visitors, token)
  local began = index and redis.call('ZSCORE', index, token) or redis.call('ZSCORE', since, token) or seen
  if not (bound and began and tonumber(began) >= bound) then
    if user or seen then removed = removed + 1 end
    redis.call('UNLINK', viewed_prefix .. token, cart_prefix .. token)
    redis.call('HDEL', login, token)
    redis.call('ZREM', recent, token)
    redis.call('ZREM', visitors, token)
    redis.call('ZREM', since, token)
    if index then redis.call('ZREM', index, token) end
  end
end
return removed
