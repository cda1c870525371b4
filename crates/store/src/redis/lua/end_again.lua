-- Ends a session that was ended before at `ended`, unless it has logged in since. Other processes are told.
local user = redis.call('HGET', login, token)
if not user then return 0 end
local began = tonumber(redis.call('ZSCORE', tokens_prefix .. name_of(user), token) or '')
if began and began > tonumber(ended) then return 0 end
redis.call('HDEL', login, token)
redis.call('ZREM', recent, token)
redis.call('ZREM', since, token)
redis.call('UNLINK', viewed, cart)
redis.call('ZREM', tokens_prefix .. name_of(user), token)
redis.pcall('PUBLISH', gone_channel, token)
return 1
