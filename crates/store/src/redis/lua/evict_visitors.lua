-- Removes the visitors' tokens over the limit that were not seen for the longest, at most a batch. Returns
-- how many, and how many are left. Of a member that is no visitor's token no other key is touched.
local count = math.min(over_limit(visitors), tonumber(batch))
local oldest = count > 0 and redis.call('ZRANGE', visitors, 0, count - 1) or {}
local doomed = {}
for _, token in ipairs(oldest) do
  if #token == 66 and string.find(token, '^v,[0-9a-f]+$') then
    doomed[#doomed + 1] = viewed_prefix .. token
    doomed[#doomed + 1] = cart_prefix .. token
  end
end
if #doomed > 0 then redis.call('UNLINK', unpack(doomed)) end
if #oldest > 0 then redis.call('ZREM', visitors, unpack(oldest)) end
return {#oldest, redis.call('ZCARD', visitors)}
