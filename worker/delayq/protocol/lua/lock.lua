-- lock: hold a task alone for a while; its holder may ask again, as one does whose answer was lost
-- KEYS lock  string  owner
-- ARGV owner   who asks; no two runs of a task have the same
-- ARGV ttl_ms  how long from now, unless renewed
-- ARGV equal   1 if no caller asks for longer than that: a lock that lasts longer is older than a clock that stepped back
-- RETURNS 0 when the caller holds it, else for how many ms another holder may still
local lock = KEYS[1]
local holder = redis.call('GET', lock)
local left = redis.call('PTTL', lock)
local older = ARGV[3] == '1' and left > tonumber(ARGV[2])
if holder and holder ~= ARGV[1] and not older then return math.max(1, left) end
redis.call('DEL', lock) -- first, as in hint(): memory may be full
redis.call('SET', lock, ARGV[1], 'PX', ARGV[2])
return 0
