-- audit_size: add up the sizes of a page of tasks and index tags that are in no entry; after the last page, correct the counter of bytes if it is proven wrong
-- KEYS tasks    hash  id -> envelope
-- KEYS cursors  hash  index name -> where the last page ended
-- KEYS stats    hash  monotonic counters
-- KEYS tags    zset  tag and id
-- ARGV count  about how many tasks; fewer where they are large
-- RETURNS next cursor (0: done), by how many bytes the counter was corrected
local tasks, cursors, stats, tags = unpack(KEYS)
check_format(stats)
local known, run = redis.call('HMGET', stats, 'bytes', 'bytes_in', 'scheduled'), server_run()
local bytes, came, scheduled = tonumber(known[1]) or 0, tonumber(known[2]) or 0, tonumber(known[3]) or 0
local held = redis.call('HLEN', tasks)

-- The state of the audit, shared by all callers: position, sums so far, and counters at its start. It is valid only on the
-- server where it began.
local pattern, numbers = '^(%w+) (%d+) (%d+) (%d+) (%-?%d+ %d+ %-?%d+)$', '%.0f %.0f %.0f'
local walked, cursor, sum, seen, began = string.match(redis.call('HGET', cursors, 'audit_size') or '', pattern)
if walked ~= run then cursor, sum, seen, began = '0', 0, 0, string.format(numbers, bytes, came, held - scheduled) end
sum, seen = tonumber(sum), tonumber(seen)

local page = redis.call('HSCAN', tasks, cursor, 'COUNT', readable(stats, ARGV[1]))
for i = 1, #page[2], 2 do
  local size = #page[2][i + 1]
  add_tags(tags, page[2][i], page[2][i + 1])
  seen, sum = seen + 1, size > 0 and sum + size + #page[2][i] or sum
end
if page[1] ~= '0' then
  redis.call('HSET', cursors, 'audit_size', string.format('%s %s %.0f %.0f %s', run, page[1], sum, seen, began))
  return { page[1], 0 }
end
redis.call('HDEL', cursors, 'audit_size')

-- Tasks were stored and deleted during the scan, and it is unknown which of them the scan saw. `gone` bounds the size that
-- it saw and that was deleted, `added` the size that it missed. A counter within these bounds is accepted, because every script
-- maintains it. A counter outside is wrong, and is set to the nearer bound. Without changes, both bounds are the exact size.
-- A hash that shrinks may return a task twice: such a scan is discarded.
local bytes_then, came_then, others = string.match(began, '^(%S+) (%S+) (%S+)$')
local added = came - came_then
local gone = added - (bytes - bytes_then)
local most = math.max(held, others + scheduled)
if added < 0 or gone < 0 or seen > most then return { '0', 0 } end
local off = math.min(math.max(bytes, sum - gone), sum + added) - bytes
if off ~= 0 then tally(stats, 'bytes', string.format('%.0f', off)) end
return { '0', off }
