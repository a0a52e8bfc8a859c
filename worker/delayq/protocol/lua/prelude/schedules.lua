-- Recurring schedules. The record of a schedule is a task with the ID `@NAME`, in the index `schedules`; the IDs of its
-- occurrences are `@NAME@TIME`, and their first tag is `@NAME` (docs/contributing/decisions/0060).

-- The entry of a record in `attempts`: the version of the definition; `on`, `clearing` while occurrences of an older definition
-- are removed, or `deleting`; who owns it; the nominal time up to which occurrences were created, ms; how many were missed, and
-- skipped because another one ran; the last lease that began (`-`: none), when, and how late, ms.
local SCHEDULE = '0 0 %.0f %s %s %.0f %.0f %.0f %s %.0f %.0f'

local function schedule_entry(of)
  local counts = { of.cursor, of.missed, of.skipped, of.last, of.began, of.late }
  return string.format(SCHEDULE, of.version, of.phase, of.owner, unpack(counts))
end

local function keep_schedule(attempts, id, of)
  redis.call('HDEL', attempts, id) -- first, as in hint(), in case memory is full
  redis.call('HSET', attempts, id, schedule_entry(of))
end

-- Whether no occurrence of a record that needs it is in its shard: one that begins only while no other one runs. Entries of
-- `tags` without a task are removed.
local function last_here(record, tags, tasks)
  local entries = redis.call('ZRANGEBYLEX', tags, '[' .. record .. ' ', '(' .. record .. '!', 'LIMIT', 0, 500)
  for _, entry in ipairs(entries) do
    local envelope = redis.call('HGET', tasks, string.sub(entry, #record + 2))
    if not envelope then redis.call('ZREM', tags, entry) end
    if select(3, occurrence_of(envelope or '')) == 1 then return false end
  end
  return #entries < 500
end

local function count_missed(ids, attempts)
  for _, id in ipairs(ids) do
    local key = string.match(id, '^(@[^@]+)@')
    local of = key and schedule_of(redis.call('HGET', attempts, key))
    if of then
      of.missed = of.missed + 1
      keep_schedule(attempts, key, of)
    end
  end
end

-- The last run that a record names, and a function that names it again after a task was parked, which has not begun. A run that
-- has not begun either is not named: that of a task that another worker parked, and that may have been returned to delayed since.
local function run_of(record)
  return string.format('%s %.0f %.0f', record.last, record.began, record.late)
end

local function forget_run(lease, id, run, parked, delayed, tasks, attempts)
  local key = string.match(id, '^(@[^@]+)@')
  local record = key and schedule_of(redis.call('HGET', attempts, key))
  if not record or record.last ~= lease then return end
  local last, began, late = string.match(run, '^(%S+) (%d+) (%d+)$')
  record.last, record.began, record.late = last or '-', began or 0, late or 0
  local other = id_of(record.last)
  local waits = other and (redis.call('ZSCORE', delayed, other) or parked_as(parked, other, tasks, attempts))
  if waits and redis.call('HEXISTS', attempts, other) == 0 then
    record.last, record.began, record.late = '-', 0, 0
  end
  keep_schedule(attempts, key, record)
end

-- Two functions for tasks that are about to be leased with consecutive tokens. begins(id, envelope, n) says whether the nth may
-- begin; if not, it missed its deadline, or is an occurrence that comes too late, or that another occurrence holds up. finish()
-- ends those, and stores in the records what has begun. It returns positions, and what the record named before: a worker that
-- parks the task returns it. An occurrence is judged before its first attempt only. One that migrated before its record waits
-- for it, for a minute; one that a change is about to remove waits for that.
local function starter(at, token, expire, processing, delayed, retry, suspect, tasks, attempts, deadlines, alarm)
  local records, before, unstarted = {}, {}, { late = {}, missed = {}, skipped = {}, waits = {} }

  local function record_of(id)
    local key = string.match(id, '^(@[^@]+)@') or id
    if records[key] == nil then records[key] = schedule_of(redis.call('HGET', attempts, key)) or false end
    return records[key]
  end

  -- Whether the last lease of the record is held, or its task will be tried again.
  local function runs(record, id)
    local other = id_of(record.last)
    if not other or other == id then return false end
    if record.claimed or redis.call('ZSCORE', processing, record.last) then return true end
    return redis.call('ZSCORE', retry, other) or redis.call('ZSCORE', suspect, other)
  end

  local function fate(id, nominal, due, within, alone)
    if redis.call('HEXISTS', attempts, id) == 1 then return 'begins' end
    local record = record_of(id)
    if record and record.phase == 'clearing' and nominal > record.cursor then return 'waits' end
    if at > due + within then return 'missed' end
    if record and alone == 1 then return runs(record, id) and 'skipped' or 'begins' end
    return alone == 1 and at < nominal + 60000 and 'waits' or 'begins'
  end

  local function begins(id, envelope, n)
    local nominal, within, alone = occurrence_of(envelope or '')
    local found = nominal and fate(id, nominal, kept_due(envelope), within, alone) or 'begins'
    if found ~= 'missed' and past_deadline(envelope, at) then found = 'late' end
    local record = nominal and record_of(id)
    if record and found == 'begins' and alone ~= 2 then
      before[#before + 1], before[#before + 2] = n - 1, run_of(record)
      record.last = id .. string.format(':%.0f', token + n - 1)
      record.began, record.late, record.claimed = at, math.max(0, at - kept_due(envelope)), true
    elseif record and (found == 'missed' or found == 'skipped') then
      record[found], record.changed = record[found] + 1, true
    end
    if unstarted[found] then table.insert(unstarted[found], id) end
    return found == 'begins'
  end

  return begins, function()
    for key, record in pairs(records) do
      if record and (record.claimed or record.changed) then keep_schedule(attempts, key, record) end
    end
    for _, id in ipairs(unstarted.waits) do postpone(id, at + 1000, delayed, tasks, deadlines, alarm) end
    if #unstarted.waits > 0 then hint(alarm) end
    expire(unstarted.late)
    expire(unstarted.missed, 'missed')
    expire(unstarted.skipped, 'skipped')
    return before
  end
end
