/** A flat machine: hides how a definition is read and checked, and how events move a run. */

import * as z from 'zod/mini';
import { InterlockError } from '../errors.ts';
import { rightNames } from '../names.ts';
import { isTable, lazily, lazyOptions, parseOptions, showValue, tableOption } from '../options.ts';
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

/** One state of an {@link FsmConfig}. */
export interface FsmStateConfig<S extends string = string, E extends string = string> {
  /** Where each event leads. Any other event leaves the run in this state. */
  readonly on?: { readonly [event in E]?: S } | undefined;
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
  readonly states: { readonly [state in S]: FsmStateConfig<NoInfer<S>, E> };
}

/** An {@link FsmConfig} in which `N` is what TypeScript knows of the names that its values are. */
export interface WidenedConfig<S extends string, E extends string, N extends string> {
  readonly id?: string | undefined;
  readonly initial: N;
  readonly states: {
    readonly [state in S]: {
      readonly on?: { readonly [event in E]?: N } | undefined;
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
  /** Where each event of this state leads. */
  readonly on: ReadonlyMap<string, string>;
  /** When a run leaves the state by itself, and to where. */
  readonly after?: Deadline;
  readonly isFinal: boolean;
}

/**
 * Checks a definition and copies it.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for a wrong shape, `ERR_INTERLOCK_INITIAL` and
 * `ERR_INTERLOCK_TARGET` for a state that does not exist.
 */
function parseConfig(config: unknown): Machine {
  const { id, initial, states: table } = parseOptions('workflow', configSchema, config);
  const what = `workflow "${id}"`;
  const entries = parseNames(what, 'a state', table);
  const states = new Map(entries.map(([name, state]) => [name, parseState(what, name, state)]));
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
  const machine = { id, initial, states };
  for (const name of states.keys()) checkTargets(machine, name);
  return machine;
}

function parseState(workflow: string, name: string, config: unknown): MachineState {
  const what = `state ${showValue(name)} of ${workflow}`;
  if (config === undefined) throw configError(`${what}: expected an object, got undefined`);
  const { on, after, type } = parseOptions(what, stateSchema, config);
  if (type === 'final' && on !== undefined) throw configError(`${what}: a final state has no "on"`);
  if (type === 'final' && after !== undefined)
    throw configError(`${what}: a final state has no "after"`);
  const targets = parseNames(what, 'an event', on ?? {}).filter(
    ([, target]) => target !== undefined,
  );
  const wildcard = targets.find(([event]) => event === '*' || event.endsWith('.*'));
  if (wildcard !== undefined)
    throw configError(
      `${what}: on: ${showValue(wildcard[0])} matches events in a statechart alone; ` +
        'name each event, or give what createMachine() of XState returns',
    );
  return {
    on: new Map(
      targets.map(([event, target]) => [event, parseTarget(what, `on.${event}`, target)]),
    ),
    ...(after !== undefined && { after: parseDeadline(what, after) }),
    isFinal: type === 'final',
  };
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
  return { ms, target: parseTarget(what, `after.${delay}`, target) };
}

function parseTarget(what: string, place: string, target: unknown): string {
  if (typeof target === 'string') return target;
  const hint = isTable(target)
    ? '; for a statechart give what createMachine() of XState returns'
    : '';
  throw configError(
    `${what}: ${place}: expected the name of a state, got ${showValue(target)}${hint}`,
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

function checkTargets({ id, states }: Machine, name: string): void {
  const { on, after } = states.get(name) ?? {};
  const ways = [...(on ?? [])].map(([event, target]) => [showValue(event), target] as const);
  if (after !== undefined) ways.push([`"after" ${after.ms} ms`, after.target]);
  for (const [way, target] of ways) {
    if (states.has(target)) continue;
    const transition = `${way} of state ${showValue(name)} of workflow "${id}"`;
    const message = `${transition} leads to ${showValue(target)}, which does not exist`;
    throw new InterlockError(
      'ERR_INTERLOCK_TARGET',
      `${message}, ${rightNames(target, states.keys())}`,
    );
  }
}

function configError(message: string): InterlockError {
  return new InterlockError('ERR_INTERLOCK_CONFIG', message);
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
  const target = states.get(position.state)?.on.get(event);
  if (target === undefined) return { position, changed: false, handled: false, actions: [] };
  const changed = target !== position.state;
  return {
    position: changed ? { ...position, state: target } : position,
    changed,
    handled: true,
    actions: [],
  };
}
