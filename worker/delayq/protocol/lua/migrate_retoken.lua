-- migrate_retoken: give tasks that are on their way to a shard, but come late there by their token, one above its last
-- KEYS moving       zset  id -> token of those on their way to another shard
-- KEYS moving_info  hash  id -> where to, and index and score there
-- KEYS stats        hash  monotonic counters
-- ARGV token  under which they departed
-- ARGV to     the shard
-- ARGV above  the last token that landed there
-- RETURNS how many there are; 0 when they have left, and it was a copy that came late
local moving, moving_info, stats = unpack(KEYS)
local newer = newer_format(stats)
if newer then return newer end
local next = next_token(redis.call('HGET', stats, 'token'), now_us())
local token, renumbered = string.format('%.0f', math.max(next, tonumber(ARGV[3]) + 1)), 0
redis.call('HDEL', moving_info, '') -- first, as in hint(): memory may be full
for _, id in ipairs(redis.call('ZRANGEBYSCORE', moving, ARGV[1], ARGV[1])) do
  if string.match(redis.call('HGET', moving_info, id) or '', '^%d+') == ARGV[2] then
    redis.call('ZADD', moving, token, id)
    renumbered = renumbered + 1
  end
end
if renumbered > 0 then redis.call('HSET', stats, 'token', token) end
return renumbered
