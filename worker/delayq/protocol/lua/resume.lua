-- resume: let the tasks of a queue start again
-- KEYS stats  hash  monotonic counters
-- RETURNS what suspended them, as suspend.lua stored it; nothing if they were not suspended
local stats = KEYS[1]
check_format(stats)
local suspended = redis.call('HGET', stats, 'suspended')
if suspended then redis.call('HDEL', stats, 'suspended') end
return suspended
