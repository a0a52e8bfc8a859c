-- erase: forget everything that a shard holds
-- KEYS delayed     zset    id -> due ms
-- KEYS retry       zset    id -> due ms of the next attempt
-- KEYS processing  zset    id:token -> lease expiry ms
-- KEYS tasks       hash    id -> envelope
-- KEYS attempts    hash    id -> failures, crashes, last error
-- KEYS dlq         zset    id -> time of death
-- KEYS dlq_info    hash    id -> reason and last error
-- KEYS wake        list    hint to workers
-- KEYS alarm       list    hint to the scanner
-- KEYS cursors     hash    index -> where its reconciliation goes on
-- KEYS stats       hash    monotonic counters
-- KEYS leader      string  owner and lease expiry ms
-- RETURNS how many keys there were, how many tasks they held
local delayed, retry, processing, tasks, attempts, dlq, dlq_info, wake, alarm, cursors, stats, leader = unpack(KEYS)
local held = redis.call('HLEN', tasks)
-- UNLINK, because a DEL of ten million tasks would hold Redis for seconds: their memory is given back in the background.
local keys = redis.call(
  'UNLINK', delayed, retry, processing, tasks, attempts, dlq, dlq_info, wake, alarm, cursors, stats, leader
)
return { keys, held }
