-- KEYS: plain key and book of each claim, then the mark of all tokens. ARGV: id, term in µs, note, quarantine in ms or
-- 'durable' or '', whether a promoted replica is refused (1 or 0), then mode and limit (0 is none) of each claim; or the
-- short form.
if #args < 6 then args = {args[1], args[2] * 1000, args[4], '', '0', 'x', '0'} end
local id, term, note = args[1], tonumber(args[2]), args[3]

-- Why the server grants nothing: what it had granted before, it may have forgotten or may forget.
local function forgets(quarantine, refuses_promoted)
  local section = quarantine == 'durable' and 'persistence' or 'server'
  local info = redis.call('INFO', section, 'replication')
  local function has(line) return string.find(info, line .. '\r', 1, true) end
  if refuses_promoted and not has('second_repl_offset:-1') then return {'promoted'} end
  if quarantine == 'durable' then
    if not has('aof_enabled:1') then return {'appendonly'} end
    local is_rewriting = has('aof_rewrite_in_progress:1') or has('aof_rewrite_scheduled:1')
    if is_rewriting and has('aof_base_size:0') then return {'rewrite'} end
    return nil
  end
  -- The first second is counted from when it was full.
  local uptime = math.max(string.match(info, 'uptime_in_seconds:(%d+)') * 1000 - 1000, 0)
  if uptime < tonumber(quarantine) then return {'quarantine', quarantine - uptime} end
end

local forgotten = args[4] ~= '' and forgets(args[4], args[5] == '1')
if forgotten then return forgotten end

local claims, whole, token = {}, true, nil
for i = 1, (#KEYS - 1) / 2 do
  local claim = {lock = look(KEYS[2 * i - 1], KEYS[2 * i])}
  claim.mode, claim.max = args[4 + 2 * i], tonumber(args[5 + 2 * i])
  claim.mine = held(claim.lock, id)
  claims[i] = claim
end
for i, claim in ipairs(claims) do
  local mine = claim.mine
  if mine and mine.mode ~= claim.mode then return {'mode', i, mine.mode} end
  if i == 1 then token = mine and mine.token end
  whole = whole and mine ~= nil and mine.token == token
end

local ends = ms_up(now + term)

-- Written before any key is taken.
local function next_token()
  local mark = KEYS[#KEYS]
  local minted = math.max(number(mark, redis.call('GET', mark) or '0') + 1, math.min(now, 4503599627370496))
  if minted > 9007199254740991 then corrupt(mark, 'the token, which has reached its end,') end
  redis.call('SET', mark, int(minted))
  return minted
end

if whole then
  -- Another client took it, and gave no token.
  local minted = token == 0 and next_token()
  local remaining = math.huge
  for _, claim in ipairs(claims) do
    local mine, lock = claim.mine, claim.lock
    if mine.ends ~= 0 then mine.ends = math.max(mine.ends, ends) end
    mine.renewed = now
    if minted then mine.token, mine.since, mine.note = minted, now, note end
    remaining = math.min(remaining, left(mine))
    write(lock, mine)
    settle(lock)
  end
  return {'granted', minted or token, told(remaining), 0}
end

local blocked, blocker, longest
for i, claim in ipairs(claims) do
  local lock = claim.lock
  if claim.mine then
    remove(lock, claim.mine)
    claim.broken = true
  end
  local live, chosen = {}, nil
  local function blocks(holder)
    if not chosen or left(holder) > left(chosen) then chosen = holder end
  end
  for _, holder in ipairs(lock.holders) do
    if holder.live then
      table.insert(live, holder)
      -- An own live record can only be one that is kept; a grant would cut it short.
      if claim.mode == 'x' or holder.mode == 'x' or holder.id == id then blocks(holder) end
    end
  end
  if claim.mode == 's' and claim.max > 0 and #live >= claim.max then
    table.sort(live, function(a, b) return left(a) < left(b) end)
    blocks(live[#live - claim.max + 1])
  end
  if chosen then
    longest = math.max(longest or 0, left(chosen))
    if not blocked then blocked, blocker = i, chosen end
  end
end

if blocked then
  -- A lease lives or dies whole: of a broken one the rest goes.
  for _, claim in ipairs(claims) do
    if claim.broken then
      settle(claim.lock)
      wake(claim.lock.book)
    end
  end
  return {'refused', blocked, told(longest), int(now), shown(blocker)}
end

local granted = next_token()
for _, claim in ipairs(claims) do
  local lock = claim.lock
  local ended = {}
  for _, holder in ipairs(lock.holders) do
    local is_mark = holder.state == 'e' and not is_over(holder)
    if holder.id == id or not (holder.live or is_mark) then table.insert(ended, holder) end
  end
  for _, holder in ipairs(ended) do remove(lock, holder) end
  local holder = {
    id = id, mode = claim.mode, state = 'h', ends = ends, token = granted, since = now, renewed = 0, note = note,
    live = true,
  }
  table.insert(lock.holders, holder)
  write(lock, holder)
  settle(lock)
end
return {'granted', granted, ends * 1000 - now, 1}
