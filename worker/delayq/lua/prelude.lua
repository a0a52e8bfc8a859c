-- Put in front of every script. Redis' clock is the only clock: now() in ms decides, now_us() in µs makes tokens.
local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function now()
  return math.floor(now_us() / 1000)
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

-- unpack() fails near 8,000 values; a list of any length goes in slices.
local function each_slice(command, key, values, size)
  for first = 1, #values, size do
    redis.call(command, key, unpack(values, first, math.min(first + size - 1, #values)))
  end
end
