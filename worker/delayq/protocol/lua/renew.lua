-- renew: hold a task for longer, if the caller holds it still
-- KEYS lock  string  owner
-- ARGV owner   who asks
-- ARGV ttl_ms  how long from now, unless renewed again
-- RETURNS 1 when the caller held it, else 0
local lock = KEYS[1]
if redis.call('GET', lock) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', lock, ARGV[2])
