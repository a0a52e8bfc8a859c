-- get: all data of one task; if it may be leased, one page of leases is searched per call
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS suspect     zset  id -> token of the run whose group it belongs to
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS dlq         zset  id -> time of death
-- KEYS dlq_info    hash  id -> reason and last error
-- KEYS moving      zset  id -> token of tasks in migration to another shard
-- KEYS followups   hash  id -> envelope that takes the place of a task when it has ended
-- KEYS shard_map   string  newest shard map that this shard has received
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS finished  zset  id -> time at which the task was done, ms
-- KEYS finished_info  hash  id -> attempts, how late it began, due ms, for how long the entry counts
-- KEYS stats  hash  monotonic counters
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- ARGV id       the task
-- ARGV pattern  the same id as a glob that matches its lease members
-- ARGV by       the caller's shard map, or ''
-- ARGV cursor   where to continue in the leases; 0 starts
-- ARGV count    about how many leases to scan
-- RETURNS nothing when there is no such task, 'done', when and its entry of the history when it is in there, the next cursor when its lease is not on this page, else state, score ms, lease member or '', envelope, attempts or '', dlq info or '', due ms of its follow-up (0: none), 1 when its run is to be cancelled, else 0
local delayed, retry, suspect, processing, tasks, attempts, dlq, dlq_info, moving, followups, shard_map = unpack(KEYS)
local parked, finished, finished_info, stats, cancelling = unpack(KEYS, 12)
check_format(stats)
local id = ARGV[1]
local away = outdated(shard_map, ARGV[3]) or moving_on(moving, id)
if away then return away end
local envelope = redis.call('HGET', tasks, id)
if is_record(id) then return end
if not envelope then
  local done, info = finished_task(finished, finished_info, id, now())
  return done and { 'done', done, info }
end

local function view(state, score, member)
  local counts, info = redis.call('HGET', attempts, id) or '', redis.call('HGET', dlq_info, id) or ''
  local next_due = kept_due(redis.call('HGET', followups, id) or '')
  local asked = member and is_cancelling(cancelling, id_of(member)) and 1 or 0
  return { state, math.floor(tonumber(score)), member or '', envelope, counts, info, next_due, asked }
end

for state, zset in pairs({ delayed = delayed, retry = retry, suspect = suspect, dlq = dlq }) do
  local score = redis.call('ZSCORE', zset, id)
  if score then return view(state, score) end
end
local waits = parked_as(parked, id, tasks, attempts)
if waits then
  local _, _, due = parked_task(waits)
  return view('parked', due)
end
local page = redis.call('ZSCAN', processing, ARGV[4], 'MATCH', ARGV[2], 'COUNT', ARGV[5])
for i = 1, #page[2], 2 do
  if id_of(page[2][i]) == id then return view('processing', page[2][i + 1], page[2][i]) end
end
if page[1] ~= '0' then return { page[1] } end
return view('orphan', 0)
