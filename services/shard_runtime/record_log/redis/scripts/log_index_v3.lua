#!lua flags=no-writes
-- log_index_v3: a range of a log without its batches, in calls of bounded size (CM-16).
-- KEYS: stream   ARGV: from, to (as for XRANGE; as for XREVRANGE with 'newest'), count, order ('oldest' or 'newest'),
-- bytes. It stops after the entry with which it has read so many bytes: the store does nothing else meanwhile.
-- Answers {whether it stopped (1 or 0), id, t, r, c, …} flat; c is false for an entry that was written without a
-- checksum.
local range = ARGV[4] == 'newest' and 'XREVRANGE' or 'XRANGE'
local from, left, budget = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[5])
local answer, bytes, entries, page = {0}, 0, 0, 1
while left > 0 do
  local found = redis.call(range, KEYS[1], from, ARGV[2], 'COUNT', math.min(page, left))
  for _, entry in ipairs(found) do
    local kind, record, checksum = '', '', false
    for i = 1, #entry[2], 2 do
      local name, value = entry[2][i], entry[2][i + 1]
      bytes = bytes + #value
      if name == 't' then kind = value elseif name == 'r' then record = value elseif name == 'c' then checksum = value end
    end
    answer[#answer + 1] = entry[1]
    answer[#answer + 1] = kind
    answer[#answer + 1] = record
    answer[#answer + 1] = checksum
    from = '(' .. entry[1]
  end
  entries, left = entries + #found, left - #found
  if #found < page then break end
  if bytes >= budget then
    answer[1] = left > 0 and 1 or 0
    break
  end
  -- As many as fit by the mean size so far, but few at a time: later ones may be far larger.
  page = math.max(1, math.min(16, math.floor((budget - bytes) * entries / math.max(bytes, 1))))
end
return answer
