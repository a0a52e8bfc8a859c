-- due_kinds: the kinds of the tasks that fall due within a time, from a sample with evenly spaced ranks
-- KEYS delayed  zset  id -> due ms
-- KEYS tasks    hash  id -> envelope
-- KEYS stats    hash  monotonic counters
-- ARGV within_ms  how far ahead; tasks that are due already count, too
-- ARGV limit      how many tasks to look at; fewer if envelopes are large
-- RETURNS how many tasks fall due; of the sample, for each kind: kind ('-': none), how many tasks
local delayed, tasks, stats = unpack(KEYS)
local due = redis.call('ZCOUNT', delayed, '-inf', now() + ARGV[1])
local count = math.min(due, readable(stats, ARGV[2]))
if count == 0 then return { due } end

local ids = due == count and redis.call('ZRANGE', delayed, 0, count - 1) or {}
for i = #ids + 1, count do
  local rank = math.floor((i - 0.5) * due / count)
  ids[i] = redis.call('ZRANGE', delayed, rank, rank)[1]
end

local found, position = { due }, {}
for _, envelope in ipairs(redis.call('HMGET', tasks, unpack(ids))) do
  if envelope then -- an orphan has none
    local kind = kind_of(envelope)
    local at = position[kind] or #found + 1
    position[kind], found[at], found[at + 1] = at, kind, (found[at + 1] or 0) + 1
  end
end
return found
