import { createHash } from 'node:crypto';

/** How many unfinished steps and how many settled tokens a workflow remembers. */
const REMEMBERED = 16;

/** Lua has escapes of its own, so the text is taken as it stands. */
const lua = String.raw;

/** What the scripts have in common: each one begins with it. */
const PRELUDE = lua`
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

/**
 * The store's operations in Lua, one script each. A run is one hash, its trail a second one, both
 * in one slot:
 *
 * | field of the run | value                                                                       |
 * |------------------|-----------------------------------------------------------------------------|
 * | `session`        | the session record, with the token that opened the run                      |
 * | `state:"w"`      | the state of workflow w; likewise `context`, `version` and `updated`        |
 * | `ended:"w"`      | what its last commit said of its end: `1` or `0`                            |
 * | `token:"w"`      | the claim, where there is one; likewise `until`, `uncertain`, `step`, `key` |
 * | `unfinished:"w"` | steps whose outcome is unknown: `key step`, newest first                    |
 * | `spent:"w"`      | settled tokens: `version token`, or `- token` if released, newest first     |
 *
 * A field of the trail is `5:"w"`, its value the time and the entry. Whatever came from a caller is
 * JSON text that no script looks into: Lua would lose empty arrays and long numbers. JSON text has
 * no line break and no tab, so those separate items.
 */
export interface Script {
  readonly source: string;
  readonly sha1: string;
}

export const OPEN = script(lua`
local session, ttl = ARGV[2], ARGV[3]
local known = redis.call('HGET', RUN, 'session')
if known then
  return known == session and 'opened' or 'taken'
end
redis.call('DEL', TRAIL)
redis.call('HSET', RUN, 'session', session)
live_for(ttl)
return 'opened'
`);

export const READ = script(lua`
local ttl = ARGV[2]
if not exists() then
  return 'unknown'
end
local lines = redis.call('HGETALL', RUN)
live_on(ttl)
table.insert(lines, 1, 'run')
table.insert(lines, 2, digits(now()))
return table.concat(lines, '\n')
`);

export const CLAIM = script(lua`
local token, step, uncertain, new_key = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local lease, ttl, session = ARGV[6], ARGV[7], ARGV[8]
local state, context, version = ARGV[9], ARGV[10], ARGV[11]
local any_state = ARGV[12] == 'any'
local time = now()
local updated = digits(time)

local function allowed()
  if any_state then
    return true
  end
  for i = 13, #ARGV do
    if ARGV[i] == state then
      return true
    end
  end
  return false
end

if not exists() then
  if session == '' then
    return 'unknown'
  end
  redis.call('DEL', TRAIL)
  redis.call('HSET', RUN, 'session', session)
end

if get('state') then
  state, context, version, updated = get('state'), get('context'), get('version'), get('updated')
end
local function answer(status, ...)
  live_on(ttl)
  return reply(status, state, context, version, updated, digits(time), ...)
end

if spent_on(token) then
  return answer('state')
end

local holder = get('token')
if holder == token then
  set('until', digits(time + lease))
  return answer('claimed', get('key'))
end

if holder then
  local remaining = get('until') - time
  if remaining > 0 then
    return answer('busy', digits(remaining))
  end
  if get('uncertain') == 'hold' then
    return answer('held', holder, get('key'), get('step'), get('uncertain'))
  end
end

if not allowed() then
  return answer('state')
end

-- The outcome of the claim that gives way is unknown, so its key waits for the same step to come again.
local unfinished = {}
if holder then
  unfinished[1] = get('key') .. ' ' .. get('step')
end
for _, item in ipairs(items('unfinished')) do
  if item ~= unfinished[1] then
    unfinished[#unfinished + 1] = item
  end
end
local key = new_key
for _, item in ipairs(unfinished) do
  local its_key, its_step = string.match(item, '^(%S+) (.*)$')
  if its_step == step then
    key = its_key
  end
end
save_items('unfinished', unfinished)

redis.call('HSET', RUN,
  field('state'), state, field('context'), context, field('version'), version, field('updated'), updated,
  field('token'), token, field('until'), digits(time + lease), field('uncertain'), uncertain,
  field('step'), step, field('key'), key)
return answer('claimed', key)
`);

export const COMMIT = script(lua`
local token, state, context, entry = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local trail_limit, ttl, settles, as, ended = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
if not exists() then
  return 'unknown'
end
local function answer(...)
  live_for(ttl)
  return reply(...)
end

local before = spent_on(as)
if before and before ~= '-' then
  return answer('committed', before, 'repeated')
end
if get('token') ~= token then
  return answer('lost')
end

local version, time = digits(get('version') + 1), digits(now())
redis.call('HSET', RUN,
  field('state'), state, field('context'), context, field('version'), version, field('updated'), time,
  field('ended'), ended)
redis.call('HSET', TRAIL, field(version), time .. ' ' .. entry)
redis.call('HDEL', TRAIL, field(digits(version - trail_limit)))
if as ~= token then
  spend(token, '-')
end
spend(as, version)
drop_claim(settles)
return answer('committed', version)
`);

export const RENEW = script(lua`
local token, lease = ARGV[2], ARGV[3]
if get('token') ~= token then
  return 'lost'
end
set('until', digits(now() + lease))
live_for(redis.call('PTTL', RUN))
return 'renewed'
`);

export const RELEASE = script(lua`
local token, settles = ARGV[2], ARGV[3]
if not exists() then
  return 'ok'
end
if get('token') == token then
  drop_claim(settles)
end
-- Even where it never had the claim: its request may still be on its way.
if not spent_on(token) then
  spend(token, '-')
end
return 'ok'
`);

export const DELETE = script(lua`
redis.call('DEL', RUN, TRAIL)
return 'ok'
`);

export const HISTORY = script(lua`
local limit = tonumber(ARGV[2])
local newest = tonumber(get('version') or 0)
local lines = {'trail'}
local oldest = newest - math.min(limit, redis.call('HLEN', TRAIL)) + 1
for version = oldest, newest do
  local entry = redis.call('HGET', TRAIL, field(digits(version)))
  if entry then
    lines[#lines + 1] = digits(version) .. ' ' .. entry
  end
end
return table.concat(lines, '\n')
`);

function script(body: string): Script {
  const source = PRELUDE + body;
  return { source, sha1: createHash('sha1').update(source).digest('hex') };
}
