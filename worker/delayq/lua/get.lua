-- get: everything the queue knows of one task
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, last error
-- KEYS dlq         zset  id -> time of death
-- KEYS dlq_info    hash  id -> reason and last error
-- KEYS moving      zset  id -> token of those on their way to another shard
-- KEYS layout      string  the newest layout this shard was told of
-- ARGV id       the task
-- ARGV pattern  the same id as a glob that matches its lease members
-- ARGV by       the layout that the caller goes by, or ''
-- RETURNS nothing when unknown, else state, score ms, lease member or '', envelope, attempts or '', dlq info or ''
local delayed, retry, processing, tasks, attempts, dlq, dlq_info, moving, layout = unpack(KEYS)
local id = ARGV[1]
local away = outdated(layout, ARGV[3]) or moving_on(moving, id)
if away then return away end
local envelope = redis.call('HGET', tasks, id)
if not envelope then return false end

local function lease()
  local cursor = '0'
  repeat
    local page = redis.call('ZSCAN', processing, cursor, 'MATCH', ARGV[2], 'COUNT', 1000)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      if id_of(page[2][i]) == id then return page[2][i], page[2][i + 1] end
    end
  until cursor == '0'
end

local function view(state, score, member)
  local counts, info = redis.call('HGET', attempts, id) or '', redis.call('HGET', dlq_info, id) or ''
  return { state, math.floor(tonumber(score)), member or '', envelope, counts, info }
end

for state, zset in pairs({ delayed = delayed, retry = retry, dlq = dlq }) do
  local score = redis.call('ZSCORE', zset, id)
  if score then return view(state, score) end
end
local member, expiry = lease()
if member then return view('processing', expiry, member) end
return view('orphan', 0)
