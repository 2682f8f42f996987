-- The usual release: of an exclusive lease of one key, whose record is a string. KEYS: plain key and book. ARGV: id, and its
-- token (none is any). The reply is 1.
local call, keys, args = redis.call, KEYS, ARGV
if #args < 3 then
  local id, both = args[1], call('MGET', keys[1], keys[2])
  local head = 'xh ' .. #id .. ' ' .. id .. ' '
  if args[2] then head = head .. args[2] .. ' ' end
  if both[1] == id and both[2] and string.sub(both[2], 1, #head) == head then
    call('DEL', keys[1], keys[2])
    local subscribers = redis.pcall('PUBSUB', 'SHARDNUMSUB', keys[2])[2] or 1
    if subscribers > 0 then redis.pcall('SPUBLISH', keys[2], subscribers) end
    return 1
  end
end
