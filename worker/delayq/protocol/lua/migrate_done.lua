-- migrate_done: note that a whole walk found every task of the shard at home, and nothing on its way
-- KEYS moving   zset    id -> token of those on their way to another shard
-- KEYS cursors  hash    home -> epoch in which the whole shard was found to be at home
-- KEYS shard_map string  the newest shard map this shard was told of
-- KEYS stats    hash    monotonic counters, and the format of the shard
-- ARGV by      the shard map that the caller walked by
-- ARGV epoch   of that shard map
-- RETURNS 1, or 0 when tasks are on their way still
local moving, cursors, shard_map, stats = unpack(KEYS)
local newer = newer_format(stats)
if newer then return newer end
local stale = outdated(shard_map, ARGV[1])
if stale then return stale end
if redis.call('ZCARD', moving) > 0 then return 0 end
redis.call('HDEL', cursors, 'home') -- first, as in hint(): memory may be full
redis.call('HSET', cursors, 'home', ARGV[2])
return 1
