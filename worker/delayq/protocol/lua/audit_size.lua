-- audit_size: add up what a page of tasks weighs; after the last page, put the counter of bytes right where it must be wrong
-- KEYS tasks    hash  id -> envelope
-- KEYS cursors  hash  index name -> where the last page ended
-- KEYS stats    hash  monotonic counters
-- ARGV count  about how many tasks; fewer where they are large
-- RETURNS next cursor (0: done), by how many bytes the counter was put right
local tasks, cursors, stats = unpack(KEYS)
local newer = newer_format(stats)
if newer then return newer end
local known, run = redis.call('HMGET', stats, 'bytes', 'bytes_in', 'scheduled'), server_run()
local bytes, came, scheduled = tonumber(known[1]) or 0, tonumber(known[2]) or 0, tonumber(known[3]) or 0
local held = redis.call('HLEN', tasks)

-- Where the walk is, what it saw so far, and how things stood when it began, of any caller; but nothing of it
-- holds on another server.
local pattern, numbers = '^(%w+) (%d+) (%d+) (%d+) (%-?%d+ %d+ %-?%d+)$', '%.0f %.0f %.0f'
local walked, cursor, sum, seen, began = string.match(redis.call('HGET', cursors, 'audit_size') or '', pattern)
if walked ~= run then cursor, sum, seen, began = '0', 0, 0, string.format(numbers, bytes, came, held - scheduled) end
sum, seen = tonumber(sum), tonumber(seen)

local page = redis.call('HSCAN', tasks, cursor, 'COUNT', readable(stats, ARGV[1]))
for i = 1, #page[2], 2 do
  local size = #page[2][i + 1]
  seen, sum = seen + 1, size > 0 and sum + size + #page[2][i] or sum
end
if page[1] ~= '0' then
  redis.call('HSET', cursors, 'audit_size', string.format('%s %s %.0f %.0f %s', run, page[1], sum, seen, began))
  return { page[1], 0 }
end
redis.call('HDEL', cursors, 'audit_size')

-- Tasks came and went meanwhile, and it is unknown which of them the walk met: all that it met and that is gone is in
-- `gone`, all that is here and that it missed in `added`. Between the two bounds the counter may well be right, and then
-- it is, for every script keeps it; beyond them it is not, and the nearer bound is nearer to the truth. Where nothing
-- came or went, both are the truth. A hash that shrinks may show a task twice: that walk is worth nothing.
local bytes_then, came_then, others = string.match(began, '^(%S+) (%S+) (%S+)$')
local added = came - came_then
local gone = added - (bytes - bytes_then)
local most = math.max(held, others + scheduled)
if added < 0 or gone < 0 or seen > most then return { '0', 0 } end
local off = math.min(math.max(bytes, sum - gone), sum + added) - bytes
if off ~= 0 then tally(stats, 'bytes', string.format('%.0f', off)) end
return { '0', off }
