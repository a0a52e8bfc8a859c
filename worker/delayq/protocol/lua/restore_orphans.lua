-- restore_orphans: search leases of tasks without an index, a page per call; after the last page, restore those without one
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS suspect     zset  id -> token of the run whose group it belongs to
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS dlq         zset  id -> time of death
-- KEYS dlq_info    hash  id -> reason and last error
-- KEYS moving      zset  id -> token of tasks in migration to another shard
-- KEYS wake        list  token that wakes an idle worker
-- KEYS alarm       list  token that wakes the sleeping scanner
-- KEYS stats       hash  monotonic counters
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS schedules  zset  id of a record -> time of the next look, ms
-- KEYS followups   hash  id -> envelope that takes the place of a task when it has ended
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags    zset  tag and id
-- ARGV cursor  where to continue in the leases; 0 starts
-- ARGV count   about how many leases to scan
-- ARGV id trace ...  tasks that were in no index, and the trace from the previous page; '' at the first page
-- RETURNS next cursor (0: done), id and trace of each task that may still be an orphan, ids of restored tasks
local delayed, retry, suspect, processing, tasks, attempts, dlq, dlq_info, moving, wake, alarm, stats = unpack(KEYS)
local parked, schedules, followups, cancelling, deadlines, tags = unpack(KEYS, 13)
local asked = check_format(stats)
local succeed = asked and succession(delayed, tasks, attempts, followups, wake, alarm, stats)
local cancels = canceller(asked, cancelling, tasks, attempts, deadlines, tags, alarm, stats, succeed)
local leased, left, adopted, cursor = {}, {}, {}, ARGV[1]
local restore = restorer(now(), delayed, retry, schedules, tasks, attempts, dlq, dlq_info, wake, alarm)

local page = redis.call('ZSCAN', processing, cursor, 'COUNT', ARGV[2])
for i = 1, #page[2], 2 do leased[id_of(page[2][i]) or ''] = true end

local function has_home(id)
  for _, zset in ipairs({ suspect, delayed, retry, dlq, moving, schedules }) do
    if redis.call('ZSCORE', zset, id) then return true end
  end
  return parked_as(parked, id, tasks, attempts)
end

-- A scan returns each lease that exists from its first page to its last. A task that changes leases meanwhile is in an index
-- in between; the script that puts it there increments a counter here, or stores another envelope. If any of these differs,
-- the task may have been leased unseen, and is not restored.
local kept = { 'retried', 'released', 'reclaimed', 'redriven', 'adopted', 'parked', 'unparked' }
local counted = redis.call('HMGET', stats, unpack(kept))
for i = 1, #kept do counted[i] = counted[i] or '' end
local story = server_run() .. ' ' .. table.concat(counted, ' ') .. ' '

for i = 3, #ARGV, 2 do
  local id, trace = ARGV[i], ARGV[i + 1]
  local envelope = not leased[id] and not has_home(id) and redis.call('HGET', tasks, id)
  local found = envelope and story .. string.sub(envelope, -6)
  if envelope and page[1] ~= '0' and (trace == found or cursor == '0') then
    left[#left + 1], left[#left + 2] = id, found
  elseif envelope and page[1] == '0' and (trace == found or cursor == '0') then
    if not cancels(id, 0) then -- it was in flight when its run was to be cancelled
      restore(id)
      adopted[#adopted + 1] = id
    end
  end
end
if #adopted > 0 then tally(stats, 'adopted', #adopted) end
return { page[1], left, adopted }
