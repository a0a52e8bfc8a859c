-- migrate_verify: whether a batch has arrived; if so, earlier batches are refused from now on
-- KEYS arrived  hash  shard -> its last batch verified here; shard:token -> 1 for batches that arrived since
-- KEYS stats    hash  monotonic counters
-- ARGV shard  from which it comes
-- ARGV token  of the batch, the oldest in migration from there
-- RETURNS 1, or 0 when it must be sent again
local arrived, stats = KEYS[1], KEYS[2]
check_format(stats)
local shard, token = ARGV[1], ARGV[2]
local last = redis.call('HGET', arrived, shard) or '0'
if token == last then return 1 end
if redis.call('HDEL', arrived, shard .. ':' .. token) == 0 then return 0 end
-- Its shard lost the batch in a fail-over after the caller had read it, and later batches were verified since.
if tonumber(token) < (tonumber(last) or 0) then return 0 end
redis.call('HSET', arrived, shard, token)
return 1
