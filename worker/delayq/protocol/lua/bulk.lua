-- bulk: count, list or cancel the tasks with a tag, a kind and a due time in a range, one page of a shard per call
-- KEYS tags      zset  tag and id
-- KEYS tasks     hash  id -> envelope
-- KEYS delayed   zset  id -> due ms
-- KEYS retry     zset  id -> due ms of the next attempt
-- KEYS suspect   zset  id -> token of the run whose group it belongs to
-- KEYS attempts  hash  id -> failures, crashes, due ms, last error
-- KEYS dlq       zset  id -> time of death
-- KEYS moving    zset  id -> token of tasks in migration to another shard
-- KEYS followups  hash  id -> envelope that takes the place of a task when it has ended
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS stats     hash  monotonic counters
-- KEYS shard_map string  newest shard map that this shard has received
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- ARGV action    count, list or cancel
-- ARGV tag       that they have, or ''
-- ARGV kind      that they have, or ''
-- ARGV from_ms   the earliest due time
-- ARGV to_ms     due times are before it
-- ARGV cursor    where to continue; '' starts
-- ARGV count     how many entries to look at; if there is no tag, about how many
-- ARGV by        the caller's shard map, or ''
-- RETURNS next cursor ('': done), how many match: tasks that wait, follow-ups, tasks in flight, dead letters; ids in migration; id and due ms of those listed
local tags, tasks, delayed, retry, suspect, attempts, dlq, moving, followups, parked, stats, shard_map = unpack(KEYS)
local deadlines = unpack(KEYS, 13)
check_format(stats)
local stale = outdated(shard_map, ARGV[8])
if stale then return stale end
local action, tag, kind, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[7])
local followed, moves = redis.call('HLEN', followups) > 0, redis.call('ZCARD', moving) > 0
local matches = matcher(tag, kind, tonumber(ARGV[4]), tonumber(ARGV[5]))
local waiting, follows, running, dead, bytes = 0, 0, 0, 0, 0
local migrating, listed, cancelled, entries = {}, {}, {}, {}

local function list(id, due)
  if action == 'list' then listed[#listed + 1], listed[#listed + 2] = id, string.format('%.0f', due) end
end

local function cancel(id, envelope, indexed)
  if not indexed then unparked(parked, id, tasks, attempts) end
  cancelled[#cancelled + 1], bytes = id, bytes + (#envelope > 0 and #id + #envelope or 0)
  tag_entries(entries, id, envelope)
end

local function look(id, envelope)
  if not envelope or is_record(id) then return end
  if moves and moving_on(moving, id) then migrating[#migrating + 1] = id return end
  local due = tonumber(redis.call('ZSCORE', delayed, id) or redis.call('ZSCORE', retry, id))
  local indexed = due or redis.call('ZSCORE', suspect, id)
  local waits = indexed or parked_as(parked, id, tasks, attempts)
  due = due or kept_due(envelope, redis.call('HGET', attempts, id))
  local matched, follow_up = matches(envelope, due), followed and redis.call('HGET', followups, id)
  if matched and waits then
    waiting = waiting + 1
    list(id, due)
    return action == 'cancel' and cancel(id, envelope, indexed)
  end
  if follow_up and matches(follow_up, kept_due(follow_up)) then
    follows = follows + 1
    if not waits then list(id, kept_due(follow_up)) end
    if action == 'cancel' then redis.call('HDEL', followups, id) end
  end
  local died = matched and redis.call('ZSCORE', dlq, id)
  dead, running = dead + (died and 1 or 0), running + (matched and not died and 1 or 0)
end

local page, cursor, again = page_of(tag, ARGV[6], count, tags, tasks, stats)
for i = 1, #page, 2 do
  if action == 'cancel' and waiting + follows >= count then -- a small hash comes as one page: read it again
    cursor, running, dead = again, 0, 0
    break
  end
  look(page[i], page[i + 1])
end
if #cancelled > 0 then
  for _, zset in ipairs({ delayed, retry, suspect, deadlines }) do redis.call('ZREM', zset, unpack(cancelled)) end
  for _, hash in ipairs({ followups, attempts, tasks }) do redis.call('HDEL', hash, unpack(cancelled)) end
  each_slice('ZREM', tags, entries, 4000)
  tally(stats, 'cancelled', waiting)
  weigh(stats, 0, bytes)
end
return { cursor, waiting, follows, running, dead, migrating, listed }
