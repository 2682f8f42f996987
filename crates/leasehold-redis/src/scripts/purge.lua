-- Removes records that are over. KEYS: plain key and book of each. ARGV: of each its id.
local replies = {}
for i = 1, #KEYS / 2 do
  replies[i] = alone(function()
    local lock = look_once(KEYS[2 * i - 1], KEYS[2 * i])
    local holder = find(lock, ARGV[i])
    if not holder or holder.live or holder.foreign or holder.state == 'e' then return 0 end
    remove(lock, holder)
    change(lock)
    return 1
  end)
end
settle_all()
return replies
