-- reconcile: compare one page of an index with the others, and repair states that no transition can leave
-- KEYS index       hash or zset  the index to scan: any of those below except cursors
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS suspect     zset  id -> token of the run whose group it belongs to
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS dlq         zset  id -> time of death
-- KEYS dlq_info    hash  id -> reason and last error
-- KEYS moving       zset  id -> token of tasks in migration to another shard
-- KEYS moving_info  hash  id -> shard, index and score of the destination
-- KEYS followups   hash  id -> envelope that takes the place of a task when it has ended
-- KEYS cursors     hash  index name -> where the last page ended
-- KEYS stats       hash  monotonic counters
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS schedules  zset  id of a record -> time of the next look, ms
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- ARGV name    of the index
-- ARGV scan    HSCAN or ZSCAN, as the index needs
-- ARGV cursor  where to continue; 0 starts, -1 continues where the last page of any caller ended
-- ARGV count   about how many entries; fewer where they are large
-- RETURNS next cursor (0: done), id and outcome (pruned or deduplicated) of each task that needed one, ids that are leased or in no index at all
local index, delayed, retry, suspect, processing, tasks, attempts, dlq, dlq_info, moving = unpack(KEYS)
local moving_info, followups, cursors, stats, parked, schedules, cancelling = unpack(KEYS, 11)
check_format(stats)
local repaired, homeless, running, at = {}, {}, index == processing, now()

-- A task belongs to one index. A lease has precedence, then suspect, then the first of delayed, retry, dlq, moving; of
-- delayed and retry, the one with the later due time.
local function repair(id)
  local homes, dues = {}, {}
  for _, zset in ipairs({ delayed, retry, dlq, moving, schedules }) do
    local due = tonumber(redis.call('ZSCORE', zset, id))
    if due then homes[#homes + 1], dues[#dues + 1] = zset, due end
  end
  if homes[2] == retry and dues[2] > dues[1] then homes[1], homes[2], dues[1] = retry, delayed, dues[2] end
  if redis.call('ZSCORE', suspect, id) then
    local due = (homes[1] == delayed or homes[1] == retry) and dues[1] <= at
    table.insert(homes, (due or #homes == 0) and 1 or #homes + 1, suspect)
  end
  if redis.call('HEXISTS', tasks, id) == 0 then
    for _, zset in ipairs(homes) do redis.call('ZREM', zset, id) end
    local forgotten = redis.call('HDEL', attempts, id) + redis.call('HDEL', dlq_info, id)
    forgotten = forgotten + forget_cancelling(cancelling, id, stats)
    redis.call('HDEL', moving_info, id)
    local left = redis.call('HGET', followups, id)
    if left then
      redis.call('HDEL', followups, id)
      redis.call('HSET', tasks, id, left)
      weigh(stats, #id + #left, 0)
      homeless[#homeless + 1] = id
    end
    return #homes + forgotten > 0 and 'pruned'
  end
  local extra = running and 1 or 2
  for i = extra, #homes do redis.call('ZREM', homes[i], id) end
  local twice = (running or #homes > 0) and unparked(parked, id, tasks, attempts)
  local waits = #homes > 0 or parked_as(parked, id, tasks, attempts)
  if not (running or waits) then homeless[#homeless + 1] = id end
  local stale = index == cancelling and waits and forget_cancelling(cancelling, id, stats) == 1 -- it is not in flight
  return (twice or #homes >= extra) and 'deduplicated' or stale and 'pruned'
end

local cursor = ARGV[3] == '-1' and redis.call('HGET', cursors, ARGV[1]) or math.max(0, tonumber(ARGV[3]))
local count = index == tasks and readable(stats, ARGV[4]) or tonumber(ARGV[4])
local page = redis.call(ARGV[2], index, cursor, 'COUNT', count)
redis.call('HSET', cursors, ARGV[1], page[1])
for i = 1, #page[2], 2 do
  local member = page[2][i]
  local id = index == parked and parked_id(member) or running and id_of(member) or member -- itself: no lease
  local unusable = running and id == member or index == parked and parked_as(parked, id, tasks, attempts) ~= member
  local outcome = unusable and redis.call('ZREM', index, member) == 1 and 'pruned' or repair(id)
  if outcome then
    repaired[#repaired + 1], repaired[#repaired + 2] = id, outcome
    tally(stats, outcome, 1)
  end
end
return { page[1], repaired, homeless }
