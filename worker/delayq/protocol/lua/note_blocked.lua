-- note_blocked: record for `delayq doctor` that the event loop of a worker is blocked
-- KEYS stats  hash  monotonic counters
-- RETURNS the time that it recorded, ms
local stats = KEYS[1]
check_format(stats)
local at = now()
redis.call('HSET', stats, 'format', FORMAT, 'blocked_at', at)
return at
