-- schedule: store tasks and their due times; nothing of a refused task is stored
-- KEYS delayed   zset  id -> due ms
-- KEYS retry     zset  id -> due ms of the next attempt
-- KEYS suspect   zset  id -> token of the run whose group it belongs to
-- KEYS tasks     hash  id -> envelope
-- KEYS attempts  hash  id -> failures, crashes, due ms, last error
-- KEYS dlq       zset  id -> time of death
-- KEYS dlq_info  hash  id -> reason and last error
-- KEYS wake      list  token that wakes an idle worker
-- KEYS alarm     list  token that wakes the sleeping scanner
-- KEYS stats     hash  monotonic counters
-- KEYS moving    zset  id -> token of tasks in migration to another shard
-- KEYS followups  hash  id -> envelope that takes the place of a task when it has ended
-- KEYS shard_map string  newest shard map that this shard has received
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags    zset  tag and id
-- KEYS finished  zset  id -> time at which the task was done, ms
-- KEYS finished_info  hash  id -> attempts, how late it began, due ms, for how long the entry counts
-- ARGV if_exists     reject, keep, replace or debounce
-- ARGV repeated      1 when the reply to the same call may have been lost
-- ARGV max_length    live tasks of this shard; tasks in migration count at their destination
-- ARGV max_bytes      size of all tasks of this shard; 0: no limit
-- ARGV max_delay_ms  the farthest due time, from now
-- ARGV by            the caller's shard map, or ''
-- ARGV passing       1 when these tasks belong to another shard now: only tasks that exist here are replaced here
-- ARGV id when body ...  `when` as in due_at(); body is the envelope without its due time; for debounce with the latest due time in ms from now
-- RETURNS now ms, how many due times lay in the past, then position, outcome and stored due ms (0: none) of each task not simply created
local delayed, retry, suspect, tasks, attempts, dlq, dlq_info, wake, alarm, stats, moving, followups = unpack(KEYS)
local shard_map, parked, deadlines, tags, finished, finished_info = unpack(KEYS, 13)
local format, bytes, largest = unpack(redis.call('HMGET', stats, 'format', 'bytes', 'largest'))
local stale = check_format(stats, format) or outdated(shard_map, ARGV[6], true)
if stale then return stale end
local at, if_exists, repeated, scores, notes, seen = now(), ARGV[1], ARGV[2] == '1', {}, {}, {}
local room = ARGV[3] - live_tasks(tasks, dlq, moving)
local limit, space, done = at + ARGV[5], space_left(bytes, ARGV[4]), remembered(if_exists, finished, finished_info, at)
local note, announce = announcer(delayed, at, wake, alarm)
local clamped, most, added, removed, count = 0, 0, 0, 0, 0
local function store(id, body, due)
  if ARGV[7] == '1' and redis.call('HEXISTS', tasks, id) == 0 then return 'elsewhere' end
  if due > limit then return 'too_far' end
  if if_exists == 'debounce' then
    body, due = debounced(id, body, due, at, seen[id], delayed, retry, parked, tasks, attempts, followups)
  end
  local envelope, size = body .. struct.pack('>I6', due), #id + #body + 6
  most = math.max(most, #envelope)
  if room > 0 and size <= space and not done(id) and redis.call('HSETNX', tasks, id, envelope) == 1 then
    room, space, added, seen[id] = room - 1, space - size, added + size, true
    return 'created', due, envelope
  end
  local stored, dead = redis.call('HGET', tasks, id), redis.call('ZSCORE', dlq, id)
  if not stored then return done(id) and 'kept' or room > 0 and 'heavy' or 'full', done(id) end
  if moving_on(moving, id) then return 'moving' end
  local left, left_due = unchanged(id, stored, body, due, if_exists, repeated, delayed, retry, attempts)
  if left then return left, left_due end
  if dead and room <= 0 then return 'full' end -- its replacement is one more live task
  local before = #stored > 0 and #id + #stored or 0
  if size - before > space then return 'heavy' end
  local waits = taken_out(id, delayed, retry, suspect, dlq) > 0 or unparked(parked, id, tasks, attempts) or seen[id]
  if not waits then return follow_up(id, envelope, followups), due, envelope end
  for _, hash in ipairs({ followups, attempts, dlq_info }) do redis.call('HDEL', hash, id) end
  redis.call('HSET', tasks, id, envelope)
  room, seen[id] = dead and room - 1 or room, true
  space, added, removed = space - size + before, added + size, removed + before
  return 'replaced', due, envelope
end

for i = 8, #ARGV, 3 do
  local id, asked, n = ARGV[i], due_at(ARGV[i + 1], at), #notes + 1
  local outcome, due, envelope = store(id, ARGV[i + 2], math.max(asked, at))
  if outcome ~= 'created' or due < asked then notes[n], notes[n + 1], notes[n + 2] = (i - 8) / 3, outcome, due or 0 end
  if outcome == 'created' or outcome == 'replaced' then
    if asked < at then clamped = clamped + 1 end
    note(due)
    scores[#scores + 1], scores[#scores + 2] = due, id
  end
  if envelope then count = count + 1 end
  if envelope and string.byte(envelope) > 31 then note_fields(id, envelope, deadlines, tags, alarm) end
end
if count > 0 then
  each_slice('ZADD', delayed, scores, 4000)
  tally(stats, 'scheduled', count)
  weigh(stats, added, removed)
  announce()
  if most > (tonumber(largest) or 0) then redis.call('HSET', stats, 'format', FORMAT, 'largest', most) end
end
if clamped > 0 then tally(stats, 'clamped', clamped) end
return {at, clamped, notes}
