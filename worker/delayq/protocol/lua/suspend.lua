-- suspend: stop the tasks of a queue: workers read this with the shard map, from shard 0, or from copies in other shards
-- KEYS stats  hash  monotonic counters
-- ARGV policy  "Hold", or "Drain" where the operator removes the workers
-- ARGV reason  of the user, or empty
-- RETURNS since when, ms, the policy and the reason, as stored; a second call keeps the time
local stats = KEYS[1]
check_format(stats)
local since = string.match(redis.call('HGET', stats, 'suspended') or '', '^%d+') or string.format('%.0f', now())
local suspended = since .. ' ' .. ARGV[1] .. ' ' .. ARGV[2]
redis.call('HSET', stats, 'format', FORMAT, 'suspended', suspended)
return suspended
