-- wake: hint one idle worker when something is due, and tell a scanner how long it may sleep
-- KEYS delayed     zset  id -> due ms
-- KEYS retry       zset  id -> due ms of the next attempt
-- KEYS processing  zset  id:token -> lease expiry ms
-- KEYS wake        list  hint for an idle worker
-- RETURNS now ms, 1 when something is due, µs until the next due time, µs until the next lease runs out (-1: none)
local delayed, retry, processing, wake = unpack(KEYS)
local us = now_us()
local at = math.floor(us / 1000)
local due = math.min(head(delayed) or math.huge, head(retry) or math.huge)
local expiry = head(processing) or math.huge

local function wait_us(ms)
  if ms == math.huge then return -1 end
  return math.max(0, ms * 1000 - us)
end

if due <= at then hint(wake) end
return { at, due <= at and 1 or 0, wait_us(due), wait_us(expiry) }
