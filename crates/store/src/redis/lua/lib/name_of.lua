-- The name of a user. `login:` may hold attributes behind it, after a zero byte.
local function name_of(user)
  return user and string.match(user, '^[^%z]*')
end
