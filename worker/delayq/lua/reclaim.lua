-- reclaim: take back leases that ran out; their holders crashed, hung or lost Redis
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, last error
-- KEYS dlq         zset  id -> time of death
-- KEYS dlq_info    hash  id -> reason and last error
-- KEYS wake        list  hint for an idle worker
-- KEYS stats       hash  monotonic counters
-- ARGV limit        how many leases at most
-- ARGV max_crashes  crashes after which a task is dead
-- RETURNS member and outcome (reclaimed, buried or orphans) of each lease taken back
local processing, retry, tasks, attempts, dlq, dlq_info, wake, stats = unpack(KEYS)
local max_crashes, at = tonumber(ARGV[2]), now()
local taken, counted = {}, { reclaimed = 0, buried = 0, orphans = 0 }
local requeue = after_crash(at, retry, attempts, dlq, dlq_info)

local function take_back(member)
  local id = id_of(member)
  redis.call('ZREM', processing, member)
  if not id or redis.call('HEXISTS', tasks, id) == 0 then return 'orphans' end
  return requeue(id, max_crashes)
end

for _, member in ipairs(redis.call('ZRANGEBYSCORE', processing, '-inf', at, 'LIMIT', 0, tonumber(ARGV[1]))) do
  local outcome = take_back(member)
  taken[#taken + 1] = member
  taken[#taken + 1] = outcome
  counted[outcome] = counted[outcome] + 1
end
for _, name in ipairs({ 'reclaimed', 'buried', 'orphans' }) do
  if counted[name] > 0 then tally(stats, name, counted[name]) end
end
if counted.reclaimed > 0 then hint(wake) end
return taken
