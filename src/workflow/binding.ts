import * as z from 'zod/mini';
import { InterlockError } from '../errors.ts';
import { rightNames } from '../names.ts';
import { functionOption, isTable, parseOptions, showValue } from '../options.ts';
import type { Json, Uncertain } from '../stores/store.ts';
import { isReserved } from './chart.ts';
import {
  type Model,
  parseStates,
  resolveStates,
  type StateExpression,
  showState,
} from './position.ts';

/** A tool's result as it is on the wire. */
export interface ToolResult {
  readonly content?: readonly unknown[] | undefined;
  readonly structuredContent?: Readonly<Record<string, unknown>> | undefined;
  readonly isError?: boolean | undefined;
  readonly [property: string]: unknown;
}

/**
 * Where a run stands, as the functions of bindings are told. `X` is what the machine's context is,
 * as JSON; `S` and `T` are the names of its states and tags.
 */
export interface RunFacts<
  X = Json | undefined,
  S extends string = string,
  T extends string = string,
> {
  /** The run's state; of a statechart the text of all its active states. */
  readonly state: string;
  /** The run's shared data; for a statechart its context. */
  readonly context: X;
  /** Who calls, where the request was authenticated. */
  readonly principal: string | undefined;
  /**
   * Whether the run is in a state: its name, of a statechart its path, or `{ tag }`; or whatever
   * else a binding may say of states. Needs no `this`.
   *
   * @throws InterlockError `ERR_INTERLOCK_BINDING` for a name that the workflow does not have
   */
  matches(state: StateExpression<S, T>): boolean;
}

/**
 * A call that ended. `state` is where it found the run, and `context` the run's data as the handler
 * left them.
 */
interface EndedCall<X, S extends string, T extends string> extends RunFacts<X, S, T> {
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
}

/** A call that ended well. */
export interface SucceededCall<
  X = Json | undefined,
  S extends string = string,
  T extends string = string,
> extends EndedCall<X, S, T> {
  readonly result: ToolResult;
}

/**
 * A call that failed: the tool said so in its result, or there is a JSON-RPC error in its place.
 */
export interface FailedCall<
  X = Json | undefined,
  S extends string = string,
  T extends string = string,
> extends EndedCall<X, S, T> {
  readonly result?: ToolResult | undefined;
  readonly error?: unknown;
}

/** An event with what comes along: for a statechart's guards and its context, and for the trail. */
export interface EventWithPayload<E extends string = string> {
  readonly type: E;
  /** The properties of an object become the event's own; anything else is its `payload`. */
  readonly payload?: Json | undefined;
}

/**
 * An event, or a function of the call that says which. Must be synchronous and free of effects.
 * `undefined` sends none.
 */
export type EventSource<E extends string, Call> =
  | E
  | ((call: Call) => E | EventWithPayload<E> | undefined);

/**
 * The same for either outcome, where nobody asks any more what the names are. A function of our own
 * may say which event it `sends`: only what comes along depends on the call, and on its arguments
 * alone.
 */
export type AnyEventSource = string | (((call: never) => unknown) & { readonly sends?: string });

/** The event that a call sends where that is known before the call. */
export function eventNamed(source: AnyEventSource | undefined): string | undefined {
  return typeof source === 'function' ? source.sends : source;
}

/** Whether only the call says which event it sends. */
export function isChosen(source: AnyEventSource | undefined): boolean {
  return source !== undefined && eventNamed(source) === undefined;
}

/** @throws InterlockError `ERR_INTERLOCK_EVENT` unless it is a non-empty string. */
export function parseEvent(what: string, event: unknown): string {
  if (typeof event === 'string' && event !== '') return event;
  const message = `${what}: expected the name of an event, got ${showValue(event)}`;
  throw new InterlockError('ERR_INTERLOCK_EVENT', message);
}

/** As {@link parseEvent}, and a function is as good. */
function parseSource(what: string, source: unknown): AnyEventSource {
  return typeof source === 'function' ? (source as AnyEventSource) : parseEvent(what, source);
}

/**
 * Chooses, by a call's arguments, the calls that a binding is about. Must be quick, synchronous and
 * free of effects.
 */
export type CallTest = (args: Record<string, unknown>) => boolean;

/** A call that a guard is asked about, before it is forwarded. */
export interface GuardedCall<
  X = Json | undefined,
  S extends string = string,
  T extends string = string,
> extends RunFacts<X, S, T> {
  /** The run key. */
  readonly run: string;
  /** The tool; where a prompt or a resource is guarded, its name or URI. */
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
}

/**
 * `true` lets a call through. Anything else refuses it, a string with these words for the model.
 */
export type Guard<X = Json | undefined, S extends string = string, T extends string = string> = (
  call: GuardedCall<X, S, T>,
) => boolean | string | Promise<boolean | string>;

/** A run as one client sees it. */
export interface ViewedRun<
  X = Json | undefined,
  S extends string = string,
  T extends string = string,
> extends RunFacts<X, S, T> {
  /**
   * The run key. Absent where no run is looked at: in a list that is the same in every state, which
   * shows what a new run would; and in a gate that is not mounted.
   */
  readonly run?: string | undefined;
}

/**
 * Whether a client is shown a tool. Must be quick, synchronous and free of effects, and say the
 * same of the same run. Anything but `true` hides the tool.
 */
export type VisibleTest<
  X = Json | undefined,
  S extends string = string,
  T extends string = string,
> = (run: ViewedRun<X, S, T>) => boolean;

/** What a binding may say beside its states. */
export interface BindingOptions<
  E extends string = string,
  X = Json | undefined,
  S extends string = string,
  T extends string = string,
> {
  /**
   * The event that a successful call sends, or a function of its arguments and result that says
   * which. Default: none, so the call moves nothing.
   */
  readonly success?: EventSource<E, SucceededCall<X, S, T>> | undefined;
  /**
   * The event that a failed call sends: one whose result is an error. Default: none, so the run
   * stays where it is.
   */
  readonly failure?: EventSource<E, FailedCall<X, S, T>> | undefined;
  /**
   * How many failures of the tool leave the run where it is, before the next one sends `failure`.
   * They are counted from when the run came to its state, of a statechart the text of all its
   * active states. Failed is a call whose result is an error; an unknown outcome and a cancelled
   * task are not. At least 1, beside `failure` only. Default: none.
   */
  readonly retries?: number | undefined;
  /**
   * Asked before the call is forwarded. Where it throws, or takes longer than its deadline, the
   * call is refused. Default: none.
   */
  readonly guard?: Guard<X, S, T> | undefined;
  /**
   * Who sees the tool. While it says no, the gate names the tool nowhere, and refuses a call of it
   * as one out of order. Of several bindings, one that is available in the state and says yes is
   * enough. Default: everybody does.
   */
  readonly visible?: VisibleTest<X, S, T> | undefined;
  /**
   * Binds one action of a tool that does several things: only calls whose arguments it accepts are
   * gated by this binding. If it throws, or returns anything but a boolean, the call is refused.
   * Default: every call.
   */
  readonly when?: CallTest | undefined;
  /**
   * What happens after a call whose outcome nobody saw: `'hold'` stops the run until somebody
   * resolves it, `'retry'` lets the same call through again, with the same idempotency key where
   * its arguments are the same. Default: as the tool's annotations allow, else `'hold'`.
   */
  readonly uncertain?: Uncertain | undefined;
}

/** A tool, the states in which it is available, and what its outcome does. */
export interface Binding<
  S extends string = string,
  E extends string = string,
  T extends string = never,
  X = Json | undefined,
> extends BindingOptions<E, X> {
  /** The tool's name on the wire. */
  readonly tool: string;
  /** Of several, one is enough. */
  readonly states: readonly StateExpression<S, T>[];
}

/**
 * What `gate.bind()` takes: anything with a name and bindings, such as
 * `tool('cart.pay').bindState('payment', 'PAY')`.
 */
export interface BindableTool<
  S extends string = string,
  E extends string = string,
  T extends string = never,
  X = Json | undefined,
> {
  readonly name: string;
  readonly bindings: readonly Binding<S, E, T, X>[];
}

/** The same, where nobody asks any more what the names are. */
export type AnyBinding = Binding<string, string, string>;

const optionsSchema = z.strictObject({
  success: z.optional(z.unknown()),
  failure: z.optional(z.unknown()),
  retries: z.optional(z.int().check(z.minimum(1))),
  guard: z.optional(functionOption<Guard>()),
  visible: z.optional(functionOption<VisibleTest>()),
  when: z.optional(functionOption<CallTest>()),
  uncertain: z.optional(z.enum(['hold', 'retry'])),
});

/**
 * Checks the shape of a binding; {@link checkBinding} checks it against a workflow.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for the name and the states, `ERR_INTERLOCK_EVENT`
 * for the events, `ERR_INTERLOCK_CONFIG` for the other options.
 */
export function parseBinding(name: unknown, states: unknown, event: unknown): AnyBinding {
  const tool = parseToolName(name);
  const { success, failure, ...rest } = parseEventOrOptions(tool, event);
  const what = `tool ${showValue(tool)}`;
  if (rest.retries !== undefined && failure === undefined) {
    const message = `binding of ${what}: "retries" says how many failures come before "failure" is sent`;
    throw new InterlockError('ERR_INTERLOCK_CONFIG', `${message}; give "failure" too`);
  }
  return Object.freeze({
    tool,
    states: parseStates(what, states),
    ...(success === undefined ? {} : { success: parseSource(what, success) }),
    ...(failure === undefined ? {} : { failure: parseSource(what, failure) }),
    ...rest,
  }) as AnyBinding;
}

/**
 * The bindings of a tool that was declared on its own. @throws InterlockError as {@link
 * parseBinding}, and `ERR_INTERLOCK_BINDING` for anything else
 */
export function parseDeclaration(tool: BindableTool<string, string, string, never>): AnyBinding[] {
  if (!isTable(tool) || !Array.isArray(tool.bindings) || !tool.bindings.every(isTable)) {
    const message = `bind(): expected a declaration made by tool(), got ${showValue(tool)}`;
    throw new InterlockError('ERR_INTERLOCK_BINDING', message);
  }
  return tool.bindings.map(({ tool: _, states, ...options }) =>
    parseBinding(tool.name, states, options),
  );
}

/** @throws InterlockError `ERR_INTERLOCK_BINDING` unless it is a non-empty string. */
export function parseToolName(name: unknown): string {
  if (typeof name === 'string' && name !== '') return name;
  throw new InterlockError(
    'ERR_INTERLOCK_BINDING',
    `expected the name of a tool, got ${showValue(name)}`,
  );
}

/** The events of a binding that are known before any call. */
function namedEvents({ success, failure }: AnyBinding): string[] {
  return [success, failure].flatMap((source) => eventNamed(source) ?? []);
}

function parseEventOrOptions(tool: string, event: unknown): z.output<typeof optionsSchema> {
  if (isTable(event))
    return parseOptions(`binding of tool ${showValue(tool)}`, optionsSchema, event);
  return { success: event };
}

/**
 * Checks a binding against the workflow.
 *
 * @returns the binding as the machine takes it: of a flat one, with plain names
 * @throws InterlockError `ERR_INTERLOCK_BINDING` as {@link resolveStates}; unless the machine is
 * flat, `ERR_INTERLOCK_EVENT` for an event that nothing in it handles
 */
export function checkBinding(model: Model, binding: AnyBinding): AnyBinding {
  const { tool } = binding;
  const states = resolveStates(model, `tool ${showValue(tool)}`, binding.states);
  const resolved = states === binding.states ? binding : Object.freeze({ ...binding, states });
  if (model.isFlat) return resolved;
  for (const event of namedEvents(binding)) {
    if (!isReserved(event) && model.handlers(event).length > 0) continue;
    const message = `workflow "${model.id}": tool ${showValue(tool)} sends ${showValue(event)}, which no state handles`;
    throw new InterlockError(
      'ERR_INTERLOCK_EVENT',
      `${message}; ${rightNames(event, model.events)}`,
    );
  }
  return resolved;
}

/** What is odd about a binding without being wrong. */
export interface Oddity {
  readonly code: 'tool-rebound' | 'event-unhandled';
  readonly tool: string;
  /** In a developer's words. */
  readonly message: string;
}

/**
 * What is odd about binding a tool again: the new bindings do not replace the old ones. That is
 * meant where `when` tells the calls apart, and within one declaration.
 */
export function rebindingWarnings(
  model: Model,
  known: readonly AnyBinding[],
  added: readonly AnyBinding[],
): Oddity[] {
  const isWhole = ({ when }: AnyBinding): boolean => when === undefined;
  if (!known.some(isWhole) || !added.some(isWhole)) return [];
  const [{ tool: name } = { tool: '' }] = known;
  const tool = showValue(name);
  const states = [...known, ...added].flatMap((binding) => binding.states);
  const names = new Set(states.map(showState));
  const message =
    `workflow "${model.id}": tool ${tool} is bound again, ` +
    'which adds to its binding and does not replace it: ' +
    `now it is available in ${[...names].join(', ')}. ` +
    `If that is meant, say it at once: bind(tool(${tool}).bindState(…).bindState(…))`;
  return [{ code: 'tool-rebound', tool: name, message }];
}

/**
 * What is odd about a binding without being wrong: an event that none of its states handles moves
 * nothing.
 */
export function bindingWarnings(model: Model, binding: AnyBinding): Oddity[] {
  const { tool } = binding;
  return namedEvents(binding).flatMap((event): Oddity[] => {
    const handling = model.handlers(event);
    if (model.canBeIn(binding.states, handling)) return [];
    const message = `workflow "${model.id}": tool ${showValue(tool)} sends ${showValue(event)}, which`;
    const why =
      handling.length === 0
        ? `no state handles; ${rightNames(event, model.events)}`
        : `none of its states handles; states that do are ${handling.map(showValue).join(', ')}`;
    return [{ code: 'event-unhandled', tool, message: `${message} ${why}` }];
  });
}
