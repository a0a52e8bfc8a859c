-- unpark: return parked tasks of the given kinds and versions to their index
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS delayed   zset  id -> due ms
-- KEYS retry     zset  id -> due ms of the next attempt
-- KEYS suspect   zset  id -> token of the run whose group it belongs to
-- KEYS attempts  hash  id -> failures, crashes, due ms, last error
-- KEYS wake      list  token that wakes an idle worker
-- KEYS alarm     list  token that wakes the sleeping scanner
-- KEYS stats     hash  monotonic counters
-- ARGV limit             how many tasks at most
-- ARGV prefix ...  of `parked`: the kinds of the caller, with or without a version; none: all tasks
-- RETURNS how many were returned, how many tasks remain parked
local parked, delayed, retry, suspect, attempts, wake, alarm, stats = unpack(KEYS)
check_format(stats)
local left, at, count = redis.call('ZCARD', parked), now(), 0
local fresh, fresh_announce = announcer(delayed, at, wake, alarm)
local again, again_announce = announcer(retry, at, wake, alarm)

local function take(low, high)
  local found = redis.call('ZRANGEBYLEX', parked, low, high, 'LIMIT', 0, ARGV[1] - count)
  for _, member in ipairs(found) do
    local _, _, due, id = parked_task(member)
    local entry = redis.call('HGET', attempts, id)
    local _, _, _, _, mark = attempts_of(entry)
    redis.call('ZREM', parked, member) -- first, as in hint(), in case memory is full
    if mark.group > 0 then -- it was claimed as a suspect, and has not run since
      redis.call('ZADD', suspect, string.format('%.0f', mark.group), id)
      hint(wake)
    elseif entry then
      redis.call('ZADD', retry, due, id)
      again(due)
    else
      redis.call('ZADD', delayed, due, id)
      fresh(due)
    end
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
