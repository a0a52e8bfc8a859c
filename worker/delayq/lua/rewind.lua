-- rewind: after Redis' clock stepped back, shorten leases that would otherwise outlive their length
-- KEYS processing  zset  id:token -> lease expiry ms
-- ARGV lease_ms  the longest a lease may still last
-- ARGV limit     how many leases at most
-- RETURNS how many were shortened
local processing, latest = KEYS[1], now() + tonumber(ARGV[1])
local members = redis.call('ZREVRANGEBYSCORE', processing, '+inf', '(' .. latest, 'LIMIT', 0, tonumber(ARGV[2]))
for _, member in ipairs(members) do
  redis.call('ZREM', processing, member) -- first, as in hint(): memory may be full
  redis.call('ZADD', processing, latest, member)
end
return #members
