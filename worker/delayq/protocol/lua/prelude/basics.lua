-- The clock, tokens, counters, the format of a shard, the shard map, and hints. Redis' clock is the only clock: now() in ms
-- decides, now_us() in µs makes tokens.

local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function now()
  return math.floor(now_us() / 1000)
end

-- Fencing tokens are strictly increasing (docs/contributing/decisions/0002). A stored token of 2^53 or more is invalid and ignored.
local function next_token(last, us)
  last = tonumber(last)
  return last and last >= us and last < 2 ^ 53 and last + 1 or us
end

-- UIDs of the DelayQueues, but one, whose scanners have served this queue within ms. A later time than that was written before
-- the clock stepped back.
local function others_of(delayqueues, uid, at, ms)
  local found = redis.call('ZRANGEBYSCORE', delayqueues, '(' .. at, at + ms)
  for n = #found, 1, -1 do
    if found[n] == uid then table.remove(found, n) end
  end
  return found
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

-- The format of a shard's keys, see keys.py. What writes `stats` writes the field `format`.
local FORMAT = '6'

-- Whether `stats` does not exist: the first counter comes with the format.
local new_shard = false

-- Each script calls this before it writes: a shard of another format stays as it is, and the script ends here. `found` is the
-- field, if the script has read it with others. A key of another type is left to the script, which fails or repairs it.
local function check_format(stats, found)
  if found == nil then found = redis.pcall('HGET', stats, 'format') end
  if found == FORMAT or type(found) == 'table' then return end
  if found or redis.call('EXISTS', stats) == 1 then error('UNSUPPORTEDFORMAT ' .. (tonumber(found) or 1)) end
  new_shard = true
end

-- Increment a counter. A value that is not a number counts as 0 and is not an error.
local function tally(stats, field, more)
  local reply = redis.pcall('HINCRBY', stats, field, more)
  if type(reply) ~= 'number' then
    local unread = string.find(reply.err, 'not an integer') or string.find(reply.err, 'overflow')
    if unread then redis.call('HDEL', stats, field) end
    redis.call('HINCRBY', stats, field, more)
  end
  if new_shard then redis.call('HSET', stats, 'format', FORMAT) end
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

-- How many tasks count for the limit of their number; those in migration count at their destination.
local function live_tasks(tasks, dlq, moving)
  local all = redis.call('HLEN', tasks)
  if redis.call('EXISTS', dlq, moving) == 0 then return all end
  return all - redis.call('ZCARD', dlq) - redis.call('ZCARD', moving)
end

local function space_left(bytes, most)
  if most == '0' then return math.huge end
  return math.max(0, most - math.max(0, tonumber(bytes) or 0))
end

-- A scan of tasks reads whole envelopes, even if the caller needs only IDs: at most a quarter of a mebibyte at a time.
local function readable(stats, count)
  local largest = tonumber(redis.call('HGET', stats, 'largest')) or 16384
  return math.max(1, math.min(tonumber(count), math.floor(262144 / math.max(1, largest))))
end

-- A cursor is valid only on the server that returned it, and only until its restart.
local function server_run()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '-'
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
  local known = index == 'delayed' or index == 'retry' or index == 'dlq' or index == 'schedules'
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
