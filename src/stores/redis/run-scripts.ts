/**
 * The operations on one run, one Lua script each. They do what run-state.ts does in this process.
 */
import { lua, runScript } from './scripts.ts';

export const OPEN = runScript(lua`
local session, ttl, key, principal = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8]
if run then
  return run.session == session and 'opened' or 'taken'
end
run = make(time, session, key, principal)
live_on(run, time, ttl)
write(run)
return 'opened'
`);

export const READ = runScript(lua`
local ttl = tonumber(ARGV[5])
if not run then
  return 'unknown'
end
local lines = {'run', digits(time), run.session}
for _, each in ipairs(split(run.workflows)) do
  local got = call('HMGET', RUN, 'state:' .. each, 'context:' .. each, 'head:' .. each,
    'claim:' .. each)
  lines[#lines + 1] = each
  for i = 1, 4 do
    lines[#lines + 1] = got[i] or ''
  end
end
-- Reading an ended workflow does not keep the run alive, but a claim of it does.
live_on(run, time, run.ended ~= '1' and ttl or nil)
write(run)
return table.concat(lines, '\n')
`);

export const CLAIM = runScript(lua`
local token, step, uncertain, new_key = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local lease, ttl, session = tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11]
local key, principal, entry, any_state = ARGV[12], ARGV[13], ARGV[14], ARGV[18] == 'any'

if not run then
  if session == '' then
    return 'unknown'
  end
  run = make(time, session, key, principal)
end
local is_new = not run.state
if is_new then
  run.state, run.context, run.version, run.updated = ARGV[15], ARGV[16], ARGV[17], digits(time)
end

local function answer(status, ...)
  live_on(run, time, run.ended ~= '1' and ttl or nil)
  write(run)
  return reply(status, run.state, run.context, run.version, run.updated, digits(time), ...)
end

local function allowed()
  if any_state then
    return true
  end
  for i = 19, #ARGV do
    if ARGV[i] == run.state then
      return true
    end
  end
  return false
end

if spent_on(run, token) then
  return answer('state')
end

local holder = run.claim
if holder and holder.token == token then
  holder.till = time + lease
  save_claim(run, holder)
  rank_claim(known_workflow(), holder)
  return answer('claimed', holder.key)
end

if holder then
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

-- The claim that is taken over has an unknown outcome, so the next try of its step gets its key.
if holder then
  local unfinished = others_unfinished(run, holder.step)
  table.insert(unfinished, 1, holder.key .. ' ' .. holder.step)
  save_unfinished(unfinished)
  run.unfinished = table.concat(unfinished, '\t')
  if holder.entry ~= '' then
    local note = holder.entry == '{}' and '}' or ',' .. string.sub(holder.entry, 2)
    add_entry(run, time, '{"from":' .. run.state
      .. ',"event":null,"outcome":"unknown","kind":"taken_over"' .. note)
    save_head(run)
  end
end
for _, item in ipairs(split(run.unfinished)) do
  local its_key, its_step = string.match(item, '^(%S+) (.*)$')
  if its_step == step then
    new_key = its_key
  end
end

local k
if is_new then
  local of_state = state_field(workflow, run.state, '0')
  local known = call('HMGET', NUMBERS, workflow, of_state)
  k = workflow_number(NUMBERS, workflow, known[1])
  rank('o' .. k, score(state_number(NUMBERS, of_state, known[2]), time))
  run.workflows = run.workflows == '' and workflow or run.workflows .. '\t' .. workflow
  set('workflows', run.workflows)
  set(field('state'), run.state)
  if run.context ~= '' then
    set(field('context'), run.context)
  end
  save_head(run)
else
  k = known_workflow()
end
save_claim(run, {token = token, till = time + lease, uncertain = uncertain, key = new_key,
  since = digits(time), step = step, entry = entry})
rank_claim(k, run.claim)
rank('s' .. k, score(claim_number(k, 3), time))
return answer('claimed', new_key)
`);

export const COMMIT = runScript(lua`
local token, state, context, entry = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local ttl, settles, as, ended = tonumber(ARGV[9]), ARGV[10], ARGV[11], ARGV[12]
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

local of_state = state_field(workflow, state, ended)
local known = call('HMGET', NUMBERS, workflow, of_state)
local k = workflow_number(NUMBERS, workflow, known[1])
run.version, run.updated, run.ended = digits(run.version + 1), digits(time), ended
if state ~= run.state then
  set(field('state'), state)
end
if context ~= '' then
  set(field('context'), context)
elseif run.context ~= '' then
  drop(field('context'))
end
add_entry(run, time, entry, 'move')
save_head(run)
if as ~= token then
  spend(run, token, '-')
end
spend(run, as, run.version)
rank('o' .. k, score(state_number(NUMBERS, of_state, known[2]), time))
drop_claim(run, k, settles)
return answer('committed', run.version)
`);

export const RENEW = runScript(lua`
local token, lease = ARGV[5], tonumber(ARGV[6])
if not run or not run.claim or run.claim.token ~= token then
  return 'lost'
end
run.claim.till = time + lease
save_claim(run, run.claim)
rank_claim(known_workflow(), run.claim)
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
end
-- Even where the token never had the claim: its claim may still be on its way.
if not spent_on(run, token) then
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

export const DELETE = runScript(lua`
if run then
  call('UNLINK', RUN)
  forget(INDEX, NUMBERS, name)
end
return 'ok'
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
