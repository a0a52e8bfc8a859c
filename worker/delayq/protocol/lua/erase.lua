-- erase: delete all keys of a shard
-- KEYS delayed     zset    id -> due ms
-- KEYS retry       zset    id -> due ms of the next attempt
-- KEYS suspect     zset    id -> token of the run whose group it belongs to
-- KEYS isolation   string  worker that stops claiming in order to run suspects
-- KEYS processing  zset    id:token -> lease expiry ms
-- KEYS tasks       hash    id -> envelope
-- KEYS attempts    hash    id -> failures, crashes, due ms, last error
-- KEYS dlq         zset    id -> time of death
-- KEYS dlq_info    hash    id -> reason and last error
-- KEYS followups   hash    id -> envelope that takes the place of a task when it has ended
-- KEYS wake        list    token that wakes an idle worker
-- KEYS alarm       list    token that wakes the sleeping scanner
-- KEYS cursors     hash    index -> where its reconciliation continues
-- KEYS stats       hash    monotonic counters
-- KEYS leader      string  owner and lease expiry ms
-- KEYS scanners    zset    scanner -> time from which it counts as dead
-- KEYS delayqueues  zset  UID of a DelayQueue -> time from which it counts as gone, ms
-- KEYS shard_map   string  newest shard map that this shard has received
-- KEYS moving      zset    id -> token of tasks in migration to another shard
-- KEYS moving_info  hash  id -> shard, index and score of the destination
-- KEYS arrived     hash    batches that have migrated here
-- KEYS rate        string  time from which the next claim is within the rate
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags      zset  tag and id
-- KEYS finished  zset  id -> time at which the task was done, ms
-- KEYS finished_info  hash  id -> attempts, how late it began, due ms, for how long the entry counts
-- KEYS schedules  zset  id of a record -> time of the next look, ms
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- KEYS kinds     hash    release of workers -> the kinds that they take
-- ARGV gone_ms  how long to remember until when shard maps are those of a queue that is no more
-- ARGV uid     of the DelayQueue that is deleted; empty: not checked
-- ARGV uid_ms  how long a DelayQueue counts as serving this queue
-- RETURNS how many keys there were, how many tasks they held, the UID of another DelayQueue that serves it: nothing is deleted
local delayed, retry, suspect, isolation, processing, tasks, attempts, dlq, dlq_info, followups, wake = unpack(KEYS)
local alarm, cursors, stats, leader, scanners, delayqueues, shard_map, moving, moving_info, arrived = unpack(KEYS, 12)
local rate, parked, deadlines, tags, finished, finished_info, schedules, cancelling, kinds = unpack(KEYS, 22)
local held, known = redis.call('HLEN', tasks), redis.call('GET', shard_map) or ''
local format = redis.pcall('HGET', stats, 'format')
-- What is left of a shard of an older format is erased, once it has no tasks.
if held > 0 or (tonumber(format) or 0) > tonumber(FORMAT) then check_format(stats, format) end
local other = ARGV[2] ~= '' and others_of(delayqueues, ARGV[2], now(), ARGV[3])[1]
if other then return { 0, held, other } end
local already = known ~= '' and not string.find(known, ' ')
-- UNLINK, because a DEL of ten million tasks would block Redis for seconds: it frees the memory in the background.
local keys = redis.call(
  'UNLINK', delayed, retry, suspect, isolation, processing, tasks, attempts, dlq, dlq_info, followups, wake, alarm,
  cursors, stats, leader, scanners, delayqueues, shard_map, moving, moving_info, arrived, rate, parked,
  deadlines, tags, finished, finished_info, schedules, cancelling, kinds
)
-- Callers with an earlier shard map are refused: a queue of the same name may have other shards.
local until_ms = math.max(now(), (tonumber(string.match(known, '^%d+')) or 0) + (already and 0 or 1))
redis.call('SET', shard_map, string.format('%.0f', until_ms), 'PX', ARGV[1])
return { already and keys - 1 or keys, held, '' }
