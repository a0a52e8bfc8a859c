-- reconcile_tags: remove the entries of a page of `tags` whose task has ended or has other tags
-- KEYS tags      zset  tag and id
-- KEYS tasks     hash  id -> envelope
-- KEYS followups  hash  id -> envelope that takes the place of a task when it has ended
-- KEYS cursors   hash  index name -> where the last page ended
-- KEYS stats     hash  monotonic counters
-- ARGV cursor  where to continue; 0 starts, -1 continues where the last page of any caller ended
-- ARGV count   about how many entries
-- RETURNS next cursor (0: done), no repairs and no ids, as reconcile.lua: these entries are no damage
local tags, tasks, followups, cursors, stats = unpack(KEYS)
check_format(stats)
local cursor = ARGV[1] == '-1' and redis.call('HGET', cursors, 'tags') or math.max(0, tonumber(ARGV[1]))
local page = redis.call('ZSCAN', tags, cursor, 'COUNT', ARGV[2])
redis.call('HSET', cursors, 'tags', page[1])
for i = 1, #page[2], 2 do
  local tag, id = string.match(page[2][i], '^(%S+) (.*)$')
  local used = false
  for _, hash in ipairs({ tasks, followups }) do
    local _, _, _, _, _, names = fields_of(id and not used and redis.call('HGET', hash, id) or '')
    used = used or has_tag(names, tag)
  end
  if not used then redis.call('ZREM', tags, page[2][i]) end
end
return { page[1], {}, {} }
