-- Takes sessions out of the indexes. `login:` must still hold their users.
local function unindex(tokens)
  local users = redis.call('HMGET', login, unpack(tokens))
  for at, token in ipairs(tokens) do
    if users[at] then redis.call('ZREM', tokens_prefix .. name_of(users[at]), token) end
  end
  redis.call('ZREM', since, unpack(tokens))
end
