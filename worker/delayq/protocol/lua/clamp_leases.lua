-- clamp_leases: when Redis' clock stepped back, shorten leases that would otherwise outlive their length
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS cursors     hash  clock -> the time at the last look, ms
-- ARGV lease_ms  the longest a lease may still last, or be put off
-- ARGV limit     how many leases at most
-- RETURNS ms by which the clock stepped back, or 0 when it did not; how many leases were shortened: until none is, there may be more
local processing, cursors = KEYS[1], KEYS[2]
local at, limit = now(), tonumber(ARGV[2])
local latest, back = at + tonumber(ARGV[1]), stepped_back(cursors, at)

local function shorten(command, from, to, expiry, most)
  local members = redis.call(command, processing, from, to, 'LIMIT', 0, most)
  for _, member in ipairs(members) do
    redis.call('ZREM', processing, member) -- first, as in hint(): memory may be full
    redis.call('ZADD', processing, expiry, member)
  end
  return #members
end

local shortened = 0
if back > 0 then
  shortened = shorten('ZREVRANGEBYSCORE', '+inf', '(' .. latest, latest, limit)
  shortened = shortened + shorten('ZRANGEBYSCORE', '-inf', '(' .. -latest, -latest, limit - shortened)
end
-- Until no lease is too long, the time before the step stays: a reply may be lost, or its reader may end.
if shortened == 0 then note_clock(cursors, at) end
return { back, shortened }
