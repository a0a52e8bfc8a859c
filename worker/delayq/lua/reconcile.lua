-- reconcile: hold one page of an index against the others, and mend what no transition could have left
-- KEYS index       hash or zset  the one to walk: any of those below but cursors
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, last error
-- KEYS dlq         zset  id -> time of death
-- KEYS dlq_info    hash  id -> reason and last error
-- KEYS moving       zset  id -> token of those on their way to another shard
-- KEYS moving_info  hash  id -> where to, and index and score there
-- KEYS cursors     hash  index name -> where the last page ended
-- KEYS stats       hash  monotonic counters
-- ARGV name    of the index
-- ARGV scan    HSCAN or ZSCAN, as the index needs
-- ARGV cursor  where to go on; 0 starts, -1 goes on where the last page ended, whoever asked for it
-- ARGV count   about how many entries; fewer where they are large
-- RETURNS next cursor (0: done), id and mend (pruned or deduplicated) of each task that needed one, ids that are leased or in no index at all
local index, delayed, retry, processing, tasks, attempts, dlq, dlq_info, moving, moving_info = unpack(KEYS)
local cursors, stats = unpack(KEYS, 11)
local mended, homeless, running = {}, {}, index == processing

-- A task has one home. A lease wins over any other, else the first of delayed, retry, dlq, moving.
local function mend(id)
  local homes = {}
  for _, zset in ipairs({ delayed, retry, dlq, moving }) do
    if redis.call('ZSCORE', zset, id) then homes[#homes + 1] = zset end
  end
  if redis.call('HEXISTS', tasks, id) == 0 then
    for _, zset in ipairs(homes) do redis.call('ZREM', zset, id) end
    local forgotten = redis.call('HDEL', attempts, id) + redis.call('HDEL', dlq_info, id)
    redis.call('HDEL', moving_info, id)
    return #homes + forgotten > 0 and 'pruned'
  end
  local extra = running and 1 or 2
  for i = extra, #homes do redis.call('ZREM', homes[i], id) end
  if #homes == 0 and not running then homeless[#homeless + 1] = id end
  return #homes >= extra and 'deduplicated'
end

local cursor = ARGV[3] == '-1' and redis.call('HGET', cursors, ARGV[1]) or math.max(0, tonumber(ARGV[3]))
local count = index == tasks and readable(stats, ARGV[4]) or tonumber(ARGV[4])
local page = redis.call(ARGV[2], index, cursor, 'COUNT', count)
redis.call('HSET', cursors, ARGV[1], page[1])
for i = 1, #page[2], 2 do
  local id = running and id_of(page[2][i]) or page[2][i]
  local nobody = running and id == page[2][i] -- no lease has such a name: nobody would ever settle it
  local outcome = nobody and redis.call('ZREM', index, id) == 1 and 'pruned' or mend(id)
  if outcome then
    mended[#mended + 1], mended[#mended + 2] = id, outcome
    tally(stats, outcome, 1)
  end
end
return { page[1], mended, homeless }
