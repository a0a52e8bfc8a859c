-- elect: be counted among the scanners of this shard, and become or stay the one that watches it
-- KEYS leader    string  owner and lease expiry ms
-- KEYS scanners  zset    scanner -> when it counts as gone ms
-- KEYS cursors   hash    clock -> the time at the last look, ms
-- ARGV owner     this scanner
-- ARGV shard     its number: of n scanners, in the order of their names, it is the turn of number shard % n
-- ARGV lease_ms  how long leadership and being counted last unless renewed; 0 gives both up
-- RETURNS 1 when this scanner leads, ms for which another one leads, ms by which Redis' clock stepped back, until rewind has shortened all leases, ms after which it may be otherwise without our asking
local leader, scanners, cursors = KEYS[1], KEYS[2], KEYS[3]
local owner, shard, lease_ms, at = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), now()
local holder, expiry = string.match(redis.call('GET', leader) or '', '^(%S+) (%d+)$')
local left, latest = holder and math.max(0, tonumber(expiry) - at) or 0, at + lease_ms
-- First and always, if only an empty value, as in hint(): memory may be full.
redis.call('ZREM', scanners, '', unpack(redis.call('ZRANGEBYSCORE', scanners, '-inf', at)))
if lease_ms == 0 then
  redis.call('ZREM', scanners, owner)
  if holder ~= owner then return { 0, left, 0, 0 } end
  redis.call('DEL', leader)
  return { 0, 0, 0, 0 }
end

-- No leader holds more than a whole lease: a longer one was written before the clock stepped back.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', scanners, '(' .. latest, '+inf')) do
  redis.call('ZADD', scanners, latest, name)
end
redis.call('ZADD', scanners, latest, owner)
redis.call('PEXPIRE', scanners, lease_ms * 10)
-- A scanner that stops renewing counts as gone, and the turns change.
local gone = redis.call('ZRANGE', scanners, 0, 0, 'WITHSCORES')[2] - at
local names, stepped = redis.call('ZRANGE', scanners, 0, -1), math.max(0, left - lease_ms)
table.sort(names)
-- The scanner whose turn it is takes the shard from its leader, so that shards are spread evenly soon after any change. For a
-- second two scanners may believe that they lead: they wake a worker twice, and the other's next call tells it.
local ours = names[shard % #names + 1] == owner
if holder ~= owner and left > 0 and stepped == 0 and not ours then return { 0, left, 0, math.min(left, gone) } end
redis.call('SET', leader, owner .. ' ' .. latest, 'PX', lease_ms * 10)
stepped = math.max(stepped, stepped_back(cursors, at))
note_clock(cursors, at + stepped)
return { 1, 0, stepped, ours and gone or math.min(gone, 500) }
