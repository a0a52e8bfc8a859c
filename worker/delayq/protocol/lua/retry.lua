-- retry: the handler failed; run the task again after its backoff, or bury it after its last attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS dlq         zset  id -> time of death
-- KEYS dlq_info    hash  id -> reason and last error
-- KEYS followups  hash  id -> envelope that takes the place of a task when it has ended
-- KEYS delayed  zset  id -> due ms
-- KEYS tasks  hash  id -> envelope
-- KEYS wake        list  token that wakes an idle worker
-- KEYS alarm       list  token that wakes the sleeping scanner
-- KEYS stats       hash  monotonic counters
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags    zset  tag and id
-- ARGV max_attempts  failures after which a task is a dead letter
-- ARGV member delay_ms charge error ...  charge is 1 when this counts as a failure, else 0
-- RETURNS for each member: retried, buried, superseded (as buried, but its follow-up took its place), cancelled or lease_lost
local processing, retry, attempts, dlq, dlq_info, followups, delayed, tasks, wake, alarm, stats = unpack(KEYS)
local cancelling, deadlines, tags = unpack(KEYS, 12)
local asked = check_format(stats)
local max_attempts, at = tonumber(ARGV[1]), now()
local note, announce = announcer(retry, at, wake, alarm)
local outcomes, counted = {}, { retried = 0, buried = 0, superseded = 0, cancelled = 0, lease_lost = 0 }
local succeed = succession(delayed, tasks, attempts, followups, wake, alarm, stats)
local cancels = canceller(asked, cancelling, tasks, attempts, deadlines, tags, alarm, stats, succeed)

local function settle(member, delay_ms, charge, reason)
  local id, token = id_of(member)
  if not id or redis.call('ZREM', processing, member) == 0 then return 'lease_lost' end
  if cancels(id, token) then return 'cancelled' end
  local failures, crashes, _, _, mark = attempts_of(redis.call('HGET', attempts, id))
  failures = failures + tonumber(charge)
  if failures >= max_attempts and charge ~= '0' then
    if succeed(id) then return 'superseded' end
    redis.call('HDEL', attempts, id)
    redis.call('ZADD', dlq, at, id)
    redis.call('HSET', dlq_info, id, failures .. ' ' .. crashes .. ' attempts ' .. reason)
    return 'buried'
  end
  local due = at + tonumber(delay_ms)
  mark.group, mark.size = 0, 0 -- its run ended without a crash
  redis.call('HSET', attempts, id, attempts_entry(failures, crashes, due, at, reason, mark))
  redis.call('ZADD', retry, due, id)
  note(due)
  return 'retried'
end

for i = 2, #ARGV, 4 do
  local outcome = settle(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
  outcomes[#outcomes + 1] = outcome
  counted[outcome] = counted[outcome] + 1
end
counted.buried = counted.buried + counted.superseded
for _, name in ipairs({ 'retried', 'buried' }) do
  if counted[name] > 0 then tally(stats, name, counted[name]) end
end
announce()
return outcomes
