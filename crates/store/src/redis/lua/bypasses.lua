-- Returns the time in milliseconds, and the switches in `bypass:`.
local time = redis.call('TIME')
return {time[1] * 1000 + math.floor(time[2] / 1000), bypasses_in_store()}
