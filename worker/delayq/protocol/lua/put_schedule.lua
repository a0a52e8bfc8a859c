-- put_schedule: store the definition of a schedule, or mark it for deletion; clear_schedule.lua must follow
-- KEYS schedules  zset  id of a record -> time of the next look, ms
-- KEYS tasks      hash  id -> envelope
-- KEYS attempts   hash  id -> failures, crashes, due ms, last error; of a record, its state
-- KEYS dlq        zset  id -> time of death
-- KEYS moving     zset  id -> token of tasks in migration to another shard
-- KEYS alarm      list  token that wakes the sleeping scanner
-- KEYS stats      hash  monotonic counters
-- KEYS shard_map  string  newest shard map that this shard has received
-- ARGV id          of the record
-- ARGV body        its envelope without the due time; '': delete the schedule
-- ARGV owner       who writes
-- ARGV by          the caller's shard map
-- ARGV max_length  live tasks of this shard, as in schedule.lua
-- ARGV max_bytes   size of all tasks of this shard; 0: no limit
-- ARGV passing     1 when the record belongs to another shard now: only one that exists here is changed here
-- RETURNS created, updated, unchanged, deleting, not_found, full, heavy or owned; the version; the owner
local schedules, tasks, attempts, dlq, moving, alarm, stats, shard_map = unpack(KEYS)
check_format(stats)
local id, body, owner = ARGV[1], ARGV[2], ARGV[3]
local stale = outdated(shard_map, ARGV[4], true) or moving_on(moving, id)
if stale then return stale end
local at, stored = now(), redis.call('HGET', tasks, id)
local of = schedule_of(redis.call('HGET', attempts, id))
local live = of and of.phase ~= 'deleting'
if live and of.owner ~= owner then return { 'owned', of.version, of.owner } end
if not of and (body == '' or ARGV[7] == '1') then return { 'not_found', 0, owner } end
if live and stored and string.sub(stored, 1, -7) == body then -- also if the reply to the same call was lost
  return { of.phase == 'on' and 'unchanged' or 'updated', of.version, owner }
end

-- Times that were not created are decided by the new definition, unless the old one was suspended. What began
-- before the clock stepped back, by at most a day, is not created again.
local function cursor_now()
  if not live or fields_of(stored or '') == 'suspended' then return at end
  return math.min(of.began < at + 86400000 and math.max(at, of.began) or at, of.cursor)
end

-- While a change is being cleared, a further one leaves what begins under the older definition as it is.
local since = live and of.phase == 'clearing' and kept_due(stored or '') or at

local outcome = body == '' and 'deleting' or live and 'updated' or 'created'
local size, before = #id + #body + 6, stored and #id + #stored or 0
local held = live_tasks(tasks, dlq, moving)
if body == '' then
  body, size = string.sub(stored or '', 1, -7), before
elseif not stored and held >= tonumber(ARGV[5]) then
  return { 'full', 0, owner }
elseif size - before > space_left(redis.call('HGET', stats, 'bytes'), ARGV[6]) then
  return { 'heavy', 0, owner }
end
local phase, cursor = outcome == 'deleting' and outcome or of and 'clearing' or 'on', cursor_now()
of = of or { version = 0, missed = 0, skipped = 0, last = '-', began = 0, late = 0 }
of.version, of.phase, of.owner, of.cursor = of.version + 1, phase, owner, cursor
redis.call('ZCARD', schedules) -- a key of another type must fail before anything is written
redis.call('HDEL', tasks, id) -- first, as in hint(), in case memory is full
redis.call('HSET', tasks, id, body .. struct.pack('>I6', since))
keep_schedule(attempts, id, of)
redis.call('ZADD', schedules, string.format('%.0f', math.min(at, cursor)), id)
weigh(stats, size, before)
note_size(stats, #body + 6)
hint(alarm)
return { outcome, of.version, owner }
