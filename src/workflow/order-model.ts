/**
 * Rules of order as a machine. It hides how a set of tools is written as a state, what each success
 * changes, and how a run remembers arguments.
 */

import { digestOf } from '../digest.ts';
import { isTable } from '../options.ts';
import type { Json } from '../stores/store.ts';
import { openContext, sealContext } from './envelope.ts';
import {
  atomsOf,
  type BoundState,
  type CallCase,
  holds,
  type Model,
  type Next,
  type Position,
} from './position.ts';

/** An earlier call that a rule needs, checked. */
export interface Needed {
  readonly tool: string;
  /** The arguments that must agree, by this tool's names, in the order of `earlier`. */
  readonly own: readonly string[];
  /** The earlier tool's names for them, sorted. */
  readonly earlier: readonly string[];
  readonly consumes: boolean;
}

/**
 * Digests of one call's arguments, as a run remembers them; `null` where an argument is missing.
 */
export interface CallMemory {
  /** One for each list of arguments in {@link Effect.kinds}. */
  readonly own: readonly (string | null)[];
  /** One for each earlier call in {@link Effect.uses}. */
  readonly uses: readonly (string | null)[];
}

/** What a success of a tool changes. */
export interface Effect {
  /** Whether the run remembers the success. */
  readonly isRemembered: boolean;
  /** The tools whose success it undoes. */
  readonly undoes: readonly string[];
  /** The earlier calls that it uses up. */
  readonly uses: readonly Needed[];
  /** Whether its rule is met without one of `uses`, by what else is done. */
  isMetWithout(use: Needed, done: ReadonlySet<string>): boolean;
  /** The lists of its arguments in which some later call must agree with it. */
  readonly kinds: readonly (readonly string[])[];
}

/** {@link OrderModel.casesOf} tells so many calls of a tool with different arguments apart. */
const MOST_VALUES_TRIED = 3;

/** With more names than this, their combinations are too many to try out. */
const MOST_NAMES_TRIED = 10;

/**
 * Rules of order as a machine: its state is the set of the tools that are done. An event adds its
 * tool to the set, and takes others out, so no list of all states is needed.
 */
export class OrderModel implements Model {
  readonly id: string;
  readonly start: Position = Object.freeze({ state: textOf([]), ...sealContext({}) });
  readonly startActions = [];
  readonly names: readonly string[];
  readonly tags = [];
  readonly isFlat = false;
  readonly events: readonly string[];
  readonly deadlines = [];
  /** By tool. A tool whose success changes nothing has no entry. */
  readonly effects: ReadonlyMap<string, Effect>;

  constructor(id: string, names: readonly string[], effects: ReadonlyMap<string, Effect>) {
    this.id = id;
    this.names = names;
    this.events = Object.freeze([...effects.keys()]);
    this.effects = effects;
  }

  deadline(): undefined {}

  has(state: string): boolean {
    return this.#doneIn(state) !== undefined;
  }

  isFinal(): boolean {
    return false;
  }

  doneIn(state: string): readonly string[] | undefined {
    const done = this.#doneIn(state);
    return done && [...done];
  }

  #doneIn(state: string): ReadonlySet<string> | undefined {
    const done = readText(state);
    if (done === undefined) return undefined;
    for (const name of done) if (!this.#effect(name).isRemembered) return undefined;
    return done;
  }

  isIn(state: string, bound: readonly BoundState[]): boolean {
    const done = this.#doneIn(state);
    return done !== undefined && isTrue(bound, done);
  }

  /** The events that would change anything. */
  eventsIn(state: string): readonly string[] {
    const done = this.#doneIn(state);
    if (done === undefined) return [];
    const changes = (event: string): boolean => {
      const { adds, removes } = this.effectOf(event);
      const isNew = adds !== undefined && !done.has(adds);
      return (
        isNew || this.#effect(event).kinds.length > 0 || removes.some((each) => done.has(each))
      );
    };
    return this.events.filter(changes);
  }

  handlers(event: string): readonly string[] {
    return this.effects.has(event) ? ['*'] : [];
  }

  canBeIn(bound: readonly BoundState[], names: readonly string[]): boolean {
    const atoms = [...bound, ...names].flatMap(atomsOf).filter((each) => typeof each === 'string');
    const tried = [...new Set(atoms)];
    if (tried.length > MOST_NAMES_TRIED) return true;
    for (let combination = 0; combination < 2 ** tried.length; combination++) {
      const done = new Set(tried.filter((_, i) => (combination >> i) % 2 === 1));
      if (isTrue(bound, done) && isTrue(names, done)) return true;
    }
    return false;
  }

  isStopped(): boolean {
    return false;
  }

  effectOf(event: string): {
    readonly adds: string | undefined;
    readonly removes: readonly string[];
  } {
    const { isRemembered, undoes, uses } = this.#effect(event);
    return {
      adds: isRemembered ? event : undefined,
      removes: [...undoes, ...uses.map(({ tool }) => tool)],
    };
  }

  /** An event from outside has no call: its payload stands for the arguments. */
  next(position: Position, event: string, payload?: Json, memory?: unknown): Next {
    const before = this.#doneIn(position.state);
    const unchanged = { position, changed: false, handled: false, actions: [] };
    if (before === undefined || !this.effects.has(event)) return unchanged;
    const effect = this.#effect(event);
    const given = isTable(payload) ? memoryOf(effect, payload) : undefined;
    const call = isMemory(memory) ? memory : given;
    const done = new Set(before);
    const calls = new RememberedCalls(position);
    for (const tool of effect.undoes) {
      done.delete(tool);
      calls.forget(tool);
    }
    for (const [i, { tool, own, earlier }] of effect.uses.entries()) {
      const isLeft = own.length > 0 && calls.use(tool, earlier, call?.uses[i]);
      if (isLeft) continue;
      done.delete(tool);
      calls.forget(tool);
    }
    if (effect.isRemembered) done.add(event);
    if (effect.isRemembered && effect.kinds.length > 0)
      calls.add(event, effect.kinds, call?.own ?? effect.kinds.map(() => null));
    const state = textOf(this.names.filter((name) => done.has(name)));
    return {
      position: calls.in({ ...position, state }),
      changed: state !== position.state,
      handled: true,
      actions: [],
    };
  }

  casesOf(position: Position, event: string): readonly CallCase[] {
    const { kinds, uses, isMetWithout } = this.#effect(event);
    const done = this.#doneIn(position.state) ?? new Set();
    const calls = new RememberedCalls(position);
    // Call by call, the values are 0, 1, 2 and so on. A use takes the last ones first.
    const before = calls.count(event);
    const isFresh = before > 0 && before < MOST_VALUES_TRIED && this.#usesByValue(event);
    const own = [Math.max(before - 1, 0), ...(isFresh ? [before] : [])];
    const used = uses.map((use): readonly (string | null)[] => {
      const count = calls.count(use.tool);
      const last = String(count - 1);
      if (use.own.length === 0 || count === 0) return [null];
      // With so many calls there may be one more.
      const mayStay = count === MOST_VALUES_TRIED || isMetWithout(use, done);
      return mayStay ? [last, null] : [last];
    });
    const usings = used.reduce<readonly (readonly (string | null)[])[]>(
      (all, each) => all.flatMap((some) => each.map((value) => [...some, value])),
      [[]],
    );
    return own.flatMap((value, i) =>
      usings.map((each, j) => ({
        memory: { own: kinds.map(() => String(value)), uses: each },
        isUsual: i === 0 && j === 0,
      })),
    );
  }

  /** Whether some rule uses up only the tool's calls with some values. */
  #usesByValue(tool: string): boolean {
    return [...this.effects.values()].some(({ uses }) =>
      uses.some((use) => use.tool === tool && use.own.length > 0),
    );
  }

  #effect(event: string): Effect {
    return this.effects.get(event) ?? NO_EFFECT;
  }
}

const NO_EFFECT: Effect = {
  isRemembered: false,
  undoes: [],
  uses: [],
  kinds: [],
  isMetWithout: () => true,
};

function isMemory(value: unknown): value is CallMemory {
  return isTable(value) && Array.isArray(value.own) && Array.isArray(value.uses);
}

function isTrue(bound: readonly BoundState[], done: ReadonlySet<string>): boolean {
  return bound.some((each) => holds(each, (atom) => typeof atom === 'string' && done.has(atom)));
}

/** A digest of these arguments, in this order; `null` where one of them is missing. */
export function digestOfArguments(
  args: Readonly<Record<string, unknown>>,
  names: readonly string[],
): string | null {
  const values = names.map((name) => (Object.hasOwn(args, name) ? args[name] : undefined));
  // 22 characters are 132 bits.
  return values.includes(undefined) ? null : digestOf(values).slice(0, 22);
}

/** What a run remembers of a call's arguments. It reads only those that rules name. */
export function memoryOf(
  { kinds, uses }: Effect,
  args: Readonly<Record<string, unknown>>,
): CallMemory {
  return {
    own: kinds.map((kind) => digestOfArguments(args, kind)),
    uses: uses.map(({ own }) => digestOfArguments(args, own)),
  };
}

/** How many calls of one tool a run remembers. Beyond that it forgets the oldest. */
const MOST_CALLS = 64;

/** How many texts are kept once they are read. */
const MOST_TEXTS_KEPT = 10_000;

const read = new Map<string, ReadonlySet<string>>();

/** A name that needs no quotes. Other names are quoted, so that no two sets share a text. */
const PLAIN = /^[\w./:-]+$/;

/** A set of tools as one line: `{}`, `{checkout, verify_identity}`, `{"pay, then go"}`. */
function textOf(done: readonly string[]): string {
  return `{${done.map((name) => (PLAIN.test(name) ? name : JSON.stringify(name))).join(', ')}}`;
}

/** Reads what {@link textOf} wrote; `undefined` for any other text. */
export function readText(text: string): ReadonlySet<string> | undefined {
  const known = read.get(text);
  if (known !== undefined) return known;
  const names = namesOfText(text);
  if (names === undefined || textOf(names) !== text) return undefined;
  const done = new Set(names);
  if (done.size < names.length) return undefined;
  if (read.size >= MOST_TEXTS_KEPT) read.clear();
  read.set(text, done);
  return done;
}

function namesOfText(text: string): string[] | undefined {
  const parts = /^\{(.*)\}$/s.exec(text)?.[1];
  if (parts === undefined) return undefined;
  if (parts === '') return [];
  try {
    return [...parts.matchAll(/"(?:[^"\\]|\\.)*"|[^," ]+/gs)].map(([part]) =>
      part.startsWith('"') ? String(JSON.parse(part)) : part,
    );
  } catch {
    return undefined;
  }
}

/** A list of arguments as one text, to look up by. */
export function argumentsKey(names: readonly string[]): string {
  return names.length === 1 ? String(names[0]) : JSON.stringify(names);
}

/** One call: a digest for each list of arguments, `null` where one of them was missing. */
type Remembered = readonly (string | null)[];

/** The calls of one tool, the oldest first. */
interface CallsOfTool {
  readonly kinds: readonly string[];
  readonly calls: readonly Remembered[];
}

/** The calls whose arguments a run remembers. */
export class RememberedCalls {
  readonly #tools: Map<string, CallsOfTool>;

  /** A store may return anything: what is no call is skipped. */
  constructor({ context }: Position) {
    const { 'mcp-interlock/calls': kept } = openContext(context);
    const entries = Array.isArray(kept) ? kept : [];
    this.#tools = new Map(entries.flatMap((entry) => entryOf(entry)));
  }

  /** Whether a call of the tool is remembered with these values. */
  has(tool: string, kind: readonly string[], digest: string): boolean {
    const { kinds, calls } = this.#tools.get(tool) ?? NO_CALLS;
    const at = kinds.indexOf(argumentsKey(kind));
    return at !== -1 && calls.some((call) => call[at] === digest);
  }

  /** How many calls of the tool are remembered. */
  count(tool: string): number {
    return this.#tools.get(tool)?.calls.length ?? 0;
  }

  /** Remembers a call, or makes it the latest where it is remembered already. */
  add(tool: string, kinds: readonly (readonly string[])[], call: Remembered): void {
    const named = kinds.map(argumentsKey);
    const before = this.#tools.get(tool) ?? NO_CALLS;
    const others = before.calls
      .map((each) => named.map((kind) => each[before.kinds.indexOf(kind)] ?? null))
      .filter((each) => each.some((digest, i) => digest !== call[i]));
    this.#tools.set(tool, { kinds: named, calls: [...others, call].slice(-MOST_CALLS) });
  }

  /** Forgets all calls of a tool. */
  forget(tool: string): void {
    this.#tools.delete(tool);
  }

  /**
   * Forgets the calls with these values.
   *
   * @param digest `undefined` forgets all calls, since the values are not known; `null` forgets
   * none, since a value is missing
   *
   * @returns whether any call of the tool is left
   */
  use(tool: string, kind: readonly string[], digest: string | null | undefined): boolean {
    const { kinds, calls } = this.#tools.get(tool) ?? NO_CALLS;
    const at = kinds.indexOf(argumentsKey(kind));
    const isKept = (call: Remembered): boolean => digest === null || call[at] !== digest;
    const left = digest === undefined ? [] : calls.filter(isKept);
    if (left.length === 0) this.forget(tool);
    else this.#tools.set(tool, { kinds, calls: left });
    return left.length > 0;
  }

  /** The position with these calls in its context. */
  in({ state, context }: Position): Position {
    const tools = [...this.#tools].map(
      ([tool, { kinds, calls }]): Json => [tool, [...kinds], calls.map((call) => [...call])],
    );
    const kept = tools.length === 0 ? undefined : tools;
    const { 'mcp-interlock/calls': _, ...rest } = openContext(context);
    return { state, ...sealContext({ ...rest, ...(kept && { 'mcp-interlock/calls': kept }) }) };
  }
}

const NO_CALLS: CallsOfTool = { kinds: [], calls: [] };

function entryOf(entry: Json): [string, CallsOfTool][] {
  const [tool, kinds, calls] = Array.isArray(entry) ? entry : [];
  if (typeof tool !== 'string' || !Array.isArray(kinds) || !Array.isArray(calls)) return [];
  const isDigest = (each: Json): each is string | null => each === null || typeof each === 'string';
  const whole = calls.filter((call): call is (string | null)[] => {
    return Array.isArray(call) && call.every(isDigest);
  });
  return [[tool, { kinds: kinds.map(String), calls: whole }]];
}
