-- migrate_verify: whether a batch has arrived; then none that departed before it will any more
-- KEYS arrived  hash  shard -> its last batch that landed here; shard:token -> 1 for those that arrived since
-- KEYS stats    hash  monotonic counters, and the format of the shard
-- ARGV shard  it comes from
-- ARGV token  under which it departed, the oldest that is on its way from there
-- RETURNS 1, or 0 when it has to arrive again
local arrived, stats = KEYS[1], KEYS[2]
local newer = newer_format(stats)
if newer then return newer end
local shard, token = ARGV[1], ARGV[2]
local last = redis.call('HGET', arrived, shard) or '0'
if token == last then return 1 end
if redis.call('HDEL', arrived, shard .. ':' .. token) == 0 then return 0 end
-- Its shard forgot in a fail-over that it departed, and who asks had seen it before: others have landed since.
if tonumber(token) < (tonumber(last) or 0) then return 0 end
redis.call('HSET', arrived, shard, token)
return 1
