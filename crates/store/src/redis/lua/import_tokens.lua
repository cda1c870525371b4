-- Replaces what is stored of tokens by records of another store, and returns how many were not there like that. For
-- each record there are arguments: token, user, time of the last visit, `a` (login) or `f` (first seen) and that
-- time, number of views, number of items in the cart, each view with the time before it, and each item with its count.
-- What is empty is unknown. A record that is there is not written: nothing is replicated for it.
local changed = 0
local function is_score(score, wanted)
  return (score and tonumber(score) or nil) == tonumber(wanted)
end
local function has_views(key, first, views)
  local held = redis.pcall('ZRANGE', key, 0, -1, 'WITHSCORES')
  if held.err or #held ~= 2 * views then return false end
  for at = 1, #held, 2 do
    if held[at] ~= ARGV[first + at] or not is_score(held[at + 1], ARGV[first + at - 1]) then return false end
  end
  return true
end
local function has_cart(key, first, items)
  if redis.pcall('HLEN', key) ~= items then return false end
  for at = first, first + 2 * items - 1, 2 do
    if redis.call('HGET', key, ARGV[at]) ~= ARGV[at + 1] then return false end
  end
  return true
end
local at = first_arg
while at <= #ARGV do
  local token, user, seen, kind, began = unpack(ARGV, at, at + 4)
  local views, items = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
  local first_view = at + 7
  local first_item = first_view + 2 * views
  at = first_item + 2 * items
  local is_visitor = string.sub(token, 1, 2) == 'v,'
  local set = is_visitor and visitors or recent
  local viewed, cart = viewed_prefix .. token, cart_prefix .. token
  local index = user ~= '' and tokens_prefix .. name_of(user)
  local had, was_seen = redis.call('HGET', login, token), redis.call('ZSCORE', set, token)
  local is_there = (had or '') == user and is_score(was_seen, seen) and (had or was_seen)
    and is_score(redis.call('ZSCORE', since, token), kind == 'f' and began or '')
    and (not index or is_score(redis.call('ZSCORE', index, token), kind == 'a' and began or ''))
    and has_views(viewed, first_view, views) and has_cart(cart, first_item, items)
  if not is_there then
    changed = changed + 1
    -- First what takes memory: where Redis is full, the script ends here, and the record is as it was.
    if user ~= '' then redis.call('HSET', login, token, user) end
    if seen ~= '' then redis.call('ZADD', set, seen, token) end
    if user == '' then redis.call('HDEL', login, token) end
    if seen == '' then redis.call('ZREM', set, token) end
    if had then redis.call('ZREM', tokens_prefix .. name_of(had), token) end
    if index then redis.call('ZREM', index, token) end
    if index and kind == 'a' then redis.call('ZADD', index, began, token) end
    redis.call('ZREM', since, token)
    if kind == 'f' then redis.call('ZADD', since, began, token) end
    redis.call('UNLINK', viewed, cart)
    if views > 0 then redis.call('ZADD', viewed, unpack(ARGV, first_view, first_item - 1)) end
    if items > 0 then redis.call('HSET', cart, unpack(ARGV, first_item, at - 1)) end
  end
end
return changed
