-- release: return unstarted or unfinished tasks without charging an attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS suspect     zset  id -> token of the run whose group it belongs to
-- KEYS wake        list  token that wakes an idle worker
-- KEYS alarm       list  token that wakes the sleeping scanner
-- KEYS stats       hash  monotonic counters
-- ARGV member due_ms ...  lease id:token, and the due time to restore
-- RETURNS positions of the leases that were lost
local processing, delayed, retry, attempts, suspect, wake, alarm, stats = unpack(KEYS)
check_format(stats)
local at, lost, released = now(), {}, 0
for i = 1, #ARGV, 2 do
  local id, token = id_of(ARGV[i])
  if id and redis.call('ZREM', processing, ARGV[i]) == 1 then
    put_back(id, token, tonumber(ARGV[i + 1]), at, delayed, retry, suspect, attempts, wake, alarm)
    released = released + 1
  else
    lost[#lost + 1] = (i - 1) / 2
  end
end
if released > 0 then tally(stats, 'released', released) end
return lost
