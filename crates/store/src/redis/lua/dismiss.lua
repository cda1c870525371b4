-- Ends a session that its visitor has not ended. Returns how many carts were handed on, dropped and lost,
-- and why. Other processes are told.
dismiss(token, id, redis.call('HGET', login, token))
redis.pcall('PUBLISH', gone_channel, token)
return {handed_on, dropped, lost, refusal}
