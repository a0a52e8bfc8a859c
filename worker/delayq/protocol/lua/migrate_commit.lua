-- migrate_commit: delete a batch that its new shards have stored; a task that cannot be sent stays and runs here
-- KEYS delayed      zset  id -> due ms
-- KEYS retry        zset  id -> due ms of the next attempt
-- KEYS tasks        hash  id -> envelope
-- KEYS attempts     hash  id -> failures, crashes, due ms, last error
-- KEYS dlq_info     hash  id -> reason and last error
-- KEYS dlq          zset  id -> time of death
-- KEYS moving       zset  id -> token of tasks in migration to another shard
-- KEYS moving_info  hash  id -> shard, index and score of the destination
-- KEYS wake         list  token that wakes an idle worker
-- KEYS alarm        list  token that wakes the sleeping scanner
-- KEYS stats        hash  monotonic counters
-- KEYS schedules  zset  id of a record -> time of the next look, ms
-- ARGV token  of the batch
-- RETURNS how many were deleted
local delayed, retry, tasks, attempts, dlq_info, dlq, moving, moving_info, wake, alarm, stats, schedules = unpack(KEYS)
check_format(stats)
local landed, lost, bytes = {}, {}, 0
local restore = restorer(now(), delayed, retry, schedules, tasks, attempts, dlq, dlq_info, wake, alarm)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', moving, ARGV[1], ARGV[1])) do
  local size = weight(tasks, id)
  local to = size == 0 or destination(moving_info, id)
  if to then landed[#landed + 1], bytes = id, bytes + size else lost[#lost + 1] = id end
end
for _, hash in ipairs({ tasks, attempts, dlq_info, moving_info }) do each_slice('HDEL', hash, landed, 4000) end
each_slice('ZREM', moving, landed, 4000)
for _, id in ipairs(lost) do
  redis.call('ZREM', moving, id)
  redis.call('HDEL', moving_info, id)
  restore(id)
end
if #landed == 0 then return 0 end
tally(stats, 'moved', #landed)
weigh(stats, 0, bytes)
return #landed
