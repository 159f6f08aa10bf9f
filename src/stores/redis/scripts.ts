/**
 * The Lua that all scripts share. Hides how Redis keeps a run and its index.
 *
 * A run is one hash. In its fields, `w` is the workflow's name as JSON text:
 *
 * - `format`: the {@link REDIS_FORMAT} of the version that made the run
 * - `session`: the session record, with the token that opened the run
 * - `expires`: when the session ends without further use or, once it has ended, until when the run
 *   can be read, in milliseconds since the epoch
 * - `sessionEnded`: `1` once the session has ended before that time
 * - `workflows`: the workflows that were ever claimed
 * - `key`: the run key, where the run's name is a digest of it
 * - `principal`: the score of the principal in the index, where the run has one
 * - `state:w`, `context:w`: the snapshot's state and context
 * - `head:w`: the snapshot's version, its time, and whether it has ended (`1`, `0` or `-`). Then of
 *   the trail: entries, attempts since the last commit, hash of the newest entry
 * - `claim:w`: token, lease end, `hold` or `retry`, idempotency key, since, step, what it would
 *   use, why it is held, call note
 * - `frozen:w`: who has stopped the run, and why
 * - `unfinished:w`: for each step of unknown outcome a line, oldest first: its key, since, the
 *   step, and what it would use
 * - `spent:w`: for each settled token its version or `-`, and the token, newest first
 * - `5:w`: entry 5 of the trail: its stamps, the hash before it, its own hash, the draft
 *
 * Redis expires the hash at `expires`, or with the last lease if that ends later. While a `hold`
 * step has a claim, the hash has no expiry at all, since a lease ends without a write. Nor has that
 * of a run that an operator has stopped.
 *
 * A workflow's switch is one hash in a bucket, and has no expiry. Its fields are `format`, `name`,
 * `revision` and `value`.
 *
 * A text of the caller's is JSON text. No script parses it: Lua would lose empty arrays and long
 * numbers. JSON text has no line break and no tab. So line breaks separate the lines of a field or
 * of a reply, and tabs the items of a line.
 *
 * A bucket's index is one sorted set, so that a step writes it by one command. In the members, `n`
 * is the run's name and `k` the workflow's number in this bucket. Their scores are:
 *
 * - `e:n`: when Redis expires the run; while it does not, the latest time that a score can have
 * - `p:n`: a negative number that stands for the principal
 * - `ok:n`: the workflow's state, and since when
 * - `ck:n`: that a step with `hold` or `retry` has the claim, and the lease end
 * - `sk:n`: that it is claimed, and since when
 *
 * A score has a time in its lower 41 bits, and a number above them. That number stands for a state,
 * or for one of the three facts of a workflow's claim. The hash `numbers` holds what it stands for,
 * and in `#format` the {@link REDIS_FORMAT} of the version that made the index.
 */
import { createHash } from 'node:crypto';

/**
 * The number of this layout of runs and index. A process that meets another number, lower or
 * higher, changes nothing.
 */
export const REDIS_FORMAT = 3;

/** How long a run can be read whose session had ended when its last step was settled. */
const READABLE_MS = 24 * 3_600_000;
/** The contract's 16, with room for tokens that were released without ever claiming. */
const TOKENS = 32;
/** The script counts the tokens only in a field that is longer. */
const SPENT_BYTES = 2000;
/** A Lua pattern that matches that many tokens. */
const NEWEST = `${'[^\t]+\t'.repeat(TOKENS - 1)}[^\t]+`;
/** How many expired runs leave the index whenever a run is made. */
const PURGED = 4;

/** Raw, since Lua has its own escapes. */
export const lua = String.raw;

export interface Script {
  readonly source: string;
  readonly sha1: string;
}

/** Redis takes whole milliseconds, and no exponents. */
export function durationText(ms: number): string {
  return String(Math.min(Math.ceil(ms), Number.MAX_SAFE_INTEGER));
}

/** A script that needs no run. Each begins with {@link COMMON}. */
export function script(body: string): Script {
  const source = COMMON + body;
  return { source, sha1: createHash('sha1').update(source).digest('hex') };
}

const COMMON = lua`
local call = redis.call
local SPAN, EPOCH = 2199023255552, 1700000000000
-- The last number of a state, which all later states share; and how many workflows have numbers.
local CROWDED, MOST = 2047, 682
-- A time after all others. Scores have the latest one that fits instead.
local NEVER = math.huge

-- Lua writes a long number as 1e+15 unless it is told otherwise.
local function digits(number)
  return string.format('%.0f', number)
end

-- Milliseconds since the epoch on the server's clock.
local function now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function score(number, time)
  return digits(number * SPAN + math.min(math.max(time - EPOCH, 0), SPAN - 1))
end

-- The numbers of a workflow's claims: hold, retry, since.
local function claim_number(k, of)
  return CROWDED + 3 * (k - 1) + of
end

local function state_field(workflow, state, ended)
  return workflow .. '\t' .. state .. '\t' .. ended
end

-- The workflow's number in this bucket, which never changes.
local function workflow_number(numbers, workflow, known)
  local k = tonumber(known or nil)
  if not k then
    k = call('HINCRBY', numbers, '#workflows', 1)
    if k > MOST then
      call('HINCRBY', numbers, '#workflows', -1)
      error('INTERLOCK a store keeps ' .. MOST
        .. ' workflows and no more: give the others another prefix')
    end
    call('HSET', numbers, workflow, k)
  end
  return k
end

local function state_number(numbers, field, known)
  local number = tonumber(known or nil)
  if not number then
    number = math.min(call('HINCRBY', numbers, '#states', 1), CROWDED)
    call('HSET', numbers, field, number)
  end
  return number
end

-- Takes a run that does not exist any more out of the index.
local function forget(index, numbers, name)
  local members = {'e:' .. name, 'p:' .. name}
  for k = 1, tonumber(call('HGET', numbers, '#workflows') or 0) do
    for _, kind in ipairs({'o', 'c', 's'}) do
      members[#members + 1] = kind .. k .. ':' .. name
    end
  end
  call('ZREM', index, unpack(members))
end

-- Takes some expired runs out of the index, and gives their number.
local function purge(index, numbers, time, most)
  local expired = call('ZRANGEBYSCORE', index, 0, '(' .. score(0, time), 'LIMIT', 0, most)
  for _, member in ipairs(expired) do
    forget(index, numbers, string.sub(member, 3))
  end
  return #expired
end

-- The format that another version noted in a bucket, or nil.
local function other_format(numbers)
  local noted = call('HGET', numbers, '#format')
  return noted and tonumber(noted) ~= ${REDIS_FORMAT} and noted or nil
end

local function parse_claim(text)
  if not text then
    return nil
  end
  local token, till, uncertain, key, since, step, use, kind, entry = string.match(text,
    '^([^\t]+)\t([^\t]+)\t([^\t]+)\t([^\t]+)\t([^\t]+)\t([^\t]+)\t([^\t]*)\t([^\t]*)\t([^\t]*)$')
  return {token = token, till = tonumber(till), uncertain = uncertain, key = key, since = since,
    step = step, use = use, kind = kind, entry = entry}
end

-- What the claims, the freezes and the unfinished steps of some workflows need of their run.
local function no_needs()
  return {till = 0, is_pinned = false, is_frozen = false, is_claimed = false, has_keys = false}
end

local function add_needs(needs, claim, frozen, unfinished)
  needs.is_frozen = needs.is_frozen or (frozen or nil) ~= nil
  needs.has_keys = needs.has_keys or (unfinished or nil) ~= nil
  if claim then
    needs.is_claimed = true
    needs.till = math.max(needs.till, claim.till)
    if claim.uncertain == 'hold' then
      needs.is_pinned = true
    else
      needs.has_keys = true
    end
  end
end

-- When Redis forgets a run.
local function gone_at(expires, needs)
  local is_kept = needs.is_pinned or needs.is_frozen
  return is_kept and NEVER or math.max(expires, needs.till)
end

-- Whether the index may lack runs. A whole one has a member that never leaves it, and its numbers
-- have a mark.
local function is_lost(index, numbers)
  local marks = call('HMGET', numbers, '#format', '#lost')
  if marks[2] then
    return true
  end
  if marks[1] then
    return not call('ZSCORE', index, '*')
  end
  return call('EXISTS', index) == 1
end
`;

/** What the operations on a run share. They collect what they write, for one command of a kind. */
const BEFORE = lua`
local RUN, INDEX, NUMBERS = KEYS[1], KEYS[2], KEYS[3]
-- The workflow is empty where the operation concerns the whole run.
local name, workflow = ARGV[1], ARGV[2]
-- The anchor is empty where the store does not chain the trails that it begins.
local trail_limit, anchor = tonumber(ARGV[3]), ARGV[4]

local fields, dropped, ranked, unranked = {}, {}, {}, {}

local function field(what)
  return what .. ':' .. workflow
end

local function set(what, value)
  fields[#fields + 1] = what
  fields[#fields + 1] = value
end

local function drop(what)
  dropped[#dropped + 1] = what
end

local function rank(member, at)
  ranked[#ranked + 1] = at
  ranked[#ranked + 1] = member .. ':' .. name
end

local function unrank(member)
  unranked[#unranked + 1] = member .. ':' .. name
end

local function split(text)
  local items = {}
  for item in string.gmatch(text or '', '[^\t]+') do
    items[#items + 1] = item
  end
  return items
end

local function claim_text(claim)
  return table.concat({claim.token, digits(claim.till), claim.uncertain, claim.key, claim.since,
    claim.step, claim.use, claim.kind, claim.entry}, '\t')
end

local function save_claim(run, claim)
  run.claim = claim
  set(field('claim'), claim_text(claim))
end

-- What the whole run needs, with its workflow as it is now. No operation changes other workflows.
local function needs_of(run)
  if not run.others then
    local wanted = {}
    for _, each in ipairs(split(run.workflows)) do
      if each ~= workflow then
        wanted[#wanted + 1] = 'claim:' .. each
        wanted[#wanted + 1] = 'frozen:' .. each
        wanted[#wanted + 1] = 'unfinished:' .. each
      end
    end
    run.others = no_needs()
    local got = #wanted > 0 and call('HMGET', RUN, unpack(wanted)) or {}
    for i = 1, #wanted, 3 do
      add_needs(run.others, parse_claim(got[i]), got[i + 1], got[i + 2])
    end
  end
  local needs = {}
  for what, value in pairs(run.others) do
    needs[what] = value
  end
  add_needs(needs, run.claim, run.frozen, run.unfinished)
  return needs
end

-- The run with this workflow, or nil where there is no run.
local function load()
  local got = call('HMGET', RUN, 'session', 'format', 'expires', 'sessionEnded', 'workflows',
    field('state'), field('context'), field('head'), field('claim'), field('frozen'),
    field('unfinished'), field('spent'))
  if not got[1] then
    -- Another format may have no such field.
    return got[2] and tonumber(got[2]) ~= ${REDIS_FORMAT} and {format = got[2]} or nil
  end
  local run = {session = got[1], format = got[2] or '0', expires = tonumber(got[3]),
    is_ended = got[4] == '1', workflows = got[5] or '', state = got[6], context = got[7] or '',
    claim_text = got[9], frozen = got[10] or nil, unfinished = got[11] or nil,
    spent = got[12] or '', version = '0', ended = '-', seq = 0, attempts = 0, hash = ''}
  if got[8] then
    local version, updated, ended, seq, attempts, hash = string.match(got[8],
      '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S*)$')
    run.version, run.updated, run.ended, run.hash = version, updated, ended, hash
    run.seq, run.attempts = tonumber(seq), tonumber(attempts)
  end
  run.claim = parse_claim(got[9])
  return run
end

local function save_head(run)
  set(field('head'), table.concat(
    {run.version, run.updated, run.ended, digits(run.seq), digits(run.attempts), run.hash}, ' '))
end

local function make(time, ttl, session, key, principal)
  local run = {session = session, expires = time + ttl, is_ended = false, workflows = '',
    context = '', spent = '', version = '0', ended = '-', seq = 0, attempts = 0, hash = '',
    before = {}}
  if call('ZSCORE', INDEX, 'e:' .. name) then
    forget(INDEX, NUMBERS, name)
  end
  purge(INDEX, NUMBERS, time, ${PURGED})
  set('format', ${REDIS_FORMAT})
  set('session', session)
  if key ~= '' then
    set('key', key)
  end
  if principal ~= '' then
    set('principal', principal)
    rank('p', principal)
  end
  return run
end

-- Whether the session that named the run is over, by its end or for want of use.
local function is_over(run, time)
  return run.is_ended or run.expires <= time
end

-- Moves the expiry, but not while nine tenths of the time to live remain. Without a time to live,
-- only where a claim lives longer. A session that is over stays so, unless the use revives it.
local function live_on(run, time, ttl, revives)
  if is_over(run, time) and not revives then
    return
  end
  local needs = needs_of(run)
  if ttl and not (run.expires >= time + ttl * 0.9 and run.expires <= time + ttl) then
    run.expires = math.max(time + ttl, needs.has_keys and run.expires or 0)
  end
  run.expires = math.max(run.expires, needs.till)
  run.is_ended = false
end

-- A step of a session that is over has been settled: the run can be read for a while.
local function stay_readable(run, time)
  run.expires = time + ${READABLE_MS}
  run.is_ended = true
end

-- Writes what the operation has collected, and when Redis forgets the run.
local function write(run)
  if run.expires ~= run.before.expires then
    set('expires', digits(run.expires))
  end
  if run.is_ended and not run.before.is_ended then
    set('sessionEnded', '1')
  elseif run.before.is_ended and not run.is_ended then
    drop('sessionEnded')
  end
  local gone = gone_at(run.expires, needs_of(run))
  local is_moved = gone ~= run.before.gone_at
  if is_moved then
    rank('e', score(0, gone))
  end
  if #fields > 0 then
    call('HSET', RUN, unpack(fields))
  end
  if #dropped > 0 then
    call('HDEL', RUN, unpack(dropped))
  end
  if is_moved and gone == NEVER then
    call('PERSIST', RUN)
  elseif is_moved then
    call('PEXPIREAT', RUN, digits(gone))
  end
  if #ranked > 0 then
    call('ZADD', INDEX, unpack(ranked))
  end
  if #unranked > 0 then
    call('ZREM', INDEX, unpack(unranked))
  end
end

local function remove()
  call('UNLINK', RUN)
  forget(INDEX, NUMBERS, name)
end

-- The kind is 'move', 'attempt' for a forwarded call that moved nothing, or 'note' for any other.
local function add_entry(run, time, draft, kind)
  local attempt = run.attempts + (kind == 'note' and 0 or 1)
  -- A process that chains no trail goes on with a chain that is there.
  local previous = run.seq == 0 and anchor or run.hash
  run.seq = run.seq + 1
  run.attempts = kind == 'move' and 0 or attempt
  local stamps = table.concat({digits(run.seq), run.version, digits(attempt), digits(time)}, ' ')
  run.hash = previous ~= ''
    and 'sha1:' .. redis.sha1hex(previous .. '\n' .. stamps .. '\n' .. draft) or ''
  set(field(digits(run.seq)), table.concat({stamps, previous, run.hash, draft}, ' '))
  if run.seq > trail_limit then
    drop(field(digits(run.seq - trail_limit)))
  end
end

local function reply(...)
  return table.concat({...}, '\n')
end

-- The version that a settled token committed, or '-' if it was released.
local function spent_on(run, token)
  local _, last = string.find('\t' .. run.spent, '\t' .. token .. ' ', 1, true)
  return last and string.match(run.spent, '^%S+', last)
end

-- Newest first. Drops old tokens only now and then, since that costs more than keeping a few.
local function spend(run, token, result)
  run.spent = token .. ' ' .. result .. (run.spent == '' and '' or '\t' .. run.spent)
  if #run.spent > ${SPENT_BYTES} then
    run.spent = string.match(run.spent, '^${NEWEST}') or run.spent
  end
  set(field('spent'), run.spent)
end

-- The key and the step of an unfinished line.
local function parse_unfinished(line)
  return string.match(line, '^([^\t]+)\t[^\t]+\t([^\t]+)')
end

-- The unfinished lines of other steps; none where the step is 'all'.
local function others_unfinished(run, step)
  local others = {}
  if run.unfinished and step ~= 'all' then
    for line in string.gmatch(run.unfinished, '[^\n]+') do
      local _, its_step = parse_unfinished(line)
      if its_step ~= step then
        others[#others + 1] = line
      end
    end
  end
  return others
end

local function save_unfinished(run, list)
  run.unfinished = #list > 0 and table.concat(list, '\n') or nil
  if run.unfinished then
    set(field('unfinished'), run.unfinished)
  else
    drop(field('unfinished'))
  end
end

-- A settled step needs its key no more. One that did not begin ('unsettled') leaves the key to the
-- next try. A workflow that begins anew settles all steps.
local function drop_claim(run, k, settles)
  if run.unfinished and settles ~= 'unsettled' then
    save_unfinished(run, others_unfinished(run, settles == 'all' and 'all' or run.claim.step))
  end
  run.claim = nil
  drop(field('claim'))
  unrank('c' .. k)
  unrank('s' .. k)
end

local function rank_claim(k, claim)
  rank('c' .. k, score(claim_number(k, claim.uncertain == 'hold' and 1 or 2), claim.till))
end

local function known_workflow()
  return workflow_number(NUMBERS, workflow, call('HGET', NUMBERS, workflow))
end

-- The run of a claim or a record, with its workflow as it is or would begin; nil if it is unknown.
-- From ARGV[at] on there are session, key, principal, and the initial state, context and version.
local function enter(run, time, ttl, at)
  if not run then
    if ARGV[at] == '' then
      return nil
    end
    run = make(time, ttl, ARGV[at], ARGV[at + 1], ARGV[at + 2])
  end
  run.is_new = not run.state
  if run.is_new then
    run.state, run.context, run.version = ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
    run.updated = digits(time)
  end
  return run
end

-- Ranks the run by its state, and gives the workflow's number.
local function rank_state(run, state, time)
  local of_state = state_field(workflow, state, run.ended == '1' and '1' or '0')
  local known = call('HMGET', NUMBERS, workflow, of_state)
  local k = workflow_number(NUMBERS, workflow, known[1])
  rank('o' .. k, score(state_number(NUMBERS, of_state, known[2]), time))
  if run.is_new then
    run.workflows = run.workflows == '' and workflow or run.workflows .. '\t' .. workflow
    set('workflows', run.workflows)
  end
  return k
end

-- Saves the workflow where it begins, but for its head. Gives its number.
local function begin(run, time)
  set(field('state'), run.state)
  if run.context ~= '' then
    set(field('context'), run.context)
  end
  return rank_state(run, run.state, time)
end

-- The next position with its entry. Gives the workflow's number.
local function move(run, time, state, context, entry)
  local k = rank_state(run, state, time)
  run.version, run.updated = digits(run.version + 1), digits(time)
  if run.is_new or state ~= run.state then
    set(field('state'), state)
  end
  if context ~= '' then
    set(field('context'), context)
  elseif run.context ~= '' then
    drop(field('context'))
  end
  add_entry(run, time, entry, 'move')
  save_head(run)
  return k
end

local function reply_seen(status, run, time, ...)
  return reply(status, run.state, run.context, run.version, run.updated, digits(time), ...)
end

local function operation(run, time)
`;

const after = (makes: string): string => lua`
end

local run, time = load(), now()
local format = other_format(NUMBERS)
if run and tonumber(run.format) ~= ${REDIS_FORMAT} then
  format = run.format
end
if format then
  return reply('format', format)
end
if run then
  run.before = {expires = run.expires, is_ended = run.is_ended,
    gone_at = gone_at(run.expires, needs_of(run))}
  -- Redis forgets a key only after the last millisecond of its life.
  if run.before.gone_at <= time then
    remove()
    run = nil
  end
end
-- Then the process notes the format in all buckets, and asks again.
if not run and ${makes} and call('HEXISTS', NUMBERS, '#format') == 0 then
  return 'unnoted'
end
return operation(run, time)
`;

/**
 * A script about one run. In its body, `run` is the run or nil, and `time` the server's time. It
 * makes no run in a bucket that has no format yet, but answers `unnoted`.
 *
 * @param makes Lua for whether it may make the run
 */
export function runScript(body: string, makes = 'false'): Script {
  return script(BEFORE + body + after(makes));
}
