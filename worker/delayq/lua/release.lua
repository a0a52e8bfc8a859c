-- release: hand back unstarted or unfinished work; no attempt is charged
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS attempts    hash  id -> failures, crashes, last error
-- KEYS wake        list  hint for an idle worker
-- KEYS alarm       list  hint for a sleeping scanner
-- KEYS stats       hash  monotonic counters
-- ARGV member due_ms ...  lease id:token, and the due time to give back
-- RETURNS positions of the leases that were lost
local processing, delayed, retry, attempts, wake, alarm, stats = unpack(KEYS)
local at, lost, released = now(), {}, 0
for i = 1, #ARGV, 2 do
  local id, due = id_of(ARGV[i]), tonumber(ARGV[i + 1])
  if id and redis.call('ZREM', processing, ARGV[i]) == 1 then
    local home = redis.call('HEXISTS', attempts, id) == 1 and retry or delayed
    local note, announce = announcer(home, at, wake, alarm)
    redis.call('ZADD', home, due, id)
    note(due)
    announce()
    released = released + 1
  else
    lost[#lost + 1] = (i - 1) / 2
  end
end
if released > 0 then tally(stats, 'released', released) end
return lost
