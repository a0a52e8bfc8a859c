-- due_kinds: the kinds of the tasks that fall due within a time, from a sample of one in each of evenly spaced ranges of ranks
-- KEYS delayed  zset  id -> due ms
-- KEYS tasks    hash  id -> envelope
-- ARGV within_ms  how far ahead; tasks that are due already count, too
-- ARGV limit      how many tasks to look at, at most 100; fewer if envelopes are large
-- ARGV random     where to look in each part: a whole number from 1 to 2^31 - 2
-- RETURNS how many tasks fall due; of the sample, for each kind: kind ('-': none), how many tasks
local delayed, tasks = KEYS[1], KEYS[2]
local due = redis.call('ZCOUNT', delayed, '-inf', now() + ARGV[1])
local count, bytes = math.min(due, tonumber(ARGV[2])), 0
local found, position, random = { due }, {}, tonumber(ARGV[3])
for i = 1, count do
  -- Each part of the range once, for 103 is a prime; not in order, because large envelopes end the loop early. At random in
  -- its part, because kinds may alternate with a period.
  random = random * 48271 % 2147483647
  local rank = math.floor((i * 103 % count + random / 2147483647) * due / count)
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
