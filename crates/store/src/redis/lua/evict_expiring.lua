-- Removes sessions over the limit with all that they have, each only where it was not seen again, and hands
-- on their carts as `action` says: `keep` (a session with a cart stays), `stream`, `outbox` or `queue`.
-- Token, time and id of each session follow the named arguments; the id is empty where it is no token. Ends
-- early behind `bytes_max` bytes. What may be refused for want of memory comes first. Returns how many
-- sessions were removed, handed on, dropped and left, whether it ended early, and what refused the carts.
local over, room = over_limit(recent), tonumber(bytes_max)
if action == 'outbox' and redis.call('EXISTS', expiring) == 1 then action = 'keep' end
local gone, doomed, boxed, records = {}, {}, {}, {}
local handed_on, left, more, refusal = 0, 0, 0, ''
local function remove(token)
  gone[#gone + 1] = token
  doomed[#doomed + 1] = viewed_prefix .. token
  doomed[#doomed + 1] = cart_prefix .. token
end
for at = first_arg, #ARGV, 3 do
  local token, id = ARGV[at], ARGV[at + 2]
  local seen = redis.call('ZSCORE', recent, token)
  local is_due = seen and tonumber(seen) == tonumber(ARGV[at + 1])
    and redis.call('ZRANK', recent, token) < over
  if is_due and id == '' then
    gone[#gone + 1] = token
  elseif is_due and action == 'keep' then
    if redis.call('EXISTS', cart_prefix .. token) == 1 then left = left + 1 else remove(token) end
  elseif is_due then
    local cart = cart_in(cart_prefix .. token)
    if not cart then
      remove(token)
    else
      local user = redis.call('HGET', login, token)
      local views = views_in(viewed_prefix .. token)
      if action == 'outbox' then
        boxed[#boxed + 1] = token
        records[#records + 1] = record_of('expired', id, user, seen, cart, views)
      else
        local reply = hand_on('expired', id, user, seen, cart, views)
        if type(reply) == 'table' and reply.err then
          refusal, action, left = reply.err, 'keep', left + 1
        else
          handed_on = handed_on + 1
          remove(token)
        end
      end
      room = room - #cart - #views
    end
    if room <= 0 then
      more = 1
      break
    end
  end
end
if #records > 0 then
  local reply = redis.pcall('RPUSH', expiring, unpack(records))
  if type(reply) == 'table' and reply.err then
    refusal, left = reply.err, left + #boxed
  else
    handed_on = #boxed
    for _, token in ipairs(boxed) do remove(token) end
  end
end
if #doomed > 0 then redis.call('UNLINK', unpack(doomed)) end
if #gone > 0 then
  unindex(gone)
  redis.call('HDEL', login, unpack(gone))
  redis.call('ZREM', recent, unpack(gone))
end
return {#gone, handed_on, dropped, left, more, refusal}
