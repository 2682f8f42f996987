-- The usual renewal: of an exclusive lease of one key, whose record is a string.
local call, keys, args = redis.call, KEYS, ARGV
if #args == 6 and args[5] == 'x' and tonumber(args[2]) > 2000 and args[3] == '0' then
  local id, both = args[1], call('MGET', keys[1], keys[2])
  local head = 'xh ' .. #id .. ' ' .. id .. ' '
  if both[1] == id and both[2] and string.sub(both[2], 1, #head) == head then
    local token, since, note = string.match(both[2], '^(%d+) (%d+) %d+ (.*)$', #head + 1)
    if token and (args[6] == '0' or args[6] == token) then
      local clock = call('TIME')
      local now = clock[1] * 1000000 + clock[2]
      local ends = math.ceil((now + args[2]) / 1000)
      -- Not if it has a longer term.
      if call('PEXPIREAT', keys[1], ends - 1, 'GT') == 1 then
        local renewed = clock[1] .. string.sub('00000' .. clock[2], -6)
        call('SET', keys[2], head .. token .. ' ' .. since .. ' ' .. renewed .. ' ' .. note, 'PXAT', ends + 3600000)
        return {{'held', ends * 1000 - now}}
      end
    end
  end
end
