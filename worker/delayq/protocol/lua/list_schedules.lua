-- list_schedules: the records of schedules, those to be looked at first
-- KEYS schedules  zset  id of a record -> time of the next look, ms
-- KEYS tasks      hash  id -> envelope
-- KEYS attempts   hash  id -> failures, crashes, due ms, last error; of a record, its state
-- ARGV due     1: only those whose next look is due
-- ARGV offset  where to continue
-- ARGV limit   how many at most; fewer, but at least one, where they are large
-- RETURNS now ms, id, state and envelope of each, how many records there are in all
local schedules, tasks, attempts = unpack(KEYS)
local at, bytes, found = now(), 262144, {}
local most = ARGV[1] == '1' and at or '+inf'
for _, id in ipairs(redis.call('ZRANGEBYSCORE', schedules, '-inf', most, 'LIMIT', ARGV[2], ARGV[3])) do
  local envelope, entry = redis.call('HGET', tasks, id), redis.call('HGET', attempts, id)
  bytes = bytes - #(envelope or '')
  if #found > 0 and bytes < 0 then break end
  found[#found + 1] = { id, entry or '', envelope or '' }
end
return { at, found, redis.call('ZCARD', schedules) }
