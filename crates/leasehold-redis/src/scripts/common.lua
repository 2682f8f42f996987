-- What every script begins with. The format that this reads and writes: https://docs.rs/leasehold-redis.
-- Times are microseconds since 1970 by the server's clock, "ends" are milliseconds, 0 is never.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- How long what is remembered of an ended lease stays, in ms.
local REMEMBERED = 3600000

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

local function corrupt(name, what)
  error({err = 'LHCORRUPT ' .. what .. ' of ' .. name})
end

-- A whole number, as the server has it.
local function number(name, value)
  local found = string.match(value, '^%d+$') and tonumber(value)
  if not found or found > 9007199254740991 then corrupt(name, 'the token') end
  return found
end

-- The record of one of several holders, or of one that is not simply held. There may be many, so the rest of it is read
-- when it is needed.
local function parse(book, field, value)
  local mode, state, ends, rest = string.match(value, '^([xs])([hke]) (%d+) (.*)$')
  if not mode then corrupt(book, 'a holder') end
  return {id = string.sub(field, 2), mode = mode, state = state, ends = tonumber(ends), book = book, rest = rest}
end

-- A holder whose whole record is read.
local function complete(holder)
  if holder.rest then
    local token, since, renewed, note = string.match(holder.rest, '^(%d+) (%d+) (%d+) (.*)$')
    if not token then corrupt(holder.book, 'a holder') end
    holder.token, holder.since, holder.renewed, holder.note = tonumber(token), tonumber(since), tonumber(renewed), note
    holder.rest = nil
  end
  return holder
end

-- The record of the only holder. It stays for an hour longer than its term.
local function parse_only(book, value)
  local length, rest = string.match(value, '^xh (%d+) (.*)$')
  local id = length and string.sub(rest, 1, length)
  local token, since, renewed, note =
    string.match(length and string.sub(rest, length + 1) or '', '^ (%d+) (%d+) (%d+) (.*)$')
  if not token then corrupt(book, 'the holder') end
  local at = redis.call('PEXPIRETIME', book)
  return {
    id = id, mode = 'x', state = 'h', ends = at < 0 and 0 or at - REMEMBERED,
    token = tonumber(token), since = tonumber(since), renewed = tonumber(renewed), note = note,
  }
end

-- Reads the records of a key: a string, or a hash.
local function open(lock, book)
  local only = redis.call('MGET', book)[1]
  if only then
    lock.kind = 'string'
    table.insert(lock.holders, parse_only(book, only))
    return
  end
  local fields = redis.call('HGETALL', book)
  if #fields > 0 then lock.kind = 'hash' end
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 'mark' then
      lock.mark = value
    elseif string.sub(field, 1, 1) == '=' then
      table.insert(lock.holders, parse(book, field, value))
    end
  end
end

-- Reads a key and its book, and decides who holds. The plain key is the truth: nobody holds
-- when it is absent. If it has the book's mark, the book lists the holders; else its value is the id of the holder.
local function look(plain, book)
  local lock = {plain = plain, book = book, holders = {}}
  lock.value = redis.call('GET', plain)
  lock.stood = lock.value
  if lock.value then
    local at = redis.call('PEXPIRETIME', plain)
    -- The server keeps it through that millisecond.
    lock.ends = at < 0 and 0 or at + 1
  end
  open(lock, book)
  local shown = false
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
      if lock.holders[at].id == lock.value then
        table.remove(lock.holders, at)
        lock.gone = lock.gone or {}
        table.insert(lock.gone, '=' .. lock.value)
      end
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
    if holder.id == id then return complete(holder) end
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
end

local function record(holder)
  complete(holder)
  return holder.mode .. holder.state .. ' ' .. int(holder.ends) .. ' ' .. int(holder.token) .. ' '
    .. int(holder.since) .. ' ' .. int(holder.renewed) .. ' ' .. holder.note
end

local function record_only(holder)
  complete(holder)
  return 'xh ' .. #holder.id .. ' ' .. holder.id .. ' ' .. int(holder.token) .. ' '
    .. int(holder.since) .. ' ' .. int(holder.renewed) .. ' ' .. holder.note
end

local function write_plain(lock, ends)
  if not lock.value then
    if lock.stood then redis.call('DEL', lock.plain) end
  elseif ends == math.huge then
    redis.call('SET', lock.plain, lock.value)
  else
    -- PEXPIREAT would end it at once in the last millisecond of its term.
    redis.call('SET', lock.plain, lock.value, 'PXAT', int(ends - 1))
  end
end

-- Until when a record is of use, in ms: it tells its holder how its lease ended.
local function useful_until(holder)
  if holder.ends == 0 then return math.huge end
  return holder.state == 'e' and holder.ends or holder.ends + REMEMBERED
end

-- Writes the only holder, whose record is all that the book has.
local function write_only(lock, holder)
  if lock.kind == 'string' and not holder.dirty then return end
  local text = record_only(holder)
  if lock.kind == 'hash' then redis.call('DEL', lock.book) end
  if holder.ends == 0 then
    redis.call('SET', lock.book, text)
  else
    redis.call('SET', lock.book, text, 'PXAT', int(holder.ends + REMEMBERED))
  end
end

-- Writes some of these by a command that takes many.
local function in_parts(command, book, all)
  for from = 1, #all, 1000 do
    redis.call(command, book, unpack(all, from, math.min(from + 999, #all)))
  end
end

local function write_book(lock, known, keep_until)
  if #known == 0 then
    if lock.kind then redis.call('DEL', lock.book) end
    return
  end
  if #known == 1 and known[1].mode == 'x' and known[1].state == 'h' then return write_only(lock, known[1]) end
  local fields, is_new = {}, lock.kind ~= 'hash'
  if is_new then
    if lock.kind then redis.call('DEL', lock.book) end
  else
    in_parts('HDEL', lock.book, lock.gone or {})
    if lock.mark and lock.value ~= lock.mark then redis.call('HDEL', lock.book, 'mark') end
  end
  if lock.marked or is_new and lock.mark and lock.value == lock.mark then fields = {'mark', lock.mark} end
  for _, holder in ipairs(known) do
    if holder.dirty or is_new then
      table.insert(fields, '=' .. holder.id)
      table.insert(fields, record(holder))
    end
  end
  in_parts('HSET', lock.book, fields)
  if keep_until == math.huge then
    redis.call('PERSIST', lock.book)
  else
    redis.call('PEXPIREAT', lock.book, int(math.ceil(keep_until)))
  end
end

-- Writes a lock that was changed. Only here are keys written. The plain key is taken last and freed first: a command
-- that the server refuses on the way leaves no key taken.
local function settle(lock)
  local live, sole, until_, keep_until, known = 0, nil, 0, 0, {}
  for _, holder in ipairs(lock.holders) do
    local useful = useful_until(holder)
    if holder.live then
      live, sole = live + 1, holder
      until_ = math.max(until_, holder.ends == 0 and math.huge or holder.ends)
    end
    if not holder.live and useful * 1000 <= now then
      lock.gone = lock.gone or {}
      table.insert(lock.gone, '=' .. holder.id)
    elseif not holder.foreign then
      table.insert(known, holder)
      keep_until = math.max(keep_until, useful)
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
  write_book(lock, known, keep_until)
  if lock.value then write_plain(lock, until_) end
end

-- A holder if it has this token; 0 is any, and a foreign holder has none.
local function of_token(holder, token)
  if holder and token > 0 and holder.token > 0 and holder.token ~= token then return nil end
  return holder
end

-- Publishes that the key may be free, with the number of subscribed connections. If the server refuses, the change stays.
local function wake(book)
  local subscribers = redis.pcall('PUBSUB', 'SHARDNUMSUB', book)[2] or 1
  if subscribers > 0 then redis.pcall('SPUBLISH', book, subscribers) end
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

-- The keys that the leases of a request name, each read once and written once.
local looked, changed = {}, {}

local function look_once(plain, book)
  looked[plain] = looked[plain] or look(plain, book)
  return looked[plain]
end

-- To be written at the end.
local function change(lock, wakes)
  if not lock.is_changed then table.insert(changed, lock) end
  lock.is_changed, lock.wakes = true, lock.wakes or wakes
end

local function settle_all()
  for _, lock in ipairs(changed) do
    settle(lock)
    if lock.wakes then wake(lock.book) end
  end
end
