-- What `cartidle:` holds, and when the first session was seen of which has not been told; each empty where there is
-- none.
local mark = redis.call('GET', idle_reported) or ''
local seen, token = string.match(mark, '^(%S+) (.*)$')
local from = '-inf'
if seen then from = seen elseif tonumber(mark) then from = '(' .. mark end
local next = redis.call('ZRANGE', recent, from, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
return {mark, next[2] or ''}
