-- retire_shard: send the shard map to a dropped shard, as sync_shard_map.lua; if it is empty, keep only map and counters
-- KEYS shard_map   string  newest shard map that this shard has received
-- KEYS tasks       hash    id -> envelope
-- KEYS moving      zset    id -> token of tasks in migration to another shard
-- KEYS processing  zset    id:token -> lease expiry ms
-- KEYS followups   hash    id -> envelope that takes the place of a task when it has ended
-- KEYS cursors     hash    index -> where its reconciliation continues; home -> epoch of the shard map
-- KEYS arrived     hash    shard -> its last batch verified here
-- KEYS wake        list    token that wakes an idle worker
-- KEYS alarm       list    token that wakes the sleeping scanner
-- KEYS leader      string  owner and lease expiry ms
-- KEYS scanners    zset    scanner -> time from which it counts as dead, ms
-- KEYS delayqueues  zset  UID of a DelayQueue -> time from which it counts as gone, ms
-- KEYS suspect     zset    id -> token of the run whose group it belongs to
-- KEYS isolation   string  worker that stops claiming in order to run suspects
-- KEYS rate        string  time at which the bucket of spec.limits.ratePerSecond is empty, µs
-- KEYS stats       hash    monotonic counters
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags      zset  tag and id
-- KEYS finished  zset  id -> time at which the task was done, ms
-- KEYS finished_info  hash  id -> attempts, how late it began, due ms, for how long the entry counts
-- KEYS schedules  zset  id of a record -> time of the next look, ms
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- KEYS kinds     hash    release of workers -> the kinds that they take
-- ARGV by  the caller's shard map, in which this shard is dropped
-- RETURNS the shard's current shard map, the epoch under which all its tasks belonged here, how many tasks it holds
local shard_map, tasks, moving, processing, followups, cursors, arrived, wake, alarm = unpack(KEYS)
local leader, scanners, delayqueues, suspect, isolation, rate, stats, parked, deadlines = unpack(KEYS, 10)
local tags, finished, finished_info, schedules, cancelling, kinds = unpack(KEYS, 19)
check_format(stats)
local newer = outdated(shard_map, ARGV[1])
local home = tonumber(redis.call('HGET', cursors, 'home') or 0)
local held = redis.call('HLEN', tasks) + redis.call('ZCARD', moving) + redis.call('ZCARD', processing)
-- stats stays: if the shard comes back, its counters and tokens must continue to increase. The shard map refuses batches of
-- older shard maps, so `arrived` is not needed any more.
if not newer and held == 0 then
  redis.call(
    'UNLINK', followups, cursors, arrived, wake, alarm, leader, scanners, delayqueues, suspect, isolation, rate,
    parked, deadlines, tags, finished, finished_info, schedules, cancelling, kinds
  )
  redis.call('HDEL', stats, 'cancelling')
end
return { redis.call('GET', shard_map) or '', home, redis.call('HLEN', tasks) }
