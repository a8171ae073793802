#!lua
-- claim_v1: try to own a shard; writes its owner record and a claim entry into each of its streams (CM-12).
-- KEYS: owner record, streams…
-- ARGV: incarnation, node id, address, nonce, lease ms, floor, seen history, waited, lossless, durable, cont epoch,
--       claim record, dead incarnations…
-- Answers {status, history, now ms, …}: OK + epoch, lossy, replay from, previous record | HELD + remaining ms, record |
--         CHANGED | WAIT_HISTORY | REFUSED + reason. Numbers travel as text: Lua's are doubles, incarnations are 64 bit.
local FIELDS = { 'node_id', 'incarnation', 'address', 'epoch', 'expires', 'released', 'lease_history', 'tail_history',
                 'replay_from', 'nonce', 'verdict' }
local info = redis.call('INFO', 'replication')
local role, history = string.match(info, 'role:(%a+)'), string.match(info, 'master_replid:(%w+)')
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function text(number) return string.format('%.0f', number) end
local function answer(status, ...) return { status, history, text(now), ... } end

if role ~= 'master' then return redis.error_reply('READONLY claim_v1 runs on a master only, this is a ' .. role) end
local inc, lease, floor, seen = ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local waited, lossless, durable, cont_epoch = ARGV[8] == '1', ARGV[9] == '1', ARGV[10] == '1', tonumber(ARGV[11])
if seen ~= history then return answer('CHANGED') end

local o, record = {}, redis.call('HMGET', KEYS[1], unpack(FIELDS))
for i, name in ipairs(FIELDS) do
  o[name] = record[i]
  if not record[i] then record[i] = '' end
end
local exists = o.incarnation
local released, expires = o.released == '1', tonumber(o.expires or '0')
local epoch = tonumber(o.epoch or '0')

if exists and o.nonce == ARGV[4] then
  if released then return answer('REFUSED', 'released') end
  redis.call('HSET', KEYS[1], 'expires', text(now + lease))
  return answer('OK', o.epoch, o.verdict, o.replay_from)
end
if exists and expires > now + lease then
  expires = now + lease
  record[5] = text(expires)
  redis.call('HSET', KEYS[1], 'expires', record[5])
end
local mine = exists and o.incarnation == inc
local cont = mine and not released and epoch == cont_epoch
local dead = false
for i = 13, #ARGV do dead = dead or ARGV[i] == o.incarnation end
if exists and not mine and not released and expires > now and not dead then
  return answer('HELD', text(expires - now), unpack(record))
end
if not lossless and not cont and o.lease_history ~= history and not waited then return answer('WAIT_HISTORY') end

local e = math.max(epoch + 1, tonumber(time[1]) - 1767225600, floor)
for i = 2, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    local stream = redis.call('XINFO', 'STREAM', KEYS[i])
    for f = 1, #stream, 2 do
      if stream[f] == 'last-generated-id' then
        e = math.max(e, tonumber(string.match(stream[f + 1], '^(%d+)')) + 1)
      end
    end
  end
end
if e > 2147483647 then return answer('REFUSED', 'epochs are exhausted') end
local lossy = exists and o.tail_history ~= history and not lossless and not (released and durable)
for i = 2, #KEYS do redis.call('XADD', KEYS[i], text(e) .. '-0', 't', 'C', 'r', ARGV[12]) end
local verdict, replay_from = lossy and '1' or '0', o.replay_from or '0-0'
redis.call('HSET', KEYS[1], 'node_id', ARGV[2], 'incarnation', inc, 'address', ARGV[3], 'epoch', text(e),
  'nonce', ARGV[4], 'expires', text(now + lease), 'released', '0', 'lease_history', history,
  'tail_history', lossy and o.tail_history or history, 'replay_from', replay_from, 'verdict', verdict)
if exists then return answer('OK', text(e), verdict, replay_from, unpack(record)) end
return answer('OK', text(e), verdict, replay_from)
