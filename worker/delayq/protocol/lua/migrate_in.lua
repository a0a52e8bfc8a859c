-- migrate_in: store a batch of tasks from another shard, unless it arrived before
-- KEYS delayed   zset    id -> due ms
-- KEYS retry     zset    id -> due ms of the next attempt
-- KEYS tasks     hash    id -> envelope
-- KEYS attempts  hash    id -> failures, crashes, due ms, last error
-- KEYS dlq       zset    id -> time of death
-- KEYS dlq_info  hash    id -> reason and last error
-- KEYS arrived   hash    shard -> its last batch verified here; shard:token -> 1 for batches that arrived since
-- KEYS wake      list    token that wakes an idle worker
-- KEYS alarm     list    token that wakes the sleeping scanner
-- KEYS stats     hash    monotonic counters
-- KEYS shard_map string  newest shard map that this shard has received
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags    zset  tag and id
-- KEYS schedules  zset  id of a record -> time of the next look, ms
-- ARGV by      the caller's shard map
-- ARGV shard   from which they come
-- ARGV token   of the batch
-- ARGV id index score envelope counted info ...  as returned by migrate_out
-- RETURNS how many are new here, or 'LATE' and the last verified token, if that is a later one
local delayed, retry, tasks, attempts, dlq, dlq_info, arrived, wake, alarm, stats, shard_map = unpack(KEYS)
local deadlines, tags, schedules = unpack(KEYS, 12)
check_format(stats)
local stale = outdated(shard_map, ARGV[1])
if stale then return stale end
local shard, token, batch = ARGV[2], ARGV[3], ARGV[2] .. ':' .. ARGV[3]
-- A batch older than the last verified one is a late copy, or has its token from a clock that is behind.
local last = redis.call('HGET', arrived, shard) or '0'
if tonumber(token) < (tonumber(last) or 0) then return 'LATE ' .. last end
if token == last then return 0 end
-- A key of another type must fail before the batch counts as arrived, because it would not be sent again.
for _, zset in ipairs({ delayed, retry, dlq, deadlines, tags, schedules }) do redis.call('ZCARD', zset) end
for _, hash in ipairs({ tasks, attempts, dlq_info, stats }) do redis.call('HLEN', hash) end
for _, list in ipairs({ wake, alarm }) do redis.call('LLEN', list) end
redis.call('HDEL', arrived, '') -- first, as in hint(): a batch must arrive even if memory is full
if redis.call('HSETNX', arrived, batch, 1) == 0 then return 0 end
local indexes = { delayed = delayed, retry = retry, dlq = dlq, schedules = schedules }
local at, new, twice, added, largest = now(), 0, 0, 0, 0
local note, announce = announcer(delayed, at, wake, alarm)
for i = 4, #ARGV, 6 do
  local id, index, score, envelope = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if redis.call('HSETNX', tasks, id, envelope) == 1 then
    redis.call('ZADD', indexes[index], score, id)
    add_tags(tags, id, envelope)
    if index == 'schedules' then
      hint(alarm)
    elseif index ~= 'dlq' then
      note(tonumber(score))
      note_deadline(id, envelope, deadlines, alarm)
    end
    if ARGV[i + 4] ~= '' then redis.call('HSET', attempts, id, ARGV[i + 4]) end
    if ARGV[i + 5] ~= '' then redis.call('HSET', dlq_info, id, ARGV[i + 5]) end
    new, added, largest = new + 1, added + weight(tasks, id), math.max(largest, #envelope)
  else
    twice = twice + 1 -- only a fail-over leaves a task in two shards: keep the one in its own shard
  end
end
announce()
-- The batch's token is greater than all tokens of its leases, and the next token here must be greater too.
local ours = tonumber(redis.call('HGET', stats, 'token'))
if not ours or ours < tonumber(token) or ours >= 2 ^ 53 then
  redis.call('HSET', stats, 'format', FORMAT, 'token', token)
end
weigh(stats, added, 0)
if twice > 0 then tally(stats, 'deduplicated', twice) end
note_size(stats, largest)
return new
