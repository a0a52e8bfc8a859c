-- end_cancelled: the worker has cancelled the run, because cancel.lua asked for that; delete the task
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS followups   hash  id -> envelope that takes the place of a task when it has ended
-- KEYS delayed     zset  id -> due ms
-- KEYS wake        list  token that wakes an idle worker
-- KEYS alarm       list  token that wakes the sleeping scanner
-- KEYS stats       hash  monotonic counters
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- KEYS deadlines   zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags        zset  tag and id
-- ARGV member ...  leases, id:token
-- RETURNS for each member: cancelled or lease_lost
local processing, tasks, attempts, followups, delayed, wake, alarm, stats, cancelling, deadlines, tags = unpack(KEYS)
check_format(stats)
local outcomes = {}
local succeed = succession(delayed, tasks, attempts, followups, wake, alarm, stats)
-- Even without an entry in `cancelling`: a fail-over may have lost it, and the run has been cancelled.
local finish = ends_cancelled(cancelling, tasks, attempts, deadlines, tags, alarm, stats, succeed)
for i = 1, #ARGV do
  local id = id_of(ARGV[i])
  local held = id and redis.call('ZREM', processing, ARGV[i]) == 1
  if held then finish(id) end
  outcomes[i] = held and 'cancelled' or 'lease_lost'
end
return outcomes
