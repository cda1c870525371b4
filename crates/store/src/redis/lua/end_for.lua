-- Ends a session because its visitor logs in with a token of another shard, and notes in `handover:` what the new
-- session gets: cart and views, where the session is the same user's and the new one has none. Returns the record, which is empty where there
-- is nothing; how many carts were handed on, dropped and lost, and why. Other processes are told.
local before = redis.call('HGET', login, old)
local record = ''
-- The first write takes no memory: Redis lets the rest through then, although it is full.
redis.call('ZREM', since, old)
if before and name_of(before) == name_of(user) then
  record = hand_over(user, has_cart ~= '1' and old_cart, has_views ~= '1' and old_viewed)
end
dismiss(old, old_id, before)
redis.pcall('PUBLISH', gone_channel, old)
return {record, handed_on, dropped, lost, refusal}
