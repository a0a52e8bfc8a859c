-- purge: delete dead letters
-- KEYS dlq       zset  id -> time of death
-- KEYS dlq_info  hash  id -> reason and last error
-- KEYS tasks     hash  id -> envelope
-- KEYS stats     hash  monotonic counters
-- KEYS moving    zset  id -> token of tasks in migration to another shard
-- KEYS shard_map string  newest shard map that this shard has received
-- ARGV before_ms  leave those alone that died at or after this time
-- ARGV by         the caller's shard map, or '', which also skips tasks in migration
-- ARGV id ...     the dead letters
-- RETURNS how many were purged
local dlq, dlq_info, tasks, stats, moving, shard_map = unpack(KEYS)
check_format(stats)
local away = outdated(shard_map, ARGV[2])
if away then return away end
for i = 3, #ARGV do
  away = ARGV[2] ~= '' and moving_on(moving, ARGV[i])
  if away then return away end
end
local before, purged, bytes = tonumber(ARGV[1]), 0, 0
for i = 3, #ARGV do
  local died = tonumber(redis.call('ZSCORE', dlq, ARGV[i]) or 'inf')
  if died < before then
    redis.call('ZREM', dlq, ARGV[i])
    redis.call('HDEL', dlq_info, ARGV[i])
    bytes, purged = bytes + weight(tasks, ARGV[i]), purged + 1
    redis.call('HDEL', tasks, ARGV[i])
  end
end
if purged > 0 then tally(stats, 'purged', purged) end
weigh(stats, 0, bytes)
return purged
