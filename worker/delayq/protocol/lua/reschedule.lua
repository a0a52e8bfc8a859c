-- reschedule: change the due time of a task that is not in flight, or of the follow-up of one that is
-- KEYS delayed   zset    id -> due ms
-- KEYS retry     zset    id -> due ms of the next attempt
-- KEYS suspect   zset    id -> token of the run whose group it belongs to
-- KEYS tasks     hash    id -> envelope
-- KEYS attempts  hash    id -> failures, crashes, due ms, last error
-- KEYS dlq       zset    id -> time of death
-- KEYS wake      list    token that wakes an idle worker
-- KEYS alarm     list    token that wakes the sleeping scanner
-- KEYS stats     hash    monotonic counters
-- KEYS moving    zset    id -> token of tasks in migration to another shard
-- KEYS followups  hash  id -> envelope that takes the place of a task when it has ended
-- KEYS shard_map string  newest shard map that this shard has received
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- ARGV id            the task
-- ARGV when          as in due_at()
-- ARGV max_delay_ms  the farthest due time, from now
-- ARGV by            the caller's shard map, or ''
-- ARGV was           the due ms that it must have, or ''
-- RETURNS rescheduled, changed, too_far, in_flight, dead or not_found; then the due ms; then 1 when that lay in the past
local delayed, retry, suspect, tasks, attempts, dlq, wake, alarm, stats, moving, followups, shard_map = unpack(KEYS)
local parked, deadlines = unpack(KEYS, 13)
check_format(stats)
local id, at = ARGV[1], now()
local away = outdated(shard_map, ARGV[4]) or moving_on(moving, id)
if away then return away end
if is_record(id) then return { 'not_found', 0, 0 } end
local asked = due_at(ARGV[2], at)
local due = math.max(asked, at)
local suspected = redis.call('ZSCORE', suspect, id)
local home = redis.call('ZSCORE', delayed, id) and delayed or (suspected or redis.call('ZSCORE', retry, id)) and retry
local envelope, entry = redis.call('HGET', tasks, id), redis.call('HGET', attempts, id)
local member = not home and parked_as(parked, id, tasks, attempts)
if member then home = entry and retry or delayed end
local follow_up = envelope and not home and redis.call('HGET', followups, id)
if not follow_up and not (home and envelope) then
  if redis.call('ZSCORE', dlq, id) then return { 'dead', 0, 0 } end
  if envelope then return { 'in_flight', 0, 0 } end
  return { 'not_found', 0, 0 }
end
local stands = stored_due(id, follow_up or envelope, not follow_up and entry, delayed, retry)
if ARGV[5] ~= '' and stands ~= tonumber(ARGV[5]) then return { 'changed', stands, 0 } end
if due > at + tonumber(ARGV[3]) then return { 'too_far', due, 0 } end
if follow_up then
  follow_up = string.sub(follow_up, 1, -7) .. struct.pack('>I6', due)
  redis.call('HSET', followups, id, follow_up)
  note_deadline(id, follow_up, deadlines, alarm)
else
  local note, announce = announcer(home, at, wake, alarm)
  redis.call('ZADD', home, due, id)
  if suspected then redis.call('ZREM', suspect, id) end
  if member then redis.call('ZREM', parked, member) end
  note(due)
  announce()
end
-- The due time must survive the loss of the index, and a deadline counts from it. An unreadable envelope stays as it is.
local version = envelope and #envelope > 6 and math.floor(string.byte(envelope) / 8) / 2
if home == delayed and (version == 1 or version == 2) or home and deadline_of(envelope) then
  envelope = string.sub(envelope, 1, -7) .. struct.pack('>I6', due)
  redis.call('HSET', tasks, id, envelope)
  note_deadline(id, envelope, deadlines, alarm)
end
if home == retry or home and entry then
  local failures, crashes, reason, _, mark = attempts_of(entry)
  redis.call('HSET', attempts, id, attempts_entry(failures, crashes, due, at, reason, mark))
end
tally(stats, 'rescheduled', 1)
if asked < at then tally(stats, 'clamped', 1) end
return { 'rescheduled', due, asked < at and 1 or 0 }
