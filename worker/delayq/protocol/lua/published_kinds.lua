-- published_kinds: which kinds the workers of each release take that counts
-- KEYS kinds  hash  release -> its kinds, as JSON; release:until -> time until which it counts, ms
-- ARGV known ...  releases whose kinds the caller has
-- RETURNS release, and its kinds, empty if the caller has them, of each
local kinds, at, known, found = KEYS[1], now(), {}, {}
for _, release in ipairs(ARGV) do known[release] = true end
local all = redis.call('HGETALL', kinds)
for i = 1, #all, 2 do
  local release = string.match(all[i], '^(.*):until$')
  if release and (tonumber(all[i + 1]) or 0) > at then
    found[#found + 1] = { release, known[release] and '' or redis.call('HGET', kinds, release) or '' }
  end
end
return found
