-- elect: register as a scanner of this shard, and become or stay its leader
-- KEYS leader    string  owner and lease expiry ms
-- KEYS scanners  zset    scanner -> time from which it counts as dead, ms
-- KEYS delayqueues  zset  UID of a DelayQueue -> time from which it counts as gone, ms
-- KEYS cursors   hash    clock -> time of the last check, ms
-- KEYS stats  hash  monotonic counters
-- ARGV owner     this scanner
-- ARGV shard     its number: of n scanners, sorted by name, number shard % n should lead
-- ARGV lease_ms  how long leadership and being counted last unless renewed; 0 gives both up
-- ARGV uid       of the scanner's DelayQueue; empty without one
-- ARGV uid_ms    how long a DelayQueue counts as serving this queue
-- RETURNS 1 when this scanner leads, ms for which another one leads, ms by which Redis' clock stepped back until clamp_leases has shortened all leases, ms after which this may change without a call of this scanner, UIDs of other DelayQueues
local leader, scanners, delayqueues, cursors, stats = unpack(KEYS)
check_format(stats)
local owner, shard, lease_ms, uid, at = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], now()
local holder, expiry = string.match(redis.call('GET', leader) or '', '^(%S+) (%d+)$')
local left, latest = holder and math.max(0, tonumber(expiry) - at) or 0, at + lease_ms
-- First and always, even an empty value, as in hint(), in case memory is full.
redis.call('ZREM', scanners, '', unpack(redis.call('ZRANGEBYSCORE', scanners, '-inf', at)))
if lease_ms == 0 then
  redis.call('ZREM', scanners, owner)
  if holder ~= owner then return { 0, left, 0, 0, {} } end
  redis.call('DEL', leader)
  return { 0, 0, 0, 0, {} }
end

if uid ~= '' then
  redis.call('ZREM', delayqueues, '', unpack(redis.call('ZRANGEBYSCORE', delayqueues, '-inf', at)))
  redis.call('ZADD', delayqueues, at + ARGV[5], uid)
  redis.call('PEXPIRE', delayqueues, ARGV[5])
end
local others = others_of(delayqueues, uid, at, ARGV[5])

-- No leadership is longer than a whole lease: a longer one was written before the clock stepped back.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', scanners, '(' .. latest, '+inf')) do
  redis.call('ZADD', scanners, latest, name)
end
redis.call('ZADD', scanners, latest, owner)
redis.call('PEXPIRE', scanners, lease_ms * 10)
-- A scanner that stops renewing counts as dead, and the shards are distributed again.
local gone = redis.call('ZRANGE', scanners, 0, 0, 'WITHSCORES')[2] - at
local names, stepped = redis.call('ZRANGE', scanners, 0, -1), math.max(0, left - lease_ms)
table.sort(names)
-- The scanner that should lead takes the shard from its leader, so that shards are spread evenly soon after each change. For
-- a second, two scanners may assume that they lead: both wake a worker, and the next call of the former leader corrects it.
local ours = names[shard % #names + 1] == owner
if holder ~= owner and left > 0 and stepped == 0 and not ours then
  return { 0, left, 0, math.min(left, gone), others }
end
redis.call('SET', leader, owner .. ' ' .. latest, 'PX', lease_ms * 10)
stepped = math.max(stepped, stepped_back(cursors, at))
note_clock(cursors, at + stepped)
return { 1, 0, stepped, ours and gone or math.min(gone, 500), others }
