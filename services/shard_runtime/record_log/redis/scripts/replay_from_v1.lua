#!lua flags=allow-oom
-- replay_from_v1: note where a replay may start, if the record is still this owner's; never moves back (CM-12, CM-18).
-- KEYS: owner record   ARGV: incarnation, epoch, id (nothing: only check the owner)   Answers '1' or '0'.
local o = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'released', 'replay_from')
if o[1] ~= ARGV[1] or o[2] ~= ARGV[2] or o[3] ~= '0' then return '0' end
if ARGV[3] == '' then
  redis.call('HSET', KEYS[1], 'released', '0') -- a write, so that the WAIT behind it means something
  return '1'
end
local had_ms, had_seq = string.match(o[4] or '0-0', '^(%d+)-(%d+)$')
local ms, seq = string.match(ARGV[3], '^(%d+)-(%d+)$')
local ahead = tonumber(ms) > tonumber(had_ms) or (tonumber(ms) == tonumber(had_ms) and tonumber(seq) > tonumber(had_seq))
redis.call('HSET', KEYS[1], 'replay_from', ahead and ARGV[3] or o[4])
return '1'
