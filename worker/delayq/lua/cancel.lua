-- cancel: forget a task that is not running
-- KEYS delayed   zset  id -> due ms
-- KEYS retry     zset  id -> due ms of the next attempt
-- KEYS tasks     hash  id -> envelope
-- KEYS attempts  hash  id -> failures, crashes, last error
-- KEYS dlq       zset  id -> time of death
-- KEYS stats     hash  monotonic counters
-- ARGV id  the task
-- RETURNS cancelled, in_flight, dead or not_found
local delayed, retry, tasks, attempts, dlq, stats = unpack(KEYS)
local id = ARGV[1]
if redis.call('ZREM', delayed, id) + redis.call('ZREM', retry, id) > 0 then
  redis.call('HDEL', tasks, id)
  redis.call('HDEL', attempts, id)
  redis.call('HINCRBY', stats, 'cancelled', 1)
  return 'cancelled'
end
if redis.call('ZSCORE', dlq, id) then return 'dead' end
if redis.call('HEXISTS', tasks, id) == 1 then return 'in_flight' end
return 'not_found'
