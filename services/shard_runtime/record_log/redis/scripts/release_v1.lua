#!lua flags=allow-oom
-- release_v1: give a shard up, if the record is still this owner's (CM-4, CM-12).
-- KEYS: owner record   ARGV: incarnation, epoch   Answers '1' or '0'.
local o = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'released')
if o[1] ~= ARGV[1] or o[2] ~= ARGV[2] or o[3] ~= '0' then return '0' end
redis.call('HSET', KEYS[1], 'released', '1')
return '1'
