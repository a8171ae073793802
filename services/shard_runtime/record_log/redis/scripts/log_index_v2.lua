#!lua flags=no-writes
-- log_index_v2: a range of a log without its batches (CM-16).
-- KEYS: stream   ARGV: from, to (as for XRANGE; as for XREVRANGE with 'newest'), count, order ('oldest' or 'newest')
-- Answers {id, t, r, c}, … flat; c is false for an entry that was written without a checksum.
local range = ARGV[4] == 'newest' and 'XREVRANGE' or 'XRANGE'
local answer = {}
for _, entry in ipairs(redis.call(range, KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])) do
  local kind, record, checksum = '', '', false
  for i = 1, #entry[2], 2 do
    local name, value = entry[2][i], entry[2][i + 1]
    if name == 't' then kind = value elseif name == 'r' then record = value elseif name == 'c' then checksum = value end
  end
  answer[#answer + 1] = entry[1]
  answer[#answer + 1] = kind
  answer[#answer + 1] = record
  answer[#answer + 1] = checksum
end
return answer
