-- lock: lock a task for some time; its holder may lock it again, as after a lost reply
-- KEYS lock  string  owner
-- KEYS stats  hash  monotonic counters
-- ARGV owner   the run that locks, unique
-- ARGV ttl_ms  how long from now, unless renewed
-- ARGV equal   1 if all callers use the same duration: a lock that lasts longer is from before a step back of the clock
-- RETURNS 0 when the caller holds it, else the ms for which another holder may still hold it
local lock, stats = KEYS[1], KEYS[2]
check_format(stats)
local holder = redis.call('GET', lock)
local left = redis.call('PTTL', lock)
local older = ARGV[3] == '1' and left > tonumber(ARGV[2])
if holder and holder ~= ARGV[1] and not older then return math.max(1, left) end
redis.call('DEL', lock) -- first, as in hint(), in case memory is full
redis.call('SET', lock, ARGV[1], 'PX', ARGV[2])
return 0
