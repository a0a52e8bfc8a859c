-- sync_shard_map: store a shard map in a shard, unless the shard has a newer one
-- KEYS shard_map string  newest shard map that this shard has received
-- KEYS tasks    hash    id -> envelope
-- KEYS cursors  hash    home -> epoch of the shard map under which all tasks belong to this shard
-- KEYS stats  hash  monotonic counters
-- ARGV by        the caller's shard map; '' only reads
-- ARGV proposed  1 when shard 0 must decide: it accepts a successor of its own map, and gives it an epoch
-- RETURNS the shard's current shard map or '', the epoch under which all its tasks belonged here, how many tasks it holds, what suspends the queue, as suspend.lua stored it
local shard_map, tasks, cursors, stats = unpack(KEYS)
if ARGV[1] ~= '' then check_format(stats) end
local by, known = ARGV[1], redis.call('GET', shard_map) or ''
if ARGV[2] == '1' then
  -- An epoch is a time, so that it is later than any epoch of an erased queue of this name, or before a loss of shard 0.
  local old, new = tonumber(string.match(known, '^%d+')) or 0, tonumber(string.match(by, '^%d+'))
  local taken = string.find(known, ' ') and new <= old
  by = taken and '' or string.format('%.0f', math.max(new, old + 1, now())) .. string.match(by, ' .*$')
end
outdated(shard_map, by)
local home = tonumber(redis.call('HGET', cursors, 'home') or 0)
return { redis.call('GET', shard_map) or '', home, redis.call('HLEN', tasks), redis.call('HGET', stats, 'suspended') }
