-- cancel: forget a task that is not running
-- KEYS delayed   zset  id -> due ms
-- KEYS retry     zset  id -> due ms of the next attempt
-- KEYS tasks     hash  id -> envelope
-- KEYS attempts  hash  id -> failures, crashes, last error
-- KEYS dlq       zset  id -> time of death
-- KEYS stats     hash  monotonic counters
-- KEYS moving    zset  id -> token of those on their way to another shard
-- KEYS layout    string  the newest layout this shard was told of
-- ARGV id      the task
-- ARGV by      the layout that the caller goes by, or ''
-- RETURNS cancelled, in_flight, dead or not_found
local delayed, retry, tasks, attempts, dlq, stats, moving, layout = unpack(KEYS)
local id = ARGV[1]
local away = outdated(layout, ARGV[2]) or moving_on(moving, id)
if away then return away end
if redis.call('ZREM', delayed, id) + redis.call('ZREM', retry, id) > 0 then
  weigh(stats, 0, weight(tasks, id))
  redis.call('HDEL', tasks, id)
  redis.call('HDEL', attempts, id)
  tally(stats, 'cancelled', 1)
  return 'cancelled'
end
if redis.call('ZSCORE', dlq, id) then return 'dead' end
if redis.call('HEXISTS', tasks, id) == 1 then return 'in_flight' end
return 'not_found'
