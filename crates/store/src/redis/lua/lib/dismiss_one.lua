-- Ends a session that cannot wait, with all that it has, and hands on its cart. Without an id the cart is
-- lost. `action` may also be `keep` (the cart is lost) or `none` (it goes, and is not counted). `handed_on`
-- and `lost` count, and `refusal` says why one was lost. What takes no memory comes first: Redis lets a
-- script go on after such a write although it is full.
local handed_on, lost, refusal = 0, 0, ''
local function hand_on_now(id, user, seen, cart, views)
  if action == 'keep' then return { err = 'carts cannot be handed on now' } end
  if action ~= 'outbox' then return hand_on('expired', id, user, seen, cart, views) end
  local length = redis.pcall('LLEN', expiring)
  if type(length) == 'number' and length >= tonumber(outbox_max) then
    return { err = 'too many carts already wait for the file' }
  end
  return redis.pcall('RPUSH', expiring, record_of('expired', id, user, seen, cart, views))
end
local function dismiss(token, id, user)
  local seen = action ~= 'none' and redis.call('ZSCORE', recent, token)
  local cart = seen and cart_in(cart_prefix .. token)
  local views = cart and views_in(viewed_prefix .. token)
  redis.call('UNLINK', viewed_prefix .. token, cart_prefix .. token)
  redis.call('HDEL', login, token)
  redis.call('ZREM', recent, token)
  redis.call('ZREM', since, token)
  if user then redis.call('ZREM', tokens_prefix .. name_of(user), token) end
  if not cart then return end
  local reply = { err = 'its session began meanwhile' }
  if id then reply = hand_on_now(id, user, seen, cart, views) end
  if type(reply) == 'table' and reply.err then
    refusal, lost = reply.err, lost + 1
  else
    handed_on = handed_on + 1
  end
end
