-- reschedule: move the due time of a task that is not running
-- KEYS delayed  zset  id -> due ms
-- KEYS retry    zset  id -> due ms of the next attempt
-- KEYS tasks    hash  id -> envelope
-- KEYS dlq      zset  id -> time of death
-- KEYS wake     list  hint for an idle worker
-- KEYS alarm    list  hint for a sleeping scanner
-- KEYS stats    hash  monotonic counters
-- KEYS moving   zset  id -> token of those on their way to another shard
-- KEYS layout   string  the newest layout this shard was told of
-- ARGV id            the task
-- ARGV when          as in due_at()
-- ARGV max_delay_ms  the farthest due time, from now
-- ARGV by            the layout that the caller goes by, or ''
-- RETURNS rescheduled, too_far, in_flight, dead or not_found; then the due ms; then 1 when that lay in the past
local delayed, retry, tasks, dlq, wake, alarm, stats, moving, layout = unpack(KEYS)
local id, at = ARGV[1], now()
local away = outdated(layout, ARGV[4]) or moving_on(moving, id)
if away then return away end
local asked = due_at(ARGV[2], at)
local due = math.max(asked, at)
local home = redis.call('ZSCORE', delayed, id) and delayed or redis.call('ZSCORE', retry, id) and retry
local envelope = redis.call('HGET', tasks, id)
if not home or not envelope then
  if redis.call('ZSCORE', dlq, id) then return { 'dead', 0, 0 } end
  if envelope then return { 'in_flight', 0, 0 } end
  return { 'not_found', 0, 0 }
end
if due > at + tonumber(ARGV[3]) then return { 'too_far', due, 0 } end
local note, announce = announcer(home, at, wake, alarm)
redis.call('ZADD', home, due, id)
note(due)
announce()
-- Only of an envelope that it can read: what somebody else wrote stays as it is.
if home == delayed and #envelope > 6 and math.floor(string.byte(envelope) / 8) == 2 then
  redis.call('HSET', tasks, id, string.sub(envelope, 1, -7) .. struct.pack('>I6', due))
end
tally(stats, 'rescheduled', 1)
if asked < at then tally(stats, 'clamped', 1) end
return { 'rescheduled', due, asked < at and 1 or 0 }
