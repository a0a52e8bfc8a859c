-- reclaim: end expired leases, whose holders crashed, hung or lost Redis
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS suspect     zset  id -> token of the run whose group it belongs to
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS dlq         zset  id -> time of death
-- KEYS dlq_info    hash  id -> reason and last error
-- KEYS followups  hash  id -> envelope that takes the place of a task when it has ended
-- KEYS delayed  zset  id -> due ms
-- KEYS wake        list  token that wakes an idle worker
-- KEYS alarm  list  token that wakes the sleeping scanner
-- KEYS stats       hash  monotonic counters
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags    zset  tag and id
-- ARGV limit        how many leases at most
-- ARGV max_crashes  crashes after which a task is a dead letter
-- ARGV before_ms    leases that ran out later are left alone; empty: now
-- RETURNS member and outcome (reclaimed, buried, superseded, cancelled or orphans) of each lease
local processing, suspect, tasks, attempts, dlq, dlq_info, followups, delayed, wake, alarm, stats = unpack(KEYS)
local cancelling, deadlines, tags = unpack(KEYS, 12)
local asked = check_format(stats)
local max_crashes, at = tonumber(ARGV[2]), now()
local before = math.min(at, tonumber(ARGV[3]) or at)
local taken, counted = {}, { reclaimed = 0, buried = 0, superseded = 0, cancelled = 0, orphans = 0 }
local succeed = succession(delayed, tasks, attempts, followups, wake, alarm, stats)
local requeue = after_crash(at, suspect, attempts, dlq, dlq_info, succeed)
local cancels = canceller(asked, cancelling, tasks, attempts, deadlines, tags, alarm, stats, succeed)

local function take_back(member)
  local id, token = id_of(member)
  redis.call('ZREM', processing, member)
  if not id or redis.call('HEXISTS', tasks, id) == 0 then return 'orphans' end
  if cancels(id, token) then return 'cancelled' end
  return requeue(id, token, max_crashes)
end

for _, member in ipairs(redis.call('ZRANGEBYSCORE', processing, '-inf', before, 'LIMIT', 0, tonumber(ARGV[1]))) do
  local outcome = take_back(member)
  taken[#taken + 1] = member
  taken[#taken + 1] = outcome
  counted[outcome] = counted[outcome] + 1
end
counted.buried = counted.buried + counted.superseded
for _, name in ipairs({ 'reclaimed', 'buried', 'orphans' }) do
  if counted[name] > 0 then tally(stats, name, counted[name]) end
end
if counted.reclaimed > 0 then hint(wake) end
return taken
