-- The switches in `bypass:`, fields and values in turn. A value is `1 <its end in milliseconds> <by whom>`. A
-- key of another kind, or with more fields than ours can have, is another program's, and is not read.
local function bypasses_in_store()
  local count = redis.pcall('HLEN', bypass)
  if type(count) ~= 'number' or count == 0 or count > tonumber(bypasses_max) then return {} end
  return redis.call('HGETALL', bypass)
end
