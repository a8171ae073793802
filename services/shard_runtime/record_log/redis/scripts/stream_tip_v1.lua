#!lua flags=no-writes
-- stream_tip_v1: where a stream stands, without moving any entry (CM-16).
-- KEYS: stream   Answers {last id, entries ever added, entries held, first id held}, or nothing when there is no stream.
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local info = redis.call('XINFO', 'STREAM', KEYS[1])
local o = {}
for i = 1, #info, 2 do o[info[i]] = info[i + 1] end
return { o['last-generated-id'], o['entries-added'], o['length'], o['recorded-first-entry-id'] }
