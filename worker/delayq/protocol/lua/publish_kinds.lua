-- publish_kinds: note which kinds the workers of a release take, and that one of them lives
-- KEYS kinds  hash  release -> its kinds, as JSON; release:until -> time until which it counts, ms
-- KEYS stats  hash  monotonic counters
-- ARGV release  the digest of its kinds
-- ARGV body     its kinds; empty: only renew
-- ARGV keep_ms  how long it counts
-- ARGV rest_ms  how long the key stays after the last renewal
-- RETURNS 1 when done, 0 if the kinds of this release are not stored: they are to be sent
local kinds, stats = KEYS[1], KEYS[2]
check_format(stats)
local release, body, at = ARGV[1], ARGV[2], now()
if body == '' and redis.call('HEXISTS', kinds, release) == 0 then return 0 end
local due = at + ARGV[3]
-- First and always, even an empty value, as in hint(), in case memory is full.
redis.call('HDEL', kinds, '')
local own = tonumber(redis.call('HGET', kinds, release .. ':until'))
local all = redis.call('HGETALL', kinds)
for i = 1, #all, 2 do
  local other, left = string.match(all[i], '^(.*):until$'), tonumber(all[i + 1]) or 0
  -- No time is later than that of a renewal now: it was written before the clock stepped back. And if this release has missed
  -- its own time, Redis was away: the others need time to renew.
  if other and (left > due or left <= at and own and own <= at) then
    redis.call('HSET', kinds, all[i], due)
  elseif other and left <= at and own then
    redis.call('HDEL', kinds, all[i], other)
  end
end
redis.call('HSET', kinds, release .. ':until', due)
if body ~= '' then redis.call('HSET', kinds, release, body) end
redis.call('PEXPIRE', kinds, ARGV[4])
return 1
