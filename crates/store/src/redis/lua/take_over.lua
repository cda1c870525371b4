-- Gives a session what a record of another shard holds for it, where `login:` holds the record's user. What a
-- session had moves where the new one has none of it; what a visitor's token had is added. Done twice it is as done
-- once. Returns whether the session is there.
local _, user, held, seen = unpack(cmsgpack.unpack(record))
if name_of(redis.call('HGET', login, token)) ~= name_of(user) then return 0 end
local is_visitor = string.sub(field, 1, 1) == 'v'
if #seen > 0 and (is_visitor or redis.call('EXISTS', viewed) == 0) then
  for at = 1, #seen, 2 do redis.pcall('ZADD', viewed, 'GT', seen[at + 1], seen[at]) end
  redis.pcall('ZREMRANGEBYRANK', viewed, 0, -views_max - 1)
end
if #held > 0 and (is_visitor or redis.call('EXISTS', cart) == 0) then
  local size = redis.pcall('HLEN', cart)
  local pairs_of = {}
  for at = 1, #held, 2 do pairs_of[#pairs_of + 1] = {held[at], held[at + 1]} end
  table.sort(pairs_of, function(one, other) return one[1] < other[1] end)
  for _, pair in ipairs(type(size) == 'number' and pairs_of or {}) do
    local item, count = pair[1], pair[2]
    local had = redis.call('HGET', cart, item)
    if not had and (not is_visitor or size < tonumber(cart_max)) then
      redis.call('HSET', cart, item, count)
      size = size + 1
    elseif had and (tonumber(had) or 0) < (tonumber(count) or 0) then
      redis.call('HSET', cart, item, count)
    end
  end
end
return 1
