-- Remembers an answer about a visitor for `ms` milliseconds, unless something else than `before` is
-- remembered (empty: nothing). Returns 1 where it is.
if (redis.call('GET', answer) or '') ~= before then return 0 end
redis.call('SET', answer, value, 'PX', ms)
return 1
