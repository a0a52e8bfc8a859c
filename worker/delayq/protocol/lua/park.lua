-- park: set tasks aside whose kind or version this worker does not know, without charging an attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS followups   hash  id -> envelope that takes the place of a task when it has ended
-- KEYS delayed     zset  id -> due ms
-- KEYS wake        list  token that wakes an idle worker
-- KEYS alarm       list  token that wakes the sleeping scanner
-- KEYS stats       hash  monotonic counters
-- KEYS rate        string  time at which the bucket of spec.limits.ratePerSecond is empty, µs
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- ARGV interval_us  of spec.limits.ratePerSecond: parked tasks take no start of it; 0: no limit
-- ARGV member run ...  lease id:token, and the run that the record of its schedule named before
-- RETURNS positions of the leases that were lost
local processing, tasks, attempts, followups, delayed, wake, alarm, stats, rate, parked = unpack(KEYS)
check_format(stats)
local us, lost, count = now_us(), {}, 0
local succeed = succession(delayed, tasks, attempts, followups, wake, alarm, stats)
redis.call('ZCARD', parked) -- a key of another type must fail before any task is taken

local function set_aside(id)
  if succeed(id) then return end -- it has not begun, and its follow-up replaces it
  local envelope = redis.call('HGET', tasks, id) or ''
  redis.call('ZADD', parked, 0, parked_member(id, envelope, redis.call('HGET', attempts, id)))
end

for i = 2, #ARGV, 2 do
  local n = #ARGV + 1 - i -- the last one first: the record of a schedule names that, and then those before it
  local id, run = id_of(ARGV[n]), ARGV[n + 1]
  if id and redis.call('ZREM', processing, ARGV[n]) == 1 then
    if run ~= '' then forget_run(ARGV[n], id, run, parked, delayed, tasks, attempts) end
    set_aside(id)
    count = count + 1
  else
    lost[#lost + 1] = (n - 2) / 2
  end
end
if count > 0 then
  tally(stats, 'parked', count)
  local dry = (tonumber(redis.call('GET', rate)) or us) - ARGV[1] * count
  if dry <= us then
    redis.call('DEL', rate)
  else
    redis.call('SET', rate, string.format('%.0f', dry), 'PX', math.ceil((dry - us) / 1000))
  end
end
return lost
