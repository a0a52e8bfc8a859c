-- sync_shard_map: tell a shard of a shard map, unless it knows a newer one
-- KEYS shard_map string  the newest shard map this shard was told of
-- KEYS tasks    hash    id -> envelope
-- KEYS cursors  hash    home -> epoch in which the whole shard was found to be at home
-- ARGV by        the caller's shard map; '' only asks
-- ARGV proposed  1 when it is to be decided on, at shard 0, which takes what follows its own and gives it its epoch
-- RETURNS the shard map that the shard knows now or '', the epoch in which all its tasks were at home, how many tasks it holds
local shard_map, tasks, cursors = unpack(KEYS)
local by, known = ARGV[1], redis.call('GET', shard_map) or ''
if ARGV[2] == '1' then
  -- An epoch is a time, so that it is later than all that a queue of this name, or a shard 0 that forgot, ever had.
  local old, new = tonumber(string.match(known, '^%d+')) or 0, tonumber(string.match(by, '^%d+'))
  local taken = string.find(known, ' ') and new <= old
  by = taken and '' or string.format('%.0f', math.max(new, old + 1, now())) .. string.match(by, ' .*$')
end
outdated(shard_map, by)
local home = tonumber(redis.call('HGET', cursors, 'home') or 0)
return { redis.call('GET', shard_map) or '', home, redis.call('HLEN', tasks) }
