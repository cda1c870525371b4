-- Sets the counts of the items that follow the named arguments, each with its count; a count of 0 or less
-- takes the item out. Returns the cart; 1 where it would hold more than `cart_max` items, and nothing is
-- written; or 2 where another program has put so much into it that it has to be read in parts.
local function set_cart()
  local size, grows = redis.call('HLEN', cart), false
  for at = first_arg, #ARGV, 2 do
    local is_there = redis.call('HEXISTS', cart, ARGV[at]) == 1
    if tonumber(ARGV[at + 1]) > 0 then
      if not is_there then size, grows = size + 1, true end
    elseif is_there then
      size = size - 1
    end
  end
  if grows and size > tonumber(cart_max) then return 1 end
  for at = first_arg, #ARGV, 2 do
    if tonumber(ARGV[at + 1]) > 0 then
      redis.call('HSET', cart, ARGV[at], ARGV[at + 1])
    else
      redis.call('HDEL', cart, ARGV[at])
    end
  end
  if redis.call('HLEN', cart) > tonumber(cart_max) then return 2 end
  return redis.call('HGETALL', cart)
end
