-- clamp_leases: after a step back of Redis' clock, shorten leases that would last longer than their duration
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS cursors     hash  clock -> time of the last check, ms
-- KEYS stats  hash  monotonic counters
-- ARGV lease_ms  the longest a lease may still last, or be put off
-- ARGV limit     how many leases at most
-- RETURNS ms by which the clock stepped back, or 0 when it did not; how many leases were shortened; repeat until it is 0
local processing, cursors, stats = KEYS[1], KEYS[2], KEYS[3]
check_format(stats)
local at, limit = now(), tonumber(ARGV[2])
local latest, back = at + tonumber(ARGV[1]), stepped_back(cursors, at)

local function shorten(command, from, to, expiry, most)
  local members = redis.call(command, processing, from, to, 'LIMIT', 0, most)
  for _, member in ipairs(members) do
    redis.call('ZREM', processing, member) -- first, as in hint(), in case memory is full
    redis.call('ZADD', processing, expiry, member)
  end
  return #members
end

local shortened = 0
if back > 0 then
  shortened = shorten('ZREVRANGEBYSCORE', '+inf', '(' .. latest, latest, limit)
  shortened = shortened + shorten('ZRANGEBYSCORE', '-inf', '(' .. -latest, -latest, limit - shortened)
end
-- Keep the time before the step until no lease is too long: a reply may be lost, or the caller may die.
if shortened == 0 then note_clock(cursors, at) end
return { back, shortened }
