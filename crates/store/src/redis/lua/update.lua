-- A login, or a visit as in the chapter's layout (Redis in Action, chapter 2). `item` is empty if no item
-- was viewed; `last_dropped` is the rank of the newest view that is not kept. `is_counted` is 1 where the
-- popularity of the item is in this shard.
local before = redis.call('HGET', login, token)
redis.call('HSET', login, token, user)
redis.call('ZADD', recent, 'GT', now, token)
if before and name_of(before) ~= name_of(user) then
  redis.call('ZREM', tokens_prefix .. name_of(before), token)
  before = nil
end
redis.call('ZADD', tokens_prefix .. name_of(user), 'NX',
  before and redis.call('ZSCORE', since, token) or now, token)
redis.call('ZREM', since, token)
if item ~= '' then
  redis.call('ZADD', viewed, 'GT', now, item)
  redis.call('ZREMRANGEBYRANK', viewed, 0, last_dropped)
  if is_counted == '1' then redis.call('ZINCRBY', popularity, -1, item) end
end
