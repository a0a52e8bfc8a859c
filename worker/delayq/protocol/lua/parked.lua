-- parked: the kinds and versions of parked tasks, and how many tasks each has
-- KEYS parked  zset  kind, version, due ms and id of parked tasks, in this order
-- ARGV limit  how many kinds and versions at most
-- RETURNS of each: kind ('-': none), version, how many tasks, due ms of the earliest
local parked, found, low = KEYS[1], {}, '-'
for _ = 1, tonumber(ARGV[1]) do
  local first = redis.call('ZRANGEBYLEX', parked, low, '+', 'LIMIT', 0, 1)[1]
  if not first then break end
  local kind, version, due = parked_task(first)
  if kind then
    local prefix = string.match(first, '^%S+ %d+')
    low = '(' .. prefix .. '!' -- the next character after the space that ends the prefix
    found[#found + 1] = { kind, version, redis.call('ZLEXCOUNT', parked, '[' .. prefix .. ' ', low), due }
  else
    low = '(' .. first -- another program wrote it
  end
end
return found
