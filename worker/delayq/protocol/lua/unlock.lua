-- unlock: let others have a task, if the caller holds it still
-- KEYS lock  string  owner
-- ARGV owner  who asks
-- RETURNS 1 when the caller held it, else 0
local lock = KEYS[1]
if redis.call('GET', lock) ~= ARGV[1] then return 0 end
return redis.call('DEL', lock)
