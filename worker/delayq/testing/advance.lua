-- advance: move every time of a shard back, as if this much time had passed. For tests only: it reads the whole shard.
-- KEYS delayed   zset  id -> due ms
-- KEYS retry     zset  id -> due ms of the next attempt
-- KEYS dlq       zset  id -> time of death
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS tasks     hash  id -> envelope
-- KEYS attempts  hash  id -> failures, crashes, due ms, last error
-- KEYS followups  hash  id -> envelope that takes the place of a task when it has ended
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS finished  zset  id -> time at which the task was done, ms
-- KEYS finished_info  hash  id -> attempts, how late it began, due ms, for how long the entry counts
-- ARGV ms  how much time
-- RETURNS how many tasks the shard holds
local delayed, retry, dlq, parked, tasks, attempts, followups, deadlines, finished, finished_info = unpack(KEYS)
local ms = tonumber(ARGV[1])
for _, zset in ipairs({ delayed, retry, dlq, deadlines, finished }) do
  local found = redis.call('ZRANGE', zset, 0, -1, 'WITHSCORES')
  for i = 1, #found, 2 do redis.call('ZADD', zset, string.format('%.0f', found[i + 1] - ms), found[i]) end
end
for _, hash in ipairs({ tasks, followups }) do
  local found = redis.call('HGETALL', hash)
  for i = 1, #found, 2 do
    local envelope = found[i + 1]
    local _, _, _, latest, from = fields_of(envelope)
    if latest then
      local moved = struct.pack('>I6', math.max(0, latest - ms))
      envelope = string.sub(envelope, 1, from - 1) .. moved .. string.sub(envelope, from + 6)
    end
    if #envelope > 6 then
      local due = math.max(0, struct.unpack('>I6', string.sub(envelope, -6)) - ms)
      redis.call('HSET', hash, found[i], string.sub(envelope, 1, -7) .. struct.pack('>I6', due))
    end
  end
end
local entries = redis.call('HGETALL', attempts)
for i = 1, #entries, 2 do
  local counts, due, rest = string.match(entries[i + 1], '^(%d+ %d+ )@(%d+)( .*)$')
  if due then
    redis.call('HSET', attempts, entries[i], string.format('%s@%.0f%s', counts, math.max(0, due - ms), rest))
  end
end
entries = redis.call('HGETALL', finished_info)
for i = 1, #entries, 2 do
  local run, due, seconds = string.match(entries[i + 1], '^(%d+ %d+ )(%d+)( %d+)$')
  redis.call('HSET', finished_info, entries[i], string.format('%s%.0f%s', run, math.max(0, due - ms), seconds))
end
for _, member in ipairs(redis.call('ZRANGE', parked, 0, -1)) do
  local kind, version, due, id = string.match(member, '^(%S+) (%d+) (%d+) (.*)$')
  redis.call('ZREM', parked, member)
  redis.call('ZADD', parked, 0, string.format('%s %s %015.0f %s', kind, version, math.max(0, due - ms), id))
end
return redis.call('HLEN', tasks)
