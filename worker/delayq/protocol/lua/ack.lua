-- ack: the tasks are done; delete those whose lease the caller still holds
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS followups  hash  id -> envelope that takes the place of a task when it has ended
-- KEYS delayed  zset  id -> due ms
-- KEYS wake  list  token that wakes an idle worker
-- KEYS alarm  list  token that wakes the sleeping scanner
-- KEYS stats       hash  monotonic counters
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- ARGV member ...  leases, id:token
-- RETURNS positions of the leases that were lost
local processing, tasks, attempts, followups, delayed, wake, alarm, stats, deadlines = unpack(KEYS)
local ids, lost, seen, bytes = {}, {}, {}, 0
for i, member in ipairs(ARGV) do
  local id = id_of(member)
  if id and redis.call('ZREM', processing, member) == 1 then
    if not seen[id] then bytes = bytes + weight(tasks, id) end
    ids[#ids + 1], seen[id] = id, true
  else
    lost[#lost + 1] = i - 1
  end
end
if #ids > 0 then
  each_slice('HDEL', tasks, ids, 4000)
  each_slice('HDEL', attempts, ids, 4000)
  tally(stats, 'acked', #ids)
  weigh(stats, 0, bytes)
  if redis.call('EXISTS', deadlines) == 1 then each_slice('ZREM', deadlines, ids, 4000) end
  if redis.call('HLEN', followups) > 0 then
    -- PRELUDE
    local succeed = succession(delayed, tasks, attempts, followups, wake, alarm, stats)
    for _, id in ipairs(ids) do
      if succeed(id) then note_deadline(id, redis.call('HGET', tasks, id), deadlines, alarm, stats) end
    end
  end
end
return lost
