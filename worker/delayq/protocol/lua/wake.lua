-- wake: wake one idle worker when a task is due, and return how long the scanner may sleep
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS wake        list  token that wakes an idle worker
-- KEYS alarm       list  token that wakes the sleeping scanner
-- KEYS rate        string  time at which the bucket of spec.limits.ratePerSecond is empty, µs
-- KEYS suspect     zset  id -> token of the run whose group it belongs to
-- KEYS isolation   string  worker that stops claiming in order to run suspects
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS schedules  zset  id of a record -> time of the next look, ms
-- KEYS stats  hash  monotonic counters
-- ARGV interval_us  as in claim.lua
-- ARGV burst        the same
-- ARGV most         the same
-- RETURNS now ms, 1 when a task is due and may begin, 1 when an earlier token was not popped, µs until the next due time, µs until the next lease expires (-1: none), µs until a limit lets more of what is due begin (-1: none keeps it back, -2: when one ends), µs until a task may have missed its deadline (-1: none has one), µs until the scanner has to look at a schedule (-1: none)
local delayed, retry, processing, wake, alarm, rate, suspect, isolation, deadlines, schedules, stats = unpack(KEYS)
check_format(stats)
local us = now_us()
local at = math.floor(us / 1000)

local function wait_us(ms)
  if not ms or ms == math.huge then return -1 end
  return math.max(0, ms * 1000 - us)
end

local due = math.min(head(delayed) or math.huge, head(retry) or math.huge) <= at
local untaken = redis.call('LLEN', wake)
leave_one(alarm)
local kept = kept_for(redis.call('ZCARD', suspect), isolation)
local room, begin = allowance(rate, processing, us, ARGV[1], ARGV[2], ARGV[3], kept)
local held = due and room < 1
if due and not held then hint(wake) end
local next = math.min(next_due(delayed, at), next_due(retry, at))
local lapse = wait_us(head(processing))
local missed, look = wait_us(head(deadlines)), wait_us(head(schedules))
return { at, due and not held and 1 or 0, untaken, wait_us(next), lapse, begin(0, held), missed, look }
