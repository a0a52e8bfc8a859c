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
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags    zset  tag and id
-- ARGV interval_us  of spec.limits.ratePerSecond: parked tasks take no start of it; 0: no limit
-- ARGV member run ...  lease id:token, and the run that the record of its schedule named before
-- RETURNS for each member: parked, cancelled or lease_lost
local processing, tasks, attempts, followups, delayed, wake, alarm, stats, rate, parked, cancelling = unpack(KEYS)
local deadlines, tags = unpack(KEYS, 12)
local asked = check_format(stats)
local us, outcomes, count = now_us(), {}, 0
local succeed = succession(delayed, tasks, attempts, followups, wake, alarm, stats)
local cancels = canceller(asked, cancelling, tasks, attempts, deadlines, tags, alarm, stats, succeed)
redis.call('ZCARD', parked) -- a key of another type must fail before any task is taken

local function set_aside(id, token)
  if cancels(id, token) then return 'cancelled' end
  count = count + 1
  if succeed(id) then return 'parked' end -- it has not begun, and its follow-up replaces it
  local envelope = redis.call('HGET', tasks, id) or ''
  redis.call('ZADD', parked, 0, parked_member(id, envelope, redis.call('HGET', attempts, id)))
  return 'parked'
end

for i = 2, #ARGV, 2 do
  local n = #ARGV + 1 - i -- the last one first: the record of a schedule names that, and then those before it
  local outcome, run, id, token = 'lease_lost', ARGV[n + 1], id_of(ARGV[n])
  if id and redis.call('ZREM', processing, ARGV[n]) == 1 then
    if run ~= '' then forget_run(ARGV[n], id, run, parked, delayed, tasks, attempts) end
    outcome = set_aside(id, token)
  end
  outcomes[n / 2] = outcome
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
return outcomes
