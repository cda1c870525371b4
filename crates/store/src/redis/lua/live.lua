-- The user of a token whose session is not over, and since when it is known; an empty list otherwise.
-- `may_note` is 1 where the time may be noted at which a session without a known login was first seen. An
-- app that ends sessions itself does not remove such notes: for each new one some old ones are checked.
local user = redis.call('HGET', login, token)
if not user or is_over(user) then return {} end
if absolute ~= '' and not began then
  began = now
  if may_note == '1' then
    redis.pcall('ZADD', since, 'NX', began, token)
    local some = redis.pcall('ZRANDMEMBER', since, 4)
    for _, noted in ipairs(some) do
      if redis.call('HEXISTS', login, noted) == 0 then redis.pcall('ZREM', since, noted) end
    end
  end
end
return {user, began or ''}
