-- Ends a lease. `is_shareable` is 1 where others may have the page.
if redis.call('GET', lease) ~= who then return 0 end
if is_shareable == '1' then
  redis.call('DEL', lease)
else
  redis.call('SET', lease, 'unshareable', 'PX', 1000)
end
return 1
