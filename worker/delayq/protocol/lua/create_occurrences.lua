-- create_occurrences: store occurrences of a schedule ahead of time, and move its cursor
-- KEYS schedules  zset  id of a record -> time of the next look, ms
-- KEYS tasks      hash  id -> envelope
-- KEYS attempts   hash  id -> failures, crashes, due ms, last error; of a record, its state
-- KEYS dlq        zset  id -> time of death
-- KEYS delayed    zset  id -> due ms
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags       zset  tag and id
-- KEYS moving     zset  id -> token of tasks in migration to another shard
-- KEYS wake       list  token that wakes an idle worker
-- KEYS alarm      list  token that wakes the sleeping scanner
-- KEYS stats      hash  monotonic counters
-- KEYS shard_map  string  newest shard map that this shard has received
-- ARGV id          of the record
-- ARGV version     of the definition that the caller has read
-- ARGV seen        the cursor that the caller has read, ms; '' creates occurrences and moves nothing
-- ARGV cursor      the new one
-- ARGV look        when to look at the schedule again, ms; '' never
-- ARGV missed      how many were not created, because they could not begin in time
-- ARGV max_length  live tasks of this shard, as in schedule.lua
-- ARGV max_bytes   size of all tasks of this shard; 0: no limit
-- ARGV again_ms    when to look again at a schedule whose occurrences have no room
-- ARGV by          the caller's shard map
-- ARGV id due body ...  the occurrences; a body is an envelope without its due time
-- RETURNS how many were created; changed or full when nothing was done
local schedules, tasks, attempts, dlq, delayed, deadlines, tags, moving, wake, alarm, stats, shard_map = unpack(KEYS)
check_format(stats)
local id, version, seen, cursor, look, missed = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local stale = outdated(shard_map, ARGV[10], true) or moving_on(moving, id)
if stale then return stale end
local at, of, scores, size, largest = now(), schedule_of(redis.call('HGET', attempts, id)), {}, 0, 0
if not of or of.phase ~= 'on' or of.version ~= tonumber(version) then return 'changed' end
if seen ~= '' and of.cursor ~= tonumber(seen) then return 'changed' end
for i = 11, #ARGV, 3 do size = size + #ARGV[i] + #ARGV[i + 2] + 6 end
local room = ARGV[7] - live_tasks(tasks, dlq, moving)
if #ARGV > 10 and (room < (#ARGV - 10) / 3 or size > space_left(redis.call('HGET', stats, 'bytes'), ARGV[8])) then
  if seen ~= '' then redis.call('ZADD', schedules, 'XX', string.format('%.0f', at + ARGV[9]), id) end
  return 'full'
end
-- A key of another type must fail before any task is stored.
for _, zset in ipairs({ schedules, delayed, deadlines, tags }) do redis.call('ZCARD', zset) end
local note, announce = announcer(delayed, at, wake, alarm)
size = 0
for i = 11, #ARGV, 3 do
  local task, due = ARGV[i], tonumber(ARGV[i + 1])
  local envelope = ARGV[i + 2] .. struct.pack('>I6', due)
  if redis.call('HSETNX', tasks, task, envelope) == 1 then
    size, largest = size + #task + #envelope, math.max(largest, #envelope)
    scores[#scores + 1], scores[#scores + 2] = ARGV[i + 1], task
    note(due)
    note_fields(task, envelope, deadlines, tags, alarm)
  end
end
if #scores > 0 then
  each_slice('ZADD', delayed, scores, 4000)
  tally(stats, 'scheduled', #scores / 2)
  weigh(stats, size, 0)
  announce()
  note_size(stats, largest)
end
if tonumber(missed) > 0 then tally(stats, 'missed', missed) end
if seen ~= '' then
  of.cursor, of.missed = tonumber(cursor), of.missed + missed
  keep_schedule(attempts, id, of)
  redis.call('ZADD', schedules, look == '' and '+inf' or look, id)
end
return #scores / 2
