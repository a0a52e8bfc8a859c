-- list: a page of the tasks in a state, sorted by score, then by the bytes of the member
-- KEYS index     zset  id -> ms, or id:token -> lease expiry ms, or `parked`
-- KEYS tasks     hash  id -> envelope
-- KEYS attempts  hash  id -> failures, crashes, due ms, last error
-- KEYS dlq_info  hash  id -> reason and last error
-- ARGV score    the page begins after the position of this score
-- ARGV member   and this member, which may be gone; '' is before all members
-- ARGV limit    how many to look at, at most
-- ARGV members  what the members are: ids, due (ids whose score is the due time), leases or parked
-- ARGV bytes    the page ends when envelopes of this size have been read for their kinds; 0: reads none, and filters none
-- ARGV tag      that they have, or ''
-- ARGV kind     that they have, or ''
-- ARGV from_ms  the earliest due time
-- ARGV to_ms    due times are before it
-- RETURNS score and member of the last one looked at ('': no more follow); then for each task: member, score, envelope bytes, attempts or '', dlq info or '', kind ('-': none), its version
local index, tasks, attempts, dlq_info = unpack(KEYS)
local score, after, limit, members, bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local filtered = ARGV[6] .. ARGV[7] ~= '' or ARGV[8] ~= '-inf' or ARGV[9] ~= 'inf'
local matches = matcher(ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]))

-- As Redis compares members. The order of Lua's < depends on the locale of the server.
local function precedes(one, other)
  for n = 1, math.min(#one, #other) do
    local left, right = string.byte(one, n), string.byte(other, n)
    if left ~= right then return left < right end
  end
  return #one < #other
end

-- The rank of the first member after the position, by bisection: very many may have the same score.
local rank, high = redis.call('ZCOUNT', index, '-inf', '(' .. score), redis.call('ZCOUNT', index, '-inf', score)
while rank < high do
  local middle = math.floor((rank + high) / 2)
  if precedes(after, redis.call('ZRANGE', index, middle, middle)[1]) then high = middle else rank = middle + 1 end
end
local found, ids, page, read = redis.call('ZRANGE', index, rank, rank + limit - 1, 'WITHSCORES'), {}, { '', '' }, 0
if #found == 0 then return page end
for n = 1, #found / 2 do
  local member = found[2 * n - 1]
  ids[n] = members == 'leases' and id_of(member) or members == 'parked' and parked_id(member) or member
end
local counts, infos = redis.call('HMGET', attempts, unpack(ids)), redis.call('HMGET', dlq_info, unpack(ids))
for n, id in ipairs(ids) do
  local envelope, at = bytes > 0 and (redis.call('HGET', tasks, id) or ''), found[2 * n]
  local size, kind, version = envelope and #envelope or redis.call('HSTRLEN', tasks, id), kind_of(envelope or '')
  if not filtered or matches(envelope, members == 'due' and tonumber(at) or kept_due(envelope, counts[n])) then
    page[#page + 1] = { found[2 * n - 1], at, size, counts[n] or '', infos[n] or '', kind, version }
  end
  page[1], page[2], read = at, found[2 * n - 1], read + size
  if bytes > 0 and read >= bytes then return page end
end
if #ids < limit then page[1], page[2] = '', '' end
return page
