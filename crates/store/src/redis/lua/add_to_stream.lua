-- Appends entries to the stream `expired:`. For each there are arguments: id, number of fields, and the fields with their
-- values. An id that is not beyond the last becomes the next one.
local at = first_arg
while at <= #ARGV do
  local id, fields = ARGV[at], tonumber(ARGV[at + 1])
  local entry = {unpack(ARGV, at + 2, at + 1 + 2 * fields)}
  at = at + 2 + 2 * fields
  local reply = redis.pcall('XADD', expired, id, unpack(entry))
  if type(reply) == 'table' and reply.err then
    local last = redis.call('XREVRANGE', expired, '+', '-', 'COUNT', 1)[1]
    if not last then return reply end
    local time, number = string.match(last[1], '^(%d+)-(%d+)$')
    redis.call('XADD', expired, string.format('%s-%.0f', time, tonumber(number) + 1), unpack(entry))
  end
end
return 1
