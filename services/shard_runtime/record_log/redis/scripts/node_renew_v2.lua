#!lua flags=allow-oom
-- node_renew_v2: renew a node's entry and answer the live nodes, by the store's clock (CM-2).
-- KEYS: node list   ARGV: node id, incarnation, ttl ms, node record, mode ('renew' or 'remove')
-- Answers {'OK', ms until the first of the others is overdue or 0, id, record, …} or {'TAKEN', incarnation}.
-- Entries ten times overdue are dropped; their names stay.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ttl = tonumber(ARGV[3])
local entry = redis.call('HGET', KEYS[1], ARGV[1])
local expires, inc = 0, ARGV[2]
if entry then expires, inc = string.match(entry, '^(%d+) (%S+) ') end
if ARGV[5] == 'remove' then
  if entry and inc == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end
  return { 'OK' }
end
if inc ~= ARGV[2] and math.min(tonumber(expires), now + ttl) > now then return { 'TAKEN', inc } end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now + ttl) .. ' ' .. ARGV[2] .. ' ' .. ARGV[4])
local answer, first = { 'OK', 0 }, 0
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local till, _, record = string.match(all[i + 1], '^(%d+) (%S+) (.*)$')
  if tonumber(till) > now then
    answer[#answer + 1] = all[i]
    answer[#answer + 1] = record
    local left = math.min(tonumber(till) - now, ttl)
    if all[i] ~= ARGV[1] and (first == 0 or left < first) then first = left end
  elseif tonumber(till) < now - 10 * ttl then
    redis.call('HDEL', KEYS[1], all[i])
  end
end
answer[2] = first
return answer
