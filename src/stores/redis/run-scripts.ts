/**
 * The operations on one run, one Lua script each. They do what run-state.ts does in this process.
 * And those on the switch of a workflow.
 */
import { lua, REDIS_FORMAT, runScript, type Script, script } from './scripts.ts';

/** How many idempotency keys of unfinished steps a workflow keeps. */
const KEYS_KEPT = 16;

export const OPEN = runScript(
  lua`
local session, ttl, key, principal = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8]
if run then
  return run.session == session and 'opened' or 'taken'
end
run = make(time, ttl, session, key, principal)
write(run)
return 'opened'
`,
  'true',
);

export const READ = runScript(lua`
local ttl = tonumber(ARGV[5])
if not run then
  return 'unknown'
end
local lines = {'run', digits(time), is_over(run, time) and '1' or '0', run.session}
for _, each in ipairs(split(run.workflows)) do
  local got = call('HMGET', RUN, 'state:' .. each, 'context:' .. each, 'head:' .. each,
    'claim:' .. each, 'frozen:' .. each)
  lines[#lines + 1] = each
  for i = 1, 5 do
    lines[#lines + 1] = got[i] or ''
  end
end
-- Reading an ended workflow does not keep the run alive, but a claim of it does.
live_on(run, time, run.ended ~= '1' and ttl or nil)
write(run)
return table.concat(lines, '\n')
`);

export const CLAIM = runScript(
  lua`
local token, step, uncertain, new_key = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local lease, ttl, key_ms = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local creates, entry, use, any_state = ARGV[12] ~= '', ARGV[18], ARGV[19], ARGV[20] == 'any'

run = enter(run, time, ttl, 12)
if not run then
  return 'unknown'
end
local holder = run.claim
local is_own = holder and holder.token == token
local is_outside = not creates and is_over(run, time)
if is_outside and not is_own then
  return 'unknown'
end

local function answer(status, ...)
  if not is_outside then
    live_on(run, time, run.ended ~= '1' and ttl or nil, true)
  end
  write(run)
  return reply_seen(status, run, time, ...)
end

local function grant(claim)
  save_claim(run, claim)
  if claim.uncertain == 'retry' then
    ttl = math.max(ttl, key_ms)
  end
  if run.unfinished then
    return answer('claimed', claim.key, run.unfinished)
  end
  return answer('claimed', claim.key)
end

local function allowed()
  if any_state then
    return true
  end
  for i = 21, #ARGV do
    if ARGV[i] == run.state then
      return true
    end
  end
  return false
end

if spent_on(run, token) then
  return answer('state')
end
if run.frozen and not is_own then
  return answer('frozen', run.frozen)
end
if holder and not is_own then
  if holder.till > time then
    return answer('busy', digits(holder.till - time))
  end
  if holder.uncertain == 'hold' then
    return answer('held', run.claim_text)
  end
end
if not allowed() then
  return answer('state')
end
if is_own then
  holder.till = time + lease
  rank_claim(known_workflow(), holder)
  return grant(holder)
end

-- The claim that is taken over has an unknown outcome, so the next try of its step gets its key.
local unfinished = others_unfinished(run, holder and holder.step)
if holder then
  unfinished[#unfinished + 1] = table.concat(
    {holder.key, holder.since, holder.step, holder.use}, '\t')
end
local known_key
for _, line in ipairs(unfinished) do
  local its_key, its_step = parse_unfinished(line)
  if its_step == step then
    known_key = its_key
  end
end
if not known_key and uncertain == 'retry' and #unfinished >= ${KEYS_KEPT} then
  return answer('unsettled')
end
if holder then
  save_unfinished(run, unfinished)
  if holder.entry ~= '' then
    local note = holder.entry == '{}' and '}' or ',' .. string.sub(holder.entry, 2)
    add_entry(run, time, '{"from":' .. run.state
      .. ',"event":null,"outcome":"unknown","kind":"taken_over"' .. note)
    save_head(run)
  end
end

local k
if run.is_new then
  k = begin(run, time)
  save_head(run)
else
  k = known_workflow()
end
local claim = {token = token, till = time + lease, uncertain = uncertain,
  key = known_key or new_key, since = digits(time), step = step, use = use, kind = '',
  entry = entry}
rank_claim(k, claim)
rank('s' .. k, score(claim_number(k, 3), time))
return grant(claim)
`,
  "ARGV[12] ~= ''",
);

export const COMMIT = runScript(lua`
local token, state, context, entry = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local ttl, settles, as, ended, from = tonumber(ARGV[9]), ARGV[10], ARGV[11], ARGV[12], ARGV[13]
if not run then
  return 'unknown'
end
local function answer(...)
  live_on(run, time, ttl)
  write(run)
  return reply(...)
end

local before = spent_on(run, as)
if before and before ~= '-' then
  return answer('committed', before, 'repeated')
end
if not run.claim or run.claim.token ~= token then
  return answer('lost')
end
if from ~= '' and from ~= run.version then
  return reply_seen('moved', run, time)
end

run.ended = ended
local k = move(run, time, state, context, entry)
if as ~= token then
  spend(run, token, '-')
end
spend(run, as, run.version)
drop_claim(run, k, settles)
if is_over(run, time) then
  stay_readable(run, time)
end
return answer('committed', run.version)
`);

export const RECORD = runScript(
  lua`
local token, state, context, entry = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local ttl, from, creates, ended = tonumber(ARGV[9]), ARGV[10], ARGV[11] ~= '', ARGV[17]
if run and not creates and is_over(run, time) then
  return 'unknown'
end
run = enter(run, time, ttl, 11)
if not run then
  return 'unknown'
end
local lives_for = run.ended ~= '1' and ttl or nil
local function live()
  live_on(run, time, lives_for, true)
  write(run)
end

local before = spent_on(run, token)
if before and before ~= '-' then
  live()
  return reply('recorded', before, 'repeated')
end
if from ~= run.version then
  live()
  return reply_seen('moved', run, time)
end
if ended ~= '' then
  run.ended = ended
end
move(run, time, state, context, entry)
spend(run, token, run.version)
live()
return reply('recorded', run.version)
`,
  "ARGV[11] ~= ''",
);

export const FREEZE = runScript(
  lua`
local token, freeze, entry, ttl = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local is_outside = run and ARGV[9] == '' and is_over(run, time)
-- Also after a thaw that was the last to need a run whose session is over.
local is_repeated = run and spent_on(run, token)
if is_outside and not is_repeated and gone_at(0, needs_of(run)) <= time then
  return 'unknown'
end
run = enter(run, time, ttl, 9)
if not run then
  return 'unknown'
end

local is_change = not is_repeated and (run.frozen == nil) ~= (freeze == '')
if is_change then
  if run.is_new then
    begin(run, time)
  end
  if freeze == '' then
    run.frozen = nil
    drop(field('frozen'))
  else
    run.frozen = freeze
    set(field('frozen'), freeze)
  end
  add_entry(run, time, entry, 'note')
  save_head(run)
  spend(run, token, '-')
end
if not is_outside then
  live_on(run, time, run.ended ~= '1' and ttl or nil, true)
elseif is_change and not run.frozen then
  stay_readable(run, time)
end
write(run)
local status = (is_change or is_repeated) and 'changed' or 'unchanged'
return reply_seen(status, run, time, run.frozen or '')
`,
  "ARGV[9] ~= ''",
);

export const RENEW = runScript(lua`
local token, lease, kind = ARGV[5], tonumber(ARGV[6]), ARGV[7]
local claim = run and run.claim
if not claim or claim.token ~= token then
  return 'lost'
end
claim.till = time + lease
if kind ~= '' then
  claim.uncertain, claim.kind = 'hold', kind
end
save_claim(run, claim)
rank_claim(known_workflow(), claim)
live_on(run, time)
write(run)
return 'renewed'
`);

export const RELEASE = runScript(lua`
local token, settles, entry, kind = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
if not run then
  return 'ok'
end
if run.claim and run.claim.token == token then
  drop_claim(run, known_workflow(), settles)
  if entry ~= '' then
    add_entry(run, time, entry, kind)
    save_head(run)
  end
  if is_over(run, time) then
    stay_readable(run, time)
  end
  spend(run, token, '-')
elseif not spent_on(run, token) then
  -- Even where the token never had the claim: its claim may still be on its way.
  spend(run, token, '-')
end
write(run)
return 'ok'
`);

export const APPEND = runScript(lua`
local entry, kind = ARGV[5], ARGV[6]
if run and run.state then
  add_entry(run, time, entry, kind)
  save_head(run)
  write(run)
end
return 'ok'
`);

export const END = runScript(lua`
if not run then
  return 'unknown'
end
local needs = needs_of(run)
if ARGV[5] == 'unclaimed' and (needs.is_claimed or needs.is_frozen) then
  return 'claimed'
end
-- Of a session that ended before, with its last step settled, the run can still be read.
if run.is_ended then
  return 'ended'
end
if gone_at(0, needs) > time then
  run.expires, run.is_ended = math.min(run.expires, time), true
  write(run)
else
  remove()
end
return 'ended'
`);

export const DELETE = runScript(lua`
if not run then
  return 'unknown'
end
if needs_of(run).is_pinned then
  return 'pinned'
end
remove()
return 'deleted'
`);

/** The fourth key is the run's new one, in the same bucket. */
export const ANONYMIZE = runScript(lua`
local new_run, new_name, key, session = KEYS[4], ARGV[5], ARGV[6], ARGV[7]
local needs = run and needs_of(run)
if not run or not needs.is_pinned or needs.till > time then
  return 'unknown'
end

local members = {score(0, NEVER), 'e:' .. new_name}
set('key', key)
set('session', session)
set('expires', digits(time))
set('sessionEnded', '1')
for _, each in ipairs(split(run.workflows)) do
  local got = call('HMGET', RUN, 'head:' .. each, 'claim:' .. each)
  local position = string.match(got[1], '^%S+ %S+ %S+ ')
  set('head:' .. each, position .. '0 0 ')
  drop('frozen:' .. each)
  local claim = parse_claim(got[2])
  if claim then
    claim.entry = ''
    set('claim:' .. each, claim_text(claim))
  end
  local k = call('HGET', NUMBERS, each)
  for _, kind in ipairs({'o', 'c', 's'}) do
    local at = k and call('ZSCORE', INDEX, kind .. k .. ':' .. name)
    if at then
      members[#members + 1] = digits(tonumber(at))
      members[#members + 1] = kind .. k .. ':' .. new_name
    end
  end
end
drop('principal')
for _, what in ipairs(call('HKEYS', RUN)) do
  if string.find(what, '^%d+:') then
    drop(what)
  end
end

call('HSET', RUN, unpack(fields))
-- In parts, because Lua cannot unpack more.
for first = 1, #dropped, 1000 do
  call('HDEL', RUN, unpack(dropped, first, math.min(first + 999, #dropped)))
end
call('RENAME', RUN, new_run)
forget(INDEX, NUMBERS, name)
call('ZADD', INDEX, unpack(members))
return 'anonymized'
`);

export const HISTORY = runScript(lua`
local limit = tonumber(ARGV[5])
local lines = {'trail'}
local from = run and math.max(1, run.seq - math.min(limit, call('HLEN', RUN)) + 1) or 1
-- In parts, because Lua cannot unpack more.
for first = from, run and run.seq or 0, 1000 do
  local wanted = {}
  for seq = first, math.min(first + 999, run.seq) do
    wanted[#wanted + 1] = field(digits(seq))
  end
  for _, entry in ipairs(call('HMGET', RUN, unpack(wanted))) do
    lines[#lines + 1] = entry or nil
  end
end
return table.concat(lines, '\n')
`);

/** Revision and value of a switch, or `none`. */
export const READ_SWITCH = switchScript(lua`
if not known[1] then
  return 'none'
end
return table.concat({'switch', known[3], known[4]}, '\n')
`);

export const SWAP_SWITCH = switchScript(lua`
local expected, revision, value = ARGV[2], ARGV[3], ARGV[4]
if known[3] == revision then
  return 'swapped'
end
if (known[3] or '') ~= expected then
  return 'kept'
end
call('HSET', KEYS[1], 'format', ${REDIS_FORMAT}, 'name', name, 'revision', revision,
  'value', value)
return 'swapped'
`);

/**
 * A script about the switch of a workflow. Its keys are the switch and the numbers of its bucket,
 * and its first argument the workflow's name. In its body, `known` is what the switch has.
 */
function switchScript(body: string): Script {
  return script(
    lua`
local name = ARGV[1]
local known = call('HMGET', KEYS[1], 'format', 'name', 'revision', 'value')
local format = other_format(KEYS[2])
if known[1] and tonumber(known[1]) ~= ${REDIS_FORMAT} then
  format = known[1]
end
if format then
  return 'format\n' .. format
end
if known[1] and known[2] ~= name then
  error('INTERLOCK the key of a switch has that of another workflow')
end
` + body,
  );
}
