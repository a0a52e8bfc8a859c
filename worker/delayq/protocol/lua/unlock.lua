-- unlock: release the lock of a task, if the caller still holds it
-- KEYS lock  string  owner
-- ARGV owner  the run that holds it
-- RETURNS 1 when the caller held it, else 0
local lock = KEYS[1]
if redis.call('GET', lock) ~= ARGV[1] then return 0 end
return redis.call('DEL', lock)
