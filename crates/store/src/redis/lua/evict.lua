-- Removes the oldest sessions over the limit, at most a batch, and returns how many. A member that is no
-- token is removed from `login:` and `recent:` only: `viewed:` with nothing behind it is the popularity set.
local count = math.min(over_limit(recent), tonumber(batch))
if count <= 0 then return 0 end
local oldest = redis.call('ZRANGE', recent, 0, count - 1)
local doomed = {}
for _, token in ipairs(oldest) do
  if is_token(token) then
    doomed[#doomed + 1] = viewed_prefix .. token
    if with_carts == '1' then doomed[#doomed + 1] = cart_prefix .. token end
  end
end
if #doomed > 0 then redis.call('UNLINK', unpack(doomed)) end
unindex(oldest)
redis.call('HDEL', login, unpack(oldest))
-- They are the first by rank: so Redis need not look for each.
redis.call('ZREMRANGEBYRANK', recent, 0, count - 1)
return #oldest
