/**
 * What the rules and limits of a workflow say of calls. Hides what they have runs keep of earlier
 * calls, and which tools have which limits. Pure.
 */
import * as z from 'zod/mini';
import { lifeOf } from '../basics/clock.ts';
import { pushTo } from '../basics/collections.ts';
import { configError } from '../basics/errors.ts';
import { type IssuedPrincipal, principalText } from '../basics/names.ts';
import { isTable, lazily, showValue, textOption } from '../basics/options.ts';
import type { Json } from '../stores/store.ts';
import type { AnyBinding } from './binding.ts';
import type { BoundTool } from './bound-tools.ts';
import { type Path, readerOf } from './condition.ts';
import { type Decided, type Grant, grantOf, NOTHING, savedGrant, usedBy } from './facts.ts';
import { Ledger } from './ledger.ts';
import { type CheckedLimit, isBoundByCalls } from './limits.ts';
import type { OwnValues } from './own-call.ts';
import type { Model, Position } from './position.ts';
import type { Renamings } from './renamings.ts';
import type { ValueSource } from './rule-parts.ts';
import { type Demands, leavesOf, ofAnyValues, windowsOf } from './rules.ts';
import {
  exhausted,
  judge,
  type Part,
  type Past,
  partsAgainstAll,
  shortage,
  type Verdict,
} from './verdict.ts';

/** What an app says of a call that was made elsewhere, or of a fact from outside. */
interface Reported {
  readonly args?: Json | undefined;
  readonly result?: Json | undefined;
  readonly by?: string | IssuedPrincipal | undefined;
}

/** An earlier call, or a fact from outside, that a run of rules begins with. */
export interface GivenFact {
  /** The tool. Give this or `outside`. */
  readonly tool?: string | undefined;
  readonly outside?: string | undefined;
  /** Of a fact from outside: who sent it, as `runs.send({ by })` takes it. Default: not known. */
  readonly by?: string | IssuedPrincipal | undefined;
  /** Default `'succeeded'`. */
  readonly outcome?: 'succeeded' | 'failed' | undefined;
  /** When it was decided, in milliseconds since the epoch. Default: when the run begins. */
  readonly at?: number | undefined;
  readonly arguments?: Json | undefined;
  /** What `structuredContent` would have. */
  readonly result?: Json | undefined;
}

/** How a run begins, as an app gives it. */
export interface GivenBeginning {
  /** One of the gate's `starts`. Default: the initial state. */
  readonly state?: string | undefined;
  /** Its shared data; for a statechart its context. Default: the machine's own. */
  readonly data?: Json | undefined;
  /** Under rules: the calls that were made before. Default: none. */
  readonly facts?: readonly GivenFact[] | undefined;
}

export function givenBeginningOptions() {
  const state = z.optional(z.string());
  return { state, data: z.optional(z.custom<Json>(() => true)), facts: givenFactsOption() };
}

export function givenFactsOption() {
  const json = z.optional(z.custom<Json>(() => true));
  const call = z.strictObject({
    tool: z.optional(z.string()),
    outside: z.optional(z.string()),
    by: senderOption(),
    outcome: z.optional(z.enum(['succeeded', 'failed'])),
    at: z.optional(z.number()),
    arguments: json,
    result: json,
  });
  return z.optional(z.array(call));
}

/** Who sent a fact from outside: a principal. */
export function senderOption() {
  const issued = z.strictObject({ issuer: z.string(), subject: z.string() });
  return z.optional(z.union([textOption(), issued]));
}

export class ToolRules {
  /** What they have runs keep of calls; `undefined` where they keep nothing. */
  readonly ledger: Ledger | undefined;
  /** The longest time that a rule or a limit looks back on, in milliseconds; 0: none does. */
  readonly longestWindow: number;
  readonly #model: Model;
  readonly #keyOf: (tool: string) => string;
  /** By tool, or by glob. A tool of which nothing is asked has no entry. */
  readonly #demands: ReadonlyMap<string, Demands>;
  /** By tool, or by glob. A tool without limits has no entry. */
  readonly #limits: ReadonlyMap<string, readonly CheckedLimit[]>;
  /**
   * The tools that a limit of no calls closes, and those that share one. Without facts, no other
   * tool is at its limit.
   */
  readonly #closedByOthers: readonly string[];
  /** By tool, or by glob: what is asked of those that have several requirements with `consumes`. */
  readonly #sharing: ReadonlyMap<string, Demands>;
  readonly #argumentsRead = lazily(() => argumentsRead(this.#demands.values()));

  /**
   * @param tools the bindings by tool, or by glob
   * @param keyOf the tool's name, or the glob by which it is bound
   * @param renamings of the bindings
   */
  constructor(
    model: Model,
    tools: ReadonlyMap<string, readonly AnyBinding[]>,
    keyOf: (tool: string) => string,
    renamings: Renamings,
  ) {
    this.#model = model;
    this.#keyOf = keyOf;
    const all = [...tools].flatMap(([tool, bound]) =>
      bound.flatMap(({ demands }) => (demands === undefined ? [] : [[tool, demands] as const])),
    );
    this.ledger =
      model.ledger ??
      (all.length > 0
        ? Ledger.of(
            all.map(([, each]) => each),
            renamings,
          )
        : undefined);
    this.longestWindow = Math.max(0, ...all.flatMap(([, each]) => windowsOf(each)));
    // Of several bindings the first one's.
    this.#demands = new Map([...all].reverse());
    const limits = new Map<string, readonly CheckedLimit[]>();
    for (const [tool, each] of all)
      if (each.limits.length > 0) limits.set(tool, [...(limits.get(tool) ?? []), ...each.limits]);
    this.#limits = limits;
    const sharing = new Map<string, Demands>();
    for (const each of this.#demands.values())
      if (leavesOf(each.after).filter(({ consumes }) => consumes !== 'never').length > 1)
        sharing.set(each.tool, { ...each, after: each.after && ofAnyValues(each.after) });
    this.#sharing = sharing;
    this.#closedByOthers = [...limits].flatMap(([tool, each]) =>
      each.some(({ times, also }) => times === 0 || also.length > 0) ? [tool] : [],
    );
  }

  /** The position with a call that has ended, where a rule or a limit asks for such calls. */
  decided(position: Position, call: Decided): Position {
    const { ledger } = this;
    if (ledger === undefined) return position;
    if (this.#model.decided !== undefined) return this.#model.decided(position, call);
    const facts = ledger.decided(ledger.read(position), call, []);
    return ledger.write(position, facts, call.decidedAt);
  }

  /** What a run did before, at a time; `undefined` where no rule asks. */
  pastOf(position: Position, now: number, unknown: Past['unknown'] = []): Past | undefined {
    const { ledger } = this;
    if (ledger === undefined) return undefined;
    return (
      this.#model.pastOf?.(position, now, unknown) ?? {
        ledger,
        facts: ledger.read(position),
        now,
        unknown,
      }
    );
  }

  /**
   * Whether what a run did before allows a call; `undefined` where only the state decides.
   *
   * @param call `undefined`: any call of the tool
   */
  judge(
    { demands }: Pick<BoundTool, 'demands'>,
    past: Past | undefined,
    call: OwnValues | undefined,
  ): Verdict | undefined {
    if (demands === undefined || past === undefined) return undefined;
    let verdict: Verdict | undefined;
    for (const each of demands) {
      verdict = judge(each, past, call);
      if (!verdict.allows) break;
    }
    return verdict;
  }

  /** A grant as a store keeps it with the claim; `undefined` where there is nothing to keep. */
  savedGrant(tool: string, grant: Grant): Json | undefined {
    return savedGrant(this.ledger?.saved(this.#keyOf(tool), grant) ?? grant);
  }

  /** What a claim was granted. */
  grantOf(claim: { readonly tool: string; readonly use?: Json | undefined }): Grant {
    const grant = grantOf(claim);
    return this.ledger?.here(this.#keyOf(claim.tool), grant) ?? grant;
  }

  /** A call whose outcome an operator gives; `undefined` where no rule asks for any call. */
  heldCall(
    tool: string,
    { noted, uses }: Grant,
    made: Pick<Decided, 'outcome' | 'claimedAt' | 'decidedAt'>,
    answer?: { readonly run: string; readonly result: Json | undefined },
  ): Decided | undefined {
    const { ledger } = this;
    if (ledger === undefined) return undefined;
    const key = this.#keyOf(tool);
    const read = answer?.result === undefined ? undefined : readerOf(answer.result);
    const whole = read && answer ? ledger.note(key, 'result', read, answer.run, noted) : noted;
    return { ...made, tool: key, noted: whole, uses: usedBy(made.outcome, uses) };
  }

  /** A call that was made elsewhere, as the app reports it. */
  reportedCall(
    tool: string,
    run: string,
    at: number,
    { args, result, by }: Reported,
  ): Decided | undefined {
    // A machine gets an event, and no tool.
    if (this.#model.doneIn === undefined) return undefined;
    const made = { tool, outcome: 'succeeded', claimedAt: at, decidedAt: at, uses: [] } as const;
    const { ledger } = this;
    if (ledger === undefined) return { ...made, noted: NOTHING };
    const answer = result === undefined ? undefined : readerOf(result);
    const ofArguments = ledger.note(tool, 'args', readerOf(args ?? {}), run);
    const ofResult = ledger.note(tool, 'result', answer, run, ofArguments);
    const sender = by === undefined ? undefined : readerOf(principalText(by));
    return { ...made, noted: ledger.note(tool, 'by', sender, run, ofResult) };
  }

  /**
   * The calls that a run of rules begins with, the oldest first.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` for a tool of which runs keep no calls
   */
  givenFacts(given: readonly GivenFact[], run: string, now: number): readonly Decided[] {
    const calls = given.map(
      ({ tool, outside, outcome = 'succeeded', at = now, arguments: args, result, by }) => {
        const name = this.#keyOf(outside ?? tool ?? '');
        const isSent = this.ledger?.outside.has(name) === true;
        const call = this.reportedCall(name, run, at, { args, result, by });
        const isRight = isSent === (outside !== undefined) && (tool ?? outside) !== undefined;
        if (call && isRight && this.ledger?.keeps(name) === true) return { ...call, outcome };
        throw configError(
          `facts: ${showValue(outside ?? tool)} is no tool of which runs keep calls, ` +
            'and nothing from outside that rules ask for',
        );
      },
    );
    return calls.sort((a, b) => a.decidedAt - b.decidedAt);
  }

  /** The values that rules ask of a call that the app has reported, and do not find. */
  lacking(call: Decided | undefined, isCompared = false): readonly string[] {
    return call === undefined
      ? []
      : (this.ledger?.lacking(call.tool, call.noted, isCompared) ?? []);
  }

  /** What its rule asks of each call of a tool; `undefined` where it asks nothing. */
  demandsOf(tool: string): Demands | undefined {
    return this.#demands.get(this.#keyOf(tool));
  }

  /** The arguments that rules and limits read of a tool, and that its input schema lacks. */
  absentArguments(tool: string, schema: unknown): readonly string[] {
    const read = this.#argumentsRead().get(this.#keyOf(tool)) ?? [];
    return [...new Set(read.filter(({ keys }) => lacks(schema, keys)).map(({ path }) => path))];
  }

  /** For rules: the tools whose success a tool undoes. */
  undoneBy(tool: string): readonly string[] {
    return this.#model.undoneBy?.(tool) ?? [];
  }

  /** The parts of its rules that refuse each call of a tool, with any arguments. */
  partsAgainst(tool: string, past: Past): readonly Part[] {
    const demands = this.demandsOf(tool);
    return demands === undefined ? [] : partsAgainstAll(demands, past);
  }

  /** How many tools are over a limit, with any arguments: a tool, and those that share a limit. */
  spentBy(tool: string, position: Position, now: number): number {
    const limits = this.limitsOf(tool);
    const past = limits.length === 0 ? undefined : this.pastOf(position, now);
    if (past === undefined) return 0;
    const others = limits.flatMap(({ also }) => also.map((each) => each.tool));
    const all = [...new Set([tool, ...others])];
    return all.filter((each) => exhausted(this.limitsOf(each), past) !== undefined).length;
  }

  /** How often, and how much, a tool may be called. */
  limitsOf(tool: string): readonly CheckedLimit[] {
    return this.#limits.get(this.#keyOf(tool)) ?? [];
  }

  /**
   * The tools of which each call is over a limit, with any arguments, or needs more calls to use up
   * than there are, though each of its requirements alone is met.
   */
  spentTools(past: Past | undefined): ReadonlyMap<string, Part> {
    if (past === undefined || (this.#limits.size === 0 && this.#sharing.size === 0))
      return NO_PARTS;
    const spent = new Map<string, Part>();
    const ask = (tool: string): void => {
      const demands = this.#sharing.get(tool);
      const partAt = (at: Past): Part | undefined =>
        exhausted(this.#limits.get(tool) ?? [], at) ?? (demands && shortage(demands, at));
      const part = partAt(past);
      if (part === undefined) return;
      // A call of unknown outcome may be tried again, and its retry is the same use.
      const mayRetry = past.unknown.some((own) => {
        const others = past.unknown.filter((each) => each !== own);
        return own.tool === tool && partAt({ ...past, unknown: others }) === undefined;
      });
      if (!mayRetry) spent.set(tool, part);
    };
    // Any other tool has no call that counts.
    for (const tool of past.facts.tools.keys()) if (!this.#sharing.has(tool)) ask(tool);
    for (const { tool } of past.unknown) ask(tool);
    for (const tool of this.#closedByOthers) ask(tool);
    for (const tool of this.#sharing.keys()) ask(tool);
    return spent;
  }

  /** The stored position with what holds at a time: a window may have closed since it was saved. */
  standAt(position: Position, now: number, unknown: Past['unknown'] = []): Position {
    return this.#model.standAt?.(position, now, unknown) ?? position;
  }

  /** How long a run lives: as long as some build asks for its calls, and `ttlMs` at least. */
  lifeOf(run: string, ttlMs: number, position: Pick<Position, 'context'>): number {
    const { ledger } = this;
    return ledger === undefined
      ? ttlMs
      : lifeOf(run, ttlMs, ledger.longestIn(ledger.read(position)));
  }

  /** Whether a window of some fact has opened or closed since a position was saved. */
  hasTimeChanged(position: Position, updatedAt: number, now: number): boolean {
    return this.ledger?.changesWithin(this.ledger.read(position), updatedAt, now) === true;
  }

  /** A text that is the same where lists show the same of a position at a time. */
  shownAt(position: Position, now: number): string {
    const { state } = this.standAt(position, now);
    const spent = [...this.spentTools(this.pastOf(position, now)).keys()];
    return JSON.stringify([state, spent]);
  }

  /**
   * Where a run begins anew. The limits of a machine's tools go on counting, or a client that ends
   * its run would have them reset. Under rules all begins anew.
   */
  startAfter(start: Position, before: Position): Position {
    const { ledger } = this;
    if (ledger === undefined || this.#model.ledger !== undefined) return start;
    // No time has passed yet that any call of it would be too old for.
    return ledger.write(start, ledger.read(before), 0);
  }
}

/** The arguments that demands read of each tool: of its own call, or of an earlier one. */
function argumentsRead(all: Iterable<Demands>): ReadonlyMap<string, readonly ValueSource[]> {
  const read = new Map<string, ValueSource[]>();
  const add = (tool: string, source: ValueSource | undefined): void => {
    if (source?.from !== 'args') return;
    pushTo(read, tool, source);
  };
  for (const { tool, after, notAfter, limits } of all)
    for (const each of [...leavesOf(after), ...notAfter, ...limits]) {
      for (const { own } of each.same) add(tool, own);
      for (const { earlier } of each.same) add(each.tool, earlier);
      add(each.tool, 'sum' in each ? each.sum?.source : each.distinct);
      for (const { own, earlier } of 'sum' in each ? [] : each.atMost) {
        add(tool, own.source);
        add(each.tool, earlier.source);
      }
      const earned = 'sum' in each && isBoundByCalls(each.sum) ? each.sum.bound : undefined;
      if (earned) add(earned.leaf.tool, earned.amount.source);
      for (const { own, earlier } of earned?.leaf.same ?? []) {
        add(tool, own);
        add(earned?.leaf.tool ?? tool, earlier);
      }
    }
  return read;
}

/** What lets a schema take members that its `properties` do not name. */
const OPENING = ['$ref', 'allOf', 'anyOf', 'oneOf', 'if', 'patternProperties', 'dependentSchemas'];

/** Whether a schema names the members of each object on the way, and not this one. */
function lacks(schema: unknown, path: Path): boolean {
  let found = schema;
  for (const key of path) {
    if (!isTable(found) || !isTable(found.properties)) return false;
    const { properties, additionalProperties: more, ...rest } = found;
    if (more === true || isTable(more) || OPENING.some((each) => each in rest)) return false;
    if (!Object.hasOwn(found.properties, key)) return true;
    found = found.properties[key];
  }
  return false;
}

const NO_PARTS: ReadonlyMap<string, Part> = new Map();
