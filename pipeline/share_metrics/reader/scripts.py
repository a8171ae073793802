"""The read-only scripts that a reader runs in the store, so that planning transfers no payload (PM-9, CM-16).

They are sent with EVAL_RO, which also works on replicas and for users without write access. Each uses one key.
"""

from __future__ import annotations

from typing import Final

#: KEYS: stream. Returns {last id, entries ever added, entries stored, first id stored}, or nothing if there is no
#: stream.
TIP: Final = """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local info, found = redis.call('XINFO', 'STREAM', KEYS[1]), {}
for i = 1, #info, 2 do found[info[i]] = info[i + 1] end
return { found['last-generated-id'], found['entries-added'], found['length'], found['recorded-first-entry-id'] }
"""

#: KEYS: stream. ARGV: from, to (as for XRANGE), count. Returns {first id, last id, how many} of at most `count`
#: entries, or nothing if there are none. Reads 16 entries at a time, since a batch of a topic log may be a megabyte.
WALK: Final = """
local from, left, first, last = ARGV[1], tonumber(ARGV[3]), false, false
while left > 0 do
  local page = redis.call('XRANGE', KEYS[1], from, ARGV[2], 'COUNT', math.min(left, 16))
  if #page == 0 then break end
  first = first or page[1][1]
  last = page[#page][1]
  from = '(' .. last
  left = left - #page
end
if not first then return false end
return { first, last, tonumber(ARGV[3]) - left }
"""

#: KEYS: stream. ARGV: from, to, count. Returns {id, t, r, c} of each entry, without the batches.
INDEX: Final = """
local answer = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])) do
  local fields = {}
  for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
  answer[#answer + 1] = { entry[1], fields['t'] or '', fields['r'] or '', fields['c'] or false }
end
return answer
"""
