-- reconcile: hold one page of an index against all the others, and mend what no transition could have left
-- KEYS index       hash or zset  the one to walk: any of those below
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, last error
-- KEYS dlq         zset  id -> time of death
-- KEYS dlq_info    hash  id -> reason and last error
-- KEYS wake        list  hint for an idle worker
-- KEYS stats       hash  monotonic counters
-- ARGV scan    HSCAN or ZSCAN, as the index needs
-- ARGV cursor  where to go on; 0 starts
-- ARGV count   about how many entries
-- RETURNS next cursor (0: done), then id and mend (pruned, deduplicated or adopted) of each task that needed one
local index, delayed, retry, processing, tasks, attempts, dlq, dlq_info, wake, stats = unpack(KEYS)
local at, mended, running, leased = now(), {}, index == processing, nil

-- In-flight ids, read at most once a page and only for a task that no other index holds.
local function is_leased(id)
  if not leased then
    leased = {}
    for _, member in ipairs(redis.call('ZRANGE', processing, 0, -1)) do leased[id_of(member)] = true end
  end
  return leased[id]
end

-- A task has one home. A lease wins over any other, else the first of delayed, retry, dlq.
local function mend(id)
  local homes = {}
  for _, zset in ipairs({ delayed, retry, dlq }) do
    if redis.call('ZSCORE', zset, id) then homes[#homes + 1] = zset end
  end
  if redis.call('HEXISTS', tasks, id) == 0 then
    for _, zset in ipairs(homes) do redis.call('ZREM', zset, id) end
    local forgotten = redis.call('HDEL', attempts, id) + redis.call('HDEL', dlq_info, id)
    return #homes + forgotten > 0 and 'pruned'
  end
  local extra = running and 1 or 2
  for i = extra, #homes do redis.call('ZREM', homes[i], id) end
  if #homes >= extra then return 'deduplicated' end
  if #homes == 0 and not running and not is_leased(id) then
    local buried = redis.call('HEXISTS', dlq_info, id) == 1
    redis.call('ZADD', buried and dlq or redis.call('HEXISTS', attempts, id) == 1 and retry or delayed, at, id)
    if not buried then hint(wake) end
    return 'adopted'
  end
end

local page = redis.call(ARGV[1], index, ARGV[2], 'COUNT', tonumber(ARGV[3]))
for i = 1, #page[2], 2 do
  local id = running and id_of(page[2][i]) or page[2][i]
  local outcome = mend(id)
  if outcome then
    mended[#mended + 1], mended[#mended + 2] = id, outcome
    redis.call('HINCRBY', stats, outcome, 1)
  end
end
return { page[1], mended }
