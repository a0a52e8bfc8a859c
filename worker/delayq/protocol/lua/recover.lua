-- recover: apply the check's verdict to one expired lease, if lease and recovery lock are unchanged; unlock the task
-- KEYS processing     zset    id:token -> lease expiry ms
-- KEYS suspect        zset    id -> token of the run whose group it belongs to
-- KEYS tasks          hash    id -> envelope
-- KEYS attempts       hash    id -> failures, crashes, due ms, last error
-- KEYS dlq            zset    id -> time of death
-- KEYS dlq_info       hash    id -> reason and last error
-- KEYS followups    hash    id -> envelope that takes the place of a task when it has ended
-- KEYS delayed      zset    id -> due ms
-- KEYS wake           list    token that wakes an idle worker
-- KEYS alarm          list    token that wakes the sleeping scanner
-- KEYS stats          hash    monotonic counters
-- KEYS recovery_lock  string  process that calls the recovery check for the task
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags    zset  tag and id
-- ARGV member       the lease, id:token
-- ARGV expiry_ms    of the lease as it was examined
-- ARGV owner        the process that called the check
-- ARGV verdict      requeue, complete, bury or wait
-- ARGV reason       of a burial, from the check
-- ARGV wait_ms      for how long the verdict wait leaves the task alone
-- ARGV max_crashes  crashes after which a task is a dead letter
-- ARGV failed       1 when the check failed and this is its onFailure, else 0
-- RETURNS reclaimed, completed, buried, superseded (as buried, but its follow-up took its place), waited, cancelled or orphans; gone, alive or lock_lost when nothing was done
local processing, suspect, tasks, attempts, dlq, dlq_info, followups, delayed = unpack(KEYS)
local wake, alarm, stats, recovery_lock, cancelling, deadlines, tags = unpack(KEYS, 9)
local asked = check_format(stats)
local member, verdict, at = ARGV[1], ARGV[4], now()
local id, token = id_of(member)
local expiry = tonumber(redis.call('ZSCORE', processing, member))
local mine = redis.call('GET', recovery_lock) == ARGV[3]
if mine then redis.call('DEL', recovery_lock) end
if not expiry then return 'gone' end
-- The lease was extended since the check read it, so the verdict is outdated, even if the lease has expired again.
if expiry ~= tonumber(ARGV[2]) or math.abs(expiry) > at then return 'alive' end
if not mine then return 'lock_lost' end

local function outcome()
  local succeed = succession(delayed, tasks, attempts, followups, wake, alarm, stats)
  local requeue, bury = after_crash(at, suspect, attempts, dlq, dlq_info, succeed)
  local cancels = canceller(asked, cancelling, tasks, attempts, deadlines, tags, alarm, stats, succeed)
  if not id or redis.call('HEXISTS', tasks, id) == 0 then return 'orphans' end
  if verdict == 'wait' then
    redis.call('ZADD', processing, -(at + tonumber(ARGV[6])), member) -- negative: held by no worker, see keys.py
    return 'waited'
  end
  if verdict == 'complete' then
    weigh(stats, 0, weight(tasks, id))
    redis.call('HDEL', tasks, id)
    redis.call('HDEL', attempts, id)
    succeed(id)
    if asked then forget_cancelling(cancelling, id, stats) end
    return 'completed'
  end
  if cancels(id, token) then return 'cancelled' end
  return verdict == 'bury' and bury(id, 'recovered', ARGV[5]) or requeue(id, token, tonumber(ARGV[7]))
end

redis.call('ZREM', processing, member) -- first, as in hint(), in case memory is full
local done = outcome()
if done ~= 'cancelled' then tally(stats, done == 'superseded' and 'buried' or done, 1) end
if ARGV[8] == '1' then tally(stats, 'checks_failed', 1) end
if done == 'reclaimed' then hint(wake) end
return done
