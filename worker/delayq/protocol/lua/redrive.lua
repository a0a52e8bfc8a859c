-- redrive: schedule dead letters again, with all their attempts
-- KEYS dlq       zset  id -> time of death
-- KEYS dlq_info  hash  id -> reason and last error
-- KEYS delayed   zset  id -> due ms
-- KEYS attempts  hash  id -> failures, crashes, due ms, last error
-- KEYS wake      list  token that wakes an idle worker
-- KEYS alarm     list  token that wakes the sleeping scanner
-- KEYS stats     hash  monotonic counters
-- KEYS moving    zset  id -> token of tasks in migration to another shard
-- KEYS shard_map string  newest shard map that this shard has received
-- KEYS tasks     hash  id -> envelope
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- ARGV by               the caller's shard map, or '', which also skips tasks in migration
-- ARGV id delay_ms ...  the dead letter, and when to run it
-- RETURNS how many were redriven
local dlq, dlq_info, delayed, attempts, wake, alarm, stats, moving, shard_map, tasks = unpack(KEYS)
local deadlines = unpack(KEYS, 11)
check_format(stats)
local away = outdated(shard_map, ARGV[1])
if away then return away end
for i = 2, #ARGV, 2 do
  away = ARGV[1] ~= '' and moving_on(moving, ARGV[i])
  if away then return away end
end
local at, redriven = now(), 0
local note, announce = announcer(delayed, at, wake, alarm)
for i = 2, #ARGV, 2 do
  if redis.call('ZREM', dlq, ARGV[i]) == 1 then
    local due = at + tonumber(ARGV[i + 1])
    redis.call('HDEL', dlq_info, ARGV[i])
    redis.call('ZADD', delayed, due, ARGV[i])
    -- The envelope ends with the first due time. A deadline counts from it: a new one begins.
    local envelope = redis.call('HGET', tasks, ARGV[i])
    if envelope and last_start(envelope) then
      envelope = string.sub(envelope, 1, -7) .. struct.pack('>I6', due)
      redis.call('HSET', tasks, ARGV[i], envelope)
      note_deadline(ARGV[i], envelope, deadlines, alarm)
    end
    local begun = string.byte(ARGV[i]) == 64 -- an occurrence has begun, see put_back()
    if due > at or begun then redis.call('HSET', attempts, ARGV[i], attempts_entry(0, 0, due, at, '')) end
    note(due)
    redriven = redriven + 1
  end
end
if redriven > 0 then
  tally(stats, 'redriven', redriven)
  announce()
end
return redriven
