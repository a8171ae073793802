#!lua
-- claim_v2: try to own a shard; writes its owner record and a claim entry into each of its streams (CM-12).
-- KEYS: owner record, streams…
-- ARGV: incarnation, node id, address, nonce, lease ms, floor, seen history, waited, lossless, durable, cont epoch,
--       claim record, histories that ended whole (by commas), checksums so far of the claim entries (by commas, one
--       for each stream), dead incarnations…
-- Answers {status, history, now ms, …}: OK + epoch, lossy, replay from, previous record | HELD + remaining ms, record |
--         CHANGED | WAIT_HISTORY | REFUSED + reason. Numbers travel as text: Lua's are doubles, incarnations are 64 bit.
local FIELDS = { 'node_id', 'incarnation', 'address', 'epoch', 'expires', 'released', 'lease_history', 'tail_history',
                 'replay_from', 'nonce', 'verdict' }
local info = redis.call('INFO', 'replication')
local role, history = string.match(info, 'role:(%a+)'), string.match(info, 'master_replid:(%w+)')
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function text(number) return string.format('%.0f', number) end
-- CRC-32C, four bits at a time, from what the caller has computed on over the claim's id: <epoch>-0, 8 bytes each.
local NIBBLE = { 0, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d, 0x82f63b78,
                 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75 }
local function checksum(before, epoch)
  local crc = bit.bnot(tonumber(before))
  for at = 1, 16 do
    local byte = (at > 4 and at <= 8) and bit.band(bit.rshift(epoch, 8 * (8 - at)), 255) or 0
    crc = bit.bxor(crc, byte)
    crc = bit.bxor(bit.rshift(crc, 4), NIBBLE[bit.band(crc, 15) + 1])
    crc = bit.bxor(bit.rshift(crc, 4), NIBBLE[bit.band(crc, 15) + 1])
  end
  crc = bit.bnot(crc)
  return string.char(bit.band(bit.rshift(crc, 24), 255), bit.band(bit.rshift(crc, 16), 255),
                     bit.band(bit.rshift(crc, 8), 255), bit.band(crc, 255))
end
local function answer(status, ...) return { status, history, text(now), ... } end

if role ~= 'master' then return redis.error_reply('READONLY claim_v2 runs on a master only, this is a ' .. role) end
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
for i = 15, #ARGV do dead = dead or ARGV[i] == o.incarnation end
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
local whole = o.tail_history and string.find(',' .. ARGV[13] .. ',', ',' .. o.tail_history .. ',', 1, true)
local lossy = exists and o.tail_history ~= history and not whole and not lossless and not (released and durable)
local sums = string.gmatch(ARGV[14], '%d+')
for i = 2, #KEYS do redis.call('XADD', KEYS[i], text(e) .. '-0', 't', 'C', 'r', ARGV[12], 'c', checksum(sums(), e)) end
local verdict, replay_from = lossy and '1' or '0', o.replay_from or '0-0'
redis.call('HSET', KEYS[1], 'node_id', ARGV[2], 'incarnation', inc, 'address', ARGV[3], 'epoch', text(e),
  'nonce', ARGV[4], 'expires', text(now + lease), 'released', '0', 'lease_history', history,
  'tail_history', lossy and o.tail_history or history, 'replay_from', replay_from, 'verdict', verdict)
if exists then return answer('OK', text(e), verdict, replay_from, unpack(record)) end
return answer('OK', text(e), verdict, replay_from)
