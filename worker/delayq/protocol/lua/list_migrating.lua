-- list_migrating: a batch of tasks in migration, for the process that completes it; read-only
-- KEYS tasks        hash  id -> envelope
-- KEYS attempts     hash  id -> failures, crashes, due ms, last error
-- KEYS dlq_info     hash  id -> reason and last error
-- KEYS moving       zset  id -> token of tasks in migration to another shard
-- KEYS moving_info  hash  id -> shard, index and score of the destination
-- ARGV id     a task of the batch; '': the oldest batch after `after`
-- ARGV after  a token
-- ARGV whole  1 to return the tasks themselves too
-- RETURNS token (0: there is none), and of each task that exists and can be sent id, to, and with `whole` index, score, envelope, attempts or '', dlq info or ''
local tasks, attempts, dlq_info, moving, moving_info = unpack(KEYS)
local token = redis.call('ZSCORE', moving, ARGV[1])
if ARGV[1] == '' then
  token = redis.call('ZRANGEBYSCORE', moving, '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
end
if not token then return { '0', {} } end
local departed = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', moving, token, token)) do
  local to, index, score = destination(moving_info, id)
  local envelope = to and ARGV[3] == '1' and redis.call('HGET', tasks, id)
  if to and ARGV[3] ~= '1' and redis.call('HEXISTS', tasks, id) == 1 then
    departed[#departed + 1] = { id, to }
  elseif envelope then
    local counted, info = redis.call('HGET', attempts, id) or '', redis.call('HGET', dlq_info, id) or ''
    departed[#departed + 1] = { id, to, index, score, envelope, counted, info }
  end
end
return { string.format('%.0f', tonumber(token)), departed }
