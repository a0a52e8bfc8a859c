-- examine: the data that a recovery check needs of a task with an expired lease
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- ARGV member  the lease, id:token
-- RETURNS nothing when the lease is gone, valid or deferred, else its expiry ms, envelope or nothing, attempts or ''
local processing, tasks, attempts = unpack(KEYS)
local id, expiry = id_of(ARGV[1]), tonumber(redis.call('ZSCORE', processing, ARGV[1]))
if not expiry or math.abs(expiry) > now() then return false end
if not id then return { expiry, false, '' } end
return { expiry, redis.call('HGET', tasks, id), redis.call('HGET', attempts, id) or '' }
