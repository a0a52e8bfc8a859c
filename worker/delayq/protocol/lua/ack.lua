-- ack: the tasks are done; delete those whose lease the caller still holds
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS followups  hash  id -> envelope that takes the place of a task when it has ended
-- KEYS delayed  zset  id -> due ms
-- KEYS wake  list  token that wakes an idle worker
-- KEYS alarm  list  token that wakes the sleeping scanner
-- KEYS stats       hash  monotonic counters
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags    zset  tag and id
-- KEYS finished  zset  id -> time at which the task was done, ms
-- KEYS finished_info  hash  id -> attempts, how late it began, due ms, for how long the entry counts
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- ARGV history     '' for none; else `seconds count bytes`, then the entry of each lease, with commas between them
-- ARGV member ...  leases, id:token
-- RETURNS positions of the leases that were lost
local processing, tasks, attempts, followups, delayed, wake, alarm, stats, deadlines, tags = unpack(KEYS)
local finished, finished_info, cancelling = unpack(KEYS, 11)
local asked = check_format(stats)
local ids, lost, seen, bytes, tagged, limited = {}, {}, {}, 0
if asked then redis.call('HLEN', cancelling) end -- a key of another type must fail before any task is taken
local plain = redis.call('EXISTS', tags, deadlines, followups) == 0
if not plain then
  tagged = redis.call('EXISTS', tags) == 1 and {}
  limited = redis.call('ZCARD', deadlines) > 0 -- a key of another type must fail before any task is taken
end
for i = 2, #ARGV do
  local member = ARGV[i]
  local id = id_of(member)
  if id and redis.call('ZREM', processing, member) == 1 then
    if not seen[id] then bytes = bytes + weight(tasks, id) end
    if tagged then tagged[id] = tagged[id] or redis.call('HGET', tasks, id) end
    ids[#ids + 1], seen[id] = id, i
  else
    lost[#lost + 1] = i - 2
  end
end
if #ids > 0 then
  each_slice('HDEL', tasks, ids, 4000)
  each_slice('HDEL', attempts, ids, 4000)
  tally(stats, 'acked', #ids)
  weigh(stats, 0, bytes)
  if limited then each_slice('ZREM', deadlines, ids, 4000) end
  if not plain or asked or ARGV[1] ~= '' then
    -- PRELUDE
    local succeed, entries = succession(delayed, tasks, attempts, followups, wake, alarm, stats), {}
    for _, id in ipairs(ids) do
      if succeed(id) then
        note_deadline(id, redis.call('HGET', tasks, id), deadlines, alarm)
      elseif tagged then
        tag_entries(entries, id, tagged[id] or '')
      end
    end
    each_slice('ZREM', tags, entries, 4000)
    if asked then -- the runs were to be cancelled, but their tasks are done
      each_slice('HDEL', cancelling, ids, 4000)
      count_cancelling(cancelling, stats)
    end
    -- Last, and without what cannot be written: the tasks are done all the same.
    if ARGV[1] ~= '' then pcall(note_finished, finished, finished_info, stats, ARGV, seen) end
  end
end
return lost
