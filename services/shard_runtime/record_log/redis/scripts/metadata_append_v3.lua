#!lua
-- metadata_append_v3: append a version of the metadata log right behind the entry it was computed from (CM-20).
-- KEYS: log   ARGV: version, SHA-1 of the record of the version before ('' for the first), type, record, checksum
-- Answers 1 when it was appended, 0 when the log does not end with that entry: another change came first, or a
-- fail-over lost it, perhaps with another of the same version in its place (v1 compared the version alone).
local version = tonumber(ARGV[1])
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local tip = newest[1] and tonumber(string.match(newest[1][1], '^1%-(%d+)$')) or 0
local digest = newest[1] and redis.sha1hex(newest[1][2][4]) or ''
if tip ~= version - 1 or digest ~= ARGV[2] then return 0 end
redis.call('XADD', KEYS[1], string.format('1-%.0f', version), 't', ARGV[3], 'r', ARGV[4], 'c', ARGV[5])
return 1
