-- unclaim: return the tasks of a claim whose reply was lost; a claim that was not executed yet is refused from now on
-- KEYS processing  zset    id:token -> lease expiry ms
-- KEYS delayed     zset    id -> due ms
-- KEYS retry       zset    id -> due ms of the next attempt
-- KEYS suspect     zset    id -> token of the run whose group it belongs to
-- KEYS tasks       hash    id -> envelope
-- KEYS attempts    hash    id -> failures, crashes, last error
-- KEYS claim       string  the claimer's last claim: number, lease expiry ms, first token, how many tokens
-- KEYS wake        list    token that wakes an idle worker
-- KEYS alarm       list    token that wakes the sleeping scanner
-- KEYS stats       hash    monotonic counters
-- KEYS followups   hash  id -> envelope that takes the place of a task when it has ended
-- KEYS cancelling  hash  id -> last token when the cancellation of its run was asked for
-- KEYS deadlines  zset  id -> time from which the task may have missed its deadline, ms
-- KEYS tags    zset  tag and id
-- ARGV number    of the claim
-- ARGV lease_ms  as the claim had it
-- RETURNS how many tasks were returned
local processing, delayed, retry, suspect, tasks, attempts, claim, wake, alarm, stats, followups = unpack(KEYS)
local cancelling, deadlines, tags = unpack(KEYS, 12)
local asked = check_format(stats)
local at, released = now(), 0
local number, expiry, first, count = string.match(redis.call('GET', claim) or '', '^(%d+) ?(%d*) ?(%d*) ?(%d*)$')

-- Only the lost reply had the score of each task. No task is due later than the time of its claim.
local function due_of(id)
  local due = kept_due(redis.call('HGET', tasks, id) or '', redis.call('HGET', attempts, id))
  return math.min(at, due > 0 and due or math.huge, expiry - ARGV[2])
end

if number == ARGV[1] and count ~= '' then
  local succeed = asked and succession(delayed, tasks, attempts, followups, wake, alarm, stats)
  local cancels = canceller(asked, cancelling, tasks, attempts, deadlines, tags, alarm, stats, succeed)
  -- No worker has these leases, so none has extended them: they have the expiry of the claim.
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', processing, expiry, expiry)) do
    local id, token = id_of(member)
    if id and token >= tonumber(first) and token < first + count then
      redis.call('ZREM', processing, member)
      if not cancels(id, token) then
        put_back(id, token, due_of(id), at, delayed, retry, suspect, attempts, wake, alarm)
        released = released + 1
      end
    end
  end
  if released > 0 then tally(stats, 'released', released) end
end
if tonumber(number or 0) <= tonumber(ARGV[1]) then
  redis.call('DEL', claim) -- first, as in hint(), in case memory is full
  redis.call('SET', claim, ARGV[1], 'PX', ARGV[2])
end
return released
