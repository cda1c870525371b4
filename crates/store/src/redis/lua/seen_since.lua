-- At most `most` members of `set` with a score of `from_time` or more, with their scores; with `from_token`, those
-- behind it. The place of that member among those of one score is found by halves: it need not be there any more.
local from = redis.call('ZCOUNT', set, '-inf', '(' .. from_time)
if from_token ~= '' then
  local to = redis.call('ZCOUNT', set, '-inf', from_time)
  while from < to do
    local mid = math.floor((from + to) / 2)
    if is_behind(redis.call('ZRANGE', set, mid, mid)[1], from_token) then
      to = mid
    else
      from = mid + 1
    end
  end
end
return redis.call('ZRANGE', set, from, from + most - 1, 'WITHSCORES')
