/** How many unfinished steps and how many settled tokens a workflow remembers. */
const REMEMBERED = 16;

/** Lua has escapes of its own, so the text is taken as it stands. */
export const lua = String.raw;

/** What the scripts have in common: each one begins with it. */
export const PRELUDE = lua`
local RUN, TRAIL = KEYS[1], KEYS[2]
local workflow = ARGV[1] -- empty where the operation is about the whole run

local function field(name)
  return name .. ':' .. workflow
end

local function get(name)
  return redis.call('HGET', RUN, field(name))
end

local function set(name, value)
  redis.call('HSET', RUN, field(name), value)
end

-- Milliseconds since the epoch on the server's clock.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Lua writes a long number as 1e+15 unless it is told otherwise.
local function digits(number)
  return string.format('%.0f', number)
end

local function exists()
  return redis.call('EXISTS', RUN) == 1
end

-- Not before the last claim ends, in whichever workflow of the run.
local function live_for(ttl)
  local time, rest = now(), tonumber(ttl)
  for _, name in ipairs(redis.call('HKEYS', RUN)) do
    if string.sub(name, 1, 6) == 'until:' then
      rest = math.max(rest, redis.call('HGET', RUN, name) - time)
    end
  end
  redis.call('PEXPIRE', RUN, digits(rest))
  redis.call('PEXPIRE', TRAIL, digits(rest))
end

-- A look at a workflow that has ended does not keep its run alive, but a claim in it does.
local function live_on(ttl)
  live_for(get('ended') == '1' and redis.call('PTTL', RUN) or ttl)
end

local function reply(...)
  return table.concat({...}, '\n')
end

local function items(name)
  local list = {}
  for item in string.gmatch(get(name) or '', '[^\t]+') do
    list[#list + 1] = item
  end
  return list
end

-- Keeps the newest, which come first.
local function save_items(name, list)
  set(name, table.concat(list, '\t', 1, math.min(#list, ${REMEMBERED})))
end

-- What a settled token was settled with: a version, or '-' if it was released.
local function spent_on(token)
  for _, item in ipairs(items('spent')) do
    local result, by = string.match(item, '^(%S+) (.*)$')
    if by == token then
      return result
    end
  end
end

local function spend(token, result)
  local spent = items('spent')
  table.insert(spent, 1, result .. ' ' .. token)
  save_items('spent', spent)
end

-- A step that is settled by it needs its key no more; one that was not begun leaves it to the next try. A workflow that
-- begins anew settles all of them.
local function drop_claim(settles)
  local unfinished, key = items('unfinished'), get('key')
  if settles ~= 'unsettled' and #unfinished > 0 then
    local others = {}
    for _, item in ipairs(unfinished) do
      if settles ~= 'all' and string.match(item, '^%S+') ~= key then
        others[#others + 1] = item
      end
    end
    save_items('unfinished', others)
  end
  redis.call('HDEL', RUN, field('token'), field('until'), field('uncertain'), field('step'), field('key'))
end
`;
