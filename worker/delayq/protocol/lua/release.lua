-- release: return unstarted or unfinished tasks without charging an attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS suspect     zset  id -> token of the run whose group it belongs to
-- KEYS wake        list  token that wakes an idle worker
-- KEYS alarm       list  token that wakes the sleeping scanner
-- KEYS stats       hash  monotonic counters
-- KEYS tasks       hash  id -> envelope
-- KEYS followups   hash  id -> envelope that takes the place of a task when it has ended
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags    zset  tag and id
-- ARGV member due_ms ...  lease id:token, and the due time to restore
-- RETURNS for each member: released, cancelled or lease_lost
local processing, delayed, retry, attempts, suspect, wake, alarm, stats, tasks, followups, cancelling = unpack(KEYS)
local deadlines, tags = unpack(KEYS, 12)
local asked = check_format(stats)
local at, outcomes, released = now(), {}, 0
local succeed = asked and succession(delayed, tasks, attempts, followups, wake, alarm, stats)
local cancels = canceller(asked, cancelling, tasks, attempts, deadlines, tags, alarm, stats, succeed)
for i = 1, #ARGV, 2 do
  local outcome = 'lease_lost'
  local id, token = id_of(ARGV[i])
  if id and redis.call('ZREM', processing, ARGV[i]) == 1 then
    outcome = cancels(id, token) and 'cancelled' or 'released'
  end
  if outcome == 'released' then
    put_back(id, token, tonumber(ARGV[i + 1]), at, delayed, retry, suspect, attempts, wake, alarm)
    released = released + 1
  end
  outcomes[#outcomes + 1] = outcome
end
if released > 0 then tally(stats, 'released', released) end
return outcomes
