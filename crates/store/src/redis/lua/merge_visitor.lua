-- Gives what a visitor's token has to a session, where `login:` holds that user for it. Returns 0 where the
-- session is not that user's, 1 where there was nothing, 2 where it is done.
if name_of(redis.call('HGET', login, token)) ~= name_of(user) then return 0 end
return join_visitor() and 2 or 1
