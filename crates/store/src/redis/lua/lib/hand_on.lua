-- Carts that are handed on. `user` is what `login:` holds, if anything; an unconfirmed one is marked there.
local dropped = 0
local function is_confirmed(user)
  return user and not string.find(user .. '\0', '%z%?%z') and 'true' or 'false'
end
-- The record in the outbox or in the queue of events.
local function record_of(why, id, user, seen, cart, views)
  local is_text, name = pcall(cjson.encode, name_of(user) or '')
  if not user or not is_text then name = 'null' end
  return '{"id":"' .. id .. '","user":' .. name .. ',"confirmed":' .. is_confirmed(user)
    .. ',"seen":"' .. seen .. '","cart":' .. cart .. ',"viewed":' .. views
    .. ',"why":"' .. why .. '"}'
end
-- Adds a cart to the stream or to the queue, as `action` says. Both keep `entries`; `dropped` counts the
-- events that leave the queue for that. Returns the reply of Redis.
local function hand_on(why, id, user, seen, cart, views)
  if action == 'stream' then
    return redis.pcall('XADD', expired, 'MAXLEN', '~', entries, '*', 'id', id,
      'user', name_of(user) or '', 'seen', seen, 'cart', cart, 'viewed', views,
      'confirmed', is_confirmed(user), 'why', why)
  end
  local reply = redis.pcall('RPUSH', events, record_of(why, id, user, seen, cart, views))
  if type(reply) == 'number' and reply > tonumber(entries) then
    redis.call('LPOP', events)
    dropped = dropped + 1
  end
  return reply
end
