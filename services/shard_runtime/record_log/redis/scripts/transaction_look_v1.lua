#!lua
-- transaction_look_v1: read the record of a transactional id, with a write of its own, so that a WAIT behind it proves
-- that what was read is on as many replicas, and that this node is the master (CM-151).
-- KEYS: record   Answers {now ms} when there is none, else {now ms, record, checksum}.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local found = redis.call('HMGET', KEYS[1], 'r', 'c', 'x')
redis.call('HSET', KEYS[1], 't', string.format('%.0f', now))
if found[1] and (found[3] == '0' or tonumber(found[3]) > now) then return { now, found[1], found[2] } end
redis.call('DEL', KEYS[1])
return { now }
