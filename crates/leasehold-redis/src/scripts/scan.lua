-- Shows the records of one step of a scan over all books. ARGV: cursor, pattern of the books' names, how far to go, and
-- what the names of plain keys begin with. Reads only.
local prefix = ARGV[4]
local scanned = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local replies = {}

-- Asked first, for each refused access is noted in the server's log of them.
local function is_readable(name, book)
  return redis.acl_check_cmd('GET', name) and redis.acl_check_cmd('PEXPIRETIME', name)
    and redis.acl_check_cmd('HGETALL', book)
end

-- What the server says to the first one that is not readable. Where it is the command that is denied, no other is.
local denied
local function refusal(name, book)
  if not denied then
    local _, said = pcall(look, name, book)
    said = type(said) == 'table' and said.err or tostring(said)
    if not string.find(said, ' access .*key') then error({err = said}) end
    denied = {'failed', 'NOPERM ' .. said}
  end
  return denied
end

for _, book in ipairs(scanned[2]) do
  local name = string.match(book, '^lh:lock:{[^}]*}:(.*)$')
  if name and string.sub(name, 1, #prefix) == prefix then
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
