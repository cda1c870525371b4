-- Whether the session of `token` is over at `now`: it was not seen for `idle` seconds, or its login was
-- `absolute` seconds ago. An empty bound does not hold. Sets `began`, the time of the login, where that
-- matters and is known.
local began
local function is_over(user)
  if idle ~= '' then
    local seen = tonumber(redis.call('ZSCORE', recent, token) or '')
    if seen and now - seen >= tonumber(idle) then return true end
  end
  if absolute ~= '' then
    began = redis.call('ZSCORE', tokens_prefix .. name_of(user), token)
      or redis.call('ZSCORE', since, token)
    return began and now - tonumber(began) >= tonumber(absolute)
  end
  return false
end
