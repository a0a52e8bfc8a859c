-- park: set tasks aside whose kind or version this worker does not know, without charging an attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS stats       hash  monotonic counters
-- KEYS parked    zset  kind, version, due ms and id of tasks that no worker knows, in this order
-- ARGV member ...  leases, id:token
-- RETURNS positions of the leases that were lost
local processing, tasks, attempts, stats, parked = unpack(KEYS)
local lost, count = {}, 0
for i, lease in ipairs(ARGV) do
  local id = id_of(lease)
  local member = id and parked_member(id, redis.call('HGET', tasks, id) or '', redis.call('HGET', attempts, id))
  if member and redis.call('ZREM', processing, lease) == 1 then
    redis.call('ZADD', parked, 0, member)
    count = count + 1
  else
    lost[#lost + 1] = i - 1
  end
end
if count > 0 then
  tally(stats, 'parked', count)
  require_format(stats, 3)
end
return lost
