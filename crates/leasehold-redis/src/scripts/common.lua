-- What every script begins with. The format that this reads and writes: https://docs.rs/leasehold-redis.
-- Times are microseconds since 1970 by the server's clock, "ends" are milliseconds, 0 is never.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- Numbers are doubles here: exact below 2^53, but written with an exponent by default.
local function int(number)
  return string.format('%.0f', number)
end

local function ms_up(micros)
  return math.ceil(micros / 1000)
end

-- What remains, for comparing; never is the most.
local function left(holder)
  if holder.ends == 0 then return math.huge end
  return math.max(holder.ends * 1000 - now, 0)
end

-- The same for the client: -1 is never.
local function told(remaining)
  if remaining == math.huge then return -1 end
  return remaining
end

local function is_over(holder)
  return holder.ends ~= 0 and holder.ends * 1000 <= now
end

local function corrupt(book, field)
  error({err = 'LHCORRUPT ' .. field .. ' of ' .. book})
end

local function parse(book, field, value)
  local mode, state, ends, token, since, renewed, note =
    string.match(value, '^([xs])([hke]) (%d+) (%d+) (%d+) (%d+) (.*)$')
  if not mode then corrupt(book, 'a holder') end
  return {
    id = string.sub(field, 2), mode = mode, state = state, ends = tonumber(ends),
    token = tonumber(token), since = tonumber(since), renewed = tonumber(renewed), note = note,
  }
end

-- Reads a key and its book, and decides who holds. The plain key is the truth: nobody holds
-- when it is absent. If it has the book's mark, the book lists the holders; else its value is the id of the holder.
local function look(plain, book)
  local lock = {plain = plain, book = book, holders = {}, counter = 0}
  lock.value = redis.call('GET', plain)
  lock.stood = lock.value
  if lock.value then
    local at = redis.call('PEXPIRETIME', plain)
    lock.ends = at < 0 and 0 or at
    if is_over(lock) then lock.value = false end
  end
  local fields = redis.call('HGETALL', book)
  local shown = false
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 'token' then
      lock.counter = tonumber(string.match(value, '^%d+$') or corrupt(book, 'the counter'))
    elseif field == 'mark' then
      lock.mark = value
    elseif string.sub(field, 1, 1) == '=' then
      table.insert(lock.holders, parse(book, field, value))
    end
  end
  for _, holder in ipairs(lock.holders) do
    holder.live = false
    if lock.value and holder.state ~= 'e' then
      if lock.value == lock.mark then
        holder.live = not is_over(holder)
      elseif lock.value == holder.id and holder.mode == 'x' and holder.state == 'h' then
        -- Its own client may have extended it without changing the book.
        holder.live, holder.ends = true, lock.ends
      end
    end
    shown = shown or holder.live
  end
  if lock.value and not shown then
    -- A mark whose book is gone names nobody.
    local is_mark = lock.value == lock.mark or string.match(lock.value, '^lh:%x+$')
    -- The book's record of an earlier lease of this id is over.
    for at = #lock.holders, 1, -1 do
      if lock.holders[at].id == lock.value then table.remove(lock.holders, at) end
    end
    table.insert(lock.holders, {
      id = is_mark and '' or lock.value, mode = 'x', state = 'h', ends = lock.ends, token = 0, since = 0, renewed = 0,
      note = '', live = true, foreign = true,
    })
  end
  return lock
end

-- The record of an id, live or not.
local function find(lock, id)
  for _, holder in ipairs(lock.holders) do
    if holder.id == id then return holder end
  end
end

-- The holder with this id, if it holds now and is not only kept.
local function held(lock, id)
  local holder = find(lock, id)
  if holder and holder.live and holder.state == 'h' then return holder end
end

local function remove(lock, holder)
  for at, other in ipairs(lock.holders) do
    if other == holder then
      table.remove(lock.holders, at)
      lock.gone = lock.gone or {}
      if not holder.foreign then table.insert(lock.gone, '=' .. holder.id) end
      return
    end
  end
end

-- To be written: it was changed, or is new.
local function write(lock, holder)
  holder.dirty, holder.foreign = true, nil
  lock.dirty = true
end

local function record(holder)
  return holder.mode .. holder.state .. ' ' .. int(holder.ends) .. ' ' .. int(holder.token) .. ' '
    .. int(holder.since) .. ' ' .. int(holder.renewed) .. ' ' .. holder.note
end

local function is_free(lock)
  for _, holder in ipairs(lock.holders) do
    if holder.live then return false end
  end
  return true
end

local function write_plain(lock, ends)
  if not lock.value then
    if lock.stood then redis.call('DEL', lock.plain) end
  elseif lock.value == lock.stood then
    if ends == math.huge then
      redis.call('PERSIST', lock.plain)
    else
      redis.call('PEXPIREAT', lock.plain, int(ends))
    end
  elseif ends == math.huge then
    redis.call('SET', lock.plain, lock.value)
  else
    redis.call('SET', lock.plain, lock.value, 'PXAT', int(ends))
  end
end

local function write_book(lock, keep_until, forget_after)
  if lock.gone and #lock.gone > 0 then
    for from = 1, #lock.gone, 1000 do
      redis.call('HDEL', lock.book, unpack(lock.gone, from, math.min(from + 999, #lock.gone)))
    end
  end
  if lock.mark and lock.value ~= lock.mark then redis.call('HDEL', lock.book, 'mark') end
  local fields = {}
  if lock.raised then fields = {'token', int(lock.counter)} end
  if lock.marked then
    table.insert(fields, 'mark')
    table.insert(fields, lock.mark)
  end
  for _, holder in ipairs(lock.holders) do
    if holder.dirty then
      table.insert(fields, '=' .. holder.id)
      table.insert(fields, record(holder))
    end
  end
  if #fields > 0 then redis.call('HSET', lock.book, unpack(fields)) end
  if forget_after == '' or keep_until == math.huge then
    redis.call('PERSIST', lock.book)
  else
    local ahead = math.max(lock.counter - now, 0) / 1000
    redis.call('PEXPIREAT', lock.book, int(math.ceil(keep_until + ahead) + forget_after))
  end
end

-- Writes a lock that was changed. Only here are keys written. The plain key is taken last and freed first: a command
-- that the server refuses on the way leaves no key taken.
local function settle(lock, forget_after)
  local live, sole, until_, keep_until = 0, nil, 0, now / 1000
  for _, holder in ipairs(lock.holders) do
    if holder.live then
      live, sole = live + 1, holder
      until_ = math.max(until_, holder.ends == 0 and math.huge or holder.ends)
      keep_until = math.max(keep_until, until_)
    elseif holder.state == 'e' then
      keep_until = math.max(keep_until, holder.ends)
    end
  end
  if live == 1 and sole.foreign then
    -- It stays as it is.
    lock.value = lock.stood
  elseif live == 1 and sole.mode == 'x' and sole.state == 'h' then
    lock.value = sole.id
  elseif live > 0 then
    if lock.value ~= lock.mark or not lock.mark then
      lock.mark, lock.marked = 'lh:' .. redis.sha1hex(sole.id .. ' ' .. int(now)), true
      lock.value = lock.mark
    end
  else
    lock.value = false
  end
  if not lock.value then write_plain(lock, until_) end
  write_book(lock, keep_until, forget_after)
  if lock.value then write_plain(lock, until_) end
end

-- A holder if it has this token; 0 is any, and a foreign holder has none.
local function of_token(holder, token)
  if holder and token > 0 and holder.token > 0 and holder.token ~= token then return nil end
  return holder
end

-- Publishes that the key may be free, with the number of subscribed connections. If the server refuses, the change stays.
local function wake(lock)
  local channel = 'lh:wake:' .. string.sub(lock.book, 9)
  local subscribers = redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)[2] or 1
  if subscribers > 0 then redis.pcall('SPUBLISH', channel, subscribers) end
end

-- A holder, as the client receives it.
local function shown(holder)
  return {holder.foreign and 1 or 0, holder.id, holder.live and 1 or 0, record(holder)}
end

-- The outcome of one lease of many. An error that every other lease would meet too fails the request.
local function alone(act)
  local fine, outcome = pcall(act)
  if fine then return outcome end
  local message = type(outcome) == 'table' and outcome.err or tostring(outcome)
  local code = string.match(message, '^%-?(%u+)')
  local moving = string.find(message, 'non local key', 1, true)
  if code == 'WRONGTYPE' or code == 'LHCORRUPT' or moving then return {'failed', message} end
  error(outcome)
end
