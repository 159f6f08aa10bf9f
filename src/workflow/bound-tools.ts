import { InterlockError } from '../errors.ts';
import { foldCase, foldKey } from '../names.ts';
import { isContainer, isTable, showValue } from '../options.ts';
import type { Uncertain } from '../stores/store.ts';
import {
  type AnyBinding,
  type AnyEventSource,
  type CallTest,
  type EventWithPayload,
  type FailedCall,
  type Guard,
  type GuardedCall,
  parseEvent,
  type SucceededCall,
} from './binding.ts';
import type { BoundState, Model, Position } from './position.ts';
import { jsonOf } from './stored.ts';

/** How one call of a bound tool is gated: all the bindings that are about it, added up. */
export interface CallBinding {
  /** The states in which the call is allowed. */
  readonly states: readonly BoundState[];
  /** Whether its outcome can move the run. */
  readonly moves: boolean;
  /**
   * What its outcome sends in `state`, if anything: an event, or a function that says which.
   * Default: that of a success.
   */
  eventIn(state: string, outcome?: 'success' | 'failure'): AnyEventSource | undefined;
  /** How many failures leave the run in `state`, before the next one sends its event. */
  retriesIn(state: string): number;
  /** The functions among what its outcomes may send. */
  readonly sources: readonly Exclude<AnyEventSource, string>[];
  /** Each of them must let the call through. */
  readonly guards: readonly Guard[];
  /** The bindings, where one of them says who sees the tool. */
  readonly veils: readonly AnyBinding[] | undefined;
  /**
   * What the bindings say about an outcome that nobody saw: `'hold'` where one of them does,
   * `'retry'` where all of them do, else `undefined`.
   */
  readonly uncertain: Uncertain | undefined;
}

/** Adds bindings up. There must be at least one. */
export function combine(model: Model, bindings: readonly AnyBinding[]): CallBinding {
  return Object.freeze({
    states: Object.freeze([...new Set(bindings.flatMap(({ states }) => states))]),
    moves: bindings.some(({ success, failure }) => success !== undefined || failure !== undefined),
    eventIn: (state: string, outcome: 'success' | 'failure' = 'success') =>
      senderIn(model, bindings, state, outcome)?.[outcome],
    retriesIn: (state: string) => senderIn(model, bindings, state, 'failure')?.retries ?? 0,
    sources: Object.freeze(
      bindings
        .flatMap(({ success, failure }) => [success, failure])
        .filter((source) => typeof source === 'function'),
    ),
    guards: Object.freeze(bindings.flatMap(({ guard }) => guard ?? [])),
    veils: bindings.some(({ visible }) => visible !== undefined) ? bindings : undefined,
    uncertain: strictest(bindings),
  });
}

/**
 * The bindings that are about a call with these arguments. No arguments are taken as `{}`.
 *
 * @throws Error where that cannot be told: the arguments are no object, or a `when` throws or
 * returns no boolean. The call must be refused then.
 */
export function bindingsOfCall(
  bindings: readonly AnyBinding[],
  args: unknown,
): readonly AnyBinding[] {
  return bindings.filter(({ tool, when }) => when === undefined || passes(tool, when, args ?? {}));
}

function passes(tool: string, when: CallTest, args: unknown): boolean {
  if (!isTable(args))
    throw new Error(
      `the arguments of tool ${showValue(tool)} are ${showValue(args)}, not an object`,
    );
  const answer: unknown = when(args);
  if (typeof answer === 'boolean') return answer;
  // A promise that nobody waits for would end the process if it were rejected.
  Promise.resolve(answer).catch(() => {});
  throw new Error(
    `a "when" of tool ${showValue(tool)} returned ${showValue(answer)}, not a boolean`,
  );
}

function strictest(bindings: readonly AnyBinding[]): Uncertain | undefined {
  if (bindings.some(({ uncertain }) => uncertain === 'hold')) return 'hold';
  return bindings.every(({ uncertain }) => uncertain === 'retry') ? 'retry' : undefined;
}

/** The tools that are gated in one and the same way whatever their arguments. */
export function combineUnconditional(
  model: Model,
  tools: ReadonlyMap<string, readonly AnyBinding[]>,
): Map<string, CallBinding> {
  const always = [...tools].filter(([, bindings]) =>
    bindings.every(({ when }) => when === undefined),
  );
  return new Map(always.map(([tool, bindings]) => [tool, combine(model, bindings)]));
}

/** The bound tools that are shown in a state. States that show the same tools share one. */
interface ToolView {
  readonly list: readonly string[];
  readonly set: ReadonlySet<string>;
}

const NOTHING: ToolView = { list: Object.freeze([]), set: new Set() };

/** A statechart's states are combinations: a process remembers no more of them than this. */
const MOST_VIEWS = 10_000;

/** What each state shows, worked out once. */
export class ToolViews {
  readonly #model: Model;
  readonly #tools: ReadonlyMap<string, readonly AnyBinding[]>;
  readonly #byState = new Map<string, ToolView>();
  readonly #byTools = new Map<string, ToolView>([['[]', NOTHING]]);

  constructor(model: Model, tools: ReadonlyMap<string, readonly AnyBinding[]>) {
    this.#model = model;
    this.#tools = tools;
  }

  /** An unknown state shows nothing. */
  of(state: string): ToolView {
    const known = this.#byState.get(state);
    if (known !== undefined) return known;
    if (!this.#model.has(state)) return NOTHING;
    const shown = [...this.#tools].filter(([, bindings]) =>
      isVisibleIn(this.#model, bindings, state),
    );
    const view = this.#shared(shown.map(([tool]) => tool));
    if (this.#byState.size >= MOST_VIEWS) this.#byState.clear();
    this.#byState.set(state, view);
    return view;
  }

  #shared(list: readonly string[]): ToolView {
    const key = JSON.stringify(list);
    const view = this.#byTools.get(key) ?? { list: Object.freeze(list), set: new Set(list) };
    this.#byTools.set(key, view);
    return view;
  }
}

/**
 * Whether a tool with these bindings is shown in `state`. One whose every binding is about some of
 * its calls only is always shown, since its other calls may be valid; those that a binding is about
 * are gated all the same.
 */
export function isVisibleIn(model: Model, bindings: readonly AnyBinding[], state: string): boolean {
  return (
    bindings.every(({ when }) => when !== undefined) ||
    bindings.some(({ states }) => model.isIn(state, states))
  );
}

/**
 * The binding that says what a call's outcome sends in `state`: the first one which is available
 * there and says anything.
 */
export function senderIn(
  model: Model,
  bindings: readonly AnyBinding[],
  state: string,
  outcome: 'success' | 'failure',
): AnyBinding | undefined {
  return bindings.find((each) => each[outcome] !== undefined && model.isIn(state, each.states));
}

/** An event as a call sends it. */
export interface SentEvent extends EventWithPayload {
  /** What the run remembers of the call's arguments, which no trail may have. */
  readonly memory?: unknown;
}

/**
 * The event that a call sends.
 *
 * @throws InterlockError `ERR_INTERLOCK_EVENT` where a function returns no event, or a promise of
 * one; whatever it throws, and an Error where its payload is not JSON
 */
export function eventFrom(
  source: AnyEventSource,
  call: SucceededCall | FailedCall,
): SentEvent | undefined {
  if (typeof source === 'string') return { type: source };
  const sent: unknown = source(call as never);
  if (source.sends !== undefined && isTable(sent))
    return { type: source.sends, memory: sent.memory };
  if (sent === undefined) return undefined;
  if (isThenable(sent)) {
    // One that nothing waits for would end the process if it were rejected.
    Promise.resolve(sent).catch(() => {});
    const message = 'a function of a binding: expected the name of an event, got a promise';
    throw new InterlockError('ERR_INTERLOCK_EVENT', `${message}: it must not be asynchronous`);
  }
  const { type, payload } = isTable(sent) ? sent : { type: sent, payload: undefined };
  const event = parseEvent('a function of a binding', type);
  return payload === undefined
    ? { type: event }
    : { type: event, payload: jsonOf(payload, `the payload of "${event}"`) };
}

function isThenable(value: unknown): boolean {
  return isTable(value) && typeof value.then === 'function';
}

const positions = new WeakMap<object, Position>();

/** Lets guards of our own know where the run stands, which no guard of an app is told. */
export function placed<C extends object>(call: C, position: Position): C {
  positions.set(call, position);
  return call;
}

/** Where the run stands that such a guard is asked about. */
export function positionOf(call: GuardedCall): Position | undefined {
  return positions.get(call);
}

/**
 * A call's arguments as the app's functions are given them. Which keys they ask for is watched,
 * since some servers (those in Go) do not heed letter case: for a key that is there in another
 * case, they would run the call with another argument than was judged.
 */
export class AskedArguments {
  readonly #args: unknown;
  #views: WeakMap<object, object> | undefined;
  #ambiguous: string | undefined;

  constructor(args: unknown) {
    this.#args = args;
  }

  /** What the functions read; no object where the arguments are none. */
  get view(): unknown {
    return this.#shown(this.#args);
  }

  /** A key that was asked for, and is there in another letter case: beside it or in its place. */
  get ambiguous(): string | undefined {
    return this.#ambiguous;
  }

  /** The same for functions, of which an object is all that they need to take. */
  get members(): Readonly<Record<string, unknown>> {
    const { view } = this;
    return isContainer(view) && !Array.isArray(view) ? (view as Record<string, unknown>) : {};
  }

  /**
   * Finds out what the functions of a binding will ask for that say what an outcome sends: after
   * the call it is too late to refuse it. Where a key is written in their source in another letter
   * case than it came in, they are called with an empty result; those of our own always are, since
   * their source names no key. They are free of effects, and what they say here is not heeded.
   *
   * @param told what they are told beside the arguments: without it they would stop too early
   */
  foresee(
    { sources }: Pick<CallBinding, 'sources'>,
    told: Omit<SucceededCall, 'args' | 'result'>,
  ): void {
    const keys = keysIn(this.#args);
    for (const source of sources) {
      const text = source.toString();
      const isOwn = source.sends !== undefined;
      if (!isOwn && keys !== 'many' && !keys.some((key) => isSpeltOtherwise(text, key))) continue;
      try {
        const said: unknown = source({ ...told, args: this.members, result: {} } as never);
        // A promise that nobody waits for would end the process if it were rejected.
        Promise.resolve(said).catch(() => {});
      } catch {}
    }
  }

  #shown(value: unknown): unknown {
    if (!isContainer(value)) return value;
    // Where nothing has a key, nothing need be watched.
    if (Array.isArray(value) && !value.some(isContainer)) return value;
    this.#views ??= new WeakMap();
    const known = this.#views.get(value);
    if (known !== undefined) return known;
    const view = Array.isArray(value) ? this.#watchList(value) : this.#watch(value);
    this.#views.set(value, view);
    return view;
  }

  #watchList(list: unknown[]): object {
    return new Proxy(unlocked(list), {
      get: (target, key, receiver) => this.#shown(Reflect.get(target, key, receiver)),
      getOwnPropertyDescriptor: (target, key) => this.#described(target, key),
    });
  }

  #watch(object: object): object {
    let spellings: Map<string, string> | undefined;
    const ask = (target: object, key: string | symbol): void => {
      if (typeof key !== 'string') return;
      spellings ??= spellingsIn(target);
      const spelt = spellings.get(foldKey(key));
      if (spelt !== undefined && spelt !== key) this.#ambiguous ??= key;
    };
    return new Proxy(unlocked(object), {
      get: (target, key, receiver) => {
        ask(target, key);
        return this.#shown(Reflect.get(target, key, receiver));
      },
      has: (target, key) => {
        ask(target, key);
        return Reflect.has(target, key);
      },
      getOwnPropertyDescriptor: (target, key) => {
        ask(target, key);
        return this.#described(target, key);
      },
      // A function that goes through the keys asks for each of them.
      ownKeys: (target) => {
        const keys = Reflect.ownKeys(target);
        for (const key of keys) ask(target, key);
        return keys;
      },
    });
  }

  #described(target: object, key: string | symbol): PropertyDescriptor | undefined {
    const described = Reflect.getOwnPropertyDescriptor(target, key);
    if (described !== undefined && 'value' in described && described.configurable === true)
      described.value = this.#shown(described.value);
    return described;
  }
}

/**
 * By their folded form; of those that differ in nothing but case, one that is no spelling of any of
 * them.
 */
function spellingsIn(object: object): Map<string, string> {
  const spellings = new Map<string, string>();
  for (const key of Object.keys(object)) {
    const folded = foldKey(key);
    spellings.set(folded, spellings.has(folded) ? `${folded}, doubled` : key);
  }
  return spellings;
}

/** More keys than these are not compared with the source of a function. */
const MOST_KEYS = 100;

/** The keys at every depth. */
function keysIn(args: unknown): readonly string[] | 'many' {
  const keys = new Set<string>();
  const rest = [args];
  for (let seen = 0; rest.length > 0; seen++) {
    if (seen > MOST_KEYS || keys.size > MOST_KEYS) return 'many';
    const each = rest.pop();
    if (!isContainer(each)) continue;
    if (!Array.isArray(each)) for (const key of Object.keys(each)) keys.add(key);
    for (const inner of Object.values(each)) if (isContainer(inner)) rest.push(inner);
  }
  return [...keys];
}

/**
 * Whether a text has the key in it, or a part of a word that is like it, in another letter case.
 */
function isSpeltOtherwise(text: string, key: string): boolean {
  const folded = foldKey(key);
  const within = foldCase(text);
  if (folded === '') return false;
  for (let at = within.indexOf(folded); at !== -1; at = within.indexOf(folded, at + 1)) {
    // Where folding has moved the letters, it is in doubt, and so it is looked into.
    if (text.slice(at, at + key.length) !== key) return true;
  }
  return false;
}

/** What is frozen cannot be shown otherwise than it is, so a copy is shown. */
function unlocked<T extends object>(object: T): T {
  if (Object.isExtensible(object)) return object;
  return (Array.isArray(object) ? [...object] : { ...object }) as T;
}
