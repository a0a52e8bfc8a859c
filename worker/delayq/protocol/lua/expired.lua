-- expired: leases for the recovery check, expired ones before deferred ones, oldest first; read-only
-- KEYS processing  zset  id:token -> lease expiry ms
-- ARGV offset  how many to skip
-- ARGV limit   how many at most
-- RETURNS µs until the next one (-1: none), and the leases, id:token
local processing = KEYS[1]
local offset, limit, us = tonumber(ARGV[1]), tonumber(ARGV[2]), now_us()
local at = math.floor(us / 1000)
local found = redis.call('ZRANGEBYSCORE', processing, 0, at, 'LIMIT', offset, limit)
if #found < limit then
  local passed = math.max(0, offset - redis.call('ZCOUNT', processing, 0, at))
  local put_off = redis.call('ZREVRANGEBYSCORE', processing, '(0', -at, 'LIMIT', passed, limit - #found)
  for _, member in ipairs(put_off) do found[#found + 1] = member end
end
local later = redis.call('ZREVRANGEBYSCORE', processing, '(' .. -at, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local next = math.min(next_due(processing, at), -tonumber(later or '-inf'))
return { next == math.huge and -1 or math.max(0, next * 1000 - us), found }
