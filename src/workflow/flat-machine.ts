/** A flat machine: hides how a definition is read and checked, and how events move a run. */

import * as z from 'zod/mini';
import { configError, InterlockError } from '../basics/errors.ts';
import { rightNames } from '../basics/names.ts';
import {
  isTable,
  lazily,
  lazyOptions,
  parseOptions,
  showValue,
  tableOption,
} from '../basics/options.ts';
import { sealContext } from './envelope.ts';
import {
  ANY_STATE,
  type BoundState,
  type Deadline,
  holds,
  type Model,
  type Next,
  type Position,
} from './position.ts';

/**
 * Where an event leads: the name of a state, or an object with it. `reenter` is for an event that
 * leads to the run's own state: the run leaves that state and enters it again, as in XState. Its
 * deadline and its counted failures begin anew. Default: the run stays, and its deadline goes on.
 */
export type FsmTransition<S extends string = string> =
  | S
  | { readonly target: S; readonly reenter?: boolean | undefined };

/** One state of an {@link FsmConfig}. */
export interface FsmStateConfig<S extends string = string, E extends string = string> {
  /**
   * Where each event leads. It wins over the machine's own `on`: an event that is `undefined` here
   * is not taken in this state. Any event that neither has leaves the run in this state.
   */
  readonly on?: { readonly [event in E]?: FsmTransition<S> | undefined } | undefined;
  /**
   * Where the run goes by itself after so many milliseconds in this state: `{ 900_000: 'expired'
   * }`. One deadline at most. It takes effect when the run is next used, and by `runsOf(gate,
   * …).sweep()`.
   */
  readonly after?: { readonly [ms: number]: S } | undefined;
  /** Marks an end of the workflow. Such a state handles no event. */
  readonly type?: 'final' | undefined;
}

/**
 * A flat state machine. From a literal, or one `as const`, TypeScript infers the states `S` and
 * events `E`, so that a misspelt name does not compile. In a plain `FsmConfig` they are strings,
 * which the gate checks when it is made.
 */
export interface FsmConfig<S extends string = string, E extends string = string> {
  /**
   * Names the workflow to stores, models and logs: 1 to 64 letters, digits, `_`, `.` or `-`.
   * Default `'workflow'`.
   */
  readonly id?: string | undefined;
  /** The state in which every run begins. */
  readonly initial: NoInfer<S>;
  /**
   * Where an event leads in each state that does not name it in an `on` of its own. Final states
   * take none. In the state that it leads to, the run enters that state again, as in XState: a
   * deadline begins anew.
   */
  readonly on?: { readonly [event in E]?: FsmTransition<NoInfer<S>> | undefined } | undefined;
  readonly states: { readonly [state in S]: FsmStateConfig<NoInfer<S>, E> };
}

/** An {@link FsmConfig} in which `N` is what TypeScript knows of the names that its values are. */
export interface WidenedConfig<S extends string, E extends string, N extends string> {
  readonly id?: string | undefined;
  readonly initial: N;
  readonly on?: { readonly [event in E]?: FsmTransition<N> | undefined } | undefined;
  readonly states: {
    readonly [state in S]: {
      readonly on?: { readonly [event in E]?: FsmTransition<N> | undefined } | undefined;
      readonly after?: { readonly [ms: number]: N } | undefined;
      readonly type?: N | undefined;
    };
  };
}

/** The names that a workflow may have. */
export const workflowId = lazily(() =>
  z.string().check(z.regex(/^[\w.-]{1,64}$/, 'expected 1 to 64 letters, digits, "_", "." or "-"')),
);

const configSchema = lazyOptions(() => ({
  id: z._default(workflowId(), 'workflow'),
  initial: z.string(),
  on: z.optional(tableOption()),
  states: tableOption(),
}));

const stateSchema = lazyOptions(() => ({
  on: z.optional(tableOption()),
  after: z.optional(tableOption()),
  type: z.optional(z.literal('final')),
}));

/** A checked copy of an {@link FsmConfig}, which the app cannot change. */
interface Machine {
  readonly id: string;
  readonly initial: string;
  readonly states: ReadonlyMap<string, MachineState>;
}

interface MachineState {
  /** Where each event leads here. In a final state none does. */
  readonly on: ReadonlyMap<string, Transition>;
  /** When a run leaves the state by itself, and to where. */
  readonly after?: Deadline;
  readonly isFinal: boolean;
}

interface Transition {
  readonly target: string;
  /** Whether a run that is in the target leaves it and enters it again. */
  readonly reenters: boolean;
}

/**
 * Checks a definition and copies it.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for a wrong shape, `ERR_INTERLOCK_INITIAL` and
 * `ERR_INTERLOCK_TARGET` for a state that does not exist.
 */
function parseConfig(config: unknown): Machine {
  const { id, initial, on, states: table } = parseOptions('workflow', configSchema, config);
  const what = `workflow "${id}"`;
  const entries = parseNames(what, 'a state', table);
  // XState leaves and enters a state anew where a transition of the root leads to it.
  const root = new Map(
    [...parseTransitions(what, on)].flatMap(([event, transition]) =>
      transition === undefined ? [] : [[event, { ...transition, reenters: true }] as const],
    ),
  );
  const states = new Map(
    entries.map(([name, state]) => [name, parseState(what, name, state, root)]),
  );
  if (states.size === 0) throw configError(`${what} has no states`);
  if (states.has(ANY_STATE))
    throw configError(
      `${what}: a state is called "*", which names any state in bindings; rename it`,
    );
  if (!states.has(initial)) {
    const message = `the initial state ${showValue(initial)} of ${what} does not exist`;
    throw new InterlockError(
      'ERR_INTERLOCK_INITIAL',
      `${message}, ${rightNames(initial, states.keys())}`,
    );
  }
  for (const [event, { target }] of root)
    checkTarget(states, `${showValue(event)} of "on" of ${what}`, target);
  for (const [name, { on: own, after }] of states) {
    const where = `state ${showValue(name)} of ${what}`;
    for (const [event, { target }] of own)
      checkTarget(states, `${showValue(event)} of ${where}`, target);
    if (after !== undefined)
      checkTarget(states, `"after" ${after.ms} ms of ${where}`, after.target);
  }
  return { id, initial, states };
}

/** @param root where the machine's own `on` leads */
function parseState(
  workflow: string,
  name: string,
  config: unknown,
  root: ReadonlyMap<string, Transition>,
): MachineState {
  const what = `state ${showValue(name)} of ${workflow}`;
  if (config === undefined) throw configError(`${what}: expected an object, got undefined`);
  const { on, after, type } = parseOptions(what, stateSchema, config);
  if (type === 'final' && on !== undefined) throw configError(`${what}: a final state has no "on"`);
  if (type === 'final' && after !== undefined)
    throw configError(`${what}: a final state has no "after"`);
  const isFinal = type === 'final';
  const taken = new Map(isFinal ? [] : root);
  for (const [event, own] of parseTransitions(what, on)) {
    if (own === undefined) taken.delete(event);
    else taken.set(event, own);
  }
  return {
    on: taken,
    ...(after !== undefined && { after: parseDeadline(what, after) }),
    isFinal,
  };
}

/** Where each event leads; `undefined` where the `on` says that none is taken. */
function parseTransitions(
  what: string,
  on: Record<string, unknown> | undefined,
): ReadonlyMap<string, Transition | undefined> {
  const given = parseNames(what, 'an event', on ?? {});
  const wildcard = given.find(
    ([event, to]) => to !== undefined && (event === '*' || event.endsWith('.*')),
  );
  if (wildcard !== undefined)
    throw configError(
      `${what}: on: ${showValue(wildcard[0])} matches events in a statechart alone; ` +
        'name each event, or give what createMachine() of XState returns',
    );
  return new Map(
    given.map(([event, to]) => [
      event,
      to === undefined ? undefined : parseTransition(what, `on.${event}`, to),
    ]),
  );
}

function parseTransition(what: string, place: string, given: unknown): Transition {
  if (typeof given === 'string') return { target: given, reenters: false };
  const isKnown =
    isTable(given) && Object.keys(given).every((key) => key === 'target' || key === 'reenter');
  if (!isKnown || typeof given.target !== 'string') {
    const got = isTable(given)
      ? `an object with ${Object.keys(given).map(showValue).join(', ') || 'no member'}` +
        '; for guards and actions give what createMachine() of XState returns'
      : showValue(given);
    const right = 'the name of a state, or { target: "a state", reenter: true }';
    throw configError(`${what}: ${place}: expected ${right}, got ${got}`);
  }
  const { target, reenter = false } = given;
  if (typeof reenter !== 'boolean')
    throw configError(
      `${what}: ${place}.reenter: expected true or false, got ${showValue(reenter)}`,
    );
  return { target, reenters: reenter };
}

function parseDeadline(what: string, after: Record<string, unknown>): Deadline {
  const [[delay, target] = ['', undefined], ...others] = Object.entries(after);
  const ms = Number(delay);
  if (others.length > 0 || !(Number.isSafeInteger(ms) && ms > 0)) {
    const right = 'one delay in whole milliseconds and where it leads';
    const example = '{ 900000: "expired" }';
    const got = showValue(after);
    throw configError(`${what}: after: expected ${right}, such as ${example}, got ${got}`);
  }
  if (typeof target === 'string') return { ms, target };
  throw configError(
    `${what}: after.${delay}: expected the name of a state, got ${showValue(target)}`,
  );
}

function parseNames(
  what: string,
  kind: 'a state' | 'an event',
  table: object,
): [string, unknown][] {
  if (Object.hasOwn(table, '')) throw configError(`${what}: a name of ${kind} is empty`);
  return Object.entries(table);
}

function checkTarget(
  states: ReadonlyMap<string, unknown>,
  transition: string,
  target: string,
): void {
  if (states.has(target)) return;
  throw new InterlockError(
    'ERR_INTERLOCK_TARGET',
    `${transition} leads to ${showValue(target)}, which does not exist, ` +
      rightNames(target, states.keys()),
  );
}

/** A flat machine, which our own engine runs. @throws InterlockError as {@link parseConfig} */
export function flatModel(config: unknown): Model {
  const machine = parseConfig(config);
  const { id, initial, states } = machine;
  const names = Object.freeze([...states.keys()]);
  const isName = (each: BoundState): boolean => typeof each === 'string' && each !== ANY_STATE;
  // Plain names are the usual case, so they are tested first.
  const isIn = (state: string, bound: readonly BoundState[]): boolean =>
    bound.includes(state) ||
    (states.has(state) &&
      bound.some((each) => !isName(each) && holds(each, (atom) => atom === state)));
  return {
    id,
    start: Object.freeze({ state: initial, ...sealContext({}) }),
    startActions: [],
    names,
    tags: [],
    isFlat: true,
    events: [...new Set([...states.values()].flatMap(({ on }) => [...on.keys()]))],
    deadline: (state) => states.get(state)?.after,
    deadlines: names.filter((name) => states.get(name)?.after !== undefined),
    has: (state) => states.has(state),
    isFinal: (state) => states.get(state)?.isFinal === true,
    isIn,
    eventsIn: (state) => [...(states.get(state)?.on.keys() ?? [])],
    handlers: (event) => names.filter((name) => states.get(name)?.on.has(event)),
    canBeIn: (bound, others) => names.some((name) => isIn(name, bound) && isIn(name, others)),
    // A flat machine has no guards.
    isStopped: () => false,
    next: (position, event) => next(machine, position, event),
  };
}

function next({ states }: Machine, position: Position, event: string): Next {
  const transition = states.get(position.state)?.on.get(event);
  if (transition === undefined) return { position, changed: false, handled: false, actions: [] };
  const { target, reenters } = transition;
  if (target !== position.state)
    return {
      position: { ...position, state: target },
      changed: true,
      handled: true,
      actions: [],
    };
  const stays = { position, changed: false, handled: true, actions: [] };
  return reenters ? { ...stays, reentered: true } : stays;
}
