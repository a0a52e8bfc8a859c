-- lock: hold a task alone for a while; its holder may ask again, as one does whose answer was lost
-- KEYS lock  string  owner
-- ARGV owner   who asks; no two runs of a task have the same
-- ARGV ttl_ms  how long from now, unless renewed
-- RETURNS 0 when the caller holds it, else for how many ms somebody else may still
local lock = KEYS[1]
local holder = redis.call('GET', lock)
if holder and holder ~= ARGV[1] then return math.max(1, redis.call('PTTL', lock)) end
redis.call('DEL', lock) -- first, as in hint(): memory may be full
redis.call('SET', lock, ARGV[1], 'PX', ARGV[2])
return 0
