-- Shows the records of one step of a scan over all books. ARGV: cursor, pattern of the books' names, how far to go, and
-- what all names begin with. Reads only.
local prefix = ARGV[4]
local scanned = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local replies = {}

-- Checked first: the server writes each refused access to its ACL log.
local function is_readable(name, book)
  return redis.acl_check_cmd('GET', name) and redis.acl_check_cmd('PEXPIRETIME', name)
    and redis.acl_check_cmd('MGET', book) and redis.acl_check_cmd('HGETALL', book)
end

-- How the server refuses the first lock that is not readable. If it denies the command itself, no other is readable.
local denied
local function refusal(name, book)
  if not denied then
    local _, message = pcall(look, name, book)
    message = type(message) == 'table' and message.err or tostring(message)
    if not string.find(message, ' access .*key') then error({err = message}) end
    denied = {'failed', 'NOPERM ' .. message}
  end
  return denied
end

for _, book in ipairs(scanned[2]) do
  local name = string.match(string.sub(book, #prefix + 1), '^lh:lock:{[^}]*}:(.*)$')
  if name and string.sub(book, 1, #prefix) == prefix then
    name = prefix .. name
    local holders = is_readable(name, book) and alone(function()
      local holders = {}
      for _, holder in ipairs(look(name, book).holders) do
        if holder.state ~= 'e' then table.insert(holders, shown(holder)) end
      end
      return holders
    end)
    table.insert(replies, {name, holders or refusal(name, book)})
  end
end
return {int(now), scanned[1], replies}
