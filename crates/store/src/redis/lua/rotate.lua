-- A login that replaces a token. Returns the user's other sessions that had to go, how many carts were
-- handed on, dropped and lost, and why; or nothing, where an id is missing.
--
-- Views and cart of the old token move where it had the same user, and the new one has none. What a token
-- without a user has left may be anybody's, and is removed. Only `most` sessions of the user stay (0: any
-- number). `may_lose` is 1 where a cart whose session has no id here may be lost. `old` and `visitor` are
-- empty where there is none. Tokens with their ids follow the named arguments. Entries of the index whose
-- sessions another program has ended are removed where they are met.
local ids = {}
for at = first_arg, #ARGV, 2 do ids[ARGV[at]] = ARGV[at + 1] end
most = tonumber(most)
local index = tokens_prefix .. name_of(user)
-- Whether the cart of a session that may have to go would be lost for want of an id: nothing is done then.
local function lacks_id()
  local over = redis.call('ZCARD', index) + 1 - most
  if over <= 0 then return false end
  for _, one in ipairs(redis.call('ZRANGE', index, 0, per_user_max - 1)) do
    if over <= 0 then return false end
    if one ~= token and one ~= old and name_of(redis.call('HGET', login, one)) == name_of(user) then
      if not ids[one] and redis.call('EXISTS', cart_prefix .. one) == 1 then return true end
      over = over - 1
    end
  end
  return false
end
if action ~= 'none' and most > 0 and may_lose ~= '1' and lacks_id() then return false end
local taken = redis.call('HGET', login, token)
if taken and name_of(taken) ~= name_of(user) then dismiss(token, id, taken) end
if old ~= '' then
  local before = redis.call('HGET', login, old)
  if name_of(before) == name_of(user) then
    if redis.call('EXISTS', old_viewed) == 1 then redis.call('RENAMENX', old_viewed, viewed) end
    if redis.call('EXISTS', old_cart) == 1 then redis.call('RENAMENX', old_cart, cart) end
  end
  dismiss(old, old_id, before)
end
redis.call('HSET', login, token, user)
redis.call('ZADD', recent, 'GT', now, token)
redis.call('ZREM', since, token)
redis.call('ZADD', index, now, token)
if visitor ~= '' then join_visitor() end
local gone = {}
local size = redis.call('ZCARD', index)
local looks = 4
if most > 0 and size > most then looks = tonumber(per_user_max) end
local oldest = size > 1 and redis.call('ZRANGE', index, 0, looks - 1) or {}
local held = #oldest > 0 and redis.call('HMGET', login, unpack(oldest)) or {}
for at, one in ipairs(oldest) do
  if not held[at] or name_of(held[at]) ~= name_of(user) then
    redis.call('ZREM', index, one)
    size, held[at] = size - 1, false
  end
end
for at, one in ipairs(oldest) do
  if most == 0 or size <= most then break end
  if held[at] and one ~= token and is_token(one) then
    dismiss(one, ids[one], held[at])
    size, gone[#gone + 1] = size - 1, one
  end
end
local ended = table.concat(gone, ' ')
if old ~= '' then ended = ended .. ' ' .. old end
if ended ~= '' then redis.pcall('PUBLISH', gone_channel, ended) end
return {gone, handed_on, dropped, lost, refusal}
