-- adopt: give tasks that are in no index, and not leased, back to the one where their story says they belong
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, last error
-- KEYS dlq         zset  id -> time of death
-- KEYS dlq_info    hash  id -> reason and last error
-- KEYS moving      zset  id -> token of those on their way to another shard
-- KEYS wake        list  hint for an idle worker
-- KEYS stats       hash  monotonic counters
-- ARGV id ...  tasks that were in no index, and under no lease that the reaper saw
-- RETURNS those that were adopted
local delayed, retry, processing, tasks, attempts, dlq, dlq_info, moving, wake, stats = unpack(KEYS)
local at, adopted, leased = now(), {}, nil

-- All leases are read, milliseconds with 20,000 of them, and only for a task that is in no index now. It may still be
-- leased: the reaper pages through the leases while they change, and asks about few tasks for that reason.
local function is_leased(id)
  if not leased then
    leased = {}
    for _, member in ipairs(redis.call('ZRANGE', processing, 0, -1)) do leased[id_of(member) or ''] = true end
  end
  return leased[id]
end

local function has_home(id)
  for _, zset in ipairs({ delayed, retry, dlq, moving }) do
    if redis.call('ZSCORE', zset, id) then return true end
  end
end

for _, id in ipairs(ARGV) do
  if redis.call('HEXISTS', tasks, id) == 1 and not has_home(id) and not is_leased(id) then
    local buried = redis.call('HEXISTS', dlq_info, id) == 1
    redis.call('ZADD', buried and dlq or redis.call('HEXISTS', attempts, id) == 1 and retry or delayed, at, id)
    if not buried then hint(wake) end
    adopted[#adopted + 1] = id
  end
end
if #adopted > 0 then tally(stats, 'adopted', #adopted) end
return adopted
