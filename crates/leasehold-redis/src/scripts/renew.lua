-- KEYS: plain key and book of each claim of each lease, then, if one is raised, the mark of all tokens. ARGV: of each lease
-- its id, the term in µs (0 is never), what to raise the token to (0 is not), its note, the modes of its claims, a letter
-- each, and its token (0 is any).

-- The most that a token may be raised to: a value near the end would end every key.
local function most()
  local mark = KEYS[#KEYS]
  return math.max(number(mark, redis.call('GET', mark) or '0'), 4503599627370496) + 4294967296
end

local function renew(id, to, raise, note, modes, token, first)
  if raise > 0 and raise > most() then return {'raise', int(most())} end
  local claims, whole, lost = {}, true, {'lost', 'gone'}
  for i = 1, #modes do
    local at = 2 * (first + i - 1)
    local lock = look_once(KEYS[at - 1], KEYS[at])
    local mine = of_token(held(lock, id), token)
    if mine and mine.mode ~= string.sub(modes, i, i) then return {'mode', i, mine.mode} end
    claims[i] = {lock = lock, mine = mine}
    whole = whole and mine ~= nil
    local record = of_token(find(lock, id), token)
    if record and lost[2] ~= 'evicted' then
      if record.state == 'e' then
        lost = {'lost', 'evicted', record.note}
      elseif record.state == 'h' and not record.live and is_over(record) then
        lost = {'lost', 'expired'}
      end
    end
  end
  if not whole then
    for _, claim in ipairs(claims) do
      if claim.mine then
        remove(claim.lock, claim.mine)
        change(claim.lock, true)
      end
    end
    return lost
  end
  if raise > 0 then
    local mark = KEYS[#KEYS]
    if raise > number(mark, redis.call('GET', mark) or '0') then redis.call('SET', mark, int(raise)) end
  end
  local remaining = math.huge
  for _, claim in ipairs(claims) do
    local mine, lock = claim.mine, claim.lock
    if to == 0 then
      mine.ends = 0
    elseif mine.ends ~= 0 then
      mine.ends = math.max(mine.ends, ms_up(now + to))
    end
    mine.renewed, mine.token = now, math.max(mine.token, raise)
    if mine.foreign then mine.note, mine.since = note, now end
    remaining = math.min(remaining, left(mine))
    write(lock, mine)
    change(lock)
  end
  return {'held', told(remaining)}
end

local replies, first = {}, 1
for at = 1, #ARGV, 6 do
  local modes = ARGV[at + 4]
  local from = first
  table.insert(replies, alone(function()
    return renew(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3], modes, tonumber(ARGV[at + 5]), from)
  end))
  first = first + #modes
end
settle_all()
return replies
