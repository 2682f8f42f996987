-- Shows the records of one step of a scan over all books. ARGV: cursor, pattern of the books' names, how far to go, and
-- what the names of plain keys begin with. Reads only.
local prefix = ARGV[4]
local scanned = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local replies = {}
for _, book in ipairs(scanned[2]) do
  local name = string.match(book, '^lh:lock:{[^}]*}:(.*)$')
  if name and string.sub(name, 1, #prefix) == prefix then
    local holders = alone(function()
      local holders = {}
      for _, holder in ipairs(look(name, book).holders) do
        if holder.state ~= 'e' then table.insert(holders, shown(holder)) end
      end
      return holders
    end)
    table.insert(replies, {name, holders})
  end
end
return {int(now), scanned[1], replies}
