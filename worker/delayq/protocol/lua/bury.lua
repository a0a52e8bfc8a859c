-- bury: the task cannot succeed; make it a dead letter
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS dlq         zset  id -> time of death
-- KEYS dlq_info    hash  id -> reason and last error
-- KEYS followups  hash  id -> envelope that takes the place of a task when it has ended
-- KEYS delayed  zset  id -> due ms
-- KEYS tasks  hash  id -> envelope
-- KEYS wake  list  token that wakes an idle worker
-- KEYS alarm  list  token that wakes the sleeping scanner
-- KEYS stats       hash  monotonic counters
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags    zset  tag and id
-- ARGV member error ...  lease id:token, and why
-- RETURNS for each member: buried, superseded (its follow-up took its place), cancelled or lease_lost
local processing, attempts, dlq, dlq_info, followups, delayed, tasks, wake, alarm, stats = unpack(KEYS)
local cancelling, deadlines, tags = unpack(KEYS, 11)
local asked = check_format(stats)
local at, outcomes, buried = now(), {}, 0
local succeed = succession(delayed, tasks, attempts, followups, wake, alarm, stats)
local cancels = canceller(asked, cancelling, tasks, attempts, deadlines, tags, alarm, stats, succeed)
for i = 1, #ARGV, 2 do
  local outcome = 'lease_lost'
  local id, token = id_of(ARGV[i])
  if id and redis.call('ZREM', processing, ARGV[i]) == 1 then
    outcome = cancels(id, token) and 'cancelled' or succeed(id) and 'superseded' or 'buried'
    if outcome ~= 'cancelled' then buried = buried + 1 end
    if outcome == 'buried' then
      local failures, crashes = attempts_of(redis.call('HGET', attempts, id))
      redis.call('HDEL', attempts, id)
      redis.call('ZADD', dlq, at, id)
      redis.call('HSET', dlq_info, id, (failures + 1) .. ' ' .. crashes .. ' buried ' .. ARGV[i + 1])
    end
  end
  outcomes[#outcomes + 1] = outcome
end
if buried > 0 then tally(stats, 'buried', buried) end
return outcomes
