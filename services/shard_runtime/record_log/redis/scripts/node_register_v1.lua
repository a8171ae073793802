#!lua
-- node_register_v1: give a node name its stable number and enter it in the node list (CM-1, CM-2).
-- KEYS: node list, names, next free number
-- ARGV: name, incarnation, ttl ms, node record, dead incarnations…
-- Answers {'OK', node id} or {'TAKEN', node id, incarnation that holds the name, remaining ms}.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ttl = tonumber(ARGV[3])
local id = redis.call('HGET', KEYS[2], ARGV[1])
if id then
  local entry = redis.call('HGET', KEYS[1], id)
  if entry then
    local expires, inc = string.match(entry, '^(%d+) (%S+) ')
    local remaining = math.min(tonumber(expires) - now, ttl)
    local dead = inc == ARGV[2]
    for i = 5, #ARGV do dead = dead or ARGV[i] == inc end
    if remaining > 0 and not dead then return { 'TAKEN', id, inc, string.format('%.0f', remaining) } end
  end
else
  id = string.format('%.0f', redis.call('INCR', KEYS[3]))
  redis.call('HSET', KEYS[2], ARGV[1], id)
end
redis.call('HSET', KEYS[1], id, string.format('%.0f', now + ttl) .. ' ' .. ARGV[2] .. ' ' .. ARGV[4])
return { 'OK', id }
