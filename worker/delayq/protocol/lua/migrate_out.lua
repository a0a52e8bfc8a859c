-- migrate_out: take tasks of another shard out of their index; tasks in flight, locked, with a follow-up or due soon stay
-- KEYS delayed      zset    id -> due ms
-- KEYS retry        zset    id -> due ms of the next attempt
-- KEYS suspect      zset    id -> token of the run whose group it belongs to
-- KEYS processing   zset    id:token -> lease expiry ms
-- KEYS tasks        hash    id -> envelope
-- KEYS attempts     hash    id -> failures, crashes, due ms, last error
-- KEYS dlq          zset    id -> time of death
-- KEYS dlq_info     hash    id -> reason and last error
-- KEYS moving       zset    id -> token of tasks in migration to another shard
-- KEYS moving_info  hash    id -> shard, index and score of the destination
-- KEYS followups    hash    id -> envelope that takes the place of a task when it has ended
-- KEYS stats        hash    monotonic counters
-- KEYS shard_map    string  newest shard map that this shard has received
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS schedules  zset  id of a record -> time of the next look, ms
-- KEYS tags    zset  tag and id
-- KEYS lock ...     string  run that holds the task's lock
-- ARGV by         the caller's shard map
-- ARGV near_ms    tasks due within this time stay, unless they are late by as much and nothing runs here
-- ARGV id to ...  the task, and the shard it belongs to
-- RETURNS token; of each task taken id, to, index, score, envelope, attempts or '', dlq info or ''; ids that stay; ids that were too large for one call
local delayed, retry, suspect, processing, tasks, attempts, dlq, dlq_info, moving, moving_info = unpack(KEYS)
local followups, stats, shard_map, parked, schedules, tags = unpack(KEYS, 11)
check_format(stats)
local stale = outdated(shard_map, ARGV[1], true)
if stale then return stale end
local us, bytes, departed, stay, later = now_us(), 262144, {}, {}, {}
local soon = math.floor(us / 1000) + tonumber(ARGV[2])
-- On a queue on hold no due task runs: tasks that are late for long must not delay the migration.
local late = redis.call('ZCARD', processing) == 0 and math.floor(us / 1000) - tonumber(ARGV[2]) or -math.huge
local token = next_token(redis.call('HGET', stats, 'token'), us)

-- The index, the score, the key of the index, and the member there.
local function index_of(id)
  local look = string.byte(id) == 64 and tonumber(redis.call('ZSCORE', schedules, id))
  if look then return last_here(id, tags, tasks) and 'schedules', look, schedules, id end
  for name, zset in pairs({ delayed = delayed, retry = retry }) do
    local due = tonumber(redis.call('ZSCORE', zset, id))
    if due then return (due >= soon or due < late) and name, due, zset, id end
  end
  -- A suspect runs here, isolated. If nothing runs here, it migrates as a task of retry.
  local token = tonumber(redis.call('ZSCORE', suspect, id))
  if token then return token / 1000 < late and 'retry', math.floor(token / 1000), suspect, id end
  local died = tonumber(redis.call('ZSCORE', dlq, id))
  if died then return 'dlq', died, dlq, id end
  -- A parked task is one of delayed or retry at its destination, until a worker there parks it.
  local member = parked_as(parked, id, tasks, attempts)
  if member then
    local _, _, due = parked_task(member)
    return redis.call('HEXISTS', attempts, id) == 1 and 'retry' or 'delayed', due, parked, member
  end
end

local function depart(id, to, lock)
  if redis.call('HEXISTS', tasks, id) == 0 or moving_on(moving, id) then return end
  local index, score, zset, member = index_of(id)
  local size = weight(tasks, id)
  if not index or redis.call('EXISTS', lock) == 1 or redis.call('HEXISTS', followups, id) == 1 then
    stay[#stay + 1] = id
  elseif #departed > 0 and size > bytes then
    later[#later + 1] = id
  else
    bytes, score = bytes - size, string.format('%.0f', score)
    -- First the write that a full Redis refuses: a task that could not arrive must not be taken.
    redis.call('HSET', moving_info, id, to .. ' ' .. index .. ' ' .. score)
    redis.call('ZADD', moving, string.format('%.0f', token), id)
    redis.call('ZREM', zset, member)
    local counted, info = redis.call('HGET', attempts, id) or '', redis.call('HGET', dlq_info, id) or ''
    departed[#departed + 1] = { id, to, index, score, redis.call('HGET', tasks, id), counted, info }
  end
end

for i = 3, #ARGV, 2 do depart(ARGV[i], ARGV[i + 1], KEYS[16 + (i - 1) / 2]) end
if #departed > 0 then redis.call('HSET', stats, 'format', FORMAT, 'token', string.format('%.0f', token)) end
return { string.format('%.0f', token), departed, stay, later }
