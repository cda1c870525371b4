-- The records of `handover:` from before `before`, at most a hundred, with their fields. What is no record is removed.
local found = {}
local all = redis.call('HSCAN', handovers, 0, 'COUNT', 100)[2]
for at = 1, #all, 2 do
  local is_record, content = pcall(cmsgpack.unpack, all[at + 1])
  local noted = is_record and type(content) == 'table' and tonumber(content[1])
  if not noted or #all[at] < 10 then
    redis.call('HDEL', handovers, all[at])
  elseif noted < tonumber(before) then
    found[#found + 1] = all[at]
    found[#found + 1] = all[at + 1]
  end
end
return found
