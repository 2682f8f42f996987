-- Which commands of our scripts this server lacks: those without which operations fail, and those without which only
-- wake-ups do; and which the user may not run. Runs none of them. ARGV: whether replicas are waited for, and the name
-- of a mark.
local plain, book, mark = 'leasehold', 'lh:lock:{leasehold}:leasehold', ARGV[2]
local lacking, silent, denied = {}, {}, {}

-- Whether the user may run it; nil where it is renamed or removed.
local function may(missing, command)
  local known, allowed = pcall(redis.acl_check_cmd, unpack(command))
  if known then return allowed end
  table.insert(missing, command[1])
end

-- Where the user may run none of those about a key, it is the key that others may not access.
local function about(commands)
  local refused = {}
  for _, command in ipairs(commands) do
    if may(lacking, command) == false then table.insert(refused, command[1]) end
  end
  if #refused < #commands then
    for _, name in ipairs(refused) do table.insert(denied, name) end
  end
end

about({{'GET', plain}, {'EXISTS', plain}, {'MGET', plain}, {'PEXPIRETIME', plain}})
about({{'SET', plain, ''}, {'DEL', plain}, {'PEXPIREAT', plain, '1'}})
about({{'MGET', book}, {'HGETALL', book}})
about({{'SET', book, ''}, {'DEL', book}, {'HSET', book, 'mark', '1'}, {'HDEL', book, 'mark'}, {'PEXPIREAT', book, '1'}, {'PERSIST', book}})
for _, command in ipairs({{'GET', mark}, {'SET', mark, '1'}}) do
  if may(lacking, command) == false then table.insert(denied, command[1] .. ' ' .. mark) end
end
local others = {{'EVAL', '', '0'}, {'EVALSHA', '', '0'}, {'SCAN', '0'}, {'TIME'}}
if ARGV[1] == '1' then table.insert(others, {'WAIT', '1', '1'}) end
for _, command in ipairs(others) do
  if may(lacking, command) == false then table.insert(denied, command[1]) end
end
for _, command in ipairs({{'PUBSUB', 'SHARDNUMSUB'}, {'SPUBLISH', book, ''}, {'SSUBSCRIBE', book}}) do
  may(silent, command)
end
return {lacking, silent, denied}
