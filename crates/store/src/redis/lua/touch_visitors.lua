-- Records visits under visitors' tokens, each only where the token is there. As `touch`, without a user.
local at, held = first_arg, {}
for visit = first_key, #KEYS do
  local token, seen, items = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  at = at + 3
  if redis.call('ZSCORE', visitors, token) then
    held[#held + 1] = '1'
    redis.call('ZADD', visitors, 'GT', seen, token)
    if items > 0 then
      redis.pcall('ZADD', KEYS[visit], 'GT', unpack(ARGV, at, at + 2 * items - 1))
      redis.pcall('ZREMRANGEBYRANK', KEYS[visit], 0, -keep - 1)
    end
  else
    held[#held + 1] = '0'
  end
  at = at + 2 * items
end
return table.concat(held)
