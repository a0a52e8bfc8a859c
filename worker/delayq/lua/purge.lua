-- purge: forget dead letters for good
-- KEYS dlq       zset  id -> time of death
-- KEYS dlq_info  hash  id -> reason and last error
-- KEYS tasks     hash  id -> envelope
-- KEYS stats     hash  monotonic counters
-- ARGV before_ms  leave those alone that died at or after this time
-- ARGV id ...     the dead letters
-- RETURNS how many were purged
local dlq, dlq_info, tasks, stats = unpack(KEYS)
local before, purged = tonumber(ARGV[1]), 0
for i = 2, #ARGV do
  local died = tonumber(redis.call('ZSCORE', dlq, ARGV[i]) or 'inf')
  if died < before then
    redis.call('ZREM', dlq, ARGV[i])
    redis.call('HDEL', dlq_info, ARGV[i])
    redis.call('HDEL', tasks, ARGV[i])
    purged = purged + 1
  end
end
if purged > 0 then redis.call('HINCRBY', stats, 'purged', purged) end
return purged
