-- wake: hint one idle worker when something is due, and tell a scanner how long it may sleep
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS wake        list  hint for an idle worker
-- RETURNS now ms, 1 when something is due, 1 when an earlier hint lies untaken, µs until the next due time after now, µs until the next lease runs out (-1: none)
local delayed, retry, processing, wake = unpack(KEYS)
local us = now_us()
local at = math.floor(us / 1000)

local function wait_us(ms)
  if not ms or ms == math.huge then return -1 end
  return math.max(0, ms * 1000 - us)
end

local due = math.min(head(delayed) or math.huge, head(retry) or math.huge) <= at
local untaken = redis.call('LLEN', wake)
if due then hint(wake) end
local next = math.min(next_due(delayed, at), next_due(retry, at))
return { at, due and 1 or 0, untaken, wait_us(next), wait_us(head(processing)) }
