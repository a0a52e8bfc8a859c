-- isolate: lease a group of suspects to a worker that runs nothing else
-- KEYS suspect     zset    id -> token of the run whose group it belongs to
-- KEYS delayed     zset    id -> due ms
-- KEYS retry       zset    id -> due ms of the next attempt
-- KEYS processing  zset    id:token -> lease expiry ms
-- KEYS tasks       hash    id -> envelope
-- KEYS attempts    hash    id -> failures, crashes, due ms, last error
-- KEYS wake        list    token that wakes an idle worker
-- KEYS stats       hash    monotonic counters
-- KEYS rate        string  time at which the bucket of spec.limits.ratePerSecond is empty, µs
-- KEYS claim       string  the claimer's last claim: number, lease expiry ms, first token, how many tokens
-- KEYS dlq         zset    id -> time of death
-- KEYS alarm       list    token that wakes the sleeping scanner
-- KEYS dlq_info    hash    id -> reason and last error
-- KEYS followups   hash    id -> envelope that takes the place of a task when it has ended
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- ARGV limit         how many tasks at most
-- ARGV lease_ms      how long the lease lasts
-- ARGV number        as in claim.lua
-- ARGV not_after_ms  the same
-- ARGV interval_us   the same
-- ARGV burst         the same
-- ARGV most          the same
-- ARGV drops         the same
-- RETURNS as claim.lua; the last number is how many suspects remain
local suspect, delayed, retry, processing, tasks, attempts, wake, stats, rate, claim, dlq = unpack(KEYS)
local alarm, dlq_info, followups, deadlines = unpack(KEYS, 12)
check_format(stats)
local us, number, bytes = now_us(), tonumber(ARGV[3]), 1048576
local at = math.floor(us / 1000)
if abandoned(claim, number, at, ARGV[4]) then return { at } end
local room, begin = allowance(rate, processing, us, ARGV[5], ARGV[6], ARGV[7], 0)
local limit, left = math.min(tonumber(ARGV[1]), room), redis.call('ZCARD', suspect)
if limit < 1 or left == 0 then return { at, 0, 0, begin(0, left > 0), {}, {}, {}, {}, left } end
local expire = expirer(at, ARGV[8], deadlines, tasks, attempts, dlq, dlq_info, followups, delayed, wake, alarm, stats)
local token = next_token(redis.call('HGET', stats, 'token'), us)
local begins, finish = starter(
  at, token, expire, processing, delayed, retry, suspect, tasks, attempts, deadlines, alarm
)

-- The suspect that has waited longest, and those of its group behind it: half of a run that crashed, or as many as permitted
-- of those that never ran isolated. As for claims, at most a mebibyte, but at least one.
local found, ids, runs, envelopes = redis.call('ZRANGE', suspect, 0, limit - 1, 'WITHSCORES'), {}, {}, {}
for n = 1, #found, 2 do
  local id, entry = found[n], redis.call('HGET', attempts, found[n])
  local run, envelope = { attempts_of(entry) }, redis.call('HGET', tasks, id)
  run.group, run.due = run[5].group == tonumber(found[n + 1]) and run[5].group or 0, kept_due(envelope or '', entry)
  bytes = bytes - #(envelope or '')
  if #ids > 0 and (run.group ~= runs[1].group or bytes < 0) then break end
  if run.due > at then -- the clock stepped back
    redis.call('ZREM', suspect, id)
    redis.call('ZADD', retry, run.due, id)
  elseif begins(id, envelope, #ids + 1) then
    ids[#ids + 1], runs[#runs + 1], envelopes[#ids + 1] = id, run, envelope
  else
    redis.call('ZREM', suspect, id)
  end
end
local before = finish()
if #ids == 0 then return { at, 0, 0, begin(0, false), {}, {}, {}, {}, suspects_left(suspect, wake) } end
local half, expiry, dues, counts, leased = math.ceil(#ids / 2), string.format('%.0f', at + ARGV[2]), {}, {}, 0
redis.call('ZCARD', processing) -- a key of another type must fail before any task is taken
redis.call('LLEN', wake)
redis.call('ZREM', suspect, unpack(ids))
redis.call('HSET', stats, 'format', FORMAT, 'token', string.format('%.0f', token + #ids - 1))
for n, id in ipairs(ids) do
  local envelope, failures, crashes, last, due, mark = envelopes[n], unpack(runs[n])
  mark.group, mark.size = n <= half and token or token + half, #ids
  local entry = attempts_entry(failures, crashes, due, 0, last, mark)
  counts[2 * n - 1], counts[2 * n], dues[n] = n - 1, entry, runs[n].due > 0 and runs[n].due or at
  if envelope then
    redis.call('HSET', attempts, id, entry)
    redis.call('ZADD', processing, expiry, id .. string.format(':%.0f', token + n - 1))
    leased = leased + 1
  end
end
local first = string.format('%.0f', token)
if number > 0 then redis.call('SET', claim, ARGV[3] .. ' ' .. expiry .. ' ' .. first .. ' ' .. #ids, 'PX', ARGV[2]) end
tally(stats, 'claimed', leased)
if leased < #ids then tally(stats, 'orphans', #ids - leased) end
return { at, first, 0, begin(leased, #ids == room), ids, dues, envelopes, counts, suspects_left(suspect, wake), before }
