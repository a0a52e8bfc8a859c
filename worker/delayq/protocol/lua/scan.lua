-- scan: a page of all task IDs, so that the migrator can find those of other shards
-- KEYS tasks   hash    id -> envelope
-- KEYS stats   hash    monotonic counters
-- KEYS shard_map string  newest shard map that this shard has received
-- ARGV by      the caller's shard map
-- ARGV cursor  where to continue; 0 starts
-- ARGV count   about how many
-- RETURNS next cursor (0: done), the server's run ID, for which the cursor is valid, how many tasks there are, the ids of this page
local tasks, stats, shard_map = unpack(KEYS)
check_format(stats)
local stale = outdated(shard_map, ARGV[1])
if stale then return stale end
local page, ids = redis.call('HSCAN', tasks, ARGV[2], 'COUNT', readable(stats, ARGV[3])), {}
for i = 1, #page[2], 2 do ids[#ids + 1] = page[2][i] end
return { page[1], server_run(), redis.call('HLEN', tasks), ids }
