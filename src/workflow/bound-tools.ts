/**
 * What the bindings of a tool mean for one call of it. It hides how they add up, which event a call
 * sends, and how a guard's reading of the arguments is held to the upstream's.
 */
import { memoise } from '../basics/collections.ts';
import { InterlockError } from '../basics/errors.ts';
import { foldCase, foldKey } from '../basics/names.ts';
import { ExactNumber } from '../basics/numbers.ts';
import { dropRejection, isContainer, isTable, showValue } from '../basics/options.ts';
import type { Uncertain } from '../stores/store.ts';
import {
  type AnyBinding,
  type AnyEventSource,
  type ArgumentsTest,
  type BindingKind,
  type ErrorRule,
  type EventWithPayload,
  type FailedCall,
  type Guard,
  kindOfCalls,
  parseEvent,
  type SucceededCall,
  type Success,
} from './binding.ts';
import { hasMember, MISSING, type Reader } from './condition.ts';
import type { BoundState, Model } from './position.ts';
import type { Demands } from './rules.ts';
import { jsonOf } from './stored.ts';
import { isVeiled } from './visible.ts';

/** How one call of a bound tool is gated: all bindings that are about it, added up. */
export interface BoundTool {
  /** The states in which the call is allowed. */
  readonly states: readonly BoundState[];
  /** The strictest of the bindings' kinds. */
  readonly kind: BindingKind;
  /**
   * The event that its outcome sends in `state`, or a function that chooses one. `outcome` is
   * `'success'` by default.
   */
  eventIn(state: string, outcome?: 'success' | 'failure'): AnyEventSource | undefined;
  /** The events that a function may choose there. Absent where no binding lists them. */
  readonly sendsIn?: (
    state: string,
    outcome: 'success' | 'failure',
  ) => readonly string[] | undefined;
  /** How many failures leave the run in `state`, before the next one sends its event. */
  retriesIn(state: string): number;
  /** What the bindings that are available in `state` say of errors. */
  errorsIn(state: string): readonly ErrorRule[];
  /** What they say of success; each must agree. Absent where none says anything in any state. */
  readonly oksIn?: (state: string) => readonly Success[];
  /**
   * Whether every binding that is available in `state` lets reads through while the run is held.
   * Absent where none does in any state.
   */
  readonly isOpenWhileHeld?: (state: string) => boolean;
  /** The functions that choose an event. */
  readonly sources: readonly Exclude<AnyEventSource, string>[];
  /** What their rules and limits ask of earlier calls. Absent where none does. */
  readonly demands?: readonly Demands[];
  /** What rules read of the tool's results. */
  readonly results: Success['results'];
  /** All of them must let the call through. */
  readonly guards: readonly Guard[];
  /** The bindings, where one of them has a `visible`. */
  readonly veils: readonly AnyBinding[] | undefined;
  /**
   * What to do after an unknown outcome: `'hold'` where one binding says so, `'retry'` where all
   * bindings do, else `undefined`.
   */
  readonly uncertain: Uncertain | undefined;
}

/** Adds up one binding or more. */
export function combine(model: Pick<Model, 'isIn'>, bindings: readonly AnyBinding[]): BoundTool {
  return Object.freeze({
    states: Object.freeze([...new Set(bindings.flatMap(({ states }) => states))]),
    kind: strictestKind(bindings),
    eventIn: (state: string, outcome: 'success' | 'failure' = 'success') =>
      senderIn(model, bindings, state, outcome)?.[outcome],
    ...(bindings.some(({ sends }) => sends !== undefined) && {
      sendsIn: (state: string, outcome: 'success' | 'failure') =>
        senderIn(model, bindings, state, outcome)?.sends,
    }),
    retriesIn: (state: string) => senderIn(model, bindings, state, 'failure')?.retries ?? 0,
    errorsIn: (state: string) =>
      bindings.flatMap(({ errors, states }) =>
        errors !== undefined && model.isIn(state, states) ? [errors] : [],
      ),
    ...(bindings.some(({ isOk }) => isOk !== undefined) && {
      oksIn: (state: string) =>
        bindings.flatMap(({ isOk, states }) =>
          isOk !== undefined && model.isIn(state, states) ? [isOk] : [],
        ),
    }),
    ...(bindings.some(({ whileHeld }) => whileHeld) && {
      isOpenWhileHeld: (state: string) => {
        const open = bindings.filter(({ states }) => model.isIn(state, states));
        return open.length > 0 && open.every(({ whileHeld }) => whileHeld === true);
      },
    }),
    sources: Object.freeze(
      bindings
        .flatMap(({ success, failure }) => [success, failure])
        .filter((source) => typeof source === 'function'),
    ),
    ...(bindings.some(({ demands }) => demands) && {
      demands: Object.freeze(bindings.flatMap(({ demands }) => demands ?? [])),
    }),
    results: bindings.find(({ results }) => results !== undefined)?.results ?? 'structured',
    guards: Object.freeze(bindings.flatMap(({ guard }) => guard ?? [])),
    veils: isVeiled(bindings) ? bindings : undefined,
    uncertain: bindings.some(({ uncertain }) => uncertain === 'hold')
      ? 'hold'
      : bindings.every(({ uncertain }) => uncertain === 'retry')
        ? 'retry'
        : undefined,
  });
}

/**
 * The bindings that are about a call with these arguments; missing arguments count as `{}`.
 *
 * @throws Error where the arguments are no object, or a `when` throws or returns no boolean. The
 * gate must refuse the call then.
 */
export function bindingsOfCall(
  bindings: readonly AnyBinding[],
  args: unknown,
): readonly AnyBinding[] {
  return bindings.filter(({ tool, when }) => when === undefined || passes(tool, when, args ?? {}));
}

function passes(tool: string, when: ArgumentsTest, args: unknown): boolean {
  if (!isTable(args))
    throw new Error(
      `the arguments of tool ${showValue(tool)} are ${showValue(args)}, not an object`,
    );
  const answer: unknown = when(args);
  if (typeof answer === 'boolean') return answer;
  dropRejection(answer);
  throw new Error(
    `a "when" of tool ${showValue(tool)} returned ${showValue(answer)}, not a boolean`,
  );
}

/** How a tool's calls run where several bindings are about them. */
export function strictestKind(bindings: readonly AnyBinding[]): BindingKind {
  const kinds = bindings.map(kindOfCalls);
  return (['step', 'recorded'] as const).find((kind) => kinds.includes(kind)) ?? 'free';
}

/** How each tool without a `when` is gated: all its calls alike. */
export function combineUnconditional(
  model: Model,
  tools: ReadonlyMap<string, readonly AnyBinding[]>,
): Map<string, BoundTool> {
  const always = [...tools].filter(([, bindings]) =>
    bindings.every(({ when }) => when === undefined),
  );
  return new Map(always.map(([tool, bindings]) => [tool, combine(model, bindings)]));
}

/** The bound tools that lists show in a state. States that show the same tools share one view. */
interface ToolView {
  readonly list: readonly string[];
  readonly set: ReadonlySet<string>;
}

const NO_VIEW: ToolView = { list: Object.freeze([]), set: new Set() };

/** A statechart may have countless combinations of states: no more views than this are kept. */
const MOST_VIEWS = 10_000;

/** The bound tools that each state shows, worked out once. An unknown state shows nothing. */
export function toolViews(
  model: Model,
  tools: ReadonlyMap<string, readonly AnyBinding[]>,
): (state: string) => ToolView {
  const byTools = new Map<string, ToolView>([['[]', NO_VIEW]]);
  const viewOf = (state: string): ToolView => {
    if (!model.has(state)) return NO_VIEW;
    const shown = [...tools].filter(([, bindings]) => isVisibleIn(model, bindings, state));
    const list = shown.map(([tool]) => tool);
    const key = JSON.stringify(list);
    const view = byTools.get(key) ?? { list: Object.freeze(list), set: new Set(list) };
    byTools.set(key, view);
    return view;
  };
  return memoise(viewOf, { most: MOST_VIEWS });
}

/**
 * Whether lists show a tool with these bindings in `state`. A tool whose bindings all have a `when`
 * always shows: a call that no binding is about is valid in any state.
 */
export function isVisibleIn(model: Model, bindings: readonly AnyBinding[], state: string): boolean {
  return (
    bindings.every(({ when }) => when !== undefined) ||
    bindings.some(({ states }) => model.isIn(state, states))
  );
}

/**
 * The binding that decides what an outcome sends in `state`: the first one that is available there
 * and has an event for it.
 */
export function senderIn(
  model: Pick<Model, 'isIn'>,
  bindings: readonly AnyBinding[],
  state: string,
  outcome: 'success' | 'failure',
): AnyBinding | undefined {
  return bindings.find((each) => each[outcome] !== undefined && model.isIn(state, each.states));
}

/**
 * The event that a call sends.
 *
 * @param sends the events that the function may choose. Default: any
 * @throws InterlockError `ERR_INTERLOCK_EVENT` where the function returns none of these, no event,
 * or a promise; Error where it throws one, or where its payload is not JSON
 */
export function eventFrom(
  source: AnyEventSource,
  call: SucceededCall | FailedCall,
  sends?: readonly string[],
): EventWithPayload | undefined {
  if (typeof source === 'string') return { type: source };
  const sent: unknown = source(call as never);
  if (sent === undefined) return undefined;
  if (isTable(sent) && typeof sent.then === 'function') {
    dropRejection(sent);
    const message = 'a function of a binding: expected the name of an event, got a promise';
    throw new InterlockError('ERR_INTERLOCK_EVENT', `${message}: it must not be asynchronous`);
  }
  const { type, payload } = isTable(sent) ? sent : { type: sent, payload: undefined };
  const event = parseEvent('a function of a binding', type);
  if (sends?.includes(event) === false)
    throw new InterlockError(
      'ERR_INTERLOCK_EVENT',
      `a function of a binding returned ${showValue(event)}, which its "sends" does not list; ` +
        `expected ${sends.map(showValue).join(' or ')}`,
    );
  return payload === undefined
    ? { type: event }
    : { type: event, payload: jsonOf(payload, `the payload of "${event}"`) };
}

/** A number that a function of the app has read, though it is another one where it came from. */
export interface RoundedNumber {
  /** The key of the nearest member that it is in. */
  readonly name: string;
  /** What the function has got. */
  readonly double: number;
}

/** A function of the app would have to read what was not recorded. */
export class NotRecorded extends Error {
  constructor() {
    super('the recording has no values in clear for a function of the app to read');
  }
}

/**
 * A call's arguments as the app's functions read them, with a watch on the keys that they ask for.
 * Some servers, such as those in Go, ignore the letter case of keys. Such a server could run the
 * call with another argument than the one that a guard has read. The same holds for numbers that
 * JavaScript rounds, so it watches which of them are read.
 */
export class AskedArguments {
  #given: { readonly args: unknown } | (() => unknown);
  #views: WeakMap<object, object> | undefined;
  readonly #spellings = new Map<object, Map<string, string>>();
  #ambiguous: string | undefined;
  #rounded: RoundedNumber | undefined;

  /** @param args may have an {@link ExactNumber} in place of a number, at any depth */
  constructor(args: unknown) {
    this.#given = { args };
  }

  /** The same, with arguments that are not made before something reads them. */
  static later(make: () => unknown): AskedArguments {
    const asked = new AskedArguments(undefined);
    asked.#given = make;
    return asked;
  }

  get #args(): unknown {
    if (typeof this.#given === 'function') this.#given = { args: this.#given() };
    return this.#given.args;
  }

  /** What the functions read: an object only where the arguments are one. */
  get view(): unknown {
    return this.#shown(this.#args, ALL);
  }

  /** The first key that was asked for and is also, or only, there in another letter case. */
  get ambiguous(): string | undefined {
    return this.#ambiguous;
  }

  /** The first number that was read and that {@link ExactNumber.misleads} its reader. */
  get rounded(): RoundedNumber | undefined {
    return this.#rounded;
  }

  /** The {@link view} for functions that take nothing but an object. */
  get members(): Readonly<Record<string, unknown>> {
    const { view } = this;
    const isObject = isContainer(view) && !Array.isArray(view) && !(view instanceof ExactNumber);
    return isObject ? (view as Readonly<Record<string, unknown>>) : {};
  }

  /**
   * Reads a member for rules: as it came, so each {@link ExactNumber} is as it is. The path is
   * watched, and what is inside the member is not: rules compare its digest.
   */
  readonly read: Reader = (keys) => {
    if (keys.length === 0) return this.members;
    let found = this.#args;
    for (const key of keys) {
      if (isContainer(found)) this.#ask(found, key);
      if (!hasMember(found, key)) return MISSING;
      found = found[key];
    }
    return found === undefined ? MISSING : found;
  };

  /**
   * Finds out which keys the event functions of a binding will ask for, since after the call it is
   * too late to refuse it. It calls each function whose source spells a key of the arguments in
   * another letter case, with an empty result. Where a number may mislead them, it calls them all.
   * The functions have no effects, and their answers are dropped here.
   *
   * @param given what the functions read beside the arguments; without it they could throw too
   * early
   */
  foresee(
    { sources }: Pick<BoundTool, 'sources'>,
    given: Omit<SucceededCall, 'args' | 'result'>,
  ): void {
    const keys = keysIn(this.#args);
    for (const source of sources) {
      const text = source.toString();
      if (keys !== 'any' && !keys.some((key) => isSpeltOtherwise(text, key))) continue;
      try {
        const said: unknown = source({ ...given, args: this.members, result: {} } as never);
        dropRejection(said);
      } catch {}
    }
  }

  /** @param name the key of the nearest member that the value is in */
  readonly #shown = (value: unknown, name: string | symbol): unknown => {
    if (!isContainer(value)) {
      if (isInfinite(value)) this.#rounded ??= { name: String(name), double: value };
      return value;
    }
    if (value instanceof ExactNumber) {
      const { double, misleads } = value;
      if (misleads) this.#rounded ??= { name: String(name), double };
      return double;
    }
    // A list without objects or lists in it has no keys to watch.
    if (Array.isArray(value) && !value.some(isWatched)) return value;
    this.#views ??= new WeakMap();
    const known = this.#views.get(value);
    if (known !== undefined) return known;
    const view = Array.isArray(value) ? this.#watchList(value, name) : this.#watch(value);
    this.#views.set(value, view);
    return view;
  };

  #ask(target: object, key: string): void {
    const known = this.#spellings.get(target);
    const spellings = known ?? spellingsIn(target);
    if (known === undefined) this.#spellings.set(target, spellings);
    const spelt = spellings.get(foldKey(key));
    if (spelt !== undefined && spelt !== key) this.#ambiguous ??= key;
  }

  #watchList(list: unknown[], name: string | symbol): object {
    return new Proxy(unlocked(list), {
      get: (target, key, receiver) => this.#shown(Reflect.get(target, key, receiver), name),
      getOwnPropertyDescriptor: (target, key) =>
        describedAs(target, key, (value) => this.#shown(value, name)),
    });
  }

  #watch(object: object): object {
    const ask = (target: object, key: string | symbol): void => {
      if (typeof key === 'string') this.#ask(target, key);
    };
    return new Proxy(unlocked(object), {
      get: (target, key, receiver) => {
        ask(target, key);
        return this.#shown(Reflect.get(target, key, receiver), key);
      },
      has: (target, key) => {
        ask(target, key);
        return Reflect.has(target, key);
      },
      getOwnPropertyDescriptor: (target, key) => {
        ask(target, key);
        return describedAs(target, key, (value) => this.#shown(value, key));
      },
      // A function that goes through the keys asks for each of them.
      ownKeys: (target) => {
        const keys = Reflect.ownKeys(target);
        for (const key of keys) ask(target, key);
        return keys;
      },
    });
  }
}

function describedAs(
  target: object,
  key: string | symbol,
  show: (value: unknown) => unknown,
): PropertyDescriptor | undefined {
  const described = Reflect.getOwnPropertyDescriptor(target, key);
  if (described !== undefined && 'value' in described && described.configurable === true)
    described.value = show(described.value);
  return described;
}

/** What the value as a whole is called, where it is in no member. */
const ALL = 'arguments';

function isInfinite(value: unknown): value is number {
  return value === Number.POSITIVE_INFINITY || value === Number.NEGATIVE_INFINITY;
}

function isWatched(value: unknown): boolean {
  return isContainer(value) || isInfinite(value);
}

/**
 * How each key is spelt, by its folded form. Where two keys differ in case only, the spelling is
 * one that neither of them has, so that asking for either is ambiguous.
 */
function spellingsIn(object: object): Map<string, string> {
  const spellings = new Map<string, string>();
  for (const key of Object.keys(object)) {
    const folded = foldKey(key);
    spellings.set(folded, spellings.has(folded) ? `${folded}, doubled` : key);
  }
  return spellings;
}

/** With more keys than this, functions are called without a look at their source. */
const MOST_KEYS = 100;

/** The keys at every depth; `'any'` where they are too many, or a number may mislead its reader. */
function keysIn(args: unknown): readonly string[] | 'any' {
  const keys = new Set<string>();
  const rest = [args];
  for (let seen = 0; rest.length > 0; seen++) {
    if (seen > MOST_KEYS || keys.size > MOST_KEYS) return 'any';
    const each = rest.pop();
    if (isInfinite(each) || (each instanceof ExactNumber && each.misleads)) return 'any';
    if (!isContainer(each) || each instanceof ExactNumber) continue;
    if (!Array.isArray(each)) for (const key of Object.keys(each)) keys.add(key);
    for (const inner of Object.values(each)) if (isWatched(inner)) rest.push(inner);
  }
  return [...keys];
}

/** Whether a text contains the key in another letter case, even as a part of a word. */
function isSpeltOtherwise(text: string, key: string): boolean {
  const folded = foldKey(key);
  const within = foldCase(text);
  if (folded === '') return false;
  for (let at = within.indexOf(folded); at !== -1; at = within.indexOf(folded, at + 1)) {
    // Folding may have moved the letters: then this answers `true`, to be safe.
    if (text.slice(at, at + key.length) !== key) return true;
  }
  return false;
}

/** A copy of what is frozen, since a proxy must show a frozen property as it is. */
function unlocked<T extends object>(object: T): T {
  if (Object.isExtensible(object)) return object;
  return (Array.isArray(object) ? [...object] : { ...object }) as T;
}

/** Whether two lists of bindings say the same. Each function is only like itself. */
export function bindAlike(some: readonly AnyBinding[], others: readonly AnyBinding[]): boolean {
  return some.length === others.length && some.every((each, i) => isAlike(each, others[i] ?? each));
}

function isAlike(
  { tool: _, states, ...one }: AnyBinding,
  { tool: __, states: others, ...other }: AnyBinding,
): boolean {
  const keys = new Set([...Object.keys(one), ...Object.keys(other)]);
  const isSame = (key: string): boolean => Reflect.get(one, key) === Reflect.get(other, key);
  return JSON.stringify(states) === JSON.stringify(others) && [...keys].every(isSame);
}
