-- extend: extend leases that the caller still holds
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS stats  hash  monotonic counters
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- ARGV lease_ms    how long from now
-- ARGV member ...  leases, id:token
-- RETURNS positions of the leases that were lost, and of those that were extended so that their run can be cancelled
local processing, stats, cancelling = KEYS[1], KEYS[2], KEYS[3]
local asked = check_format(stats)
local expiry, lost, cancelled = now() + tonumber(ARGV[1]), {}, {}
for i = 2, #ARGV do
  -- Remove first, as in hint(): a lease must be extended even if memory is full.
  if redis.call('ZREM', processing, ARGV[i]) == 1 then
    redis.call('ZADD', processing, expiry, ARGV[i])
    if asked and is_cancelling(cancelling, id_of(ARGV[i])) then cancelled[#cancelled + 1] = i - 2 end
  else
    lost[#lost + 1] = i - 2
  end
end
return { lost, cancelled }
