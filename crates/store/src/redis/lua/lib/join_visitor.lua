-- Gives what a visitor's token has to the session of `token`, and removes the visitor's token. Returns
-- whether there was anything.
local function join_visitor()
  if redis.call('ZREM', visitors, visitor) == 0 then return false end
  local own_views, own_cart = viewed_prefix .. token, cart_prefix .. token
  local views, cart = viewed_prefix .. visitor, cart_prefix .. visitor
  -- pcall: another program's value under a session's keys must not prevent a login.
  redis.pcall('ZUNIONSTORE', own_views, 2, own_views, views, 'AGGREGATE', 'MAX')
  redis.pcall('ZREMRANGEBYRANK', own_views, 0, -views_max - 1)
  local held, size = redis.pcall('HGETALL', cart), redis.pcall('HLEN', own_cart)
  if not held.err and type(size) == 'number' then
    local pairs_of = {}
    for at = 1, #held, 2 do pairs_of[#pairs_of + 1] = {held[at], held[at + 1]} end
    table.sort(pairs_of, function(one, other) return one[1] < other[1] end)
    for _, pair in ipairs(pairs_of) do
      local item, count = pair[1], pair[2]
      local had = redis.call('HGET', own_cart, item)
      if not had and size < tonumber(cart_max) then
        redis.call('HSET', own_cart, item, count)
        size = size + 1
      elseif had and (tonumber(had) or 0) < (tonumber(count) or 0) then
        redis.call('HSET', own_cart, item, count)
      end
    end
  end
  redis.call('UNLINK', views, cart)
  return true
end
