-- recover: do as a check said with one task whose lease ran out, unless the lease or the right to do so is gone; unlock it
-- KEYS processing     zset    id:token -> lease expiry ms
-- KEYS retry          zset    id -> due ms of the next attempt
-- KEYS tasks          hash    id -> envelope
-- KEYS attempts       hash    id -> failures, crashes, last error
-- KEYS dlq            zset    id -> time of death
-- KEYS dlq_info       hash    id -> reason and last error
-- KEYS wake           list    hint for an idle worker
-- KEYS stats          hash    monotonic counters
-- KEYS recovery_lock  string  who asks what to do with the task
-- ARGV member       the lease, id:token
-- ARGV expiry_ms    of the lease as it was examined
-- ARGV owner        who asked
-- ARGV verdict      requeue, complete, bury or wait
-- ARGV reason       of a burial, in the check's own words
-- ARGV wait_ms      for how long the verdict wait leaves the task alone
-- ARGV max_crashes  crashes after which a task is dead
-- ARGV failed       1 when there was no verdict and this is what to do then, else 0
-- RETURNS reclaimed, completed, buried, waited or orphans; gone, alive or lock_lost when nothing was done
local processing, retry, tasks, attempts, dlq, dlq_info, wake, stats, recovery_lock = unpack(KEYS)
local member, verdict, at = ARGV[1], ARGV[4], now()
local id, expiry = id_of(member), tonumber(redis.call('ZSCORE', processing, member))
local mine = redis.call('GET', recovery_lock) == ARGV[3]
if mine then redis.call('DEL', recovery_lock) end
if not expiry then return 'gone' end
-- Another expiry is a sign of life, though it may be over by now, too: what the check knows is older.
if expiry ~= tonumber(ARGV[2]) or math.abs(expiry) > at then return 'alive' end
if not mine then return 'lock_lost' end

local function outcome()
  local requeue, bury = after_crash(at, retry, attempts, dlq, dlq_info)
  if not id or redis.call('HEXISTS', tasks, id) == 0 then return 'orphans' end
  if verdict == 'bury' then return bury(id, 'recovered', ARGV[5]) end
  if verdict == 'wait' then
    redis.call('ZADD', processing, -(at + tonumber(ARGV[6])), member) -- below zero: no worker has it, see keys.py
    return 'waited'
  end
  if verdict == 'complete' then
    weigh(stats, 0, weight(tasks, id))
    redis.call('HDEL', tasks, id)
    redis.call('HDEL', attempts, id)
    return 'completed'
  end
  return requeue(id, tonumber(ARGV[7]))
end

redis.call('ZREM', processing, member) -- first, as in hint(): memory may be full
local done = outcome()
tally(stats, done, 1)
if ARGV[8] == '1' then tally(stats, 'checks_failed', 1) end
if done == 'reclaimed' then hint(wake) end
return done
