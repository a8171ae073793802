#!lua
-- transaction_change_v1: replace the record of a transactional id by one that was computed from it (CM-151).
-- KEYS: record   ARGV: SHA-1 of the record before ('' for none), record, checksum, ms until it expires (0: never)
-- Answers {1, now ms, record} when the record is in force, also when this very one was before; else {0, now ms} and the
-- record in force, if any, with its checksum. A record that has expired counts as none.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local found = redis.call('HMGET', KEYS[1], 'r', 'c', 'x')
local record = found[1]
if record and found[3] ~= '0' and tonumber(found[3]) <= now then record = false end
if record == ARGV[2] then
  redis.call('HSET', KEYS[1], 't', string.format('%.0f', now))
  return { 1, now, record }
end
if (record and redis.sha1hex(record) or '') ~= ARGV[1] then
  if record then return { 0, now, record, found[2] } end
  return { 0, now }
end
local expires = tonumber(ARGV[4])
if expires > 0 then expires = now + expires end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'r', ARGV[2], 'c', ARGV[3], 'x', string.format('%.0f', expires))
if expires > 0 then redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', expires)) end
return { 1, now, ARGV[2] }
