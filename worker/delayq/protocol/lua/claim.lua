-- claim: lease due tasks to the caller, earliest due first, fresh and retried alike
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS tasks       hash  id -> envelope
-- KEYS attempts    hash  id -> failures, crashes, due ms, last error
-- KEYS wake        list  token that wakes an idle worker
-- KEYS alarm       list  token that wakes the sleeping scanner
-- KEYS stats       hash  monotonic counters
-- KEYS rate        string  time at which the bucket of spec.limits.ratePerSecond is empty, µs
-- KEYS claim       string  the claimer's last claim: number, lease expiry ms, first token, how many tokens
-- KEYS suspect     zset    id -> token of the run whose group it belongs to
-- KEYS isolation   string  worker that stops claiming in order to run suspects
-- KEYS dlq         zset  id -> time of death
-- KEYS dlq_info    hash  id -> reason and last error
-- KEYS followups   hash  id -> envelope that takes the place of a task when it has ended
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS schedules  zset  id of a record -> time of the next look, ms
-- ARGV limit         how many tasks at most
-- ARGV lease_ms      how long the lease lasts
-- ARGV number        of this claim, increasing for each claimer; 0: keep no record of it
-- ARGV not_after_ms  the claimer has abandoned this claim by then
-- ARGV interval_us   between two tasks, on average; 0: no limit
-- ARGV burst         how many may begin at once after an idle time
-- ARGV most          how many may be leased at a time; 0: no limit
-- ARGV drops         1 when tasks that missed their deadline are deleted, 0 when they become dead letters
-- RETURNS now ms alone when the claim is abandoned; else now ms, first token, 1 when due tasks remain, µs until a limit that held tasks back permits more (-1: none did, -2: when one ends), ids, dues, envelopes, attempts entries by position, how many suspects wait, for a worker that parks: the runs that records of schedules named before, by position
local delayed, retry, processing, tasks, attempts, wake, alarm, stats, rate, claim, suspect, isolation = unpack(KEYS)
local dlq, dlq_info, followups, deadlines, schedules = unpack(KEYS, 13)
local format, last_token, largest, claimed = unpack(redis.call('HMGET', stats, 'format', 'token', 'largest', 'claimed'))
check_format(stats, format)
local us, bytes, number = now_us(), 1048576, tonumber(ARGV[3])
local at = math.floor(us / 1000)
if abandoned(claim, number, at, ARGV[4]) then return { at } end
local suspects = redis.call('ZCARD', suspect)
local room, begin = allowance(rate, processing, us, ARGV[5], ARGV[6], ARGV[7], kept_for(suspects, isolation))
local limit = math.min(tonumber(ARGV[1]), room)
local fresh = redis.call('ZRANGEBYSCORE', delayed, '-inf', at, 'WITHSCORES', 'LIMIT', 0, limit + 1)
local again = redis.call('ZRANGEBYSCORE', retry, '-inf', at, 'WITHSCORES', 'LIMIT', 0, limit + 1)

-- At most a mebibyte, but at least one task: large replies take time to copy and to send.
local heavy = limit * (tonumber(largest) or math.huge) > bytes
local function fits(n, id)
  if not heavy then return true end
  bytes = bytes - redis.call('HSTRLEN', tasks, id)
  return n == 1 or bytes >= 0
end

local ids, dues, retried = merged(fresh, again, limit, fits)
local token, expiry, counts = next_token(last_token, us), string.format('%.0f', at + tonumber(ARGV[2])), {}
local envelopes, left, begins, finish = #ids > 0 and redis.call('HMGET', tasks, unpack(ids)) or {}, 0
if #ids > 0 and redis.call('EXISTS', deadlines, schedules) > 0 then
  -- PRELUDE
  local expire = expirer(at, ARGV[8], deadlines, tasks, attempts, dlq, dlq_info, followups, delayed, wake, alarm, stats)
  begins, finish = starter(at, token, expire, processing, delayed, retry, suspect, tasks, attempts, deadlines, alarm)
  for n, id in ipairs(ids) do
    if not begins(id, envelopes[n], n) then left, envelopes[n] = left + 1, false end
  end
end
local found = (#fresh + #again) / 2
local held = found > #ids and #ids == room and left == 0
local more = found > #ids and not held
if more then
  hint(wake)
elseif redis.call('DEL', wake) == 1 then
  hint(alarm) -- stale wake token: drop it and re-arm the scanner
end
if #ids == 0 then return {at, 0, 0, begin(0, held), {}, {}, {}, {}, suspects} end

local leases = leases_of(ids, envelopes, token, expiry)
local began = #leases / 2
for _, n in ipairs(retried) do
  counts[#counts + 1], counts[#counts + 2] = n - 1, redis.call('HGET', attempts, ids[n]) or ''
end
redis.call('ZCARD', processing) -- a key of another type must fail before any task is taken

-- The tasks taken are the lowest ranks of their sets, so they can be removed by rank.
if #ids > #retried then redis.call('ZREMRANGEBYRANK', delayed, 0, #ids - #retried - 1) end
if #retried > 0 then redis.call('ZREMRANGEBYRANK', retry, 0, #retried - 1) end
if #leases > 0 then redis.call('ZADD', processing, unpack(leases)) end
local first = string.format('%.0f', token)
redis.call('HSET', stats, 'format', FORMAT, 'token', token + #ids - 1, 'claimed', raised(claimed, began)) -- Redis formats whole numbers
if number > 0 then redis.call('SET', claim, ARGV[3] .. ' ' .. expiry .. ' ' .. first .. ' ' .. #ids, 'PX', ARGV[2]) end
if began + left < #ids then tally(stats, 'orphans', #ids - began - left) end
local before = finish and finish()
return {at, first, more and 1 or 0, begin(began, held), ids, dues, envelopes, counts, suspects, before}
