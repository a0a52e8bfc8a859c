-- expired: leases that ran out, the longest ago first; changes nothing
-- KEYS processing  zset  id:token -> lease expiry ms
-- ARGV offset  rank of the first
-- ARGV limit   how many at most
-- RETURNS µs until the next lease runs out (-1: none), and the leases that did, id:token
local processing = KEYS[1]
local us = now_us()
local at = math.floor(us / 1000)
local found = redis.call('ZRANGEBYSCORE', processing, '-inf', at, 'LIMIT', tonumber(ARGV[1]), tonumber(ARGV[2]))
local next = next_due(processing, at)
return { next == math.huge and -1 or math.max(0, next * 1000 - us), found }
