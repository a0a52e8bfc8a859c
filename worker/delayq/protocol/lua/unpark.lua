-- unpark: return parked tasks of the given kinds and versions to their index
-- KEYS parked    zset  kind, version, due ms and id of tasks that no worker knows, in this order
-- KEYS delayed   zset  id -> due ms
-- KEYS retry     zset  id -> due ms of the next attempt
-- KEYS attempts  hash  id -> failures, crashes, due ms, last error
-- KEYS wake      list  token that wakes an idle worker
-- KEYS alarm     list  token that wakes the sleeping scanner
-- KEYS stats     hash  monotonic counters
-- ARGV limit             how many tasks at most
-- ARGV prefix ...  of `parked`: the kinds that the caller knows; none: all tasks
-- RETURNS how many were returned, how many tasks remain parked
local parked, delayed, retry, attempts, wake, alarm, stats = unpack(KEYS)
local left, at, count = redis.call('ZCARD', parked), now(), 0
local fresh, fresh_announce = announcer(delayed, at, wake, alarm)
local again, again_announce = announcer(retry, at, wake, alarm)

local function take(low, high)
  local found = redis.call('ZRANGEBYLEX', parked, low, high, 'LIMIT', 0, ARGV[1] - count)
  for _, member in ipairs(found) do
    local _, _, due, id = parked_task(member)
    local retried = redis.call('HEXISTS', attempts, id) == 1
    redis.call('ZREM', parked, member) -- first, as in hint(), in case memory is full
    redis.call('ZADD', retried and retry or delayed, due, id)
    if retried then again(due) else fresh(due) end
  end
  count = count + #found
end

if left > 0 and #ARGV == 1 then take('-', '+') end
for i = 2, #ARGV do
  if left > 0 then take('[' .. ARGV[i] .. ' ', '(' .. ARGV[i] .. '!') end
end
if count > 0 then
  fresh_announce()
  again_announce()
  tally(stats, 'unparked', count)
end
return { count, left - count }
