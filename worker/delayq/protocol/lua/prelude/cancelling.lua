-- Tasks in flight that are to end as cancelled (docs/contributing/decisions/0073). Whatever ends a lease, except an ack, ends such a task.

-- An entry of `cancelling` is the last token of the shard when the cancellation was asked for: it is about runs up to this one.
-- If a process of an older version returned the task to an index, the entry is of no run any more.
local function is_cancelling(cancelling, id, token)
  local last = token and tonumber(redis.call('HGET', cancelling, id))
  return last and token <= last
end

-- `cancelling` of stats is the number of entries, and absent at 0: a queue without any reads it together with its format.
local function count_cancelling(cancelling, stats)
  local count = redis.call('HLEN', cancelling)
  if count == 0 then return redis.call('HDEL', stats, 'cancelling') end
  redis.call('HSET', stats, 'format', FORMAT, 'cancelling', count)
end

local function forget_cancelling(cancelling, id, stats)
  local found = redis.call('HDEL', cancelling, id)
  if found == 1 then count_cancelling(cancelling, stats) end
  return found
end

local function ask_to_cancel(cancelling, id, stats)
  local last = tonumber(redis.call('HGET', stats, 'token'))
  redis.call('HDEL', cancelling, id) -- first, as in hint(), in case memory is full
  redis.call('HSET', cancelling, id, string.format('%.0f', last and last < 2 ^ 53 and last or now_us()))
  count_cancelling(cancelling, stats)
end

-- A function that ends a task as cancelled, after the removal of its lease: it is deleted, or its follow-up takes its place.
local function ends_cancelled(cancelling, tasks, attempts, deadlines, tags, alarm, stats, succeed)
  for _, zset in ipairs({ deadlines, tags }) do redis.call('ZCARD', zset) end -- of another type: fail before any lease ends
  redis.call('HLEN', cancelling)
  return function(id)
    redis.call('HDEL', cancelling, id)
    redis.call('ZREM', deadlines, id)
    local envelope = redis.call('HGET', tasks, id) or ''
    if succeed(id) then
      note_deadline(id, redis.call('HGET', tasks, id), deadlines, alarm)
    else
      weigh(stats, 0, weight(tasks, id))
      redis.call('HDEL', tasks, id)
      redis.call('HDEL', attempts, id)
      each_slice('ZREM', tags, tag_entries({}, id, envelope), 4000)
    end
    tally(stats, 'cancelled', 1)
    count_cancelling(cancelling, stats)
  end
end

-- A function that ends a task as cancelled if that was asked for, and returns whether it did. `asked` is what check_format()
-- returned: most shards need no read.
local function canceller(asked, cancelling, tasks, attempts, deadlines, tags, alarm, stats, succeed)
  if not asked then return function() return false end end
  local finish = ends_cancelled(cancelling, tasks, attempts, deadlines, tags, alarm, stats, succeed)
  return function(id, token)
    if not is_cancelling(cancelling, id, token) then return false end
    finish(id)
    return true
  end
end
