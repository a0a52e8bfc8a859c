-- extend: extend leases that the caller still holds
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS stats  hash  monotonic counters
-- ARGV lease_ms    how long from now
-- ARGV member ...  leases, id:token
-- RETURNS positions of the leases that were lost
local processing, stats = KEYS[1], KEYS[2]
check_format(stats)
local expiry, lost = now() + tonumber(ARGV[1]), {}
for i = 2, #ARGV do
  -- Remove first, as in hint(): a lease must be extended even if memory is full.
  if redis.call('ZREM', processing, ARGV[i]) == 1 then
    redis.call('ZADD', processing, expiry, ARGV[i])
  else
    lost[#lost + 1] = i - 2
  end
end
return lost
