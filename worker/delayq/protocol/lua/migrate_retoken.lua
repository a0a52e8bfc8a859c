-- migrate_retoken: give a batch whose token is too old for its destination a token above the last one there
-- KEYS moving       zset  id -> token of tasks in migration to another shard
-- KEYS moving_info  hash  id -> shard, index and score of the destination
-- KEYS stats        hash  monotonic counters
-- ARGV token  of the batch
-- ARGV to     the shard
-- ARGV above  the last verified token of the destination
-- RETURNS how many tasks it has; 0 when they were deleted, because the batch was a late copy
local moving, moving_info, stats = unpack(KEYS)
check_format(stats)
local next = next_token(redis.call('HGET', stats, 'token'), now_us())
local token, renumbered = string.format('%.0f', math.max(next, tonumber(ARGV[3]) + 1)), 0
redis.call('HDEL', moving_info, '') -- first, as in hint(), in case memory is full
for _, id in ipairs(redis.call('ZRANGEBYSCORE', moving, ARGV[1], ARGV[1])) do
  if string.match(redis.call('HGET', moving_info, id) or '', '^%d+') == ARGV[2] then
    redis.call('ZADD', moving, token, id)
    renumbered = renumbered + 1
  end
end
if renumbered > 0 then redis.call('HSET', stats, 'format', FORMAT, 'token', token) end
return renumbered
