-- In front of each script are the blocks of this file that it needs, see scripts.py; a block ends at an empty line. Redis'
-- clock is the only clock: now() in ms decides, now_us() in µs makes tokens.
local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function now()
  return math.floor(now_us() / 1000)
end

-- A token never repeats and never falls, see docs/decisions: a last one that no clock will reach is not one of ours.
local function next_token(last, us)
  last = tonumber(last)
  return last and last >= us and last < 2 ^ 53 and last + 1 or us
end

-- A lease member is `id:token`; ids may hold colons themselves, tokens never do.
local function id_of(member)
  local id, token = string.match(member, '^(.*):(%d+)$')
  return id, tonumber(token)
end

-- What ZADD takes to lease tasks under the tokens from this one on; not those without an envelope, which are orphans.
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

-- Whether the claimer has given up this claim: it is too late, or its number is not above the recorded one.
local function abandoned(claim, number, at, not_after_ms)
  local last = number > 0 and tonumber(string.match(redis.call('GET', claim) or '', '^%d+')) or 0
  return number > 0 and number <= last or at > tonumber(not_after_ms)
end

-- `+500` is a delay from this instant, `1700000000000` is an instant.
local function due_at(when, at)
  local value = tonumber(when)
  if string.byte(when) == 43 then return at + value end
  return value
end

-- Redis' clock stepped back when it is behind the time of the last look, of whatever process. Others are told until
-- clamp_leases.lua has nothing left to shorten, and notes the new time.
local function stepped_back(cursors, at)
  return math.max(0, (tonumber(redis.call('HGET', cursors, 'clock')) or 0) - at)
end

local function note_clock(cursors, at)
  redis.call('HDEL', cursors, 'clock') -- first, as in hint(): memory may be full
  redis.call('HSET', cursors, 'clock', string.format('%.0f', at))
end

-- Remove an id from all of these sorted sets; answers from how many.
local function taken_out(id, ...)
  local count = 0
  for _, zset in ipairs({ ... }) do count = count + redis.call('ZREM', zset, id) end
  return count
end

-- What a task counts for in `bytes` of stats: its id and its envelope; what is not there counts for nothing.
local function weight(tasks, id)
  local size = redis.call('HSTRLEN', tasks, id)
  return size > 0 and size + #id or 0
end

-- A counter that is not a number counts as 0, and stops no script.
local function tally(stats, field, more)
  local reply = redis.pcall('HINCRBY', stats, field, more)
  if type(reply) == 'number' then return end
  local unread = string.find(reply.err, 'not an integer') or string.find(reply.err, 'overflow')
  if unread then redis.call('HDEL', stats, field) end
  redis.call('HINCRBY', stats, field, more)
end

-- What counters() makes of a counter that was read already, for a script that writes it together with other fields.
local function raised(value, more)
  local count = value and string.find(value, '^-?%d+$') and tonumber(value) or 0
  return (math.abs(count) < 2 ^ 53 and count or 0) + more
end

-- Every script that stores or deletes a task calls this. `bytes` is what all of them weigh, `bytes_in` what ever came.
local function weigh(stats, added, removed)
  if added > 0 then tally(stats, 'bytes_in', added) end
  if added ~= removed then tally(stats, 'bytes', added - removed) end
end

local function space_left(stats, most)
  if most == '0' then return math.huge end
  return math.max(0, most - math.max(0, tonumber(redis.call('HGET', stats, 'bytes')) or 0))
end

-- A scan of tasks reads whole envelopes, though the caller may want their ids only: a quarter of a mebibyte at a time.
local function readable(stats, count)
  local largest = tonumber(redis.call('HGET', stats, 'largest')) or 16384
  return math.max(1, math.min(tonumber(count), math.floor(262144 / math.max(1, largest))))
end

-- The format of a shard's keys, see keys.py. A shard without the field has format 1; erase.lua forgets keys of any type.
local FORMAT = 2

local function format_of(stats)
  local found = redis.pcall('HGET', stats, 'format')
  return type(found) == 'string' and tonumber(found) or 1
end

-- A script that repairs, moves or erases returns this error, before all else, where a newer delayq may hold tasks in keys
-- that this script does not know.
local function newer_format(stats)
  local found = format_of(stats)
  return found > FORMAT and { err = string.format('NEWERFORMAT %.0f %d', found, FORMAT) }
end

-- A script calls this where it writes what only format `needed` has; after its first write, as memory may be full.
local function require_format(stats, needed)
  if format_of(stats) < needed then redis.call('HSET', stats, 'format', needed) end
end

-- A cursor means nothing to another server, nor to the same one after a restart.
local function server_run()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '-'
end

-- A repeated call finds its own task again by what it holds and when it was due: no more than the time of a few tries
-- apart, for a delay is counted from each try's own now.
local function is_same(stored, body, due)
  if string.sub(stored, 1, -7) ~= body then return false end
  local apart = due - struct.unpack('>I6', string.sub(stored, -6))
  return apart >= 0 and apart <= 60000
end

-- Calls by id carry the caller's shard map; '' is no claim, and never outdated. A shard that knows
-- a newer one has this to answer and nothing else to do; one that knows an older one learns. Of two of one epoch, which
-- only fail-overs leave, one and the same is the newer everywhere. `stores`: nothing is to be, where memory is full.
local function outdated(shard_map, mine, stores)
  local known = mine ~= '' and redis.call('GET', shard_map)
  if mine == '' or known == mine then return false end
  local old, new = tonumber(string.match(known or '', '^%d+')) or 0, tonumber(string.match(mine, '^%d+'))
  if old > new or old == new and known > mine then return 'STALELAYOUT ' .. known end
  if not stores then redis.call('DEL', shard_map) end -- first, as in hint(): memory may be full
  redis.call('SET', shard_map, mine)
  return false
end

-- A task that is on its way to another shard is there, as far as anybody who asks for it is concerned.
local function moving_on(moving, id)
  return redis.call('ZSCORE', moving, id) and 'MOVING ' .. id
end

-- Where a task that is on its way belongs; nothing if the entry is unreadable.
local function destination(moving_info, id)
  local to, index, score = string.match(redis.call('HGET', moving_info, id) or '', '^(%d+) (%w+) (%S+)$')
  local at = tonumber(score)
  local known = index == 'delayed' or index == 'retry' or index == 'dlq'
  if known and at and at == at then return to, index, score end
end

-- Lists of hints hold one token at most: a second one would carry no news. Redis lets a script pass
-- maxmemory once it has written, and removing takes no memory: so DEL what is not there, and full queues drain on.
local function hint(list)
  if redis.call('LLEN', list) > 0 then return end
  redis.call('DEL', list)
  redis.call('LPUSH', list, '1')
end

-- A scanner takes one hint at a time and looks each time: of more than delayq ever writes, one is left. A key of another
-- type is left alone: the look does not depend on it.
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

-- Two functions for due times that are about to be put into a zset: note each, then announce once. What is due already
-- wakes a worker, what falls due before all that still had to rings the scanner's alarm; one does not hide the other.
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

-- An `attempts` entry reads `failures crashes last error`, or `failures crashes @due last error` while the task waits for
-- that due time. A mark may precede the error: `~alone:group:size`, how many crashes came while the task ran alone, and
-- its last run apart from healthy tasks: the first token of the half that it belongs to if that run crashes, and the size
-- of the whole. Without an entry, the task never failed. Answers with the due time and the mark last; 0 is none.
local function attempts_of(entry)
  if not entry then return 0, 0, '', 0, { alone = 0, group = 0, size = 0 } end
  local failures, crashes, reason = string.match(entry, '^(%d+) (%d+) (.*)$')
  local due, marked = string.match(reason or '', '^@(%d+) (.*)$')
  reason = marked or reason or entry
  local alone, group, size, rest = string.match(reason, '^~(%d+):(%d+):(%d+) (.*)$')
  local mark = { alone = tonumber(alone) or 0, group = tonumber(group) or 0, size = tonumber(size) or 0 }
  return tonumber(failures) or 0, tonumber(crashes) or 0, rest or reason, tonumber(due) or 0, mark
end

-- The due time costs 15 bytes, so it is kept only while it lies ahead, or where the error reads like one.
local function attempts_entry(failures, crashes, due, at, reason, mark)
  local kept = (due > at or string.byte(reason) == 64) and string.format('@%.0f ', due) or ''
  local marked = mark and mark.alone + mark.group > 0 or string.byte(reason) == 126
  mark = mark or { alone = 0, group = 0, size = 0 }
  local text = marked and string.format('~%.0f:%.0f:%.0f ', mark.alone, mark.group, mark.size) or ''
  return failures .. ' ' .. crashes .. ' ' .. kept .. text .. reason
end

-- The due time of a task that is in no index: the later of the one at the end of its envelope, in every version of
-- envelopes, and the one in its `attempts` entry. After the year 2527, it is no due time: limits.maxDelaySeconds ends at ten years.
local function kept_due(envelope, entry)
  local due = #envelope > 6 and struct.unpack('>I6', string.sub(envelope, -6)) or 0
  local _, _, _, again = attempts_of(entry)
  return math.max(due < 2 ^ 44 and due or 0, again < 2 ^ 44 and again or 0)
end

-- A function that puts a task which is in no index back into the one where it belongs, never due before its time.
local function restorer(at, delayed, retry, tasks, attempts, dlq, dlq_info, wake, alarm)
  return function(id)
    if redis.call('HEXISTS', dlq_info, id) == 1 then return redis.call('ZADD', dlq, at, id) end
    local entry = redis.call('HGET', attempts, id)
    local home, due = entry and retry or delayed, math.max(at, kept_due(redis.call('HGET', tasks, id) or '', entry))
    local note, announce = announcer(home, at, wake, alarm)
    redis.call('ZADD', home, string.format('%.0f', due), id)
    note(due)
    announce()
  end
end

-- A function that puts the follow-up of a task that has ended in its place, and tells whether there was one. In a shard
-- that has none, this is one read for all tasks of a call.
local function succession(delayed, tasks, attempts, followups, wake, alarm, stats)
  if redis.call('HLEN', followups) == 0 then return function() return false end end
  return function(id)
    local envelope = redis.call('HGET', followups, id)
    if not envelope then return false end
    local due, before = kept_due(envelope), weight(tasks, id)
    local note, announce = announcer(delayed, now(), wake, alarm)
    redis.call('HDEL', followups, id) -- first, as in hint(): memory may be full
    redis.call('HDEL', attempts, id)
    redis.call('HSET', tasks, id, envelope)
    redis.call('ZADD', delayed, string.format('%.0f', due), id)
    weigh(stats, #id + #envelope, before)
    note(due)
    announce()
    return true
  end
end

-- Store what takes the place of a task in flight once that has ended. A call whose reply was lost stores it again: a task
-- of the same content may be the one that runs, and what was accepted must not be lost.
local function follow_up(id, envelope, followups, stats)
  redis.call('HSET', followups, id, envelope)
  require_format(stats, 2)
  return 'follows'
end

-- claim.lua weighs its tasks one by one only where a whole claim of the largest could be too much.
local function note_size(stats, size)
  if size > (tonumber(redis.call('HGET', stats, 'largest')) or 0) then redis.call('HSET', stats, 'largest', size) end
end

-- Whether the lease with this token is of the run that the mark is about: tokens of one claim are consecutive, and all
-- later ones are greater.
local function ran_apart(mark, token)
  return token >= mark.group and token < mark.group + mark.size
end

-- Put a task that was leased back where it was, without charging an attempt: in retry if it failed or crashed before.
local function put_back(id, token, due, at, delayed, retry, suspect, attempts, wake, alarm)
  local entry = redis.call('HGET', attempts, id)
  local _, _, _, _, mark = attempts_of(entry)
  if ran_apart(mark, token) then -- it stays a suspect: a run that was cut short tells nothing
    redis.call('ZADD', suspect, string.format('%.0f', mark.group), id)
    return hint(wake)
  end
  local home = entry and retry or delayed
  local note, announce = announcer(home, at, wake, alarm)
  redis.call('ZADD', home, due, id)
  note(due)
  announce()
end

-- Two functions for a task whose lease ran out: make it a suspect, or a dead letter if it ran alone and that was one crash
-- too many; or make it a dead letter in any case, with the last error unless there are other
-- words; a follow-up takes the place of a dead letter.
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
    -- The due time is kept: the next run is late from then on.
    redis.call('HSET', attempts, id, attempts_entry(failures, crashes + 1, due, 0, last, mark))
    redis.call('ZADD', suspect, string.format('%.0f', apart and mark.group or token), id)
    return 'reclaimed'
  end
  return requeue, bury
end

-- How many tasks that may begin are for the worker that makes room for suspects.
local function kept_for(suspects, isolation)
  return suspects > 0 and redis.call('EXISTS', isolation) or 0
end

-- spec.limits: how many tasks may begin now, and a function to be told how many do: of those that are held back, it says
-- how many µs until more may: -1 if none is, -2 if one has to end first. The rate is a leaky bucket (GCRA), whose key is
-- when it will have run dry. Farther off than a full one takes was written before the clock stepped back, or by another
-- rate: nothing is known then, which is worth one burst. Milliseconds are whole, as everywhere: a clock that wavers
-- within one takes no task from anybody.
-- `kept` of them are for other claims; a rate without burst keeps none, or nothing else would begin.
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
    -- Not for each task of a thousand a second: when there is room for those of ten ms, or as many as there ever is.
    local enough = math.min(burst, math.max(1, math.ceil(10000 / interval)) + spare)
    return math.max(1, math.ceil(dry + interval * (enough - burst) - us) + 1)
  end
end

-- unpack() fails near 8,000 values; a list of any length goes in slices.
local function each_slice(command, key, values, size)
  for first = 1, #values, size do
    redis.call(command, key, unpack(values, first, math.min(first + size - 1, #values)))
  end
end
