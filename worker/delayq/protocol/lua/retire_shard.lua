-- retire_shard: tell a shard that is no more of the shard map, as sync_shard_map.lua; if it is empty, keep only that and its counters
-- KEYS shard_map   string  the newest shard map this shard was told of
-- KEYS tasks       hash    id -> envelope
-- KEYS moving      zset    id -> token of those on their way to another shard
-- KEYS processing  zset    id:token -> lease expiry ms
-- KEYS followups   hash    id -> envelope that takes the place of a task once it has ended
-- KEYS cursors     hash    index -> where its reconciliation goes on; home -> epoch of the shard map
-- KEYS arrived     hash    shard -> its last batch that landed here
-- KEYS wake        list    hint for an idle worker
-- KEYS alarm       list    hint for a sleeping scanner
-- KEYS leader      string  owner and lease expiry ms
-- KEYS scanners    zset    scanner -> when it counts as gone ms
-- KEYS suspect     zset    id -> token of the run whose group it belongs to
-- KEYS isolation   string  the worker that makes room for suspects
-- KEYS rate        string  when the bucket of spec.limits.ratePerSecond will have run dry, µs
-- KEYS stats       hash    monotonic counters, and the format of the shard
-- KEYS delayed     zset    id -> due ms
-- KEYS attempts    hash    id -> failures, crashes, due ms, last error
-- ARGV by  the caller's shard map, in which this shard is dropped
-- RETURNS the shard map that the shard knows now, the epoch in which all its tasks were at home, how many tasks it holds
local shard_map, tasks, moving, processing, followups, cursors, arrived, wake, alarm = unpack(KEYS)
local leader, scanners, suspect, isolation, rate, stats, delayed, attempts = unpack(KEYS, 10)
local newer = outdated(shard_map, ARGV[1])
local home = tonumber(redis.call('HGET', cursors, 'home') or 0)
local held = redis.call('HLEN', tasks) + redis.call('ZCARD', moving) + redis.call('ZCARD', processing)
-- stats stays: should the shard come back, its counters and tokens go on rising. What moved here by an older shard map is
-- refused by the shard map itself, so arrived has nothing to tell any more.
if not newer and held == 0 and not newer_format(stats) then
  if redis.call('HLEN', followups) > 0 then -- a worker that knows of none left them: each becomes the task, and moves
    local succeed = succession(delayed, tasks, attempts, followups, wake, alarm, stats)
    local page = redis.call('HSCAN', followups, 0, 'COUNT', 100)[2]
    for i = 1, #page, 2 do succeed(page[i]) end
  else
    redis.call('UNLINK', followups, cursors, arrived, wake, alarm, leader, scanners, suspect, isolation, rate)
  end
end
return { redis.call('GET', shard_map) or '', home, redis.call('HLEN', tasks) }
