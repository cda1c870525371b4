-- Changes the cart of a visitor's token where that is there, or begins now. Returns as `change_cart`.
if begins ~= '1' and not redis.call('ZSCORE', visitors, token) then return 0 end
local answer = {}
if is_emptied == '1' then
  redis.call('UNLINK', cart)
else
  answer = set_cart()
end
if answer ~= 1 then redis.call('ZADD', visitors, 'GT', now, token) end
return answer
