-- lead: become or stay the one scanner that watches this shard
-- KEYS leader  string  owner and lease expiry ms
-- ARGV owner     this scanner
-- ARGV lease_ms  how long leadership lasts unless renewed; 0 gives it up
-- RETURNS 1 when this scanner leads, ms for which somebody else leads, ms by which Redis' clock stepped back
local leader = KEYS[1]
local owner, lease_ms, at = ARGV[1], tonumber(ARGV[2]), now()
local holder, expiry = string.match(redis.call('GET', leader) or '', '^(%S+) (%d+)$')
local left = holder and tonumber(expiry) - at or 0
-- Nobody can hold more than a whole lease: such a one was written before the clock went back.
local stepped = lease_ms > 0 and math.max(0, left - lease_ms) or 0
if holder and holder ~= owner and left > 0 and stepped == 0 then return { 0, left, 0 } end
if lease_ms == 0 then
  if holder == owner then redis.call('DEL', leader) end
  return { 0, 0, 0 }
end
redis.call('DEL', leader) -- first, as in hint(): memory may be full
redis.call('SET', leader, owner .. ' ' .. at + lease_ms, 'PX', lease_ms * 10)
return { 1, 0, stepped }
