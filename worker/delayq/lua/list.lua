-- list: one page of the tasks in a state, in the order of their scores
-- KEYS index     zset  id -> ms, or id:token -> lease expiry ms
-- KEYS tasks     hash  id -> envelope
-- KEYS attempts  hash  id -> failures, crashes, last error
-- KEYS dlq_info  hash  id -> reason and last error
-- ARGV offset  rank of the first
-- ARGV limit   how many at most
-- ARGV leased  1 when members are leases
-- RETURNS for each task: member, score ms, envelope bytes, attempts or '', dlq info or ''
local index, tasks, attempts, dlq_info = unpack(KEYS)
local offset, page = tonumber(ARGV[1]), {}
local found = redis.call('ZRANGE', index, offset, offset + tonumber(ARGV[2]) - 1, 'WITHSCORES')
for i = 1, #found, 2 do
  local id = ARGV[3] == '1' and id_of(found[i]) or found[i]
  page[#page + 1] = {
    found[i], math.floor(tonumber(found[i + 1])), redis.call('HSTRLEN', tasks, id),
    redis.call('HGET', attempts, id) or '', redis.call('HGET', dlq_info, id) or '',
  }
end
return page
