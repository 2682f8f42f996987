-- Shows every record of the keys that are named. KEYS: plain key and book of each. Reads only.
local replies = {}
for i = 1, #KEYS / 2 do
  replies[i] = alone(function()
    local holders = {}
    for _, holder in ipairs(look(KEYS[2 * i - 1], KEYS[2 * i]).holders) do
      if holder.state ~= 'e' then table.insert(holders, shown(holder)) end
    end
    return holders
  end)
end
return {int(now), replies}
