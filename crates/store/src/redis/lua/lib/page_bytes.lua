-- `page_bytes`, the ledger of bytes of pages. There is no index of pages: a page is booked in a bucket of
-- the time when it expires. Buckets are a second wide for pages that have two minutes, a minute for two
-- hours, an hour for three days, else a day. A bucket goes when its time is over, so a page counts until
-- shortly after it has expired. The field `all` is the sum.
local beside = 256
local widths, reach = {1000, 60000, 3600000, 86400000}, {120, 120, 72, 3660}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all = tonumber(redis.call('HGET', page_bytes, 'all') or '') or 0
local function bucket(level, at)
  return string.format('%d:%.0f', level, at)
end
-- What the page under this key is booked with, and when it expires. A value without `head` is another
-- program's, and not booked. Redis 7 returns the time as it was set. Redis 6 returns what is left of it, by
-- another reading of the clock, and the sum may be another bucket's.
local function booked_for(key)
  local size = redis.pcall('STRLEN', key)
  if type(size) ~= 'number' or size == 0 then return 0 end
  if redis.call('GETRANGE', key, 0, #head - 1) ~= head then return 0 end
  local ends = redis.pcall('PEXPIRETIME', key)
  if type(ends) ~= 'number' then ends = redis.call('PTTL', key) + now end
  if ends < now then return 0 end
  return size + beside, ends
end
local function book(charge, ends)
  for level, width in ipairs(widths) do
    local at = math.floor(ends / width)
    if at - math.floor(now / width) <= reach[level] then
      redis.call('HINCRBY', page_bytes, bucket(level, at), charge)
      break
    end
  end
  all = all + charge
end
-- Which bucket a page was booked in depended on the time that it had then, which is not known any more: the
-- smallest bucket is tried first. If it was another one, that one holds too much now and this one too
-- little. This one ends first: until then the sum is right, and from then on too high.
local function unbook(charge, ends)
  for level, width in ipairs(widths) do
    if charge == 0 then break end
    local from = bucket(level, math.floor(ends / width))
    local booked = tonumber(redis.call('HGET', page_bytes, from) or '') or 0
    local part = math.min(booked, charge)
    if part == booked then
      redis.call('HDEL', page_bytes, from)
    elseif part > 0 then
      redis.call('HINCRBY', page_bytes, from, -part)
    end
    charge, all = charge - part, all - part
  end
end
