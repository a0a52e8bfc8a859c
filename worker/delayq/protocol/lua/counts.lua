-- counts: tasks by state, due tasks, and how many fall due until certain times
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS suspect     zset  id -> token of the run whose group it belongs to
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS dlq         zset  id -> time of death
-- KEYS parked    zset  kind, version, due ms and id of parked tasks, in this order
-- KEYS stats       hash  monotonic counters
-- ARGV when ...     "+delay" or an instant, in ms
-- RETURNS now ms, delayed, retry, suspect, processing, lapsed, dlq, due, of these retries, earliest due ms (-1: none), next due ms after now (-1: none), due by each time, stats, parked
local delayed, retry, suspect, processing, dlq, parked, stats = unpack(KEYS)
local at = now() -- of any format: nothing is written
local after_now = '(' .. at

-- Each time costs 2 µs per sorted set that is not empty, with a million tasks too; retry is usually empty.
local waiting = {}
for _, zset in ipairs({delayed, retry}) do
  if redis.call('ZCARD', zset) > 0 then waiting[#waiting + 1] = zset end
end

local function both(low, high)
  local found = 0
  for _, zset in ipairs(waiting) do found = found + redis.call('ZCOUNT', zset, low, high) end
  return found
end

local function after(zset, low)
  return tonumber(redis.call('ZRANGEBYSCORE', zset, low, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or 'inf')
end

local function earliest(low, other)
  local due = math.min(after(delayed, low), after(retry, low), other)
  return due == math.huge and -1 or due
end

-- A suspect is due. Its token is the time of a claim in µs: the best estimate without its envelope.
local suspects = redis.call('ZCARD', suspect)
local suspected_ms = suspects > 0 and math.floor(head(suspect) / 1000) or math.huge

local within = {}
for i, when in ipairs(ARGV) do within[i] = both(after_now, due_at(when, at)) end
return {
  at, redis.call('ZCARD', delayed), redis.call('ZCARD', retry), suspects,
  redis.call('ZCARD', processing), redis.call('ZCOUNT', processing, '-inf', at), redis.call('ZCARD', dlq),
  both('-inf', at) + suspects, redis.call('ZCOUNT', retry, '-inf', at),
  earliest('-inf', suspected_ms), earliest(after_now, math.huge), within,
  redis.call('HGETALL', stats), redis.call('ZCARD', parked),
}
