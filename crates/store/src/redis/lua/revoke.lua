-- A logout. Other processes are told.
local user = redis.call('HGET', login, token)
redis.call('HDEL', login, token)
redis.call('ZREM', recent, token)
redis.call('ZREM', since, token)
redis.call('UNLINK', viewed, cart)
if user then redis.call('ZREM', tokens_prefix .. name_of(user), token) end
redis.pcall('PUBLISH', gone_channel, token)
return 1
