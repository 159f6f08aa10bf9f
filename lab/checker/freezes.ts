/**
 * What operators stop: single runs, tools and whole workflows. Hides from when to when something
 * certainly was stopped, and when it may have been: their calls take time, and some get no answer.
 */
import {
  meets,
  type OutsideCall,
  type Span,
  type Stall,
  type SwitchCall,
  type Trail,
} from './evidence.ts';
import { type Attempt, hideable, isStep } from './reading.ts';
import type { FaultKind, RunFacts } from './replay.ts';

/**
 * How long after `freezeAll()` or `unfreezeAll()` a process may not know of it, in milliseconds: a
 * promise of the gate.
 */
export const SWITCH_MS = 1_000;

/** How long a call that needs no claim may be on its way to its handler when its run is frozen. */
const ON_ITS_WAY_MS = 2_000;

/** What operators did, and what it holds against. */
interface Operators {
  readonly switches: readonly SwitchCall[];
  readonly stalls: readonly Stall[];
  /** When a process could not read a switch. */
  readonly unread: readonly Span[];
}

type Found = { readonly kind: FaultKind; readonly text: string };

/** What was asked about one thing, one after the other. */
interface Asked {
  readonly does: 'freeze' | 'unfreeze';
  readonly asked: number;
  readonly answered?: number | undefined;
  /** Whether it was as asked when the answer came; `undefined` where none came. */
  readonly did?: boolean | undefined;
}

/** No handler begins of what is stopped, refusals are true, and the trail tells of each freeze. */
export function freezeFaults(facts: RunFacts, operators: Operators): Found[] {
  const { attempts, asked, machine, info } = facts;
  const names = hideable(machine);
  const switches = operators.switches.filter((each) => each.machine === machine.id);
  const own = facts.frozen;
  const byTool = new Map<string, Stopped>();
  const scopeOf = (tool: string): Stopped => {
    const known = byTool.get(tool) ?? stoppedBySwitch(switches, tool);
    byTool.set(tool, known);
    return known;
  };
  const sent = new Map(asked.map(([exchange]) => [exchange.call, exchange.sent]));
  const isExcused = ({ server }: Attempt, from: number, to: number): boolean =>
    meets(
      operators.stalls.filter((stall) => stall.server === server),
      from,
      to,
    );
  const begun = attempts.flatMap((attempt): Found[] => {
    const { name, tool, started, call } = attempt;
    const run = own.surely.find(({ from, to }) => from < started && started < to);
    // A lookup holds no claim, so a freeze does not wait until its handler has begun.
    const isOnItsWay =
      run !== undefined &&
      !isStep(attempt.binding) &&
      (sent.get(call) ?? started) < run.from &&
      started < run.from + ON_ITS_WAY_MS;
    if (run !== undefined && !isOnItsWay && !isExcused(attempt, run.from, started)) {
      const ms = Math.round(started - run.from);
      return [
        { kind: 'frozen', text: `${name} (${tool}) began ${ms} ms after its run was frozen` },
      ];
    }
    const scope = scopeOf(tool).surely.find(
      ({ from, to }) => from + SWITCH_MS < started && started < to,
    );
    if (scope === undefined) return [];
    const { from } = scope;
    // Who could read it in the last second knows it.
    const since = Math.max(from, started - SWITCH_MS);
    if (isExcused(attempt, from, started) || meets(operators.unread, since, started)) return [];
    const ms = Math.round(started - from);
    return [{ kind: 'frozen', text: `${name} (${tool}) began ${ms} ms after freezeAll()` }];
  });
  const answered = asked.flatMap(([{ call, sent, request }, { told, at }]): Found[] => {
    if (told.kind === 'tools' && info.lists === 'hide') {
      const isFrozen = own.surely.some(({ from, to }) => from < sent && at < to);
      const shown = told.names.filter((name) => names.has(name));
      if (!isFrozen || shown.length === 0) return [];
      return [{ kind: 'wrong-list', text: `list ${call} of a frozen run showed ${shown}` }];
    }
    if (told.kind !== 'refused' || told.reason !== 'frozen' || told.workflow !== machine.id)
      return [];
    const maybe = scopeOf(request.params.name).maybe.map(({ from, to }) => ({
      from,
      to: to + SWITCH_MS,
    }));
    if (meets([...own.maybe, ...maybe], sent, at)) return [];
    if (meets(operators.unread, sent - SWITCH_MS, at)) return [];
    const text = `call ${call} of ${request.params.name} was refused as frozen, and nothing was`;
    return [{ kind: 'wrong-refusal', text }];
  });
  return [...trailFaults(facts), ...begun, ...answered];
}

/** When something was stopped. */
export interface Stopped {
  /** Certainly: from an answer until it was asked to go on. */
  readonly surely: readonly Span[];
  /** Possibly: from when it was asked until an answer that it goes on. */
  readonly maybe: readonly Span[];
}

/** When operators had stopped a run by itself. */
export function runFreezes(outside: readonly OutsideCall[]): Stopped {
  return stopped(
    outside.flatMap(({ does, ...call }): Asked[] =>
      does.kind === 'freeze' || does.kind === 'unfreeze' ? [{ ...call, does: does.kind }] : [],
    ),
  );
}

function stopped(calls: readonly Asked[]): Stopped {
  const surely: Span[] = [];
  const maybe: Span[] = [];
  let sure: number | undefined;
  let possible: number | undefined;
  for (const call of [...calls].sort((a, b) => a.asked - b.asked)) {
    const { does, asked, answered, did } = call;
    if (does === 'freeze') {
      if (did === true) sure ??= answered;
      if (did !== false) possible ??= asked;
      continue;
    }
    if (sure !== undefined) surely.push({ from: sure, to: asked });
    sure = undefined;
    if (did !== true || answered === undefined || possible === undefined) continue;
    maybe.push({ from: possible, to: answered });
    possible = undefined;
  }
  const to = Number.POSITIVE_INFINITY;
  if (sure !== undefined) surely.push({ from: sure, to });
  if (possible !== undefined) maybe.push({ from: possible, to });
  return { surely, maybe };
}

/** A tool is stopped by its own name or with all of them; without a tool all go on. */
function stoppedBySwitch(switches: readonly SwitchCall[], tool: string): Stopped {
  const said = (calls: readonly SwitchCall[]): Stopped =>
    stopped(
      calls.map((call) => ({ ...call, did: call.answered === undefined ? undefined : true })),
    );
  const all = said(switches.filter((each) => each.tool === undefined));
  const own = said(
    switches.filter((each) => each.tool === tool || (!each.tool && each.does === 'unfreeze')),
  );
  return { surely: [...all.surely, ...own.surely], maybe: [...all.maybe, ...own.maybe] };
}

/** The trail tells of each change once, and as of what it is: no move, no outcome, no attempt. */
function trailFaults({ trail, outside }: RunFacts): Found[] {
  const fault = (text: string): Found => ({ kind: 'trail', text });
  const { freezes, now } = trail ?? ({} as Partial<Trail>);
  if (freezes === undefined || now === undefined) return [];
  const faults: Found[] = [];
  let isFrozen = false;
  for (const { entry, before } of freezes) {
    const { event, seq, version, attempt, to, outcome, tool } = entry;
    const what = `entry ${seq} of an operator's ${event}`;
    if (to !== undefined || outcome !== undefined || tool)
      faults.push(fault(`${what} is told as a move or an attempt`));
    if (version !== (before?.version ?? 0)) faults.push(fault(`${what} has a version of its own`));
    const follows = [before?.attempt ?? 0, ...(before?.to === undefined ? [] : [0])];
    if (!follows.includes(attempt)) faults.push(fault(`${what} is counted as an attempt`));
    if ((event === 'freeze') === isFrozen) faults.push(fault(`${what} changes nothing`));
    isFrozen = event === 'freeze';
  }
  if ((now.isFrozen === true) !== isFrozen)
    faults.push(
      fault(`the run is ${now.isFrozen ? '' : 'not '}frozen, and its trail says otherwise`),
    );
  const news = outside.flatMap(({ does }) =>
    does.kind === 'freeze' || does.kind === 'unfreeze' ? [does.isNew] : [],
  );
  const least = news.filter((isNew) => isNew === true).length;
  const most = least + news.filter((isNew) => isNew === undefined).length;
  if (freezes.length < least || freezes.length > most)
    faults.push(
      fault(
        `it tells of ${freezes.length} freezes and thaws, and ${least} to ${most} of ` +
          `${news.length} that were asked changed the run`,
      ),
    );
  return faults;
}
