-- Ends a visitor's token because its visitor has logged in, and notes in `handover:` what the session gets. Returns
-- the record, which is empty where there is nothing.
if redis.call('ZREM', visitors, visitor) == 0 then return '' end
return hand_over(user, old_cart, old_viewed)
