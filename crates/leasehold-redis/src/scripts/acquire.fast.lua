-- An exclusive lease of one key of which nothing is known needs no more than this. KEYS: plain key, book, the mark of all
-- tokens. ARGV: id, term in ms, for how many ms its record stays, note, and what is published if it is granted (none is
-- nothing). The reply is the token.
local call, keys, args = redis.call, KEYS, ARGV
if #args < 6 and call('EXISTS', keys[1], keys[2]) == 0 then
  local id, clock, mark = args[1], call('TIME'), call('GET', keys[3])
  local micros = clock[2]
  if #micros < 6 then micros = string.sub('00000' .. micros, -6) end
  local token = clock[1] .. micros
  -- Texts of 16 digits, until the year 2112.
  if (not mark or #mark == 16 and mark < token and not string.find(mark, '%D')) and token < '4503599627370496' then
    local record = 'xh ' .. #id .. ' ' .. id .. ' ' .. token .. ' ' .. token .. ' 0 ' .. args[4]
    call('SET', keys[3], token)
    if string.sub(micros, 4) ~= '000' then
      call('SET', keys[2], record, 'PX', args[3])
      call('SET', keys[1], id, 'PX', args[2])
    else
      -- It begins with a millisecond, so it does not last through its last one.
      local ends = clock[1] * 1000 + micros / 1000 + args[2]
      call('SET', keys[2], record, 'PXAT', ends + 3600000)
      call('SET', keys[1], id, 'PXAT', ends - 1)
    end
    if args[5] then redis.pcall('SPUBLISH', keys[2], args[5]) end
    return token
  end
end
