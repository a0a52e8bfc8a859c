-- walk: a page of all tasks, so that a mover can tell which of them belong to another shard
-- KEYS tasks   hash    id -> envelope
-- KEYS stats   hash    monotonic counters
-- KEYS layout  string  the newest layout this shard was told of
-- ARGV by      the layout that the caller goes by
-- ARGV cursor  where to go on; 0 starts
-- ARGV count   about how many
-- RETURNS next cursor (0: done), the server's run, without which a cursor means nothing, how many tasks there are, the ids of this page
local tasks, stats, layout = unpack(KEYS)
local stale = outdated(layout, ARGV[1])
if stale then return stale end
local page, ids = redis.call('HSCAN', tasks, ARGV[2], 'COUNT', readable(stats, ARGV[3])), {}
for i = 1, #page[2], 2 do ids[#ids + 1] = page[2][i] end
return { page[1], server_run(), redis.call('HLEN', tasks), ids }
