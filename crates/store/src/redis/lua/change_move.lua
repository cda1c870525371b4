-- Puts `after` in the place of `before` in the state of a move, each '' for none. With `ms` over 0 it ends by itself.
-- Returns whether it did.
if (redis.call('GET', moving) or '') ~= before then return 0 end
redis.call('DEL', moving)
if after ~= '' then
  if tonumber(ms) > 0 then
    redis.call('SET', moving, after, 'PX', ms)
  else
    redis.call('SET', moving, after)
  end
end
return 1
