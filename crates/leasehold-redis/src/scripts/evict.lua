-- Ends exactly the leases that are named. KEYS: plain key and book of each. ARGV: the note of an evicted lease, then of
-- each its id, whether it has one (1) or not (0), and its token (0 is any).
local note = ARGV[1]

local function evict(lock, id, has_id, token)
  for _, holder in ipairs(lock.holders) do
    local named
    if has_id then named = holder.id == id else named = #holder.id == 0 or #holder.id > 255 end
    if named and holder.state ~= 'e' and (token == 0 or complete(holder).token == token) then
      if held(lock, holder.id) == holder and has_id and not holder.foreign then
        local tell_until = ms_up(now) + REMEMBERED
        holder.ends = holder.ends == 0 and tell_until or math.min(holder.ends, tell_until)
        holder.state, holder.live, holder.note = 'e', false, note
        write(lock, holder)
      else
        remove(lock, holder)
      end
      change(lock, true)
      return 1
    end
  end
  return 0
end

local replies = {}
for i = 1, #KEYS / 2 do
  local at = 3 * i - 1
  table.insert(replies, alone(function()
    local lock = look_once(KEYS[2 * i - 1], KEYS[2 * i])
    return evict(lock, ARGV[at], ARGV[at + 1] == '1', tonumber(ARGV[at + 2]))
  end))
end
settle_all()
return replies
