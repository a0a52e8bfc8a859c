-- expire: end tasks that missed their deadline and are not in flight
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS delayed    zset  id -> due ms
-- KEYS retry      zset  id -> due ms of the next attempt
-- KEYS suspect    zset  id -> token of the run whose group it belongs to
-- KEYS parked     zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS tasks      hash  id -> envelope
-- KEYS attempts   hash  id -> failures, crashes, due ms, last error
-- KEYS dlq        zset  id -> time of death
-- KEYS dlq_info   hash  id -> reason and last error
-- KEYS followups  hash  id -> envelope that takes the place of a task when it has ended
-- KEYS wake       list  token that wakes an idle worker
-- KEYS alarm      list  token that wakes the sleeping scanner
-- KEYS stats      hash  monotonic counters
-- ARGV limit      how many entries of `deadlines` to examine
-- ARGV drops      1 when such tasks are deleted, 0 when they become dead letters
-- ARGV again_ms   when to examine a task in flight again
-- RETURNS how many tasks ended, how many entries it examined
local deadlines, delayed, retry, suspect, parked, tasks, attempts, dlq, dlq_info, followups = unpack(KEYS)
local wake, alarm, stats = unpack(KEYS, 11)
check_format(stats)
local at, late, missed = now(), {}, {}
local found = redis.call('ZRANGEBYSCORE', deadlines, '-inf', at, 'LIMIT', 0, tonumber(ARGV[1]))
if #found == 0 then return { 0, 0 } end
local expire = expirer(at, ARGV[2], deadlines, tasks, attempts, dlq, dlq_info, followups, delayed, wake, alarm, stats)

-- When to examine it again; nothing if the task, and its follow-up, have no deadline any more.
local function examine(id)
  local envelope = redis.call('HGET', tasks, id)
  local dead = not envelope or redis.call('ZSCORE', dlq, id)
  if dead then return end
  local nominal, within = occurrence_of(envelope)
  local unstarted = nominal and at > kept_due(envelope) + within and redis.call('HEXISTS', attempts, id) == 0
  if unstarted or past_deadline(envelope, at) then
    if taken_out(id, delayed, retry, suspect) > 0 or unparked(parked, id, tasks, attempts) then
      table.insert(unstarted and missed or late, id)
      return
    end
    return at + ARGV[3] -- it is in flight, or migrates
  end
  if redis.call('HEXISTS', followups, id) == 1 then return at + ARGV[3] end -- which may have an earlier one
  local last = nominal and redis.call('HEXISTS', attempts, id) == 0 and last_start(envelope) or deadline_of(envelope)
  return last and last + 1
end

for _, id in ipairs(found) do
  local again = examine(id)
  redis.call('ZREM', deadlines, id) -- first, as in hint(), in case memory is full
  if again then redis.call('ZADD', deadlines, string.format('%.0f', again), id) end
end
expire(late)
expire(missed, 'missed')
count_missed(missed, attempts)
return { #late + #missed, #found }
