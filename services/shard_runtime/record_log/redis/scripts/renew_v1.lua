#!lua flags=allow-oom
-- renew_v1: keep leases whose record is still this owner's; says which history the whole tail was seen under (CM-12).
-- KEYS: owner records…   ARGV: per key: incarnation, epoch, lease ms, tail_ok (a history, or nothing)
-- Answers {history, now ms, '1' or '0' per key}. Allowed when memory is short: it adds nothing.
local info = redis.call('INFO', 'replication')
local role, history = string.match(info, 'role:(%a+)'), string.match(info, 'master_replid:(%w+)')
if role ~= 'master' then return redis.error_reply('READONLY renew_v1 runs on a master only, this is a ' .. role) end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local answer = { history, string.format('%.0f', now) }
for i, key in ipairs(KEYS) do
  local at = (i - 1) * 4
  local o = redis.call('HMGET', key, 'incarnation', 'epoch', 'released')
  if o[1] == ARGV[at + 1] and o[2] == ARGV[at + 2] and o[3] == '0' then
    redis.call('HSET', key, 'expires', string.format('%.0f', now + tonumber(ARGV[at + 3])))
    if ARGV[at + 4] == history then redis.call('HSET', key, 'tail_history', history) end
    answer[#answer + 1] = '1'
  else
    answer[#answer + 1] = '0'
  end
end
return answer
