import {
  type Evidence,
  type Exchange,
  type Listening,
  meets,
  type Received,
  type Stall,
} from './evidence.ts';
import { freezeFaults, runFreezes } from './freezes.ts';
import {
  type Answer,
  type Attempt,
  answerOf,
  attemptsOf,
  bindingOf,
  callOf,
  groupBy,
  hideable,
  isStateless,
  isStep,
  seenState,
  shownIn,
} from './reading.ts';
import {
  type Fault,
  type FaultKind,
  type Replay,
  type RunFacts,
  replay,
  stepOf,
} from './replay.ts';

export type { Fault, FaultKind } from './replay.ts';

/**
 * For how long after an answer a stream must have stayed open, for what it did not get to count as
 * missing.
 */
const PATIENCE_MS = 3_000;

/** All that contradicts the promises. See MODEL.md. */
export function check(evidence: Evidence): Fault[] {
  const attempts = attemptsOf(evidence.ledger);
  const asked = evidence.exchanges.map((each) => [each, answerOf(each)] as const);
  const faults = [
    ...answerFaults(evidence, attempts, asked),
    ...strangerFaults(evidence, attempts, asked),
  ];
  const attemptsByRun = groupBy(attempts, ({ run }) => run);
  const askedByRun = groupBy(asked, ([{ run }]) => run);
  const outsideByRun = groupBy(evidence.outside, ({ run }) => run);
  const streamsByRun = groupBy(evidence.streams, ({ run }) => run);
  const trails = new Map(evidence.trails.map((each) => [`${each.machine} ${each.run}`, each]));
  for (const info of evidence.runs) {
    const { run } = info;
    for (const machine of evidence.machines) {
      const own = (attemptsByRun.get(run) ?? []).flatMap((attempt) => {
        const binding = bindingOf(machine, attempt.tool, attempt.args);
        return binding === undefined ? [] : [{ ...attempt, binding }];
      });
      const outside = (outsideByRun.get(run) ?? []).filter((each) => each.machine === machine.id);
      const facts: RunFacts = {
        info,
        machine,
        tools: evidence.tools,
        attempts: own,
        asked: askedByRun.get(run) ?? [],
        outside,
        frozen: runFreezes(outside),
        trail: trails.get(`${machine.id} ${run}`),
        outages: evidence.outages ?? [],
      };
      faults.push(...faultsOf(facts, evidence, streamsByRun.get(run) ?? []));
    }
  }
  return faults;
}

/** The fewest faults that a reading leaves: each call that may have come late did or did not. */
function faultsOf(facts: RunFacts, evidence: Evidence, streams: readonly Listening[]): Fault[] {
  let fewest = faultsAsRead(facts, evidence, streams);
  for (const late of subsets(lateAttempts(facts, evidence.stalls ?? []))) {
    if (fewest.length === 0) break;
    const attempts = facts.attempts.filter((each) => !late.includes(each));
    const found = faultsAsRead({ ...facts, attempts }, evidence, streams);
    if (found.length < fewest.length) fewest = found;
  }
  return fewest;
}

/** How long a call may be on its way to its handler. */
const ON_ITS_WAY_MS = 2_000;
/** How many calls are taken to have come late at most: each one doubles the readings. */
const MOST_LATE = 6;

/**
 * Handlers that may have begun although their claim was lost. A gate cannot call back what it has
 * forwarded: if its process stands still just then, the lease ends before the server reads the
 * call. No client may be shown a success of such a call.
 */
function lateAttempts(
  { attempts, asked }: RunFacts,
  stalls: readonly Stall[],
): RunFacts['attempts'] {
  return attempts
    .filter((attempt) => {
      const { server, started, call, name, binding } = attempt;
      const [exchange] = asked.find(([each]) => each.call === call) ?? [];
      const isShown = asked.some(
        ([, { told }]) => told.kind === 'done' && told.attempt === name && !told.isError,
      );
      return (
        isStep(binding) &&
        !isShown &&
        stalls.some(
          ({ from, to, ...stall }) =>
            stall.server === server &&
            (exchange?.sent ?? Number.POSITIVE_INFINITY) <= from &&
            to <= started &&
            started <= to + ON_ITS_WAY_MS,
        )
      );
    })
    .slice(0, MOST_LATE);
}

/** All but the empty one, the smaller ones first. */
function subsets<T>(items: readonly T[]): T[][] {
  const sets: T[][] = [[]];
  for (const item of items) sets.push(...sets.map((set) => [...set, item]));
  return sets.slice(1).sort((a, b) => a.length - b.length);
}

function faultsAsRead(
  facts: RunFacts,
  { stalls = [], switches = [], unread = [] }: Evidence,
  streams: readonly Listening[],
): Fault[] {
  const replayed = replay(facts);
  const found = [
    ...keyFaults(facts),
    ...changedKeys(facts),
    ...overlapFaults(facts, stalls),
    ...trailFaults(facts),
    ...freezeFaults(facts, { switches, stalls, unread }),
    ...(replayed.fault === undefined ? [] : [replayed.fault]),
    ...toldFaults(facts, replayed, streams),
  ];
  const { info, machine } = facts;
  return found.map(({ kind, text }) => ({ kind, text, run: info.run, machine: machine.id }));
}

type Found = { readonly kind: FaultKind; readonly text: string };

/** Every answer is one that its client may get, and every list has what no state hides. */
function answerFaults(
  { runs, machines, tools, outages = [], stalls = [] }: Evidence,
  attempts: readonly Attempt[],
  asked: readonly (readonly [Exchange, Answer])[],
): Fault[] {
  const faults: Fault[] = [];
  const byName = new Map(attempts.map((attempt) => [attempt.name, attempt]));
  const infos = new Map(runs.map((info) => [info.run, info]));
  const names = machines.map((machine) => hideable(machine));
  for (const [exchange, { told, at }] of asked) {
    const { run, call, sent } = exchange;
    const add = (kind: FaultKind, text: string) =>
      faults.push({ kind, run, machine: '', text: `${text} (call ${call})` });
    const wasAway = meets(outages, sent, at);
    if (told.kind === 'wrong' && !wasAway) add('wrong-answer', told.text);
    const stoodStill = meets(stalls, sent, at);
    if (told.kind === 'unavailable' && !wasAway && !stoodStill)
      add('wrong-answer', 'the store is there, and was called unavailable');
    if (told.kind === 'done') {
      const attempt = byName.get(told.attempt);
      if (attempt?.call !== call)
        add('wrong-answer', `it was told of "${told.attempt}", which is another call's`);
      else if (attempt.outcome !== (told.isError ? 'failed' : 'succeeded')) {
        add(
          'wrong-answer',
          `"${told.attempt}" ${attempt.outcome ?? 'never ended'}, and its client was told otherwise`,
        );
      }
    }
    if (told.kind === 'tools' && told.isWhole) {
      const stays = tools.filter((tool) => !names.some((each) => each.has(tool)));
      const expected = infos.get(run)?.lists === 'stable' ? tools : stays;
      const missing = expected.filter((tool) => !told.names.includes(tool));
      const strange = told.names.filter(
        (tool, at) => !tools.includes(tool) || told.names.indexOf(tool) !== at,
      );
      if (missing.length > 0 && !wasAway)
        add('wrong-list', `it does not show ${missing.join(', ')}`);
      if (strange.length > 0) add('wrong-list', `it shows ${strange.join(', ')}, new or twice`);
    }
  }
  return faults;
}

/** A handler is called for the run of the client that called it. */
function strangerFaults(
  { machines, runs }: Evidence,
  attempts: readonly Attempt[],
  asked: readonly (readonly [Exchange, Answer])[],
): Fault[] {
  const known = new Set(runs.map(({ run }) => run));
  const runOf = new Map(asked.map(([exchange]) => [callOf(exchange), exchange.run]));
  return attempts
    .filter(({ tool, args }) =>
      machines.some((machine) => bindingOf(machine, tool, args) !== undefined),
    )
    .filter(({ run, call }) => !known.has(run) || runOf.get(call) !== run)
    .map(({ name, tool, run, call }) => ({
      kind: 'foreign-run',
      run,
      machine: '',
      text: `the handler ${name} (${tool}) ran for "${run}", and was called by "${runOf.get(call)}"`,
    }));
}

/**
 * A key is one step's; what must not be repeated begins once with it. A success that was shown was
 * the last try. A failure that was shown let the run go before, unless the store was away.
 */
function keyFaults({ attempts, asked, outages }: RunFacts): Found[] {
  const faults: Found[] = [];
  const shown = new Map(
    asked.flatMap(([, { told, at }]) =>
      told.kind === 'done' ? [[told.attempt, { isError: told.isError, at }]] : [],
    ),
  );
  const isOver = ({ name, started }: Attempt, next: Attempt): boolean => {
    const answer = shown.get(name);
    if (answer === undefined || !answer.isError) return answer !== undefined;
    const wasAway = meets(outages, started, answer.at);
    return answer.at < next.started && !wasAway;
  };
  const earlier = new Map<string, RunFacts['attempts'][number]>();
  for (const attempt of attempts) {
    const { key, name, tool, binding } = attempt;
    if (!isStep(binding)) continue;
    const known = earlier.get(key);
    if (key === '') faults.push({ kind: 'key', text: `${name} (${tool}) was given no key` });
    else if (known !== undefined && stepOf(known) !== stepOf(attempt)) {
      faults.push({
        kind: 'key',
        text: `${stepOf(known)} and ${stepOf(attempt)} have the key ${key}`,
      });
    } else if (known !== undefined && (binding.uncertain === 'hold' || isOver(known, attempt))) {
      faults.push({
        kind: 'ran-twice',
        text: `${name} (${tool}) began with the key of ${known.name}`,
      });
    }
    earlier.set(key, attempt);
  }
  return faults;
}

/** A step that may be repeated, and was cut off, begins again with its key. */
function changedKeys({ attempts, info, machine: { final = [] } }: RunFacts): Found[] {
  // A run that starts again forgets its keys.
  if (info.restarts === true && final.length > 0) return [];
  return attempts.flatMap((cut, at): Found[] => {
    if (cut.ended !== undefined || cut.binding.uncertain === 'hold' || !isStep(cut.binding))
      return [];
    const next = attempts.slice(at + 1).find((each) => stepOf(each) === stepOf(cut));
    if (next === undefined || next.key === cut.key) return [];
    const text = `${next.name} (${next.tool}) repeats ${cut.name} with another key`;
    return [{ kind: 'key', text }];
  });
}

/** While one handler of a run is at work no other one begins. */
function overlapFaults({ attempts, outside }: RunFacts, stalls: readonly Stall[]): Found[] {
  const steps = attempts.filter(({ binding }) => isStep(binding));
  return steps.flatMap((attempt, index) => {
    const before = steps[index - 1];
    // One that never ended was killed.
    if (before?.ended === undefined || before.ended <= attempt.started) return [];
    const isResolved = outside.some(
      ({ does, asked }) =>
        does.kind === 'resolve' && does.key === before.key && asked < attempt.started,
    );
    const isRepeated = before.binding.uncertain === 'retry' && before.key === attempt.key;
    const stoodStill = stalls.some(
      ({ server, from, to }) =>
        server === before.server && from < attempt.started && to > before.started,
    );
    if (isResolved || isRepeated || (stoodStill && before.binding.uncertain === 'retry')) return [];
    return [{ kind: 'overlap', text: `${attempt.name} began while ${before.name} was at work` }];
  });
}

/**
 * The trail is one chain of moves of the machine, and has no more of them than handlers and people
 * made.
 */
function trailFaults({ machine, trail, attempts, outside, info }: RunFacts): Found[] {
  if (trail === undefined) return [];
  const { moves, now } = trail;
  const wasUsed = attempts.some(({ binding }) => isStep(binding));
  if (now === undefined)
    return wasUsed ? [{ kind: 'lost', text: 'the store does not know the run' }] : [];
  const faults: Found[] = [];
  const [first] = moves;
  let state = first === undefined || first.version === 1 ? machine.initial : first.from;
  for (const [index, { version, from, to }] of moves.entries()) {
    const expected = (first?.version ?? 1) + index;
    if (version !== expected)
      faults.push({
        kind: 'trail',
        text: `entry ${index + 1} has the version ${version}, not ${expected}`,
      });
    if (from !== state)
      faults.push({
        kind: 'trail',
        text: `version ${version} goes on from "${from}", not from "${state}"`,
      });
    const isMove = from === to || Object.values(machine.states[from] ?? {}).includes(to);
    const isRestart = info.restarts === true && to === machine.initial;
    if (!isMove && !isRestart)
      faults.push({ kind: 'trail', text: `version ${version} leads from "${from}" to "${to}"` });
    state = to;
  }
  const last = moves.at(-1)?.version ?? 0;
  if (now.version !== last || now.state !== state) {
    faults.push({
      kind: 'trail',
      text: `the run is in "${now.state}" at version ${now.version}, its trail in "${state}" at ${last}`,
    });
  }
  // The last attempt may still be unsettled.
  const begun = attempts.filter(({ binding }) => isStep(binding)).length;
  const recorded = outside.filter(({ does, did }) => does.kind === 'record' && did !== false);
  if (trail.attempts !== undefined && trail.attempts - recorded.length < begun - 1) {
    faults.push({
      kind: 'trail',
      text: `the trail tells of ${trail.attempts} attempts, and ${begun} handlers began`,
    });
  }
  if (now.status === 'running')
    faults.push({ kind: 'stuck', text: 'the run is running, although nothing is under way' });
  const claimed = machine.bindings.filter(({ tool }) => tool === now.claimed);
  if (now.status === 'held' && !claimed.some(({ uncertain }) => uncertain === 'hold')) {
    faults.push({ kind: 'stuck', text: 'the run is held, and its last step may be repeated' });
  }
  return [...faults, ...countFaults(trail.moves, attempts, outside)];
}

function countFaults(
  moves: readonly { readonly tool?: string | null | undefined }[],
  attempts: RunFacts['attempts'],
  outside: RunFacts['outside'],
): Found[] {
  const resolved = outside.flatMap(({ does }) => (does.kind === 'resolve' ? [does] : []));
  const keys = new Set(resolved.map(({ key }) => key));
  const begun = new Set(attempts.map(({ key }) => key));
  return [...groupBy(moves, ({ tool }) => tool ?? '')].flatMap(([tool, entries]) => {
    if (tool === '') return [];
    const ended = attempts.filter(
      (each) => each.tool === tool && (each.ended !== undefined || keys.has(each.key)),
    );
    // Where a handler never began, a person may have decided the outcome.
    const decided = resolved.filter((each) => each.tool === tool && !begun.has(each.key));
    const records = outside.filter(
      ({ does, did }) => does.kind === 'record' && does.tool === tool && did !== false,
    );
    const made = [...ended, ...new Set(decided.map(({ key }) => key)), ...records];
    return entries.length <= made.length
      ? []
      : [
          {
            kind: 'committed-twice' as const,
            text: `the trail has ${entries.length} moves of ${tool}, and ${made.length} handlers made one`,
          },
        ];
  });
}

/** A move after which other tools are shown is told to the clients of its run. */
function toldFaults(
  { info, machine, tools, asked, attempts, frozen }: RunFacts,
  { moves }: Replay,
  streams: readonly Listening[],
): Found[] {
  if (info.lists !== 'hide') return [];
  const show = (state: string) => String(shownIn(machine, tools, seenState(machine, info, state)));
  const changed = (name: string) => {
    const pairs = [...(moves.get(name) ?? [])].map((pair) => JSON.parse(pair) as [string, string]);
    return pairs.length > 0 && pairs.every(([from, to]) => show(from) !== show(to));
  };
  const ended = new Map(attempts.map((attempt) => [attempt.name, attempt]));
  return asked.flatMap(([exchange, answer]): Found[] => {
    const { told, at } = answer;
    const attempt = told.kind === 'done' ? ended.get(told.attempt) : undefined;
    if (attempt?.ended === undefined || !changed(attempt.name)) return [];
    // The list of a frozen run is empty before and after.
    if (meets(frozen.maybe, attempt.ended, at)) return [];
    const untold = missingOn(exchange, at, attempt.ended, streams);
    return untold === undefined
      ? []
      : [
          {
            kind: 'untold',
            text: `${attempt.name} (${attempt.tool}) changed the list, and ${untold}`,
          },
        ];
  });
}

/** Who should have been told of a move and was not; `undefined` where all were. */
function missingOn(
  exchange: Exchange,
  answered: number,
  since: number,
  streams: readonly Listening[],
): string | undefined {
  const { isStream, messages, sent, request } = exchange;
  const stayed = streams.filter(
    ({ opened, closed = Number.POSITIVE_INFINITY }) =>
      opened < sent && closed > answered + PATIENCE_MS,
  );
  const heard = (stream: Listening) =>
    stream.messages.some((each) => isChange(each) && each.at >= since);
  if (stayed.some((each) => each.kind === 'subscription' && !heard(each))) {
    return 'a subscription was not told';
  }
  const own = messages.findIndex(isChange);
  const result = messages.findIndex(
    ({ message }) => message?.id === request.id && !message?.method,
  );
  if (isStateless(exchange)) {
    return own === -1 ? undefined : 'the call was told, though it asked for no changes';
  }
  const isTold =
    (own !== -1 && own < result) || streams.some((each) => each.kind === 'session' && heard(each));
  const isDue = isStream === true || stayed.some(({ kind }) => kind === 'session');
  return isDue && !isTold ? 'its session was not told' : undefined;
}

function isChange({ message }: Received): boolean {
  return message?.method === 'notifications/tools/list_changed';
}
