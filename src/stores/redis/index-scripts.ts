/**
 * The questions to the index, in Lua. Hides how a script reads its scores. The keys are those of
 * one bucket or of several; the script answers for each in turn.
 */
import { lua, REDIS_FORMAT, type Script, script } from './scripts.ts';

/** A script about the buckets of its keys. It does nothing where one is of another format. */
function indexScript(body: string): Script {
  return script(
    lua`
for i = 2, #KEYS, 2 do
  local format = other_format(KEYS[i])
  if format then
    return 'format\n' .. format
  end
end
` + body,
  );
}

/** How many expired runs a script removes from a bucket's index, at most, before it answers. */
const PURGED = 500;

/**
 * The times and names of runs behind a place, in the order of time and name. Each bucket has a
 * first line: `page`, `again` (too many runs had expired: ask once more) or `lost`; whether there
 * are more runs; the server's time; and how many lines follow.
 */
export const LIST = indexScript(lua`
local kind, workflow, age, count = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local principal, states = ARGV[5], tonumber(ARGV[6])
local places = 6 + states
local time = now()

-- The numbers whose members the listing has, each once.
local function numbers_of(numbers, k)
  if kind == 'held' then
    return {claim_number(k, 1)}
  end
  local wanted, seen, list = {}, {}, {}
  if kind == 'crowded' then
    return {CROWDED}
  elseif states == 0 then
    local all = call('HGETALL', numbers)
    local start = workflow .. '\t'
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, #start) == start and string.sub(all[i], -1) == '0' then
        wanted[#wanted + 1] = all[i + 1]
      end
    end
  else
    local asked = {}
    for i = 7, places do
      asked[#asked + 1] = state_field(workflow, ARGV[i], '0')
      if kind == 'standing' then
        asked[#asked + 1] = state_field(workflow, ARGV[i], '1')
      end
    end
    -- In parts, because Lua cannot unpack more.
    for first = 1, #asked, 1000 do
      local last = math.min(first + 999, #asked)
      for _, number in ipairs(call('HMGET', numbers, unpack(asked, first, last))) do
        wanted[#wanted + 1] = number or nil
      end
    end
  end
  for _, number in ipairs(wanted) do
    if not seen[number] then
      seen[number] = true
      list[#list + 1] = tonumber(number)
    end
  end
  return list
end

-- Finds some members of one range behind the place; many may have its very millisecond.
local function find(index, low, high, base, member, after_time, after_name, found)
  local offset, left = 0, count
  while left > 0 do
    local got = call('ZRANGEBYSCORE', index, low, high, 'WITHSCORES', 'LIMIT', offset, left)
    for i = 1, #got, 2 do
      local at = base and tonumber(got[i + 1]) - base or 0
      local its_name = string.sub(got[i], #member + 1)
      local is_behind = at > after_time or its_name > after_name
      if string.sub(got[i], 1, #member) == member and is_behind then
        found[#found + 1] = {at, its_name}
        left = left - 1
      end
    end
    offset = offset + #got / 2
    if #got == 0 then
      return
    end
  end
end

local function list(index, numbers, after_time, after_name)
  local found = {}
  local k = tonumber(call('HGET', numbers, workflow) or nil)
  if kind == 'owned' then
    find(index, principal, principal, nil, 'p:', after_time, after_name, found)
  elseif k then
    local member = (kind == 'held' and 'c' or 'o') .. k .. ':'
    for _, number in ipairs(numbers_of(numbers, k)) do
      local base = number * SPAN
      local low = digits(base + math.max(after_time, 0))
      find(index, low, score(number, time - age), base, member, after_time, after_name, found)
    end
  end
  table.sort(found, function(a, b)
    return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2])
  end)
  return found
end

local lines = {'lists'}
for i = 1, #KEYS / 2 do
  local index, numbers = KEYS[2 * i - 1], KEYS[2 * i]
  local status, found = 'page', {}
  if is_lost(index, numbers) then
    status = 'lost'
  elseif purge(index, numbers, time, ${PURGED}) == ${PURGED} then
    status = 'again'
  else
    found = list(index, numbers, tonumber(ARGV[places + 2 * i - 1]), ARGV[places + 2 * i])
  end
  local given = math.min(#found, count)
  lines[#lines + 1] = table.concat({status, #found >= count and 1 or 0, digits(time), given}, ' ')
  for n = 1, given do
    lines[#lines + 1] = digits(found[n][1]) .. ' ' .. found[n][2]
  end
end
return table.concat(lines, '\n')
`);

/**
 * How many runs are in each state, held and running. The first line of a bucket is as in
 * {@link LIST}, with held, running and oldest claim before the number of lines. The oldest claim is
 * 0 where there is none.
 */
export const COUNT = indexScript(lua`
local workflow, age = ARGV[1], tonumber(ARGV[2])
local time = now()
local start = workflow .. '\t'
local lines = {'counts'}

local function between(index, number, low, high)
  return call('ZCOUNT', index, score(number, low), score(number, high))
end

local function count(index, numbers, k)
  local states = {}
  local all = call('HGETALL', numbers)
  for i = 1, #all, 2 do
    local number = tonumber(all[i + 1])
    if string.sub(all[i], 1, #start) == start and string.sub(all[i], -1) == '0' then
      local runs = between(index, number, 0, EPOCH + SPAN)
      if runs > 0 then
        local stuck = between(index, number, 0, time - age)
        local state = number == CROWDED and '' or string.sub(all[i], #start + 1, -3)
        states[#states + 1] = runs .. ' ' .. stuck .. ' ' .. state
      end
    end
  end
  local held = between(index, claim_number(k, 1), 0, time)
  local running = between(index, claim_number(k, 1), time + 1, EPOCH + SPAN)
    + between(index, claim_number(k, 2), time + 1, EPOCH + SPAN)
  local since = claim_number(k, 3)
  local oldest = call('ZRANGEBYSCORE', index, score(since, 0), score(since, EPOCH + SPAN),
    'WITHSCORES', 'LIMIT', 0, 1)[2]
  return states, held, running, oldest and tonumber(oldest) - since * SPAN + EPOCH or 0
end

for i = 1, #KEYS / 2 do
  local index, numbers = KEYS[2 * i - 1], KEYS[2 * i]
  local status, states, held, running, oldest = 'page', {}, 0, 0, 0
  if is_lost(index, numbers) then
    status = 'lost'
  elseif purge(index, numbers, time, ${PURGED}) == ${PURGED} then
    status = 'again'
  else
    local k = tonumber(call('HGET', numbers, workflow) or nil)
    if k then
      states, held, running, oldest = count(index, numbers, k)
    end
  end
  lines[#lines + 1] = table.concat(
    {status, 0, digits(time), held, running, digits(oldest), #states}, ' ')
  for _, line in ipairs(states) do
    lines[#lines + 1] = line
  end
end
return table.concat(lines, '\n')
`);

/** How many lines {@link LOOK} gives for each run. */
export const LOOKED_AT = 10;

/**
 * For each named run its session, format, key, expiry and whether its session ended before that.
 * And of one workflow state, context, head, claim and freeze. A run that is gone has empty lines,
 * and it leaves the index.
 */
export const LOOK = script(lua`
local workflow = ARGV[1]
local lines = {'runs', digits(now())}
for i = 1, #ARGV - 1 do
  local got = call('HMGET', KEYS[3 * i - 2], 'session', 'format', 'key', 'expires', 'sessionEnded',
    'state:' .. workflow, 'context:' .. workflow, 'head:' .. workflow, 'claim:' .. workflow,
    'frozen:' .. workflow)
  if not got[1] and not got[2] then
    forget(KEYS[3 * i - 1], KEYS[3 * i], ARGV[i + 1])
  end
  for part = 1, ${LOOKED_AT} do
    lines[#lines + 1] = got[part] or ''
  end
end
return table.concat(lines, '\n')
`);

/**
 * Takes expired runs out of the index: some of any run, or all of a principal's. How many, and
 * whether there may be more.
 */
export const PURGE = indexScript(lua`
local principal = ARGV[1]
local time = now()
local purged, has_more = 0, 0
for i = 1, #KEYS, 2 do
  local index, numbers = KEYS[i], KEYS[i + 1]
  if principal == '' then
    local count = purge(index, numbers, time, ${PURGED})
    purged = purged + count
    has_more = count == ${PURGED} and 1 or has_more
  else
    for _, member in ipairs(call('ZRANGEBYSCORE', index, principal, principal)) do
      local name = string.sub(member, 3)
      local gone = call('ZSCORE', index, 'e:' .. name)
      if gone and tonumber(gone) < tonumber(score(0, time)) then
        forget(index, numbers, name)
        purged = purged + 1
      end
    end
  end
end
return table.concat({'purged', purged, has_more}, '\n')
`);

/** Which server has a bucket, its limit of memory, and its eviction policy. */
export const SERVER = indexScript(lua`
local function ask(section, what)
  local info = redis.pcall('INFO', section)
  return type(info) == 'string' and string.match(info, what) or '-'
end
return table.concat({'server', ask('server', 'run_id:(%S+)'), ask('memory', 'maxmemory:(%d+)'),
  ask('memory', 'maxmemory_policy:(%S+)')}, '\n')
`);

/**
 * Notes the format in the buckets that have none. Where a bucket lost its note, its index counts as
 * lost too.
 */
export const NOTE = indexScript(lua`
for i = 1, #KEYS, 2 do
  if call('HSETNX', KEYS[i + 1], '#format', ${REDIS_FORMAT}) == 1 then
    if call('DEL', KEYS[i]) == 1 then
      call('HSET', KEYS[i + 1], '#lost', 'lost')
    end
    call('ZADD', KEYS[i], '+inf', '*')
  end
end
return 'ok'
`);

/** Empties an index, which counts as lost until {@link COMPLETE}. */
export const RESET = indexScript(lua`
for i = 1, #KEYS, 2 do
  call('UNLINK', KEYS[i], KEYS[i + 1])
  call('ZADD', KEYS[i], '+inf', '*')
  call('HSET', KEYS[i + 1], '#format', ${REDIS_FORMAT}, '#lost', 1)
end
return 'ok'
`);

/** Marks the index as whole again. */
export const COMPLETE = script(lua`
for i = 2, #KEYS, 2 do
  call('HDEL', KEYS[i], '#lost')
end
return 'ok'
`);

/** The next cursor, and some keys that match a pattern, on the server that has the given key. */
export const SCAN = script(lua`
local got = call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 1000)
table.insert(got[2], 1, got[1])
table.insert(got[2], 1, 'keys')
return table.concat(got[2], '\n')
`);

/** Writes the index members of the named runs. */
export const REINDEX = script(lua`
for i = 1, #ARGV do
  local run, index, numbers = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local got = call('HMGET', run, 'format', 'expires', 'workflows', 'principal')
  if got[2] and tonumber(got[1] or 0) ~= ${REDIS_FORMAT} then
    return 'format\n' .. (got[1] or '0')
  end
  if got[2] then
    local ranked, needs = {}, no_needs()
    local function rank(member, at)
      ranked[#ranked + 1] = at
      ranked[#ranked + 1] = member .. ':' .. ARGV[i]
    end
    if got[4] then
      rank('p', got[4])
    end
    for workflow in string.gmatch(got[3] or '', '[^\t]+') do
      local of = call('HMGET', run, 'state:' .. workflow, 'head:' .. workflow, 'claim:' .. workflow,
        'frozen:' .. workflow)
      local k = workflow_number(numbers, workflow, call('HGET', numbers, workflow))
      local updated, ended = string.match(of[2], '^%S+ (%S+) (%S+)')
      local of_state = state_field(workflow, of[1], ended == '1' and '1' or '0')
      local number = state_number(numbers, of_state, call('HGET', numbers, of_state))
      rank('o' .. k, score(number, tonumber(updated)))
      local claim = parse_claim(of[3])
      add_needs(needs, claim, of[4])
      if claim then
        local of_claim = claim_number(k, claim.uncertain == 'hold' and 1 or 2)
        rank('c' .. k, score(of_claim, claim.till))
        rank('s' .. k, score(claim_number(k, 3), tonumber(claim.since)))
      end
    end
    rank('e', score(0, gone_at(tonumber(got[2]), needs)))
    call('ZADD', index, unpack(ranked))
  end
end
return 'ok'
`);
