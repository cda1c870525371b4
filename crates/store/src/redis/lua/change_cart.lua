-- Changes a cart where `login:` still holds that user for its token, which counts as seen then. `user` is
-- empty where any user will do. Returns 0 where the token has no session, or another user's; else as
-- `set_cart`.
local holder = redis.call('HGET', login, token)
if not holder or (user ~= '' and name_of(user) ~= name_of(holder)) then return 0 end
if is_over(holder) then return 0 end
redis.call('ZADD', recent, 'GT', seen, token)
if is_emptied == '1' then
  redis.call('UNLINK', cart)
  return {}
end
return set_cart()
