#!lua
-- metadata_append_v1: append a version of the metadata log right behind the one it was computed from (CM-20).
-- KEYS: log   ARGV: version, type, record
-- Answers 1 when it was appended, 0 when the log does not end with the version before: another change came first, or
-- a fail-over lost that one.
local version = tonumber(ARGV[1])
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local tip = newest[1] and tonumber(string.match(newest[1][1], '^1%-(%d+)$')) or 0
if tip ~= version - 1 then return 0 end
redis.call('XADD', KEYS[1], string.format('1-%.0f', version), 't', ARGV[2], 'r', ARGV[3])
return 1
