-- Put in front of every script. Redis' clock is the only clock: now() in ms decides, now_us() in µs makes tokens.
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
  return string.match(member, '^(.*):%d+$')
end

-- `+500` is a delay from this instant, `1700000000000` is an instant.
local function due_at(when, at)
  local value = tonumber(when)
  if string.byte(when) == 43 then return at + value end
  return value
end

-- What a task counts for in `bytes` of stats: its id and its envelope; what is not there counts for nothing.
local function weight(tasks, id)
  local size = redis.call('HSTRLEN', tasks, id)
  return size > 0 and size + #id or 0
end

-- What somebody else wrote into a counter and is no number counts as nothing, and stops nobody.
local function tally(stats, field, more)
  local reply = redis.pcall('HINCRBY', stats, field, more)
  if type(reply) == 'number' then return end
  local unread = string.find(reply.err, 'not an integer') or string.find(reply.err, 'overflow')
  if unread then redis.call('HDEL', stats, field) end
  redis.call('HINCRBY', stats, field, more)
end

-- Whoever stores or forgets a task says so here. `bytes` is what all of them weigh, `bytes_in` what ever came.
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

-- Whoever names a task by its id says which layout he goes by; '' says nothing, and is never wrong. A shard that knows
-- a newer one has this to answer and nothing else to do; one that knows an older one learns. Of two of one epoch, which
-- only fail-overs leave, one and the same is the newer everywhere. `stores`: nothing is to be, where memory is full.
local function outdated(layout, mine, stores)
  local known = mine ~= '' and redis.call('GET', layout)
  if mine == '' or known == mine then return false end
  local old, new = tonumber(string.match(known or '', '^%d+')) or 0, tonumber(string.match(mine, '^%d+'))
  if old > new or old == new and known > mine then return 'STALELAYOUT ' .. known end
  if not stores then redis.call('DEL', layout) end -- first, as in hint(): memory may be full
  redis.call('SET', layout, mine)
  return false
end

-- A task that is on its way to another shard is there, as far as anybody who asks for it is concerned.
local function moving_on(moving, id)
  return redis.call('ZSCORE', moving, id) and 'MOVING ' .. id
end

-- Where a task that is on its way belongs; nothing where somebody else wrote what cannot be read.
local function destination(moving_info, id)
  local to, index, score = string.match(redis.call('HGET', moving_info, id) or '', '^(%d+) (%w+) (%S+)$')
  local at = tonumber(score)
  local known = index == 'delayed' or index == 'retry' or index == 'dlq'
  if known and at and at == at then return to, index, score end
end

-- Lists of hints hold one token at most: a second one could tell nobody anything new. Redis lets a script pass
-- maxmemory once it has written, and removing takes no memory: so DEL what is not there, and full queues drain on.
local function hint(list)
  if redis.call('LLEN', list) > 0 then return end
  redis.call('DEL', list)
  redis.call('LPUSH', list, '1')
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

-- An `attempts` entry reads `failures crashes last error`; a task without one never failed.
local function attempts_of(entry)
  if not entry then return 0, 0, '' end
  local failures, crashes, reason = string.match(entry, '^(%d+) (%d+) (.*)$')
  return tonumber(failures) or 0, tonumber(crashes) or 0, reason or entry
end

-- Two functions for a task whose lease ran out, which counts as a crash: run it again unless that was one too many, or
-- make it a dead letter, with the last error unless there are other words.
local function after_crash(at, retry, attempts, dlq, dlq_info)
  local function bury(id, reason, words)
    local failures, crashes, last = attempts_of(redis.call('HGET', attempts, id))
    redis.call('HDEL', attempts, id)
    redis.call('ZADD', dlq, at, id)
    redis.call('HSET', dlq_info, id, failures .. ' ' .. crashes + 1 .. ' ' .. reason .. ' ' .. (words or last))
    return 'buried'
  end
  local function requeue(id, max_crashes)
    local failures, crashes, last = attempts_of(redis.call('HGET', attempts, id))
    if crashes + 1 >= max_crashes then return bury(id, 'crashes') end
    redis.call('HSET', attempts, id, failures .. ' ' .. crashes + 1 .. ' ' .. last)
    redis.call('ZADD', retry, at, id)
    return 'reclaimed'
  end
  return requeue, bury
end

-- spec.limits: how many tasks may begin now, and a function to be told how many do: of those that are held back, it says
-- how many µs until more may: -1 if none is, -2 if one has to end first. The rate is a leaky bucket (GCRA), whose key is
-- when it will have run dry. Farther off than a full one takes was written before the clock stepped back, or by another
-- rate: nothing is known then, which is worth one burst. Milliseconds are whole, as everywhere: a clock that wavers
-- within one takes no task from anybody.
local function allowance(rate, processing, us, interval_us, burst, most)
  us = us - us % 1000
  local interval, dry = tonumber(interval_us), us
  local begins, free = math.huge, math.huge
  if tonumber(most) > 0 then free = math.max(0, most - redis.call('ZCOUNT', processing, '(0', '+inf')) end
  if interval > 0 then
    local noted = tonumber(redis.call('GET', rate)) or us
    if noted > us and noted <= us + interval * burst then dry = noted end
    begins = math.floor((us - dry) / interval + burst)
  end
  return math.min(begins, free), function(count, held)
    if interval > 0 and count > 0 then
      dry = dry + interval * count
      redis.call('SET', rate, string.format('%.0f', math.floor(dry)), 'PX', math.ceil((dry - us) / 1000))
    end
    if not held then return -1 end
    if free <= begins then return -2 end
    -- Not for each task of a thousand a second: when there is room for those of ten ms, or as many as there ever is.
    local enough = math.min(burst, math.max(1, math.ceil(10000 / interval)))
    return math.max(1, math.ceil(dry + interval * (enough - burst) - us) + 1)
  end
end

-- unpack() fails near 8,000 values; a list of any length goes in slices.
local function each_slice(command, key, values, size)
  for first = 1, #values, size do
    redis.call(command, key, unpack(values, first, math.min(first + size - 1, #values)))
  end
end
