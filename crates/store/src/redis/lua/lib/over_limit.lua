-- How many of the oldest members of this set have to go: those over `keep`, and those that were last seen
-- before `before`.
local function over_limit(set)
  local over = redis.call('ZCARD', set) - tonumber(keep)
  if tonumber(before) > 0 then
    over = math.max(over, redis.call('ZCOUNT', set, '-inf', '(' .. before))
  end
  return over
end
