#!lua flags=no-writes
-- log_index_v1: a range of a log without its batches (CM-16).
-- KEYS: stream   ARGV: from, to (as for XRANGE; as for XREVRANGE with 'newest'), count, order ('oldest' or 'newest')
-- Answers {id, t, r}, … flat.
local range = ARGV[4] == 'newest' and 'XREVRANGE' or 'XRANGE'
local answer = {}
for _, entry in ipairs(redis.call(range, KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])) do
  local kind, record = '', ''
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 't' then kind = entry[2][i + 1] elseif entry[2][i] == 'r' then record = entry[2][i + 1] end
  end
  answer[#answer + 1] = entry[1]
  answer[#answer + 1] = kind
  answer[#answer + 1] = record
end
return answer
