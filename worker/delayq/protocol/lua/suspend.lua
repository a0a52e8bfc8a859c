-- suspend: stop the tasks of a queue: workers read this with the shard map, from shard 0, or from copies in other shards
-- KEYS stats  hash  monotonic counters
-- ARGV policy  "Hold", or "Drain" where the operator removes the workers; Hold does not undo Drain
-- ARGV reason  of the user, or empty
-- RETURNS since when, ms, the policy and the reason, as stored; a second call keeps the time
local stats = KEYS[1]
check_format(stats)
local since, policy = string.match(redis.call('HGET', stats, 'suspended') or '', '^(%d+) (%a+)')
policy = policy == 'Drain' and policy or ARGV[1]
local suspended = (since or string.format('%.0f', now())) .. ' ' .. policy .. ' ' .. ARGV[2]
redis.call('HSET', stats, 'format', FORMAT, 'suspended', suspended)
return suspended
