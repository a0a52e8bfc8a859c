-- list: one page of the tasks in a state, sorted by score
-- KEYS index     zset  id -> ms, or id:token -> lease expiry ms, or `parked`
-- KEYS tasks     hash  id -> envelope
-- KEYS attempts  hash  id -> failures, crashes, due ms, last error
-- KEYS dlq_info  hash  id -> reason and last error
-- ARGV offset  rank of the first
-- ARGV limit   how many at most
-- ARGV members  what the members are: ids, leases or parked
-- ARGV bytes    the page ends when envelopes of this size have been read for their kinds; 0: reads none
-- RETURNS for each task: member (an id, if parked), score ms, envelope bytes, attempts or '', dlq info or '', kind ('-': none), its version
local index, tasks, attempts, dlq_info = unpack(KEYS)
local offset, page, ids = tonumber(ARGV[1]), {}, {}
local bytes, read = tonumber(ARGV[4]), 0
local found = redis.call('ZRANGE', index, offset, offset + tonumber(ARGV[2]) - 1, 'WITHSCORES')
if #found == 0 then return page end
for i = 1, #found, 2 do
  if ARGV[3] == 'parked' then
    local _, _, due, id = parked_task(found[i])
    found[i], found[i + 1] = id, due
  end
  ids[#ids + 1] = ARGV[3] == 'leases' and id_of(found[i]) or found[i]
end
local counts, infos = redis.call('HMGET', attempts, unpack(ids)), redis.call('HMGET', dlq_info, unpack(ids))
for n, id in ipairs(ids) do
  local envelope = bytes > 0 and (redis.call('HGET', tasks, id) or '')
  local size, kind, version = envelope and #envelope or redis.call('HSTRLEN', tasks, id), kind_of(envelope or '')
  local score = math.floor(tonumber(found[2 * n]))
  page[n] = { found[2 * n - 1], score, size, counts[n] or '', infos[n] or '', kind, version }
  read = read + size
  if bytes > 0 and read >= bytes then break end
end
return page
