-- rewind: after Redis' clock stepped back, shorten leases that would otherwise outlive their length
-- KEYS processing  zset  id:token -> lease expiry ms
-- ARGV lease_ms  the longest a lease may still last, or be put off
-- ARGV limit     how many leases at most
-- RETURNS how many were shortened
local processing, latest, limit = KEYS[1], now() + tonumber(ARGV[1]), tonumber(ARGV[2])

local function shorten(command, from, to, expiry, most)
  local members = redis.call(command, processing, from, to, 'LIMIT', 0, most)
  for _, member in ipairs(members) do
    redis.call('ZREM', processing, member) -- first, as in hint(): memory may be full
    redis.call('ZADD', processing, expiry, member)
  end
  return #members
end

local held = shorten('ZREVRANGEBYSCORE', '+inf', '(' .. latest, latest, limit)
return held + shorten('ZRANGEBYSCORE', '-inf', '(' .. -latest, -latest, limit - held)
