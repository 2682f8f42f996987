-- Removes records that are over. KEYS: plain key and book of each. ARGV: forget_after in ms or '', then of each its id.
local replies = {}
for i = 1, #KEYS / 2 do
  replies[i] = alone(function()
    local lock = look(KEYS[2 * i - 1], KEYS[2 * i])
    local holder = find(lock, ARGV[1 + i])
    if not holder or holder.live or holder.foreign or holder.state == 'e' then return 0 end
    remove(lock, holder)
    settle(lock, ARGV[1])
    return 1
  end)
end
return replies
