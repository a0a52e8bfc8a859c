-- Each script is preceded by the blocks of this file that it uses, see scripts.py; a block ends at an empty line. Redis'
-- clock is the only clock: now() in ms decides, now_us() in µs makes tokens.
local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function now()
  return math.floor(now_us() / 1000)
end

-- Fencing tokens are strictly increasing (docs/decisions/0002). A stored token of 2^53 or more is invalid and ignored.
local function next_token(last, us)
  last = tonumber(last)
  return last and last >= us and last < 2 ^ 53 and last + 1 or us
end

-- A lease member is `id:token`. IDs may contain colons, tokens cannot.
local function id_of(member)
  local id, token = string.match(member, '^(.*):(%d+)$')
  return id, tonumber(token)
end

-- Arguments of ZADD that lease tasks with consecutive tokens. IDs without an envelope are orphans and left out.
local function leases_of(ids, envelopes, token, expiry)
  local leases = {}
  for n, id in ipairs(ids) do
    if envelopes[n] then
      leases[#leases + 1] = expiry
      leases[#leases + 1] = id .. string.format(':%.0f', token + n - 1)
    end
  end
  return leases
end

-- Whether the claimer has abandoned this claim: its time has passed, or its number is not above the recorded one.
local function abandoned(claim, number, at, not_after_ms)
  local last = number > 0 and tonumber(string.match(redis.call('GET', claim) or '', '^%d+')) or 0
  return number > 0 and number <= last or at > tonumber(not_after_ms)
end

-- `+500` is a delay from now, `1700000000000` is a Unix time; both in ms.
local function due_at(when, at)
  local value = tonumber(when)
  if string.byte(when) == 43 then return at + value end
  return value
end

-- By how many ms Redis' clock is behind the time of the last check of any process. It stays above 0 after a step back until
-- clamp_leases.lua has shortened all leases and stores the new time.
local function stepped_back(cursors, at)
  return math.max(0, (tonumber(redis.call('HGET', cursors, 'clock')) or 0) - at)
end

local function note_clock(cursors, at)
  redis.call('HDEL', cursors, 'clock') -- first, as in hint(), in case memory is full
  redis.call('HSET', cursors, 'clock', string.format('%.0f', at))
end

-- Remove an ID from all of these sorted sets; returns from how many.
local function taken_out(id, ...)
  local count = 0
  for _, zset in ipairs({ ... }) do count = count + redis.call('ZREM', zset, id) end
  return count
end

-- Size of a task in `bytes` of stats: its ID and its envelope; 0 if it does not exist.
local function weight(tasks, id)
  local size = redis.call('HSTRLEN', tasks, id)
  return size > 0 and size + #id or 0
end

-- Increment a counter. A value that is not a number counts as 0 and is not an error.
local function tally(stats, field, more)
  local reply = redis.pcall('HINCRBY', stats, field, more)
  if type(reply) == 'number' then return end
  local unread = string.find(reply.err, 'not an integer') or string.find(reply.err, 'overflow')
  if unread then redis.call('HDEL', stats, field) end
  redis.call('HINCRBY', stats, field, more)
end

-- The new value of a counter that was already read, for a script that writes it together with other fields.
local function raised(value, more)
  local count = value and string.find(value, '^-?%d+$') and tonumber(value) or 0
  return (math.abs(count) < 2 ^ 53 and count or 0) + more
end

-- Every script that stores or deletes a task calls this. `bytes` is the size of all tasks, `bytes_in` the sum ever stored.
local function weigh(stats, added, removed)
  if added > 0 then tally(stats, 'bytes_in', added) end
  if added ~= removed then tally(stats, 'bytes', added - removed) end
end

local function space_left(stats, most)
  if most == '0' then return math.huge end
  return math.max(0, most - math.max(0, tonumber(redis.call('HGET', stats, 'bytes')) or 0))
end

-- A scan of tasks reads whole envelopes, even if the caller needs only IDs: at most a quarter of a mebibyte at a time.
local function readable(stats, count)
  local largest = tonumber(redis.call('HGET', stats, 'largest')) or 16384
  return math.max(1, math.min(tonumber(count), math.floor(262144 / math.max(1, largest))))
end

-- The format of a shard's keys, see keys.py. A shard without the field has format 1; erase.lua deletes keys of any type.
local FORMAT = 4

local function format_of(stats)
  local found = redis.pcall('HGET', stats, 'format')
  return type(found) == 'string' and tonumber(found) or 1
end

-- A script that repairs, migrates or erases returns this error first, if a newer delayq may store tasks in keys that this
-- script does not know.
local function newer_format(stats)
  local found = format_of(stats)
  return found > FORMAT and { err = string.format('NEWERFORMAT %.0f %d', found, FORMAT) }
end

-- A script calls this when it writes a key of format `needed`, after its first write, in case memory is full.
local function require_format(stats, needed)
  if format_of(stats) < needed then redis.call('HSET', stats, 'format', needed) end
end

-- A cursor is valid only on the server that returned it, and only until its restart.
local function server_run()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '-'
end

-- A repeated call recognizes its own task by content and due time. The due times may differ by the time of a few tries,
-- because a delay counts from the start of each try.
local function is_same(stored, body, due)
  if string.sub(stored, 1, -7) ~= body then return false end
  local apart = due - struct.unpack('>I6', string.sub(stored, -6))
  return apart >= 0 and apart <= 60000
end

-- Calls by ID carry the caller's shard map; '' is none, and never outdated. A shard with a newer map refuses the call and
-- returns its own; a shard with an older map stores the caller's. Two maps of one epoch, which only a fail-over can cause,
-- are ordered the same way on every shard. `stores`: the caller stores tasks, so it must fail if memory is full.
local function outdated(shard_map, mine, stores)
  local known = mine ~= '' and redis.call('GET', shard_map)
  if mine == '' or known == mine then return false end
  local old, new = tonumber(string.match(known or '', '^%d+')) or 0, tonumber(string.match(mine, '^%d+'))
  if old > new or old == new and known > mine then return 'STALELAYOUT ' .. known end
  if not stores then redis.call('DEL', shard_map) end -- first, as in hint(), in case memory is full
  redis.call('SET', shard_map, mine)
  return false
end

-- Callers must treat a task in migration as a task of its destination shard.
local function moving_on(moving, id)
  return redis.call('ZSCORE', moving, id) and 'MOVING ' .. id
end

-- The destination of a task in migration; nothing if the entry is unreadable.
local function destination(moving_info, id)
  local to, index, score = string.match(redis.call('HGET', moving_info, id) or '', '^(%d+) (%w+) (%S+)$')
  local at = tonumber(score)
  local known = index == 'delayed' or index == 'retry' or index == 'dlq'
  if known and at and at == at then return to, index, score end
end

-- A wake list holds at most one token: a second one would have no effect. Redis lets a script exceed maxmemory after its
-- first write, and a deletion needs no memory: the DEL of a missing key lets a full queue continue to drain.
local function hint(list)
  if redis.call('LLEN', list) > 0 then return end
  redis.call('DEL', list)
  redis.call('LPUSH', list, '1')
end

-- A scanner pops one token at a time and checks the queue each time. If another client pushed more tokens, keep one. A key
-- of another type is ignored: the check does not depend on it.
local function leave_one(list)
  local tokens = redis.pcall('LLEN', list)
  if type(tokens) ~= 'number' or tokens < 2 then return end
  redis.call('DEL', list)
  hint(list)
end

local function head(zset)
  return tonumber(redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2])
end

local function next_due(zset, at)
  return tonumber(redis.call('ZRANGEBYSCORE', zset, '(' .. at, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or 'inf')
end

-- Two functions for due times that a script is about to add to a sorted set: note(time) for each, then announce() once. A
-- task that is due wakes a worker. A task that is due before all others wakes the scanner, so that it sets its timer.
local function announcer(zset, at, wake, alarm)
  local next, due, soonest = next_due(zset, at), false, math.huge
  local function note(time)
    if time <= at then due = true elseif time < soonest then soonest = time end
  end
  local function announce()
    if due then hint(wake) end
    if soonest < next then hint(alarm) end
  end
  return note, announce
end

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

-- A member of `parked` is `kind version due id`, the numbers with leading zeros: tasks of one kind and version are neighbours,
-- the earliest due first. The kind of a task without one is `-`. Returns the kind, the version, the due ms and the ID.
local function parked_task(member)
  local kind, version, due, id = string.match(member, '^(%S+) (%d+) (%d+) (.*)$')
  return kind, tonumber(version), tonumber(due), id
end

local function parked_id(member)
  return string.match(member, '^%S+ %d+ %d+ (.*)$')
end

-- The further fields of an envelope, see envelope.py: the kind, its version, the deadline in ms after the due time, the latest
-- due time for if_exists = debounce with its position, and the tags with spaces between them; nil for each that it does not
-- have. All are nil if another program wrote bytes that are no envelope.
local function fields_of(envelope)
  local first, flags = string.byte(envelope, 1, 2)
  if not flags or math.floor(first / 16) ~= 2 or flags > 15 then return end
  local at, last, kind, version, deadline, latest, latest_at, tags = 3, #envelope - 6
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
  if flags > 7 then tags = text(number(2)) end
  if at - 1 > last or kind and not string.match(kind, '^[%w_][%w_.-]*$') then return end
  return kind, version, deadline, latest, latest_at, tags
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

local function past_deadline(envelope, at)
  local last = envelope and deadline_of(envelope)
  return last and at > last
end

-- Add a task, or its follow-up, to `deadlines` if it has a deadline. An earlier time stays: it may be that of the other one.
local function note_deadline(id, envelope, deadlines, alarm, stats)
  local last = deadline_of(envelope)
  if not last then return end
  local noted, first = tonumber(redis.call('ZSCORE', deadlines, id)), head(deadlines)
  local time = math.min(noted or math.huge, last + 1)
  redis.call('ZADD', deadlines, string.format('%.0f', time), id)
  require_format(stats, 4)
  if not first or time < first then hint(alarm) end -- the scanner sets its timer
end

-- The envelope of a task with a deadline, which counts from the due time there. A client of 0.2.0 that reschedules or redrives
-- such a task writes only the score in `delayed`: store a later one in the envelope.
local function redated(id, envelope, delayed, tasks, deadlines, alarm, stats)
  local due = envelope and deadline_of(envelope) and tonumber(redis.call('ZSCORE', delayed, id))
  if not due or due <= kept_due(envelope) or due >= 2 ^ 44 then return envelope end
  envelope = string.sub(envelope, 1, -7) .. struct.pack('>I6', due)
  redis.call('HDEL', tasks, id) -- first, as in hint(), in case memory is full
  redis.call('HSET', tasks, id, envelope)
  note_deadline(id, envelope, deadlines, alarm, stats)
  return envelope
end

-- Append the members of `tags` for an envelope, which may be without its due time.
local function tag_entries(entries, id, envelope)
  local first, flags = string.byte(envelope, 1, 2)
  if not flags or first < 32 or flags < 8 then return entries end
  local _, _, _, _, _, names = fields_of(envelope .. '......')
  for name in string.gmatch(names or '', '%S+') do entries[#entries + 1] = name .. ' ' .. id end
  return entries
end

-- Index the tags of a task that is stored. Entries of other tags may remain: every use looks at the envelope.
local function add_tags(tags, stats, id, envelope)
  local entries = tag_entries({}, id, envelope)
  for _, entry in ipairs(entries) do redis.call('ZADD', tags, 0, entry) end
  if #entries > 0 then require_format(stats, 4) end
end

-- Index the deadline and the tags of a task, or of a follow-up, that is stored.
local function note_fields(id, envelope, deadlines, tags, alarm, stats)
  note_deadline(id, envelope, deadlines, alarm, stats)
  add_tags(tags, stats, id, envelope)
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

-- A function that adds a task without an index to the index where it belongs, never due before its time. One with a deadline
-- is due at its time even if that has passed, because a later score would extend the deadline, see redated().
local function restorer(at, delayed, retry, tasks, attempts, dlq, dlq_info, wake, alarm)
  return function(id)
    if redis.call('HEXISTS', dlq_info, id) == 1 then return redis.call('ZADD', dlq, at, id) end
    local entry = redis.call('HGET', attempts, id)
    local home, envelope = entry and retry or delayed, redis.call('HGET', tasks, id) or ''
    local due = math.max(deadline_of(envelope) and 0 or at, kept_due(envelope, entry))
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
-- place, or it is deleted, or becomes a dead letter.
local function expirer(at, drops, deadlines, tasks, attempts, dlq, dlq_info, followups, delayed, wake, alarm, stats)
  redis.call('ZCARD', dlq) -- a key of another type must fail before any task is taken
  redis.call('HLEN', dlq_info)
  redis.call('ZCARD', deadlines)
  local succeed = succession(delayed, tasks, attempts, followups, wake, alarm, stats)
  local dropped, bytes = 0, 0
  local function die(id)
    local failures, crashes, last = attempts_of(redis.call('HGET', attempts, id))
    redis.call('HDEL', attempts, id)
    if drops == '1' then
      dropped, bytes = dropped + 1, bytes + weight(tasks, id)
      return redis.call('HDEL', tasks, id)
    end
    local words = 'missed its deadline' .. (last == '' and '' or ', last error: ' .. last)
    redis.call('ZADD', dlq, at, id)
    redis.call('HSET', dlq_info, id, failures .. ' ' .. crashes .. ' expired ' .. words)
  end
  return function(ids)
    for _, id in ipairs(ids) do
      redis.call('ZREM', deadlines, id) -- first, as in hint(), in case memory is full
      if succeed(id) then
        note_deadline(id, redis.call('HGET', tasks, id), deadlines, alarm, stats)
      else
        die(id)
      end
    end
    if #ids > 0 then tally(stats, 'expired', #ids) end
    if dropped > 0 then tally(stats, 'dropped', dropped) end
    weigh(stats, 0, bytes)
  end
end

-- Store the follow-up of a task in flight. A call whose reply was lost stores it again: the task that runs may have the same
-- content, and an accepted task must not be lost.
local function follow_up(id, envelope, followups, stats)
  redis.call('HSET', followups, id, envelope)
  require_format(stats, 2)
  return 'follows'
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
  if size > (tonumber(redis.call('HGET', stats, 'largest')) or 0) then redis.call('HSET', stats, 'largest', size) end
end

-- Whether the lease with this token belongs to the isolated run of the mark: tokens of one claim are consecutive, and all
-- later ones are greater.
local function ran_apart(mark, token)
  return token >= mark.group and token < mark.group + mark.size
end

-- Return a leased task to its index without charging an attempt: to retry if it failed or crashed before.
local function put_back(id, token, due, at, delayed, retry, suspect, attempts, wake, alarm)
  local entry = redis.call('HGET', attempts, id)
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

-- unpack() fails at about 8,000 values: pass a list of any length in slices.
local function each_slice(command, key, values, size)
  for first = 1, #values, size do
    redis.call(command, key, unpack(values, first, math.min(first + size - 1, #values)))
  end
end

-- An entry of `finished_info` is `attempts late due seconds`: how many ms after its due time, due ms, the last run began, and
-- for how long the entry counts. Returns when the task was done, and the entry; nil if none counts.
local function finished_task(finished, finished_info, id, at)
  local done = tonumber(redis.call('ZSCORE', finished, id))
  local info = done and redis.call('HGET', finished_info, id) or ''
  local seconds = tonumber(string.match(info, ' (%d+)$'))
  if seconds and at < done + seconds * 1000 then return done, info end
end

-- if_exists = keep: a function that says whether a task is in the history. Other modes read nothing.
local function remembered(if_exists, finished, finished_info, at)
  if if_exists ~= 'keep' or redis.call('EXISTS', finished) == 0 then return function() return false end end
  redis.call('ZCARD', finished) -- a key of another type must fail before any task is stored
  redis.call('HLEN', finished_info)
  return function(id) return finished_task(finished, finished_info, id, at) end
end

-- What an entry of the history counts in `finished_bytes` of stats: about its memory. The ID is in two keys.
local function entry_bytes(id, size)
  return 2 * #id + size + 140
end

-- Remove the oldest finished tasks that are too old, too many or together too large, at most `limit`. Returns how many.
local function trim_oldest(finished, finished_info, stats, at, seconds, count, bytes, limit)
  local size, left, ids = tonumber(redis.call('HGET', stats, 'finished_bytes')) or 0, redis.call('ZCARD', finished), {}
  local function goes(done) return left > count or size > bytes or done + seconds * 1000 <= at end
  if left > 0 and not goes(head(finished)) then return 0 end
  local oldest = redis.call('ZRANGE', finished, 0, limit - 1, 'WITHSCORES')
  for i = 1, #oldest, 2 do
    if not goes(oldest[i + 1]) then break end
    ids[#ids + 1], left = oldest[i], left - 1
    size = size - entry_bytes(oldest[i], redis.call('HSTRLEN', finished_info, oldest[i]))
  end
  each_slice('ZREM', finished, ids, 4000)
  each_slice('HDEL', finished_info, ids, 4000)
  if left > 0 then
    redis.call('HSET', stats, 'finished_bytes', string.format('%.0f', math.max(1, size))) -- 0: there is no history
  else
    redis.call('HDEL', stats, 'finished_bytes')
    redis.call('UNLINK', finished_info)
  end
  return #ids
end

-- Add the tasks of leases to the history. The first argument of ack.lua has its bounds (seconds, count, bytes) and the entry
-- of each lease; `done` has the positions of the leases that the caller held, by ID. It fails at about 8,000 leases.
local function note_finished(finished, finished_info, stats, arguments, done)
  local entry, at, held, ids, scores, entries, more = string.gmatch(arguments[1], '[^,]+'), now(), {}, {}, {}, {}, 0
  local seconds, count, bytes = string.match(entry(), '^(%d+) (%d+) (%d+)$')
  for id, i in pairs(done) do held[i] = id end
  for i = 2, #arguments do
    local text, id = entry(), held[i]
    if id then
      ids[#ids + 1], scores[#scores + 1], scores[#scores + 2] = id, at, id
      entries[#entries + 1], entries[#entries + 2] = id, text
      more = more + entry_bytes(id, #text)
    end
  end
  redis.call('ZCARD', finished) -- a key of another type must fail before anything is written
  for n, text in ipairs(redis.call('HMGET', finished_info, unpack(ids))) do
    if text then more = more - entry_bytes(ids[n], #text) end
  end
  each_slice('HSET', finished_info, entries, 4000)
  each_slice('ZADD', finished, scores, 4000)
  tally(stats, 'finished_bytes', more)
  require_format(stats, 4)
  trim_oldest(finished, finished_info, stats, at, seconds, tonumber(count), tonumber(bytes), #ids + 10)
end
