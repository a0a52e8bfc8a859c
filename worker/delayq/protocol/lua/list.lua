-- list: one page of the tasks in a state, sorted by score
-- KEYS index     zset  id -> ms, or id:token -> lease expiry ms
-- KEYS tasks     hash  id -> envelope
-- KEYS attempts  hash  id -> failures, crashes, due ms, last error
-- KEYS dlq_info  hash  id -> reason and last error
-- ARGV offset  rank of the first
-- ARGV limit   how many at most
-- ARGV leased  1 when members are leases
-- RETURNS for each task: member, score ms, envelope bytes, attempts or '', dlq info or ''
local index, tasks, attempts, dlq_info = unpack(KEYS)
local offset, page, ids = tonumber(ARGV[1]), {}, {}
local found = redis.call('ZRANGE', index, offset, offset + tonumber(ARGV[2]) - 1, 'WITHSCORES')
if #found == 0 then return page end
for i = 1, #found, 2 do ids[#ids + 1] = ARGV[3] == '1' and id_of(found[i]) or found[i] end
local counts, infos = redis.call('HMGET', attempts, unpack(ids)), redis.call('HMGET', dlq_info, unpack(ids))
for n, id in ipairs(ids) do
  local size = redis.call('HSTRLEN', tasks, id)
  page[n] = { found[2 * n - 1], math.floor(tonumber(found[2 * n])), size, counts[n] or '', infos[n] or '' }
end
return page
