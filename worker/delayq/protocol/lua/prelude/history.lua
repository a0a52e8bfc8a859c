-- The history of finished tasks, see docs/contributing/decisions/0058.

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

-- if_exists = keep: a function that returns the due ms of a task that is in the history. Other modes read nothing.
local function remembered(if_exists, finished, finished_info, at)
  if if_exists ~= 'keep' or redis.call('EXISTS', finished) == 0 then return function() return false end end
  redis.call('ZCARD', finished) -- a key of another type must fail before any task is stored
  redis.call('HLEN', finished_info)
  return function(id)
    local done, info = finished_task(finished, finished_info, id, at)
    return done and tonumber(string.match(info, '^%d+ %d+ (%d+) ') or 0)
  end
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
    redis.call('HSET', stats, 'format', FORMAT, 'finished_bytes', string.format('%.0f', math.max(1, size))) -- 0: there is no history
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
  trim_oldest(finished, finished_info, stats, at, seconds, tonumber(count), tonumber(bytes), #ids + 10)
end
