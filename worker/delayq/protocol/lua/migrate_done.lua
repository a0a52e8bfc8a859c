-- migrate_done: store that a whole scan found no task of another shard, and that no task is in migration
-- KEYS moving   zset    id -> token of tasks in migration to another shard
-- KEYS cursors  hash    home -> epoch of the shard map under which all tasks belong to this shard
-- KEYS shard_map string  newest shard map that this shard has received
-- KEYS stats    hash    monotonic counters
-- ARGV by      the shard map of the caller's scan
-- ARGV epoch   of that shard map
-- RETURNS 1, or 0 while tasks are in migration
local moving, cursors, shard_map, stats = unpack(KEYS)
check_format(stats)
local stale = outdated(shard_map, ARGV[1])
if stale then return stale end
if redis.call('ZCARD', moving) > 0 then return 0 end
redis.call('HDEL', cursors, 'home') -- first, as in hint(), in case memory is full
redis.call('HSET', cursors, 'home', ARGV[2])
return 1
