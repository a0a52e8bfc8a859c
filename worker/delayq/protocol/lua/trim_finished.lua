-- trim_finished: remove the oldest tasks of the history that are beyond its bounds
-- KEYS finished  zset  id -> time at which the task was done, ms
-- KEYS finished_info  hash  id -> attempts, how late it began, due ms, for how long the entry counts
-- KEYS stats    hash  monotonic counters
-- ARGV seconds  how long a finished task is kept
-- ARGV count    how many are kept
-- ARGV bytes    how large they may be together
-- ARGV limit    how many to remove at most
-- RETURNS how many were removed
local finished, finished_info, stats = unpack(KEYS)
check_format(stats)
local seconds, count, bytes, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
return trim_oldest(finished, finished_info, stats, now(), seconds, count, bytes, limit)
