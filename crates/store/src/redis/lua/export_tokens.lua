-- What is stored of the tokens that follow the named arguments, for another store. For each there is a list: user,
-- time of the last visit, time of the login, time when it was first seen, views with their times, cart; or false.
local tokens, found = {}, {}
for at = first_arg, #ARGV do tokens[#tokens + 1] = ARGV[at] end
local users = redis.call('HMGET', login, unpack(tokens))
local function cart_in(key)
  local size = redis.pcall('HLEN', key)
  if type(size) ~= 'number' or size == 0 then return {} end
  if size <= tonumber(cart_max) then return redis.call('HGETALL', key) end
  return redis.call('HSCAN', key, 0, 'COUNT', cart_max)[2]
end
for at, token in ipairs(tokens) do
  local is_visitor = string.sub(token, 1, 2) == 'v,'
  local user = not is_visitor and users[at]
  local seen = redis.call('ZSCORE', is_visitor and visitors or recent, token)
  found[at] = false
  if user or seen then
    local index = user and redis.call('ZSCORE', tokens_prefix .. name_of(user), token)
    local noted = user and redis.call('ZSCORE', since, token)
    local views = redis.pcall('ZRANGE', viewed_prefix .. token, -views_max, -1, 'WITHSCORES')
    if views.err then views = {} end
    found[at] = {user or '', seen or '', index or '', noted or '', views, cart_in(cart_prefix .. token)}
  end
end
return found
