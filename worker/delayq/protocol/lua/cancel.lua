-- cancel: delete a task that is not in flight; of one that is, delete the follow-up, or ask its worker to cancel the run
-- KEYS delayed   zset  id -> due ms
-- KEYS retry     zset  id -> due ms of the next attempt
-- KEYS suspect   zset  id -> token of the run whose group it belongs to
-- KEYS tasks     hash  id -> envelope
-- KEYS attempts  hash  id -> failures, crashes, due ms, last error
-- KEYS dlq       zset  id -> time of death
-- KEYS stats     hash  monotonic counters
-- KEYS moving    zset  id -> token of tasks in migration to another shard
-- KEYS followups  hash  id -> envelope that takes the place of a task when it has ended
-- KEYS shard_map string  newest shard map that this shard has received
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags    zset  tag and id
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- ARGV id      the task
-- ARGV by      the caller's shard map, or ''
-- ARGV running  1 to cancel a run, too; else 0
-- RETURNS cancelled, cancelling (its run is to end), follow_up_cancelled, in_flight, dead or not_found
local delayed, retry, suspect, tasks, attempts, dlq, stats, moving, followups, shard_map, parked = unpack(KEYS)
local deadlines, tags, cancelling = unpack(KEYS, 12)
check_format(stats)
local id = ARGV[1]
local away = outdated(shard_map, ARGV[2]) or moving_on(moving, id)
if away then return away end
if is_record(id) then return 'not_found' end
local followed = redis.call('HDEL', followups, id) == 1 -- of a task in flight too: it ends without a follow-up
if taken_out(id, delayed, retry, suspect) > 0 or unparked(parked, id, tasks, attempts) then
  weigh(stats, 0, weight(tasks, id))
  if redis.call('EXISTS', tags) == 1 then
    each_slice('ZREM', tags, tag_entries({}, id, redis.call('HGET', tasks, id) or ''), 4000)
  end
  redis.call('HDEL', tasks, id)
  redis.call('HDEL', attempts, id)
  redis.call('ZREM', deadlines, id)
  tally(stats, 'cancelled', 1)
  return 'cancelled'
end
if redis.call('ZSCORE', dlq, id) then return 'dead' end
if redis.call('HEXISTS', tasks, id) == 0 then return 'not_found' end
if ARGV[3] == '1' then
  ask_to_cancel(cancelling, id, stats)
  return 'cancelling'
end
return followed and 'follow_up_cancelled' or 'in_flight'
