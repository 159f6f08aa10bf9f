/**
 * The scripts, and how Redis keeps runs. They hold no rule of a workflow: they compare revisions,
 * write what they are given, and give the time.
 *
 * A run is one hash, with one expiry. `id` names a part: a workflow, or `life`.
 *
 * - `layout`: as the bucket's note; `flows`: the ids of its workflows, with a blank behind each
 * - `r:id`: the part's last revisions; `head:id` and so on: its texts; `settled:id`: its tokens
 * - `x:id`: until when the run stays for the part's sake, or `never`
 * - `s:id`: how many entries the trail had; `e:id:5`: the fifth of them
 *
 * The runs of a bucket share two keys, which Redis Cluster has in their slot:
 *
 * - `index`: a sorted set, whose members are in the order of their text. `open:of:label:time:run`
 *   is an entry of a run, and `gone:time:run` says when Redis removes it. `!` is always there.
 * - `members`: a hash that outlives the runs. `run` has the ids of a run's workflows, and `run id`
 *   the members of one of its parts. `#format` is the note of the layout, and `#lost` says that the
 *   index is being made anew. `#label` is the text of a label that is not its own id.
 */
import { createHash } from 'node:crypto';
import { TEXTS } from '../document/run-parts.ts';
import { LAYOUT, REVISION_LENGTH, REVISIONS_LENGTH } from '../document/run-text.ts';
import { TOKENS_KEPT } from '../run-state.ts';

/** Raw, since Lua has its own escapes. */
const lua = String.raw;

export interface Script {
  readonly source: string;
  readonly sha1: string;
}

function script(body: string): Script {
  const source = COMMON + body;
  return { source, sha1: createHash('sha1').update(source).digest('hex') };
}

/** How many runs that are gone leave the index whenever a run is made, and with a list. */
const SWEPT_BY_NEW = 4;
const SWEPT_BY_LIST = 500;

/** The latest time of a member, which has 15 digits. */
export const LAST_TIME = 999_999_999_999_999;

const COMMON = lua`
local call = redis.call
local position = 0
local function arg()
  position = position + 1
  return ARGV[position]
end

-- Lua writes a long number as 1e+15 unless a format says otherwise.
local function digits(number)
  return string.format('%.0f', number)
end

local function now()
  local time = call('TIME')
  return digits(time[1] * 1000 + math.floor(time[2] / 1000))
end

local function member_at(time)
  return string.format('%015.0f', math.min(tonumber(time), ${LAST_TIME}))
end

-- Lua cannot unpack a long table at once.
local function in_parts(command, key, values, between)
  for first = 1, #values, 1000 do
    local part = {}
    for i = first, math.min(first + 999, #values) do
      if between then
        part[#part + 1] = between
      end
      part[#part + 1] = values[i]
    end
    call(command, key, unpack(part))
  end
end

local function read_fields(key, fields)
  local values = {}
  for first = 1, #fields, 1000 do
    local got = call('HMGET', key, unpack(fields, first, math.min(first + 999, #fields)))
    for i = 1, #got do
      values[first + i - 1] = got[i] or ''
    end
  end
  return values
end

-- The layout that another version, or another program, gave a key; an empty text for none.
local function layout_of(key)
  local got = call('HMGET', key, 'layout', 'format')
  return got[1] or got[2] or (call('EXISTS', key) == 1 and '0') or ''
end

-- The layout of a bucket, or of a key in it, that another version made.
local function other_layout(members, key)
  local noted = call('HGET', members, '#format') or ''
  for _, found in ipairs({noted, key and layout_of(key) or ''}) do
    if found ~= '' and found ~= '${LAYOUT}' then
      return found
    end
  end
end

local function add_members(list, text)
  for member in string.gmatch(text, '[^\t]+') do
    list[#list + 1] = member
  end
end

local function words_of(text)
  local words = {}
  for word in string.gmatch(text, '%S+') do
    words[#words + 1] = word
  end
  return words
end

-- Takes a run that is gone, or will be another, out of the index.
local function forget(index, members, name)
  local flows = call('HGET', members, name)
  if not flows then
    return
  end
  local fields = {name .. ' gone', name .. ' life'}
  for _, id in ipairs(words_of(flows)) do
    fields[#fields + 1] = name .. ' ' .. id
  end
  local entries = {}
  for _, text in ipairs(read_fields(members, fields)) do
    add_members(entries, text)
  end
  fields[#fields + 1] = name
  in_parts('ZREM', index, entries)
  in_parts('HDEL', members, fields)
end

-- Drops some of the runs that Redis has removed by now; how many.
local function sweep(index, members, time, count)
  local to = '[gone:' .. member_at(time) .. ';'
  local gone = call('ZRANGEBYLEX', index, '[gone:', to, 'LIMIT', 0, count)
  for _, member in ipairs(gone) do
    forget(index, members, string.sub(member, 22))
  end
  return #gone
end

local function lost_index(index, members)
  local noted = call('HMGET', members, '#format', '#lost')
  if noted[1] then
    return noted[2] or not call('ZSCORE', index, '!')
  end
  return call('EXISTS', index) == 1
end

-- Goes from the first member of each label to that of the next one.
local function labels_of(index, list)
  local labels, from = {}, '[' .. list .. ':'
  while true do
    local next = call('ZRANGEBYLEX', index, from, '[' .. list .. ';', 'LIMIT', 0, 1)[1]
    if not next then
      return labels
    end
    local label = string.match(next, '([^:]*)', #list + 2)
    labels[#labels + 1] = label
    from = '[' .. list .. ':' .. label .. ';'
  end
end

`;

/** What the lines of a workflow are, in this order. */
export const LINES = ['r', ...TEXTS, 'settled'];

/**
 * The lines of a run: layout, revisions and text of its life, how many workflows, and the lines of
 * each. And, where a workflow and a number are asked for, the newest entries of its trail.
 */
const LOOK = lua`
local function look(lines, run, ids, trail, limit)
  local flows = words_of(ids)
  local fields = {'layout', 'r:life', 'head:life'}
  for _, id in ipairs(flows) do
    for text in string.gmatch('${LINES.join(' ')}', '%S+') do
      fields[#fields + 1] = text .. ':' .. id
    end
  end
  local count = #fields
  local last = trail ~= '' and tonumber(call('HGET', run, 's:' .. trail) or 0) or 0
  for seq = math.max(1, last - limit + 1), last do
    fields[#fields + 1] = 'e:' .. trail .. ':' .. seq
  end
  local values = read_fields(run, fields)
  if values[1] == '' then
    values[1] = layout_of(run)
  end
  for i, value in ipairs(values) do
    if i <= count or value ~= '' then
      lines[#lines + 1] = value
    end
    if i == 3 then
      lines[#lines + 1] = #flows
    end
  end
end
`;

/**
 * Keys: for each run its own and the members of its bucket. Arguments: of which workflow how many
 * entries are asked for.
 */
export const READ = script(
  LOOK +
    lua`
local trail, limit = arg(), tonumber(arg())
local lines = {'runs', now()}
for i = 1, #KEYS, 2 do
  local from = #lines + 1
  look(lines, KEYS[i], call('HGET', KEYS[i], 'flows') or '', trail, limit)
  -- Another layout may keep its runs under other keys.
  local other = other_layout(KEYS[i + 1])
  if other then
    return 'format\n' .. other
  end
  table.insert(lines, from, #lines - from + 1)
end
return table.concat(lines, '\n')
`,
);

/**
 * Keys: a run, then its bucket's. Writes the parts that are given, if the judged ones have the
 * revisions that are expected; or makes or removes the run. Else it answers what is there: only the
 * workflows that have another revision, where the life is as expected.
 */
export const SWAP = script(
  LOOK +
    lua`
local run, index, members = unpack(KEYS)
local name = string.match(run, '}:run:(.*)')
local mode, whole, revision = arg(), arg(), arg()
local other = other_layout(members, run)
if other then
  return 'format\n' .. other
end
if mode ~= 'remove' and call('HEXISTS', members, '#format') == 0 then
  return 'unnoted'
end
local time = now()
local flows = call('HGET', run, 'flows') or ''
local is_other = whole ~= '' and #words_of(flows) ~= tonumber(whole)
local lost = {}
for _ = 1, tonumber(arg()) do
  local id, expected = arg(), arg()
  if string.sub(call('HGET', run, 'r:' .. id) or '', 1, ${REVISION_LENGTH}) ~= expected then
    lost[#lost + 1] = id
    is_other = is_other or id == 'life'
  end
end
if is_other or #lost > 0 then
  local lines = {'lost', time, is_other and 'all' or 'some'}
  look(lines, run, is_other and flows or table.concat(lost, ' '), '', 0)
  return table.concat(lines, '\n')
end
if mode ~= '' then
  forget(index, members, name)
  -- A full server refuses a script that has not written yet, and no other.
  if call('EXISTS', run) == 1 then
    call('DEL', run)
  end
  if mode == 'remove' then
    return 'swapped\n' .. time
  end
  flows = ''
end

local fields, gone = {'layout', ${LAYOUT}}, {}
local put, drop, noted = {}, {}, {}
local function set(list, field, value)
  list[#list + 1] = field
  list[#list + 1] = value
end
local function replace(part, text)
  local field = name .. ' ' .. part
  local old = call('HGET', members, field) or ''
  if old ~= text then
    add_members(drop, old)
    add_members(put, text)
    set(noted, field, text)
  end
end

for _ = 1, tonumber(arg()) do
  local part, of, expires = arg(), arg(), arg()
  if part ~= 'life' and not string.find(flows, part .. ' ', 1, true) then
    flows = flows .. part .. ' '
  end
  local revisions = revision .. (call('HGET', run, 'r:' .. part) or '')
  set(fields, 'r:' .. part, string.sub(revisions, 1, ${REVISIONS_LENGTH}))
  set(fields, 'x:' .. part, expires)
  for _ = 1, tonumber(arg()) do
    local field, text = arg() .. ':' .. part, arg()
    if text == '' then
      gone[#gone + 1] = field
    else
      set(fields, field, text)
    end
  end
  local spent = arg()
  if spent ~= '' then
    local words = words_of((call('HGET', run, 'settled:' .. part) or '') .. ' ' .. spent)
    local first = math.max(1, #words - ${TOKENS_KEPT - 1})
    set(fields, 'settled:' .. part, table.concat(words, ' ', first))
  end
  local count = tonumber(arg())
  if count > 0 then
    local first, limit = tonumber(arg()), tonumber(arg())
    for seq = first, first + count - 1 do
      set(fields, 'e:' .. part .. ':' .. digits(seq), arg())
      gone[#gone + 1] = 'e:' .. part .. ':' .. digits(seq - limit)
    end
    set(fields, 's:' .. part, digits(first + count - 1))
  end
  local entries = {}
  for kind, label, score, text in string.gmatch(arg(), '(%l+) (%S*) (%d+) ?([^\t]*)') do
    local place = label .. ':' .. member_at(score) .. ':' .. name
    entries[#entries + 1] = kind .. ':' .. (of == '' and part or of) .. ':' .. place
    if text ~= '' then
      set(noted, label, text)
    end
  end
  replace(part, table.concat(entries, '\t'))
end
set(fields, 'flows', flows)
in_parts('HSET', run, fields)
in_parts('HDEL', run, gone)

-- A run stays as long as the part that needs it longest.
local till, kept = 0, {'x:life'}
for _, id in ipairs(words_of(flows)) do
  kept[#kept + 1] = 'x:' .. id
end
for _, expires in ipairs(read_fields(run, kept)) do
  till = math.max(till, tonumber(expires) or math.huge)
end
if till == math.huge then
  call('PERSIST', run)
else
  call('PEXPIREAT', run, digits(till))
end
replace('gone', 'gone:' .. member_at(till) .. ':' .. name)
if call('HGET', members, name) ~= flows then
  set(noted, name, flows)
end
in_parts('ZREM', index, drop)
in_parts('ZADD', index, put, 0)
in_parts('HSET', members, noted)
if mode == 'make' then
  sweep(index, members, time, ${SWEPT_BY_NEW})
end
return 'swapped\n' .. time
`,
);

/** Keys: both of each bucket that is meant. */
function indexScript(body: string): Script {
  return script(
    lua`
for i = 1, #KEYS, 2 do
  local other = other_layout(KEYS[i + 1])
  if other then
    return 'format\n' .. other
  end
end
` + body,
  );
}

/**
 * The first members between two, of each label that is wanted (`*`: all of them), which the bounds
 * have as `LABEL`.
 */
export const FIND = indexScript(lua`
local from, to, limit, list = arg(), arg(), arg(), arg()
local wanted = {}
for i = position + 1, #ARGV do
  wanted[ARGV[i]] = true
end
local lines = {'found'}
for i = 1, #KEYS, 2 do
  local index, members = KEYS[i], KEYS[i + 1]
  if lost_index(index, members) then
    return 'lostindex'
  end
  local labels = list == '' and {''} or labels_of(index, list)
  for _, label in ipairs(labels) do
    if list == '' or wanted['*'] or wanted[label] then
      local first, last = string.gsub(from, 'LABEL', label, 1), string.gsub(to, 'LABEL', label)
      for _, member in ipairs(call('ZRANGEBYLEX', index, first, last, 'LIMIT', 0, limit)) do
        lines[#lines + 1] = member
      end
    end
  end
end
return table.concat(lines, '\n')
`);

/** For each label of a list its id, its text, its members, and those up to a time. */
export const COUNT = indexScript(lua`
local list, up_to = arg(), arg()
local time = now()
local lines = {'counts'}
for i = 1, #KEYS, 2 do
  local index, members = KEYS[i], KEYS[i + 1]
  if lost_index(index, members) then
    return 'lostindex'
  end
  if sweep(index, members, time, ${SWEPT_BY_LIST}) == ${SWEPT_BY_LIST} then
    return 'again'
  end
  for _, label in ipairs(labels_of(index, list)) do
    local start = '[' .. list .. ':' .. label .. ':'
    lines[#lines + 1] = call('ZLEXCOUNT', index, start, start .. ';')
    lines[#lines + 1] = call('ZLEXCOUNT', index, start, start .. member_at(up_to) .. ';')
    lines[#lines + 1] = label
    lines[#lines + 1] = call('HGET', members, label) or ''
  end
end
return table.concat(lines, '\n')
`);

/** Keys as of a swap. Takes a run out of the index that Redis has evicted. */
export const FORGET = script(lua`
if call('EXISTS', KEYS[1]) == 0 and not other_layout(KEYS[3]) then
  forget(KEYS[2], KEYS[3], ARGV[1])
end
return 'ok'
`);

/** Drops runs that are gone: some of any, or a principal's. How many, and whether to ask again. */
export const PURGE = indexScript(lua`
local owned = arg()
local time = now()
local purged, again = 0, 0
for i = 1, #KEYS, 2 do
  local index, members = KEYS[i], KEYS[i + 1]
  if owned == '' then
    local count = sweep(index, members, time, ${SWEPT_BY_LIST})
    purged = purged + count
    again = count == ${SWEPT_BY_LIST} and 1 or again
  else
    for _, member in ipairs(call('ZRANGEBYLEX', index, '[' .. owned, '[' .. owned .. ';')) do
      local name = string.sub(member, #owned + 17)
      local gone = call('HGET', members, name .. ' gone') or ''
      if gone < 'gone:' .. member_at(time) .. ';' then
        forget(index, members, name)
        purged = purged + 1
      end
    end
  end
end
return table.concat({'purged', purged, again}, '\n')
`);

/**
 * Which server has a bucket, its limit of memory, its eviction policy and how much it evicted. And
 * `ask`, where it has no append-only file, and the user may ask when it saves snapshots: who asks
 * without the right is in its log of alarms.
 */
export const SERVER = indexScript(lua`
local function ask(section, what)
  local info = redis.pcall('INFO', section)
  return type(info) == 'string' and string.match(info, what) or '-'
end
local may_ask = redis.acl_check_cmd and redis.acl_check_cmd('CONFIG', 'GET', 'save')
local appends = ask('persistence', 'aof_enabled:(%d)')
return table.concat({'server', ask('server', 'run_id:(%S+)'), ask('memory', 'maxmemory:(%d+)'),
  ask('memory', 'maxmemory_policy:(%S+)'), ask('stats', 'evicted_keys:(%d+)'),
  appends == '0' and may_ask and 'ask' or '-'}, '\n')
`);

/**
 * Notes the layout in the buckets that have none. Where a bucket lost its note, its index counts as
 * lost too.
 */
export const NOTE = indexScript(lua`
for i = 1, #KEYS, 2 do
  if call('HSETNX', KEYS[i + 1], '#format', ${LAYOUT}) == 1 then
    if call('DEL', KEYS[i]) == 1 then
      call('HSET', KEYS[i + 1], '#lost', 'lost')
    end
    call('ZADD', KEYS[i], 0, '!')
  end
end
return 'ok'
`);

/** Empties an index, which counts as lost until it is {@link COMPLETE}. */
export const RESET = indexScript(lua`
for i = 1, #KEYS, 2 do
  call('DEL', KEYS[i], KEYS[i + 1])
  call('ZADD', KEYS[i], 0, '!')
  call('HSET', KEYS[i + 1], '#format', ${LAYOUT}, '#lost', 1)
end
return 'ok'
`);

export const COMPLETE = indexScript(lua`
for i = 2, #KEYS, 2 do
  call('HDEL', KEYS[i], '#lost')
end
return 'ok'
`);

/** The next cursor, and some keys that match a pattern, on the server that has the given keys. */
export const SCAN = script(lua`
local got = call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 1000)
table.insert(got[2], 1, got[1])
table.insert(got[2], 1, 'keys')
return table.concat(got[2], '\n')
`);

/** Keys: a switch, and its bucket's. */
export const READ_SWITCH = script(lua`
local other = other_layout(KEYS[3], KEYS[1])
if other then
  return 'format\n' .. other
end
local got = call('HMGET', KEYS[1], 'revision', 'name', 'value')
return got[1] and table.concat({'switch', got[1], got[2], got[3]}, '\n') or 'none'
`);

export const SWAP_SWITCH = script(lua`
local other = other_layout(KEYS[3], KEYS[1])
if other then
  return 'format\n' .. other
end
local expected, revision, name, value = arg(), arg(), arg(), arg()
if (call('HGET', KEYS[1], 'revision') or '') ~= expected then
  return 'kept'
end
if call('HEXISTS', KEYS[3], '#format') == 0 then
  return 'unnoted'
end
call('HSET', KEYS[1], 'layout', ${LAYOUT}, 'revision', revision, 'name', name, 'value', value)
return 'swapped'
`);
