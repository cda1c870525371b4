-- What a session holds, as JSON. Entries of other programs that are no item, no count or no time are left
-- out, as they are where a cart is read.
local function is_item(item)
  if #item == 0 or #item > 128 or string.find(item, '%c') then return false end
  if not string.find(item, '[\128-\255]') then return true end
  -- Each character of UTF-8 becomes a letter. What is left is no UTF-8.
  item = string.gsub(item, '[\194-\223][\128-\191]', 'x')
  item = string.gsub(item, '[\224-\239][\128-\191][\128-\191]', 'x')
  item = string.gsub(item, '[\240-\244][\128-\191][\128-\191][\128-\191]', 'x')
  return not string.find(item, '[\128-\255]')
end
local function whole(count)
  local sign, digits = string.match(count, '^([+-]?)0*(%d+)$')
  if not digits or #digits > 18 then return nil end
  if sign == '-' and digits ~= '0' then return '-' .. digits end
  return digits
end
-- The cart under this key, at most `cart_max` items of it; nothing where it is empty. Of a larger cart only
-- some entries are read.
local function cart_in(key)
  local most = tonumber(cart_max)
  local size = redis.pcall('HLEN', key)
  if type(size) ~= 'number' or size == 0 then return nil end
  local held
  if size > most then
    held = redis.call('HSCAN', key, 0, 'COUNT', 2 * most)[2]
  else
    held = redis.call('HGETALL', key)
  end
  local items = {}
  for of = 1, #held, 2 do
    local count = whole(held[of + 1])
    if #items < most and count and is_item(held[of]) then
      local is_text, item = pcall(cjson.encode, held[of])
      if is_text then
        items[#items + 1] = '{"item":' .. item .. ',"count":' .. count .. '}'
      end
    end
  end
  if #items == 0 then return nil end
  return '[' .. table.concat(items, ',') .. ']'
end
-- The last `views_max` views under this key, the newest first.
local function views_in(key)
  local held = redis.pcall('ZREVRANGE', key, 0, views_max - 1, 'WITHSCORES')
  if held.err then return '[]' end
  local views = {}
  for of = 1, #held, 2 do
    local seen = tonumber(held[of + 1])
    if seen and seen > -1e15 and seen < 1e15 and is_item(held[of]) then
      local is_text, item = pcall(cjson.encode, held[of])
      if is_text then
        views[#views + 1] = '{"item":' .. item .. ',"viewed":' .. held[of + 1] .. '}'
      end
    end
  end
  return '[' .. table.concat(views, ',') .. ']'
end
