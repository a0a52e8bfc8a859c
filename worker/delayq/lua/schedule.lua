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
-- ARGV if_exists     reject, keep or replace
-- ARGV repeated      1 when the reply to the same call may have been lost
-- ARGV max_length    live tasks this shard may hold
-- ARGV max_delay_ms  the farthest due time, from now
-- ARGV id when body ...  `when` as in due_at(); body is the envelope without its due time
-- RETURNS now ms, how many due times lay in the past, then position and outcome of each task not simply created
local delayed, retry, tasks, attempts, dlq, dlq_info, wake, alarm, stats = unpack(KEYS)
local if_exists, repeated = ARGV[1], ARGV[2] == '1'
local at, clamped, largest = now(), 0, 0
local room = tonumber(ARGV[3]) - redis.call('HLEN', tasks) + redis.call('ZCARD', dlq)
local limit = at + tonumber(ARGV[4])
local note, announce = announcer(delayed, at, wake, alarm)
local scores, notes, seen = {}, {}, {}

-- A repeated call finds its own task again by what it holds and when it was due: no more than the time of a few tries
-- apart, for a delay is counted from each try's own now.
local function is_own(stored, body, due)
  if not repeated or string.sub(stored, 1, -7) ~= body then return false end
  local apart = due - struct.unpack('>I6', string.sub(stored, -6))
  return apart >= 0 and apart <= 60000
end

local function store(id, body, due)
  if due > limit then return 'too_far' end
  due = math.max(due, at)
  local envelope = body .. struct.pack('>I6', due)
  largest = math.max(largest, #envelope)
  if room > 0 and redis.call('HSETNX', tasks, id, envelope) == 1 then
    room, seen[id] = room - 1, true
    return 'created'
  end
  local stored = redis.call('HGET', tasks, id)
  if not stored then return 'full' end
  if if_exists ~= 'replace' then
    return is_own(stored, body, due) and 'repeated' or if_exists == 'keep' and 'kept' or 'exists'
  end
  local gone = redis.call('ZREM', delayed, id) + redis.call('ZREM', retry, id) + redis.call('ZREM', dlq, id)
  if gone == 0 and not seen[id] then return is_own(stored, body, due) and 'repeated' or 'in_flight' end
  redis.call('HDEL', attempts, id)
  redis.call('HDEL', dlq_info, id)
  redis.call('HSET', tasks, id, envelope)
  seen[id] = true
  return 'replaced'
end

for i = 5, #ARGV, 3 do
  local due = due_at(ARGV[i + 1], at)
  local outcome = store(ARGV[i], ARGV[i + 2], due)
  if outcome ~= 'created' then notes[#notes + 1], notes[#notes + 2] = (i - 5) / 3, outcome end
  if outcome == 'created' or outcome == 'replaced' then
    if due < at then due, clamped = at, clamped + 1 end
    note(due)
    scores[#scores + 1], scores[#scores + 2] = due, ARGV[i]
  end
end
if #scores > 0 then
  each_slice('ZADD', delayed, scores, 4000)
  redis.call('HINCRBY', stats, 'scheduled', #scores / 2)
  announce()
  -- claim.lua weighs its tasks one by one only where a whole claim of the largest could be too much.
  local known = tonumber(redis.call('HGET', stats, 'largest') or 0)
  if largest > known then redis.call('HSET', stats, 'largest', largest) end
end
if clamped > 0 then redis.call('HINCRBY', stats, 'clamped', clamped) end
return {at, clamped, notes}
