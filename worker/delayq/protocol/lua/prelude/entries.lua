-- What is stored of a task beside its indexes: the entry in `attempts`, the fields of its envelope, its tags, its deadline, and
-- its member in `parked`.

-- An `attempts` entry is `failures crashes last error`, or `failures crashes @due last error` while the task waits for
-- that due time. A mark may precede the error: `~alone:group:size`. `alone` is the number of crashes while the task ran
-- alone. `group` and `size` describe its last isolated run: the first token and the number of tasks of its group. Without an
-- entry, the task never failed. Returns failures, crashes, error, due time (0: none), mark (zeros: none).
local function attempts_of(entry)
  if not entry then return 0, 0, '', 0, { alone = 0, group = 0, size = 0 } end
  local failures, crashes, reason = string.match(entry, '^(%d+) (%d+) (.*)$')
  local due, marked = string.match(reason or '', '^@(%d+) (.*)$')
  reason = marked or reason or entry
  local alone, group, size, rest = string.match(reason, '^~(%d+):(%d+):(%d+) (.*)$')
  local mark = { alone = tonumber(alone) or 0, group = tonumber(group) or 0, size = tonumber(size) or 0 }
  return tonumber(failures) or 0, tonumber(crashes) or 0, rest or reason, tonumber(due) or 0, mark
end

-- The due time takes 15 bytes, so it is stored only while it is in the future, or if the error looks like a due time.
local function attempts_entry(failures, crashes, due, at, reason, mark)
  local kept = (due > at or string.byte(reason) == 64) and string.format('@%.0f ', due) or ''
  local marked = mark and mark.alone + mark.group > 0 or string.byte(reason) == 126
  mark = mark or { alone = 0, group = 0, size = 0 }
  local text = marked and string.format('~%.0f:%.0f:%.0f ', mark.alone, mark.group, mark.size) or ''
  return failures .. ' ' .. crashes .. ' ' .. kept .. text .. reason
end

-- The due time of a task that is in no index: the later of the one at the end of its envelope (in every version) and the
-- one in its `attempts` entry. A time after the year 2527 is invalid: limits.maxDelaySeconds is at most ten years.
local function kept_due(envelope, entry)
  local due = #envelope > 6 and struct.unpack('>I6', string.sub(envelope, -6)) or 0
  local _, _, _, again = attempts_of(entry)
  return math.max(due < 2 ^ 44 and due or 0, again < 2 ^ 44 and again or 0)
end

-- The due time of a stored task: that of its index while it waits in one of these two, or the one that is stored with it.
local function stored_due(id, envelope, entry, delayed, retry)
  local indexed = redis.call('ZSCORE', delayed, id) or redis.call('ZSCORE', retry, id)
  return tonumber(indexed) or kept_due(envelope, entry)
end

-- A member of `parked` is `kind version due id`, the numbers with leading zeros: tasks of one kind and version are neighbours,
-- the earliest due first. The kind of a task without one is `-`. Returns the kind, the version, the due ms and the ID.
local function parked_task(member)
  local kind, version, due, id = string.match(member, '^(%S+) (%d+) (%d+) (.*)$')
  return kind, tonumber(version), tonumber(due), id
end

local function parked_id(member)
  return string.match(member, '^%S+ %d+ %d+ (.*)$')
end

-- The entry of the record of a schedule, see SCHEDULE in prelude/schedules.lua; nil for one of a task.
local function schedule_of(entry)
  local pattern = '^0 0 (%d+) (%a+) (%S+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+)$'
  local version, phase, owner, cursor, missed, skipped, last, began, late = string.match(entry or '', pattern)
  return version and {
    version = tonumber(version), phase = phase, owner = owner, cursor = tonumber(cursor), missed = tonumber(missed),
    skipped = tonumber(skipped), last = last, began = tonumber(began), late = tonumber(late),
  }
end

-- Whether an ID is that of the record of a schedule.
local function is_record(id)
  return string.find(id, '^@[^@]*$') ~= nil
end

-- The further fields of an envelope, see envelope.py: the kind, its version, the deadline in ms after the due time, the latest
-- due time for if_exists = debounce with its position, the tags with spaces between them, and where the fields of an occurrence
-- begin; nil for each that it does not have. All are nil if another program wrote bytes that are no envelope.
local function fields_of(envelope)
  local first, flags = string.byte(envelope, 1, 2)
  if not flags or math.floor(first / 16) ~= 2 or flags > 31 then return end
  local at, last, kind, version, deadline, latest, latest_at, tags, occurrence = 3, #envelope - 6
  local function number(size)
    at = at + size
    return at - 1 <= last and struct.unpack('>I' .. size, string.sub(envelope, at - size, at - 1)) or 0
  end
  local function text(size)
    at = at + size
    return string.sub(envelope, at - size, at - 1)
  end
  if flags % 2 == 1 then kind, version = text(number(1)), number(2) end
  if flags % 4 > 1 then deadline = number(5) end
  if flags % 8 > 3 then latest, latest_at = number(6), at - 6 end
  if flags % 16 > 7 then tags = text(number(2)) end
  if flags > 15 then occurrence, at = at, at + 12 end
  if at - 1 > last or kind and not string.match(kind, '^[%w_][%w_.-]*$') then return end
  return kind, version, deadline, latest, latest_at, tags, occurrence
end

-- A task's kind and version; '-' and 0 without one.
local function kind_of(envelope)
  local kind, version = fields_of(envelope)
  return kind or '-', version or 0
end

-- The last ms in which a task may be claimed; nil if it has no deadline.
local function deadline_of(envelope)
  local first, flags = string.byte(envelope, 1, 2)
  if not flags or first < 32 or flags % 4 < 2 then return end
  local _, _, deadline = fields_of(envelope)
  return deadline and kept_due(envelope) + deadline
end

-- Of an occurrence of a schedule: its nominal time, ms; for how long it may begin, ms after its due time; 1 if it begins only
-- while no other one runs, 2 if it is backfilled: not the last run of its schedule. Nothing for other tasks.
local function occurrence_of(envelope)
  local first, flags = string.byte(envelope, 1, 2)
  if not flags or first < 32 or flags < 16 then return end
  local from = select(7, fields_of(envelope))
  if from then return struct.unpack('>I6I5B', string.sub(envelope, from, from + 11)) end
end

-- The last ms in which a task may be claimed, or an occurrence may begin; nil if there is no such time.
local function last_start(envelope)
  local last, nominal, within = deadline_of(envelope), occurrence_of(envelope)
  return nominal and math.min(last or math.huge, kept_due(envelope) + within) or last
end

local function past_deadline(envelope, at)
  local last = envelope and deadline_of(envelope)
  return last and at > last
end

-- Add a task, or its follow-up, to `deadlines` if it may begin too late. An earlier time stays: it may be that of the other one.
local function note_deadline(id, envelope, deadlines, alarm)
  local last = last_start(envelope)
  if not last then return end
  local noted, first = tonumber(redis.call('ZSCORE', deadlines, id)), head(deadlines)
  local time = math.min(noted or math.huge, last + 1)
  redis.call('ZADD', deadlines, string.format('%.0f', time), id)
  if not first or time < first then hint(alarm) end -- the scanner sets its timer
end

-- Give an occurrence in no index a later due time, from which its deadline counts.
local function postpone(id, due, delayed, tasks, deadlines, alarm)
  local envelope = string.sub(redis.call('HGET', tasks, id), 1, -7) .. struct.pack('>I6', due)
  redis.call('HDEL', tasks, id) -- first, as in hint(), in case memory is full
  redis.call('HSET', tasks, id, envelope)
  redis.call('ZADD', delayed, string.format('%.0f', due), id)
  note_deadline(id, envelope, deadlines, alarm)
end

-- Append the members of `tags` for an envelope, which may be without its due time.
local function tag_entries(entries, id, envelope)
  local first, flags = string.byte(envelope, 1, 2)
  if not flags or first < 32 or flags % 16 < 8 then return entries end
  local _, _, _, _, _, names = fields_of(envelope .. '......')
  for name in string.gmatch(names or '', '%S+') do entries[#entries + 1] = name .. ' ' .. id end
  return entries
end

-- Index the tags of a task that is stored. Entries of other tags may remain: every use looks at the envelope.
local function add_tags(tags, id, envelope)
  local entries = tag_entries({}, id, envelope)
  for _, entry in ipairs(entries) do redis.call('ZADD', tags, 0, entry) end
end

-- Index the deadline and the tags of a task, or of a follow-up, that is stored.
local function note_fields(id, envelope, deadlines, tags, alarm)
  note_deadline(id, envelope, deadlines, alarm)
  add_tags(tags, id, envelope)
end

-- Whether a tag is among those that fields_of() returned.
local function has_tag(names, tag)
  return names and string.find(' ' .. names .. ' ', ' ' .. tag .. ' ', 1, true)
end

-- A function that says whether an envelope has this tag and kind ('': any), and its due time is in [from, to).
local function matcher(tag, kind, from, to)
  return function(envelope, due)
    if due < from or due >= to then return false end
    if tag .. kind == '' then return true end
    local name, _, _, _, _, names = fields_of(envelope)
    return (kind == '' or name == kind) and (tag == '' or has_tag(names, tag))
  end
end

-- A page of the tasks with a tag, or of all tasks ('' for the tag): IDs and envelopes (false: no such task), the cursor of the
-- next page ('': none) and that of this one. Of all tasks, a cursor has the server's run, because it is valid only there.
local function page_of(tag, cursor, count, tags, tasks, stats)
  local found = {}
  if tag ~= '' then
    local low = cursor == '' and '[' .. tag .. ' ' or '(' .. cursor
    local page = redis.call('ZRANGEBYLEX', tags, low, '(' .. tag .. '!', 'LIMIT', 0, count)
    local ids = {}
    for n, member in ipairs(page) do ids[n] = string.sub(member, #tag + 2) end
    local envelopes = #ids > 0 and redis.call('HMGET', tasks, unpack(ids))
    for n, id in ipairs(ids) do found[2 * n - 1], found[2 * n] = id, envelopes[n] end
    return found, page[count] or '', cursor
  end
  local run, last, at = server_run(), string.match(cursor, '^(%w+) (%d+)$')
  if last ~= run then at = '0' end
  local page = redis.call('HSCAN', tasks, at, 'COUNT', readable(stats, count))
  return page[2], page[1] ~= '0' and run .. ' ' .. page[1] or '', run .. ' ' .. at
end

-- The member of `parked` for a task.
local function parked_member(id, envelope, entry)
  local kind, version = kind_of(envelope)
  return string.format('%s %05d %015.0f %s', kind, version, kept_due(envelope, entry), id)
end

-- The member with which a task is parked; nil if it is not.
local function parked_as(parked, id, tasks, attempts)
  local envelope = redis.call('EXISTS', parked) == 1 and redis.call('HGET', tasks, id)
  local member = envelope and parked_member(id, envelope, redis.call('HGET', attempts, id))
  return member and redis.call('ZSCORE', parked, member) and member or nil
end

local function unparked(parked, id, tasks, attempts)
  local member = parked_as(parked, id, tasks, attempts)
  return member and redis.call('ZREM', parked, member) == 1
end
