/**
 * Judges what racing calls used up, by what their handlers wrote down: no limit exceeded, nothing
 * used twice, nothing lost. MODEL.md says which order of events is certain.
 */
import type { Exchange, LedgerLine, OutsideCall, TrailEntry } from './evidence.ts';
import { answerOf, attemptsOf, callOf, groupBy, type Told } from './reading.ts';
import {
  compare,
  type Decimal,
  decimalOf,
  type ForwardedCall,
  type Json,
  judge,
  type Leaf,
  type Limit,
  milliseconds,
  type NextCall,
  type Outcome,
  plus,
  type Rule,
  type RuleSet,
} from './rules.ts';

export type UsesFaultKind =
  /** More than a limit allows took effect. */
  | 'exceeded'
  /** One fact let two calls through. */
  | 'used-twice'
  /** A handler ran that the rules did not allow. */
  | 'not-allowed'
  /** A call was refused that the rules allowed. */
  | 'lost'
  | 'wrong-reason'
  /** A step that must not be repeated ran again. */
  | 'ran-twice'
  /** The trail tells otherwise than the ledger. */
  | 'trail';

export interface UsesFault {
  readonly kind: UsesFaultKind;
  readonly text: string;
  readonly run: string;
}

export interface UsesEvidence {
  readonly rules: RuleSet;
  /** The tools whose steps may be repeated with their key. */
  readonly retried: readonly string[];
  /** The tools that are no steps: their calls run beside others. */
  readonly lookups: readonly string[];
  readonly runs: readonly string[];
  readonly exchanges: readonly Exchange[];
  readonly ledger: readonly LedgerLine[];
  /** How operators resolved held runs. */
  readonly outside: readonly OutsideCall[];
  readonly trails: readonly UsesTrail[];
  /** When a run was seen with nothing at work, held or to be repeated. */
  readonly quiet: readonly { readonly run: string; readonly at: number }[];
}

export interface UsesTrail {
  readonly run: string;
  /** Oldest first; the oldest ones may be missing. */
  readonly entries: readonly TrailEntry[];
}

/** Clocks are read in whole milliseconds, by two processes. */
const TOLERANCE_MS = 5;
/** Shorter windows are judged by themselves: which call they still count is a matter of moments. */
const LONG_MS = 3_600_000;

export function usesFaults(evidence: UsesEvidence): UsesFault[] {
  const asked = groupBy(evidence.exchanges, ({ run }) => run);
  const attempts = groupBy(attemptsOf(evidence.ledger), ({ run }) => run);
  const outside = groupBy(evidence.outside, ({ run }) => run);
  const quiet = groupBy(evidence.quiet, ({ run }) => run);
  const trails = new Map(evidence.trails.map(({ run, entries }) => [run, entries]));
  return evidence.runs.flatMap((run) => {
    const calls = (asked.get(run) ?? []).flatMap(readCall);
    const resolutions = (outside.get(run) ?? []).flatMap(readResolution);
    const uses = usesOf(evidence, attempts.get(run) ?? [], calls, resolutions);
    const quietAt = (quiet.get(run) ?? []).map(({ at }) => at);
    const one = new RunOfRules(evidence, { calls, uses, quietAt });
    return [
      ...one.limitFaults(),
      ...one.consumptionFaults(),
      ...one.forwardedFaults(),
      ...one.refusedFaults(),
      ...trailFaults(evidence, uses, trails.get(run)),
    ].map((fault) => ({ ...fault, run }));
  });
}

type Found = Omit<UsesFault, 'run'>;

// What happened in a run.

/** A call as its client knows it. */
interface Call {
  readonly name: string;
  readonly tool: string;
  readonly args: Json;
  readonly sent: number;
  readonly answered: number;
  readonly told: Told;
}

function readCall(exchange: Exchange): Call[] {
  const { method, params } = exchange.request;
  if (method !== 'tools/call') return [];
  const { told, at } = answerOf(exchange);
  const { name: tool, arguments: args } = params;
  return [{ name: callOf(exchange) ?? '', tool, args, sent: exchange.sent, answered: at, told }];
}

interface Resolution {
  readonly key: string;
  readonly tool: string;
  readonly outcome: Outcome;
  readonly asked: number;
  readonly answered: number;
}

function readResolution({ does, did, asked, answered }: OutsideCall): Resolution[] {
  // One that was not answered may have been done; then another one was asked, and did nothing.
  if (does.kind !== 'resolve' || did === false) return [];
  const { key, tool, outcome } = does;
  return [{ key, tool, outcome, asked, answered: answered ?? Number.POSITIVE_INFINITY }];
}

/** All executions with one key: they are one use. */
interface Use {
  readonly key: string;
  readonly tool: string;
  readonly args: Json;
  /** When the first of them began. Of one that never began, when an operator resolved it. */
  readonly started: number;
  /** When the last of them began. */
  readonly startedLast: number;
  /** When the last of them ended, or when an operator resolved it; never, where neither was. */
  readonly ended: number;
  /** Whether it had its effect, as far as the ledger and the operator say. */
  readonly outcome: Outcome | 'unknown';
  /** Since when the store knows its outcome for certain. */
  readonly known: number;
  /** Before it nothing can have claimed the run for it. */
  readonly claimedAfter: number;
  readonly calls: readonly string[];
  readonly executions: number;
  readonly isLookup: boolean;
}

function usesOf(
  { lookups, retried }: Pick<UsesEvidence, 'lookups' | 'retried'>,
  attempts: ReturnType<typeof attemptsOf>,
  calls: readonly Call[],
  resolutions: readonly Resolution[],
): Use[] {
  const callsByName = new Map(calls.map((call) => [call.name, call]));
  const resolved = new Map(resolutions.map((each) => [each.key, each]));
  // A lookup has no key: each is one of its own.
  const groups = groupBy(attempts, ({ key, name }) => key || name);
  const uses = [...groups].map(([key, group]): Use => {
    const { tool, args, started } = group[0] as (typeof group)[number];
    const ends = group.flatMap(({ ended, outcome }) =>
      ended === undefined ? [] : [{ ended, outcome }],
    );
    const hasEffect = ends.some(({ outcome }) => outcome === 'succeeded');
    const told = group.flatMap(({ call }) => callsByName.get(call) ?? []);
    const resolution = resolved.get(key);
    const names = group.map(({ name }) => name);
    // Its own result is shown once that is saved. A lookup that is not gets another one.
    const answers = told.flatMap(({ told, answered }) =>
      told.kind === 'done' && names.includes(told.attempt) ? [answered] : [],
    );
    const outcome = ends.length > 0 ? (hasEffect ? 'succeeded' : 'failed') : undefined;
    return {
      key,
      tool,
      args: args as Json,
      started,
      startedLast: group.at(-1)?.started ?? started,
      ended: resolution?.asked ?? ends.at(-1)?.ended ?? Number.POSITIVE_INFINITY,
      outcome: outcome ?? resolution?.outcome ?? 'unknown',
      known: Math.min(...answers, resolution?.answered ?? Number.POSITIVE_INFINITY),
      claimedAfter: Math.min(started, ...told.map(({ sent }) => sent)),
      calls: group.map(({ call }) => call),
      executions: group.length,
      isLookup: lookups.includes(tool),
    };
  });
  const unbegun = resolutions.filter(({ key }) => !groups.has(key));
  const all = [...uses, ...unbegun.map(useOfUnbegun)].sort((a, b) => a.started - b.started);
  return all.map((use, at) => ({ ...use, known: Math.min(use.known, nextStep(all, at, retried)) }));
}

function useOfUnbegun({ key, tool, outcome, asked, answered }: Resolution): Use {
  return {
    ...{ key, tool, outcome, args: {}, calls: [] },
    ...{ started: asked, startedLast: asked, ended: asked },
    ...{ known: answered, claimedAfter: asked },
    executions: 0,
    isLookup: false,
  };
}

/** A step that must not be repeated is settled before the next one begins. */
function nextStep(all: readonly Use[], at: number, retried: readonly string[]): number {
  const use = all[at] as Use;
  if (use.isLookup || retried.includes(use.tool)) return Number.POSITIVE_INFINITY;
  const next = all.find((each, index) => index > at && !each.isLookup && each.executions > 0);
  return next?.started ?? Number.POSITIVE_INFINITY;
}

// What is judged.

class RunOfRules {
  readonly #evidence: UsesEvidence;
  readonly #calls: readonly Call[];
  readonly #uses: readonly Use[];
  readonly #quietAt: readonly number[];
  readonly #steady: RuleSet;

  constructor(
    evidence: UsesEvidence,
    run: {
      readonly calls: readonly Call[];
      readonly uses: readonly Use[];
      readonly quietAt: readonly number[];
    },
  ) {
    this.#evidence = evidence;
    this.#calls = run.calls;
    this.#uses = run.uses;
    this.#quietAt = run.quietAt;
    this.#steady = withoutShortWindows(evidence.rules);
  }

  // Counted, without any judgement of single calls.

  limitFaults(): Found[] {
    return Object.entries(this.#evidence.rules.rules).flatMap(([tool, rule]) => {
      const uses = this.#uses.filter((each) => each.tool === tool && each.executions > 0);
      return listOf(rule.limit).flatMap((limit) =>
        isShort(limit) ? windowFaults(limit, uses) : totalFaults(limit, uses),
      );
    });
  }

  /** Of each tool whose successes are used up: there were enough, whenever one more was used. */
  consumptionFaults(): Found[] {
    const consumers = Object.entries(this.#evidence.rules.rules).flatMap(([by, rule]) =>
      listOf(rule.after)
        .filter((each): each is Leaf => typeof each === 'object' && 'tool' in each)
        .filter(({ consumes }) => consumes !== undefined && consumes !== false)
        .map((leaf) => ({ by, leaf })),
    );
    return [...groupBy(consumers, ({ leaf }) => leaf.tool)].flatMap(([tool, users]) => {
      const supply = this.#uses.filter((each) => each.tool === tool && hadEffect(each));
      let used = 0;
      return this.#uses.flatMap((use): Found[] => {
        const { leaf } = users.find(({ by }) => by === use.tool) ?? {};
        // One that never began may have been about to be refused, and then used nothing.
        if (leaf === undefined || use.executions === 0 || !usesUp(leaf, use)) return [];
        used += leaf.times ?? 1;
        const there = supply.filter(({ ended }) => ended < use.started).length;
        const isEnough = used <= there && isApart(leaf, supply, used);
        const text = `${use.tool} used the ${used}th success of ${tool}, of ${there}`;
        return isEnough ? [] : [{ kind: 'used-twice', text }];
      });
    });
  }

  // Judged by the rules, call by call.

  /** Each handler was allowed to begin, by all that was certain then and all that was possible. */
  forwardedFaults(): Found[] {
    return this.#uses.flatMap((use): Found[] => {
      if (use.executions === 0) return [];
      const faults: Found[] = [];
      const mayRepeat = use.isLookup || this.#evidence.retried.includes(use.tool);
      if (use.executions > 1 && !mayRepeat)
        faults.push({ kind: 'ran-twice', text: `${use.tool} ran ${use.executions} times` });
      const { verdict } = judge(this.#steady, this.#mostLenient(use), callAt(use, use.started));
      if (verdict !== 'allowed') {
        const text = `${use.tool} ${JSON.stringify(use.args)} ran, which breaks its ${verdict}`;
        faults.push({ kind: 'not-allowed', text });
      }
      return faults;
    });
  }

  /** Each refusal is one that the rules give, by all that may have counted at that moment. */
  refusedFaults(): Found[] {
    return this.#calls.flatMap((call): Found[] => {
      const { told, tool, args } = call;
      if (told.kind !== 'refused' || !isVerdict(told.reason)) return [];
      const { history, isCertain } = this.#strictest(call);
      const { verdict } = judge(this.#steady, history, callAt(call, call.sent));
      const what = `${tool} ${JSON.stringify(args)} was refused as "${told.reason}"`;
      if (verdict === 'allowed') {
        const mayBeFull = told.reason === 'limit' && this.#mayFillWindow(call);
        return mayBeFull ? [] : [{ kind: 'lost', text: `${what}, and is allowed` }];
      }
      const fits = told.reason === verdict || (verdict === 'order' && told.reason !== 'limit');
      if (!isCertain || fits) return [];
      return [{ kind: 'wrong-reason', text: `${what}, and breaks its ${verdict}` }];
    });
  }

  /** What certainly counted against a handler that began, and all that may have counted for it. */
  #mostLenient(use: Use): ForwardedCall[] {
    const before = this.#uses.filter((each) => each !== use && each.started < use.started);
    return inOrder(
      before.flatMap((each) => {
        if (each.ended < use.started) return [factOf(each)];
        // It was at work, or to be repeated: it had claimed what it used in the end.
        return each.outcome === 'succeeded' ? [undecided(each)] : [];
      }),
    );
  }

  /** What certainly counted for a call, and all that may have counted against it. */
  #strictest(call: Call): { readonly history: ForwardedCall[]; readonly isCertain: boolean } {
    const quiet = Math.max(0, ...this.#quietAt.filter((at) => at < call.sent));
    const isPast = (use: Use): boolean =>
      use.known < call.sent || (!use.isLookup && use.started < quiet && use.ended < quiet);
    const decided = this.#uses.filter(isPast).filter(({ outcome }) => outcome !== 'unknown');
    const begun = this.#uses.filter((use) => !isPast(use) && use.started < call.answered);
    const known = new Set(this.#uses.flatMap(({ calls }) => calls));
    // Their processes may have died between the claim and the handler.
    const unbegun = this.#calls.filter(
      ({ name, told, sent }) =>
        !known.has(name) && isOpen(told) && quiet < sent && sent < call.answered,
    );
    const beside = this.#calls.filter(
      (each) => each !== call && each.sent < call.answered && call.sent < each.answered,
    );
    return {
      history: [
        ...inOrder(decided.flatMap(triesOf)),
        ...begun.map(undecided),
        ...unbegun.map(({ tool, args, sent }): ForwardedCall => {
          return { tool, args, outcome: 'unknown', claimedAt: sent };
        }),
      ],
      isCertain: begun.length + unbegun.length + beside.length === 0,
    };
  }

  /** Whether a short window may have been full when the call was judged. */
  #mayFillWindow({ tool, sent, answered }: Call): boolean {
    const open = this.#calls.filter((each) => each.tool === tool && isOpen(each.told)).length;
    return listOf(this.#evidence.rules.rules[tool]?.limit)
      .filter(isShort)
      .some(({ within = 0, times = 0 }) => {
        const latest = this.#uses.filter(
          (use) =>
            use.tool === tool &&
            use.started < answered &&
            sent - use.known < milliseconds(within) + TOLERANCE_MS,
        );
        return latest.length + open >= times;
      });
  }
}

/** Of the refusals' reasons those that tell what the rules say. */
function isVerdict(reason: string): boolean {
  return ['state', 'guard', 'limit', 'arguments'].includes(reason);
}

/** Whether the answer leaves open what became of the call. */
function isOpen({ kind }: Told): boolean {
  return ['broken', 'unknown', 'unavailable', 'wrong'].includes(kind);
}

const hadEffect = ({ outcome, executions }: Use): boolean =>
  outcome === 'succeeded' && executions > 0;

function usesUp({ consumes }: Leaf, use: Use): boolean {
  return use.outcome === 'succeeded' || (consumes === 'calls' && use.outcome === 'failed');
}

function callAt({ tool, args }: { readonly tool: string; readonly args: Json }, at: number) {
  return { tool, args, at } satisfies NextCall;
}

function factOf({ tool, args, outcome, started, ended }: Use): ForwardedCall {
  return { tool, args, outcome, claimedAt: Math.min(started, ended), decidedAt: ended };
}

/** One that was repeated with its key has had what it uses up since its first try. */
function triesOf(use: Use): ForwardedCall[] {
  if (use.isLookup || use.executions < 2) return [factOf(use)];
  const { key: idempotencyKey, startedLast } = use;
  const last = { ...factOf(use), claimedAt: Math.min(startedLast, use.ended), idempotencyKey };
  return [{ ...undecided(use), idempotencyKey }, last];
}

function undecided({ tool, args, started }: Use): ForwardedCall {
  return { tool, args, outcome: 'unknown', claimedAt: started };
}

/**
 * In the order in which they were decided; undecided ones after them, in that of their claims. A
 * try that was repeated since has the place of its claim.
 */
function inOrder(calls: readonly ForwardedCall[]): ForwardedCall[] {
  const end = ({ decidedAt, idempotencyKey, claimedAt }: ForwardedCall) =>
    decidedAt ?? (idempotencyKey === undefined ? Number.POSITIVE_INFINITY : claimedAt);
  const order = (a: ForwardedCall, b: ForwardedCall): number =>
    end(a) === end(b) ? a.claimedAt - b.claimedAt : end(a) - end(b);
  return [...calls].sort(order);
}

// Limits.

function counts({ outcome = 'succeeded' }: Limit, use: Use): boolean {
  return outcome === 'any' || use.outcome === outcome;
}

function totalFaults(limit: Limit, uses: readonly Use[]): Found[] {
  const { same = [] } = limit;
  const groupOf = ({ args }: Use): string =>
    JSON.stringify(
      same === 'all'
        ? args
        : (Array.isArray(same) ? same : Object.keys(same)).map(
            (name: string) => (args as Record<string, Json>)[name],
          ),
    );
  const groups = groupBy(
    uses.filter((use) => counts(limit, use)),
    groupOf,
  );
  return [...groups.values()].flatMap((group): Found[] => {
    const { tool = '' } = group[0] ?? {};
    const { times, sum, max, below } = limit;
    if (times !== undefined) {
      const text = `${group.length} uses of ${tool} took effect, of ${times}`;
      return group.length > times ? [{ kind: 'exceeded', text }] : [];
    }
    const path = typeof sum === 'string' ? sum : (sum?.path ?? '');
    const total = group.reduce<Decimal>(
      (all, { args }) => plus(all, decimalOf(String((args as Record<string, Json>)[path]))),
      { units: 0n, places: 0 },
    );
    const order = compare(total, decimalOf(String(max ?? below)));
    const text = `uses of ${tool} add up to ${total.units}e-${total.places}, of ${max ?? below}`;
    return order > 0 || (max === undefined && order === 0) ? [{ kind: 'exceeded', text }] : [];
  });
}

/** A use counts from its decision on, which comes no sooner than its claim and its handler say. */
function windowFaults(limit: Limit, uses: readonly Use[]): Found[] {
  const { within = 0, times = Number.POSITIVE_INFINITY } = limit;
  const windowMs = milliseconds(within) - TOLERANCE_MS;
  const counted = uses.filter((use) => counts(limit, use) && Number.isFinite(use.ended));
  return counted.flatMap((use, at): Found[] => {
    const before = counted.slice(0, at);
    const current = before.filter((each, index) => {
      const free = before[index - 1]?.ended ?? 0;
      const claimed = Math.min(each.started, Math.max(each.claimedAfter, free));
      return use.started - (claimed + each.ended - each.started) < windowMs;
    });
    if (current.length < times) return [];
    const text = `the ${current.length + 1}th use of ${use.tool} within ${within}, of ${times}`;
    return [{ kind: 'exceeded', text }];
  });
}

function isShort({ within }: Limit): boolean {
  return within !== undefined && milliseconds(within) < LONG_MS;
}

function withoutShortWindows({ rules, ...rest }: RuleSet): RuleSet {
  const steady = Object.entries(rules).map(([tool, rule]): [string, Rule] => {
    return [tool, { ...rule, limit: listOf(rule.limit).filter((limit) => !isShort(limit)) }];
  });
  return { ...rest, rules: Object.fromEntries(steady) };
}

/** Whether so many facts can be shared out in groups of different values. */
function isApart({ distinct, times = 1 }: Leaf, supply: readonly Use[], used: number): boolean {
  if (distinct === undefined || typeof distinct !== 'string') return true;
  const groups = used / times;
  const of = groupBy(supply, ({ args }) => (args as Record<string, Json>)[distinct]);
  let usable = 0;
  for (const each of of.values()) usable += Math.min(each.length, groups);
  return usable >= used;
}

// The trail.

/** The trail has each use that took effect once, and no other one. */
function trailFaults(
  { lookups }: UsesEvidence,
  uses: readonly Use[],
  entries: readonly TrailEntry[] | undefined,
): Found[] {
  if (entries === undefined || (entries.length > 0 && entries[0]?.seq !== 1)) return [];
  const tools = new Set(uses.map(({ tool }) => tool));
  return [...tools].flatMap((tool): Found[] => {
    const told = entries.filter((each) => each.tool === tool && each.outcome === 'succeeded');
    const took = uses.filter((use) => use.tool === tool && hadEffect(use));
    const certain = took.filter(({ known }) => Number.isFinite(known)).length;
    // A lookup whose process died may not have been recorded.
    const least = lookups.includes(tool) ? certain : took.length;
    if (least <= told.length && told.length <= took.length) return [];
    const text = `it has ${told.length} successes of ${tool}, of ${took.length} that took effect`;
    return [{ kind: 'trail', text }];
  });
}

function listOf<T>(many: T | readonly T[] | undefined): readonly T[] {
  if (many === undefined) return [];
  return Array.isArray(many) ? (many as readonly T[]) : [many as T];
}
