-- schedule: store tasks and their due times; a refused one leaves nothing behind
-- KEYS delayed   zset  id -> due ms
-- KEYS retry     zset  id -> due ms of the next attempt
-- KEYS tasks     hash  id -> envelope
-- KEYS attempts  hash  id -> failures, crashes, last error
-- KEYS dlq       zset  id -> time of death
-- KEYS dlq_info  hash  id -> reason and last error
-- KEYS wake      list  hint for an idle worker
-- KEYS alarm     list  hint for a sleeping scanner
-- KEYS stats     hash  monotonic counters
-- KEYS moving    zset  id -> token of those on their way to another shard
-- KEYS layout    string  the newest layout this shard was told of
-- ARGV if_exists     reject, keep or replace
-- ARGV repeated      1 when the reply to the same call may have been lost
-- ARGV max_length    live tasks this shard may hold; those that move count where they go
-- ARGV max_bytes      what the tasks of this shard may weigh together; 0: anything
-- ARGV max_delay_ms  the farthest due time, from now
-- ARGV by            the layout that the caller goes by, or ''
-- ARGV passing       1 when these tasks belong to another shard by now: only what is here already is stored here
-- ARGV id when body ...  `when` as in due_at(); body is the envelope without its due time
-- RETURNS now ms, how many due times lay in the past, then position and outcome of each task not simply created
local delayed, retry, tasks, attempts, dlq, dlq_info, wake, alarm, stats, moving, layout = unpack(KEYS)
local stale = outdated(layout, ARGV[6], true)
if stale then return stale end
local if_exists, repeated = ARGV[1], ARGV[2] == '1'
local at, clamped, largest, added, removed = now(), 0, 0, 0, 0
local room = ARGV[3] - redis.call('HLEN', tasks) + redis.call('ZCARD', dlq) + redis.call('ZCARD', moving)
local space = space_left(stats, ARGV[4])
local limit = at + tonumber(ARGV[5])
local note, announce = announcer(delayed, at, wake, alarm)
local scores, notes, seen = {}, {}, {}

local function store(id, body, due)
  if ARGV[7] == '1' and redis.call('HEXISTS', tasks, id) == 0 then return 'elsewhere' end
  if due > limit then return 'too_far' end
  due = math.max(due, at)
  local envelope = body .. struct.pack('>I6', due)
  local size = #id + #envelope
  largest = math.max(largest, #envelope)
  if room > 0 and size <= space and redis.call('HSETNX', tasks, id, envelope) == 1 then
    room, space, added, seen[id] = room - 1, space - size, added + size, true
    return 'created'
  end
  local stored = redis.call('HGET', tasks, id)
  if not stored then return room > 0 and 'heavy' or 'full' end
  if moving_on(moving, id) then return 'moving' end
  if if_exists ~= 'replace' then
    return repeated and is_same(stored, body, due) and 'repeated' or if_exists == 'keep' and 'kept' or 'exists'
  end
  local before = #stored > 0 and #id + #stored or 0
  if size - before > space then return 'heavy' end
  local gone = redis.call('ZREM', delayed, id) + redis.call('ZREM', retry, id) + redis.call('ZREM', dlq, id)
  if gone == 0 and not seen[id] then return repeated and is_same(stored, body, due) and 'repeated' or 'in_flight' end
  redis.call('HDEL', attempts, id)
  redis.call('HDEL', dlq_info, id)
  redis.call('HSET', tasks, id, envelope)
  space, added, removed, seen[id] = space - size + before, added + size, removed + before, true
  return 'replaced'
end

for i = 8, #ARGV, 3 do
  local due = due_at(ARGV[i + 1], at)
  local outcome = store(ARGV[i], ARGV[i + 2], due)
  if outcome ~= 'created' then notes[#notes + 1], notes[#notes + 2] = (i - 8) / 3, outcome end
  if outcome == 'created' or outcome == 'replaced' then
    if due < at then due, clamped = at, clamped + 1 end
    note(due)
    scores[#scores + 1], scores[#scores + 2] = due, ARGV[i]
  end
end
if #scores > 0 then
  each_slice('ZADD', delayed, scores, 4000)
  tally(stats, 'scheduled', #scores / 2)
  weigh(stats, added, removed)
  announce()
  -- claim.lua weighs its tasks one by one only where a whole claim of the largest could be too much.
  local known = tonumber(redis.call('HGET', stats, 'largest')) or 0
  if largest > known then redis.call('HSET', stats, 'largest', largest) end
end
if clamped > 0 then tally(stats, 'clamped', clamped) end
return {at, clamped, notes}
