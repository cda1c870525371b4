-- Hands on the carts of idle sessions, each only where it was not seen again, and notes up to which.
-- `known_mark` is what `cartidle:` held when the sessions were found: where it has changed, another process
-- was faster, and nothing is done. From a queue of `full` events on, carts wait. Token, time and id of each
-- session follow the named arguments. Returns how many were handed on; 1 where it came to the end, 2 where
-- it ended early, 0 where it must not go on; and what refused the carts.
local room = tonumber(bytes_max)
if (redis.call('GET', idle_reported) or '') ~= known_mark then return {0, 0, ''} end
if action == 'outbox' and redis.call('EXISTS', expiring) == 1 then return {0, 0, ''} end
local records, handed_on, goes_on, refusal, up_to = {}, 0, 1, '', nil
for at = first_arg, #ARGV, 3 do
  local token, id = ARGV[at], ARGV[at + 2]
  local seen = id ~= '' and redis.call('ZSCORE', recent, token)
  local cart = seen and tonumber(seen) == tonumber(ARGV[at + 1]) and cart_in(cart_prefix .. token)
  if cart then
    if action == 'queue' and redis.call('LLEN', events) >= tonumber(full) then
      goes_on = 0
      break
    end
    local user = redis.call('HGET', login, token)
    local views = views_in(viewed_prefix .. token)
    if action == 'outbox' then
      records[#records + 1] = record_of('idle', id, user, seen, cart, views)
    else
      local reply = hand_on('idle', id, user, seen, cart, views)
      if type(reply) == 'table' and reply.err then
        refusal, goes_on = reply.err, 0
        break
      end
    end
    handed_on = handed_on + 1
    room = room - #cart - #views
  end
  up_to = at
  if room <= 0 then
    goes_on = 2
    break
  end
end
if #records > 0 then
  local reply = redis.pcall('RPUSH', expiring, unpack(records))
  if type(reply) == 'table' and reply.err then return {0, 0, reply.err} end
end
if up_to then
  local token, mark = ARGV[up_to], ARGV[up_to + 1]
  -- No key may hold a token whose session is gone: it stands here only where it must.
  local last = redis.call('ZREVRANGEBYSCORE', recent, mark, mark, 'LIMIT', 0, 1)[1]
  if last and is_behind(last, token) then mark = mark .. ' ' .. token end
  local reply = redis.pcall('SET', idle_reported, mark)
  if reply.err then return {handed_on, 0, reply.err} end
end
return {handed_on, goes_on, refusal}
