-- due_kinds: the kinds of the tasks that fall due within a time, from a sample with evenly spaced ranks
-- KEYS delayed  zset  id -> due ms
-- KEYS tasks    hash  id -> envelope
-- ARGV within_ms  how far ahead; tasks that are due already count, too
-- ARGV limit      how many tasks to look at, at most 100; fewer if envelopes are large
-- RETURNS how many tasks fall due; of the sample, for each kind: kind ('-': none), how many tasks
local delayed, tasks = KEYS[1], KEYS[2]
local due = redis.call('ZCOUNT', delayed, '-inf', now() + ARGV[1])
local count, bytes = math.min(due, tonumber(ARGV[2])), 0
local found, position = { due }, {}
for i = 1, count do
  -- Each rank once, for 103 is a prime; not in order, because large envelopes end the loop early: 0.61, 0.22, 0.83, 0.45, …
  local rank = math.floor((i * 103 % count + 0.5) * due / count)
  local envelope = redis.call('HGET', tasks, redis.call('ZRANGE', delayed, rank, rank)[1])
  if envelope then -- an orphan has none
    local kind = kind_of(envelope)
    local at = position[kind] or #found + 1
    position[kind], found[at], found[at + 1] = at, kind, (found[at + 1] or 0) + 1
    bytes = bytes + #envelope
  end
  if bytes > 262144 then break end
end
return found
