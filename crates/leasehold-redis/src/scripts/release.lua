-- KEYS: plain key and book of each key of each lease. ARGV: of each lease its id, for how many µs to keep its keys taken (0
-- is not at all), how many keys it has, whether it wakes waiters (1 or 0), and its token (0 is any); or those of the short form.
if #args < 3 then args = {args[1], '0', '1', '1', args[2] or '0'} end

local function release(id, keep, count, wakes, token, first)
  local found, all_held, any_expired, all_kept, kept_until = {}, true, false, true, math.huge
  for i = 1, count do
    local at = 2 * (first + i - 1)
    local lock = look_once(KEYS[at - 1], KEYS[at])
    local mine = of_token(find(lock, id), token)
    found[i] = {lock = lock, mine = mine}
    all_held = all_held and mine ~= nil and mine.live and mine.state == 'h'
    any_expired = any_expired or (mine ~= nil and mine.state == 'h' and not mine.live and is_over(mine))
    if mine and mine.state == 'k' and mine.live then
      kept_until = math.min(kept_until, left(mine))
    else
      all_kept = false
    end
  end
  if keep > 0 and all_held then
    local ends = ms_up(now + keep)
    for _, one in ipairs(found) do
      one.mine.state, one.mine.ends = 'k', ends
      write(one.lock, one.mine)
      change(one.lock)
    end
    return {'kept', ends * 1000 - now}
  end
  if keep > 0 and all_kept then return {'kept', kept_until} end
  for _, one in ipairs(found) do
    if one.mine and one.mine.state == 'h' then
      remove(one.lock, one.mine)
      change(one.lock, wakes)
    end
  end
  return {all_held and 'released' or any_expired and 'expired' or 'not held'}
end

local replies, first = {}, 1
for at = 1, #args, 5 do
  local count, from = tonumber(args[at + 2]), first
  table.insert(replies, alone(function()
    return release(args[at], tonumber(args[at + 1]), count, args[at + 3] == '1', tonumber(args[at + 4]), from)
  end))
  first = first + count
end
settle_all()
return replies
