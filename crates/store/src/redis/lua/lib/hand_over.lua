-- Moves a cart and views into a record of `handovers`, under `field`; a key that is false stays. Returns the record,
-- which is empty where there is nothing. pcall: another program's value under these keys must not prevent a login.
local function hand_over(of_user, from_cart, from_viewed)
  local held = from_cart and redis.pcall('HGETALL', from_cart) or {}
  local seen = from_viewed and redis.pcall('ZRANGE', from_viewed, 0, -1, 'WITHSCORES') or {}
  if held.err then held = {} end
  if seen.err then seen = {} end
  if from_cart then redis.call('UNLINK', from_cart) end
  if from_viewed then redis.call('UNLINK', from_viewed) end
  if #held == 0 and #seen == 0 then return '' end
  local record = cmsgpack.pack({now, of_user, held, seen})
  redis.call('HSET', handovers, field, record)
  return record
end
