-- erase: forget everything that a shard holds
-- KEYS delayed     zset    id -> due ms
-- KEYS retry       zset    id -> due ms of the next attempt
-- KEYS suspect     zset    id -> token of the run whose group it belongs to
-- KEYS isolation   string  the worker that makes room for suspects
-- KEYS processing  zset    id:token -> lease expiry ms
-- KEYS tasks       hash    id -> envelope
-- KEYS attempts    hash    id -> failures, crashes, due ms, last error
-- KEYS dlq         zset    id -> time of death
-- KEYS dlq_info    hash    id -> reason and last error
-- KEYS followups   hash    id -> envelope that takes the place of a task once it has ended
-- KEYS wake        list    hint to workers
-- KEYS alarm       list    hint to the scanner
-- KEYS cursors     hash    index -> where its reconciliation goes on
-- KEYS stats       hash    monotonic counters
-- KEYS leader      string  owner and lease expiry ms
-- KEYS scanners    zset    scanner -> when it counts as gone
-- KEYS shard_map   string  the newest shard map this shard was told of
-- KEYS moving      zset    id -> token of those on their way to another shard
-- KEYS moving_info  hash  id -> where to, and index and score there
-- KEYS arrived     hash    what has moved here
-- KEYS rate        string  when the next claim is within the rate
-- ARGV gone_ms  how long to remember until when shard maps are those of a queue that is no more
-- RETURNS how many keys there were, how many tasks they held
local delayed, retry, suspect, isolation, processing, tasks, attempts, dlq, dlq_info, followups = unpack(KEYS)
local wake, alarm, cursors, stats, leader, scanners, shard_map, moving, moving_info, arrived, rate = unpack(KEYS, 11)
local newer = newer_format(stats)
if newer then return newer end
local held, known = redis.call('HLEN', tasks), redis.call('GET', shard_map) or ''
local already = known ~= '' and not string.find(known, ' ')
-- UNLINK, because a DEL of ten million tasks would hold Redis for seconds: their memory is given back in the background.
local keys = redis.call(
  'UNLINK', delayed, retry, suspect, isolation, processing, tasks, attempts, dlq, dlq_info, followups, wake, alarm,
  cursors, stats, leader, scanners, shard_map, moving, moving_info, arrived, rate
)
-- Callers with an earlier shard map are refused: a queue of the same name may have other shards.
local until_ms = math.max(now(), (tonumber(string.match(known, '^%d+')) or 0) + (already and 0 or 1))
redis.call('SET', shard_map, string.format('%.0f', until_ms), 'PX', ARGV[1])
return { already and keys - 1 or keys, held }
