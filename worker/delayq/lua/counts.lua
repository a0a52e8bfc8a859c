-- counts: how many tasks are in each state, what is overdue, what falls due after now and by certain times
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS dlq         zset  id -> time of death
-- KEYS stats       hash  monotonic counters
-- ARGV when ...     "+delay" or an instant, in ms
-- RETURNS now ms, delayed, retry, processing, lapsed, dlq, overdue, earliest due ms (-1: none), next due ms after now (-1: none), due by each time, stats
local delayed, retry, processing, dlq, stats = unpack(KEYS)
local at = now()
local after_now = '(' .. at

-- Each time costs 2 µs for each zset that is not empty, at a million tasks as well; retry mostly is.
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

local function earliest(low)
  local due = math.min(after(delayed, low), after(retry, low))
  return due == math.huge and -1 or due
end

local within = {}
for i, when in ipairs(ARGV) do within[i] = both(after_now, due_at(when, at)) end
return {
  at, redis.call('ZCARD', delayed), redis.call('ZCARD', retry),
  redis.call('ZCARD', processing), redis.call('ZCOUNT', processing, '-inf', at), redis.call('ZCARD', dlq),
  both('-inf', at), earliest('-inf'), earliest(after_now), within, redis.call('HGETALL', stats),
}
