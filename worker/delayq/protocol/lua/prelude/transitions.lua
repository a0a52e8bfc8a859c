-- How tasks get from one state to another, and how many may begin.

-- Two lists of IDs and due times, as one: the IDs, their due times, and the positions of those from the second list. The
-- earliest due first, at most `limit`, and not those from the first one on that does not fit.
local function merged(fresh, again, limit, fits)
  local ids, dues, second, f, a = {}, {}, {}, 1, 1
  for n = 1, math.min((#fresh + #again) / 2, limit) do
    local fresh_due, again_due = tonumber(fresh[f + 1]), tonumber(again[a + 1])
    local first = not again_due or (fresh_due and fresh_due <= again_due)
    local id = first and fresh[f] or again[a]
    if not fits(n, id) then break end
    ids[n], dues[n] = id, first and fresh_due or again_due
    if first then f = f + 2 else a, second[#second + 1] = a + 2, n end
  end
  return ids, dues, second
end

-- A function that adds a task without an index to the index where it belongs, never due before its time.
local function restorer(at, delayed, retry, schedules, tasks, attempts, dlq, dlq_info, wake, alarm)
  return function(id)
    if is_record(id) then
      redis.call('ZADD', schedules, at, id)
      return hint(alarm)
    end
    if redis.call('HEXISTS', dlq_info, id) == 1 then return redis.call('ZADD', dlq, at, id) end
    local entry = redis.call('HGET', attempts, id)
    local home, due = entry and retry or delayed, math.max(at, kept_due(redis.call('HGET', tasks, id) or '', entry))
    local note, announce = announcer(home, at, wake, alarm)
    redis.call('ZADD', home, string.format('%.0f', due), id)
    note(due)
    announce()
  end
end

-- A function that replaces a task that has ended by its follow-up, and returns whether there was one. A shard without
-- follow-ups needs one read for all tasks of a call.
local function succession(delayed, tasks, attempts, followups, wake, alarm, stats)
  if redis.call('HLEN', followups) == 0 then return function() return false end end
  return function(id)
    local envelope = redis.call('HGET', followups, id)
    if not envelope then return false end
    local due, before = kept_due(envelope), weight(tasks, id)
    local note, announce = announcer(delayed, now(), wake, alarm)
    redis.call('HDEL', followups, id) -- first, as in hint(), in case memory is full
    redis.call('HDEL', attempts, id)
    redis.call('HSET', tasks, id, envelope)
    redis.call('ZADD', delayed, string.format('%.0f', due), id)
    weigh(stats, #id + #envelope, before)
    note(due)
    announce()
    return true
  end
end

-- A function that ends tasks that missed their deadline, after their removal from their index: the follow-up of each takes its
-- place, or it is deleted, or becomes a dead letter. `unstarted`: they are occurrences that do not begin, are deleted, and counted
-- as this.
local function expirer(at, drops, deadlines, tasks, attempts, dlq, dlq_info, followups, delayed, wake, alarm, stats)
  redis.call('ZCARD', dlq) -- a key of another type must fail before any task is taken
  redis.call('HLEN', dlq_info)
  redis.call('ZCARD', deadlines)
  local succeed = succession(delayed, tasks, attempts, followups, wake, alarm, stats)
  local dropped, bytes
  local function die(id, deleted)
    local failures, crashes, last = attempts_of(redis.call('HGET', attempts, id))
    redis.call('HDEL', attempts, id)
    if deleted then
      dropped, bytes = dropped + 1, bytes + weight(tasks, id)
      return redis.call('HDEL', tasks, id)
    end
    local words = 'missed its deadline' .. (last == '' and '' or ', last error: ' .. last)
    redis.call('ZADD', dlq, at, id)
    redis.call('HSET', dlq_info, id, failures .. ' ' .. crashes .. ' expired ' .. words)
  end
  return function(ids, unstarted)
    dropped, bytes = 0, 0
    for _, id in ipairs(ids) do
      redis.call('ZREM', deadlines, id) -- first, as in hint(), in case memory is full
      if succeed(id) then
        note_deadline(id, redis.call('HGET', tasks, id), deadlines, alarm)
      else
        die(id, unstarted or drops == '1')
      end
    end
    if #ids > 0 then tally(stats, unstarted or 'expired', #ids) end
    if dropped > 0 and not unstarted then tally(stats, 'dropped', dropped) end
    weigh(stats, 0, bytes)
  end
end

-- Store the follow-up of a task in flight. A call whose reply was lost stores it again: the task that runs may have the same
-- content, and an accepted task must not be lost.
local function follow_up(id, envelope, followups)
  redis.call('HSET', followups, id, envelope)
  return 'follows'
end

-- if_exists = reject or keep: the outcome for a task that exists, and the due time of one that is kept; nil for other modes. A
-- repeated call recognizes its own task by content and due time. The due times may differ by the time of a few tries, because
-- a delay counts from the start of each try.
local function unchanged(id, stored, body, due, if_exists, repeated, delayed, retry, attempts)
  if if_exists ~= 'reject' and if_exists ~= 'keep' then return end
  local apart = string.sub(stored, 1, -7) == body and due - struct.unpack('>I6', string.sub(stored, -6)) or -1
  local same = repeated and apart >= 0 and apart <= 60000
  if if_exists == 'reject' and not same then return 'exists' end
  return same and 'repeated' or 'kept', stored_due(id, stored, redis.call('HGET', attempts, id), delayed, retry)
end

-- if_exists = debounce: the body and the due time, which is not after the latest one. The client sends that in ms from now. A
-- task that waits and has not failed or crashed keeps its own; so does a follow-up. `seen`: the same call stored the task.
local function debounced(id, body, due, at, seen, delayed, retry, parked, tasks, attempts, followups)
  local _, _, _, wait, from = fields_of(body .. '      ')
  local stored = redis.call('HGET', followups, id)
  local failures, crashes = attempts_of(redis.call('HGET', attempts, id))
  if not stored and failures + crashes == 0 then -- it may have an entry: it was put back without a charge, or redriven
    local indexed = seen or redis.call('ZSCORE', delayed, id) or redis.call('ZSCORE', retry, id)
    stored = (indexed or parked_as(parked, id, tasks, attempts)) and redis.call('HGET', tasks, id)
  end
  local _, _, _, latest = fields_of(stored or '')
  latest = latest or at + wait
  body = string.sub(body, 1, from - 1) .. struct.pack('>I6', latest) .. string.sub(body, from + 6)
  return body, math.max(at, math.min(due, latest))
end

-- The largest envelope ever stored: claim.lua adds up sizes only if a claim of tasks of this size could be too large.
local function note_size(stats, size)
  if size > (tonumber(redis.call('HGET', stats, 'largest')) or 0) then redis.call('HSET', stats, 'format', FORMAT, 'largest', size) end
end

-- Whether the lease with this token belongs to the isolated run of the mark: tokens of one claim are consecutive, and all
-- later ones are greater.
local function ran_apart(mark, token)
  return token >= mark.group and token < mark.group + mark.size
end

-- Return a leased task to its index without charging an attempt: to retry if it failed or crashed before. An occurrence of a
-- schedule has begun: an entry says so, because it is judged before its first attempt only, see starter().
local function put_back(id, token, due, at, delayed, retry, suspect, attempts, wake, alarm)
  local entry = redis.call('HGET', attempts, id)
  if not entry and string.byte(id) == 64 then
    entry = attempts_entry(0, 0, 0, at, '')
    redis.call('HSET', attempts, id, entry)
  end
  local _, _, _, _, mark = attempts_of(entry)
  if ran_apart(mark, token) then -- it stays a suspect: an interrupted run proves nothing
    redis.call('ZADD', suspect, string.format('%.0f', mark.group), id)
    return hint(wake)
  end
  local home = entry and retry or delayed
  local note, announce = announcer(home, at, wake, alarm)
  redis.call('ZADD', home, due, id)
  note(due)
  announce()
end

-- Two functions for a task with an expired lease. requeue() makes it a suspect, or a dead letter if it has crashed
-- max_crashes times while it ran alone. bury() always makes it a dead letter, with `words` or its last error. A follow-up
-- takes the place of a dead letter.
local function after_crash(at, suspect, attempts, dlq, dlq_info, succeed)
  local function bury(id, reason, words)
    if succeed(id) then return 'superseded' end
    local failures, crashes, last = attempts_of(redis.call('HGET', attempts, id))
    redis.call('HDEL', attempts, id)
    redis.call('ZADD', dlq, at, id)
    redis.call('HSET', dlq_info, id, failures .. ' ' .. crashes + 1 .. ' ' .. reason .. ' ' .. (words or last))
    return 'buried'
  end
  local function requeue(id, token, max_crashes)
    local failures, crashes, last, due, mark = attempts_of(redis.call('HGET', attempts, id))
    local apart = ran_apart(mark, token)
    if apart and mark.size == 1 then mark.alone = mark.alone + 1 end
    if mark.alone >= max_crashes then return bury(id, 'crashes') end
    if not apart then mark.group, mark.size = 0, 0 end
    -- Keep the due time: the lateness of the next run counts from it.
    redis.call('HSET', attempts, id, attempts_entry(failures, crashes + 1, due, 0, last, mark))
    redis.call('ZADD', suspect, string.format('%.0f', apart and mark.group or token), id)
    return 'reclaimed'
  end
  return requeue, bury
end

-- How many of the permitted starts are reserved for the worker that runs suspects.
local function kept_for(suspects, isolation)
  return suspects > 0 and redis.call('EXISTS', isolation) or 0
end

-- How many suspects are left; another worker may take them.
local function suspects_left(suspect, wake)
  local left = redis.call('ZCARD', suspect)
  if left > 0 then hint(wake) end
  return left
end

-- spec.limits: how many tasks may begin now, and a function that records how many do. It returns the µs until more may
-- begin, -1 if none was held back, -2 if a task must end first. The rate is a leaky bucket (GCRA); its key has the time at
-- which the bucket is empty. A time later than a full bucket needs was written before the clock stepped back, or with
-- another rate: it is ignored, which permits one burst. Times are rounded to whole ms, so that a jitter of the clock below
-- 1 ms takes no start. `kept` starts are reserved for other claims; a rate without burst reserves none, because nothing else
-- could begin.
local function allowance(rate, processing, us, interval_us, burst, most, kept)
  us = us - us % 1000
  local interval, dry, spare = tonumber(interval_us), us, tonumber(burst) > 1 and kept or 0
  local begins, free = math.huge, math.huge
  if tonumber(most) > 0 then free = math.max(0, most - redis.call('ZCOUNT', processing, '(0', '+inf') - kept) end
  if interval > 0 then
    local noted = tonumber(redis.call('GET', rate)) or us
    if noted > us and noted <= us + interval * burst then dry = noted end
    begins = math.max(0, math.floor((us - dry) / interval + burst) - spare)
  end
  return math.min(begins, free), function(count, held)
    if interval > 0 and count > 0 then
      dry = dry + interval * count
      redis.call('SET', rate, string.format('%.0f', math.floor(dry)), 'PX', math.ceil((dry - us) / 1000))
    end
    if not held then return -1 end
    if free <= begins then return -2 end
    -- Do not wake for each of a thousand tasks a second: wait until there is room for 10 ms of tasks, or a full burst.
    local enough = math.min(burst, math.max(1, math.ceil(10000 / interval)) + spare)
    return math.max(1, math.ceil(dry + interval * (enough - burst) - us) + 1)
  end
end
