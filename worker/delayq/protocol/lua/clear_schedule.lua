-- clear_schedule: remove a page of the occurrences that were created ahead and have not begun; after the last page, end the change
-- KEYS schedules  zset  id of a record -> time of the next look, ms
-- KEYS tasks      hash  id -> envelope
-- KEYS attempts   hash  id -> failures, crashes, due ms, last error; of a record, its state
-- KEYS tags       zset  tag and id
-- KEYS delayed    zset  id -> due ms
-- KEYS parked     zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS followups  hash  id -> envelope that takes the place of a task when it has ended
-- KEYS moving     zset  id -> token of tasks in migration to another shard
-- KEYS alarm      list  token that wakes the sleeping scanner
-- KEYS stats      hash  monotonic counters
-- KEYS shard_map  string  newest shard map that this shard has received
-- ARGV id       of the record
-- ARGV version  of the change
-- ARGV cursor   member of `tags` where to continue; '' starts
-- ARGV limit    how many entries of `tags` to look at
-- ARGV by       the caller's shard map
-- RETURNS how many were removed, where to continue; '' when the change has ended
local schedules, tasks, attempts, tags, delayed, parked, deadlines, followups, moving, alarm = unpack(KEYS)
local stats, shard_map = unpack(KEYS, 11)
check_format(stats)
local id, limit = ARGV[1], tonumber(ARGV[4])
local stale = outdated(shard_map, ARGV[5]) or moving_on(moving, id)
if stale then return stale end
local at, of, removed, bytes = now(), schedule_of(redis.call('HGET', attempts, id)), 0, 0
if not of or of.phase == 'on' or of.version ~= tonumber(ARGV[2]) then return { 0, '' } end
local changed = kept_due(redis.call('HGET', tasks, id) or '') -- put_schedule.lua stores when it was
local page = page_of(id, ARGV[3], limit, tags, tasks, stats)

local function remove(task, envelope)
  local nominal = occurrence_of(envelope)
  if not nominal or of.phase == 'clearing' and nominal <= math.max(of.cursor, changed) then return end
  if redis.call('HEXISTS', attempts, task) == 1 then return end
  if taken_out(task, delayed) == 0 and not unparked(parked, task, tasks, attempts) then return end
  removed, bytes = removed + 1, bytes + #task + #envelope
  each_slice('ZREM', tags, tag_entries({}, task, envelope), 4000)
  redis.call('ZREM', deadlines, task)
  redis.call('HDEL', followups, task)
  redis.call('HDEL', tasks, task)
end

local last = ''
for n = 1, #page, 2 do
  last = id .. ' ' .. page[n]
  if page[n + 1] then remove(page[n], page[n + 1]) else redis.call('ZREM', tags, last) end
end
if removed > 0 then tally(stats, 'cancelled', removed) end
if #page == 2 * limit then
  weigh(stats, 0, bytes)
  return { removed, last }
end
if of.phase == 'clearing' then
  of.phase = 'on'
  keep_schedule(attempts, id, of)
  redis.call('ZADD', schedules, string.format('%.0f', math.min(at, of.cursor)), id)
  hint(alarm)
else
  bytes = bytes + weight(tasks, id)
  redis.call('ZREM', schedules, id)
  redis.call('HDEL', tasks, id)
  redis.call('HDEL', attempts, id)
end
weigh(stats, 0, bytes)
return { removed, '' }
