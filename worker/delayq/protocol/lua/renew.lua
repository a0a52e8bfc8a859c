-- renew: extend the lock of a task, if the caller still holds it
-- KEYS lock  string  owner
-- KEYS stats  hash  monotonic counters
-- ARGV owner   the run that holds it
-- ARGV ttl_ms  how long from now, unless renewed again
-- RETURNS 1 when the caller held it, else 0
local lock, stats = KEYS[1], KEYS[2]
check_format(stats)
if redis.call('GET', lock) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', lock, ARGV[2])
