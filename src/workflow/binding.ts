/**
 * What an app says of a tool: the types of bindings and of the functions in them. It hides how a
 * binding is read, and how it is checked against a workflow.
 */
import * as z from 'zod/mini';
import { configError, InterlockError } from '../basics/errors.ts';
import { rightNames } from '../basics/names.ts';
import {
  functionOption,
  integerOption,
  isTable,
  lazily,
  lazyOptions,
  optionalFunction,
  type ParsedBy,
  parseOptions,
  showValue,
  uncheckedOption,
} from '../basics/options.ts';
import type { Json, Uncertain } from '../stores/store.ts';
import { isReserved } from './chart.ts';
import { type Condition, type ConditionTest, parseCondition } from './condition.ts';
import { type Limit, parseLimits } from './limits.ts';
import {
  type Model,
  parseStates,
  resolveStates,
  type StateExpression,
  showState,
} from './position.ts';
import { type Renamed, renamedOptions } from './renamings.ts';
import type { Test } from './rule-tests.ts';
import { type Demands, NO_DEMANDS } from './rules.ts';

/** A tool's result as it is on the wire. */
export interface ToolResult {
  readonly content?: readonly unknown[] | undefined;
  readonly structuredContent?: Readonly<Record<string, unknown>> | undefined;
  readonly isError?: boolean | undefined;
  readonly [property: string]: unknown;
}

/**
 * Where a run stands, as the functions of bindings get it. `X` is what the machine's context is, as
 * JSON; `S` and `T` are the names of its states and tags.
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
   * Whether the run is where a binding's states would want it: in a state, `{ tag }`, and so on.
   * Needs no `this`.
   *
   * @throws InterlockError `ERR_INTERLOCK_BINDING` for a name that the workflow does not have
   */
  matches(state: StateExpression<S, T>): boolean;
}

/** A call that ended. `state` is the run's before the call, `context` as the handler left it. */
interface EndedFacts<X, S extends string, T extends string> extends RunFacts<X, S, T> {
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
}

/** A call that succeeded. */
export interface SucceededCall<
  X = Json | undefined,
  S extends string = string,
  T extends string = string,
> extends EndedFacts<X, S, T> {
  readonly result: ToolResult;
}

/** A call that failed: its result is an error, or a JSON-RPC error came in place of a result. */
export interface FailedCall<
  X = Json | undefined,
  S extends string = string,
  T extends string = string,
> extends EndedFacts<X, S, T> {
  readonly result?: ToolResult | undefined;
  readonly error?: unknown;
}

/** An event with a payload: for a statechart's guards and context, and for the trail. */
export interface EventWithPayload<E extends string = string> {
  readonly type: E;
  /** The properties of an object become the event's own; anything else is its `payload`. */
  readonly payload?: Json | undefined;
}

/**
 * An event, or a function that chooses one for a call. The function must be synchronous and free of
 * effects. Returning `undefined` sends no event.
 */
export type EventSource<E extends string, Call> =
  | E
  | ((call: Call) => E | EventWithPayload<E> | undefined);

/** An event source of either outcome, once its names are checked. */
export type AnyEventSource = string | ((call: never) => unknown);

/** The event of a source, where it is known before the call. */
export function eventNamed(source: AnyEventSource | undefined): string | undefined {
  return typeof source === 'function' ? undefined : source;
}

/** Whether a function chooses the event once the call has ended. */
export function isChosen(source: AnyEventSource | undefined): boolean {
  return source !== undefined && eventNamed(source) === undefined;
}

/** The events that an outcome may send; `undefined` where a function may choose any. */
export function eventsSent(
  { sends, ...sources }: Pick<AnyBinding, 'success' | 'failure' | 'sends'>,
  outcome: 'success' | 'failure',
): readonly string[] | undefined {
  const source = sources[outcome];
  if (source === undefined) return [];
  return typeof source === 'string' ? [source] : sends;
}

/** @throws InterlockError `ERR_INTERLOCK_EVENT` unless it is a non-empty string. */
export function parseEvent(what: string, event: unknown): string {
  if (typeof event === 'string' && event !== '') return event;
  const message = `${what}: expected the name of an event, got ${showValue(event)}`;
  throw new InterlockError('ERR_INTERLOCK_EVENT', message);
}

/**
 * The name of an event, or a function.
 *
 * @throws InterlockError as {@link parseEvent}, and as {@link assertSynchronous}
 */
function parseSource(what: string, option: string, source: unknown): AnyEventSource {
  if (typeof source !== 'function') return parseEvent(what, source);
  assertSynchronous(what, option, source);
  return source as AnyEventSource;
}

/**
 * A function that is not marked `async` may still return a promise; that shows after the call.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for an `async` function
 */
export function assertSynchronous(what: string, option: string, value: unknown): void {
  if (typeof value !== 'function') return;
  if (!Object.prototype.toString.call(value).startsWith('[object Async')) return;
  const message = `${what}: "${option}" must not be an async function`;
  throw new InterlockError(
    'ERR_INTERLOCK_BINDING',
    `${message}: the gate saves the move before the client sees the result, and waits for nothing`,
  );
}

/**
 * What an error of a tool says of its outcome: `'failed'`, so that the same call may be made again
 * under another idempotency key; or `'unknown'`. A function gets the result, or the JSON-RPC error
 * where there is none. It must be synchronous and free of effects.
 */
export type ErrorRule =
  | 'failed'
  | 'unknown'
  | ((result: ToolResult | undefined, error: unknown) => 'failed' | 'unknown');

/** Whether a result without `isError` is a success. */
export type ResultTest = (result: ToolResult) => boolean;

/** What counts as success, checked. */
export interface Success {
  /** The function, or the condition on what {@link Success.results} says. */
  readonly test: ResultTest | ConditionTest;
  readonly isCondition: boolean;
  readonly results: 'structured' | 'text';
}

/**
 * Whether a binding is about a call with these arguments. Must be quick, synchronous and free of
 * effects.
 */
export type ArgumentsTest = (args: Record<string, unknown>) => boolean;

/** A call as a guard gets it, before the gate forwards it. */
export interface GuardedCall<
  X = Json | undefined,
  S extends string = string,
  T extends string = string,
> extends RunFacts<X, S, T> {
  /** The run key. */
  readonly run: string;
  /** The tool's name; of a prompt its name, of a resource its URI. */
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
}

/** `true` lets a call through. Anything else refuses it; the model reads a string. */
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
   * The run key. Absent in a gate that is not mounted, and for a list that is the same in every
   * state. Such a list shows what a new run would see.
   */
  readonly run?: string | undefined;
}

/**
 * Whether a client sees a tool. Must be quick, synchronous and free of effects, and always answer
 * the same for the same run. Anything but `true` hides the tool.
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
> extends Renamed {
  /**
   * The event that a successful call sends, or a function that chooses it by the call's arguments
   * and result. Default: none, so the call moves nothing.
   */
  readonly success?: EventSource<E, SucceededCall<X, S, T>> | undefined;
  /**
   * The event that a failed call sends, or a function that chooses it. A call fails when its result
   * is an error. Default: none, so the run stays where it is.
   */
  readonly failure?: EventSource<E, FailedCall<X, S, T>> | undefined;
  /**
   * The events that `success` and `failure` may send where they are functions. Ways and proofs then
   * follow these alone. A function that returns another event holds the run. Default: any event
   * that the state handles.
   */
  readonly sends?: readonly E[] | undefined;
  /**
   * How many failures of the tool leave the run where it is, before the next one sends `failure`.
   * The count starts anew whenever the run changes its state; for a statechart, whenever the text
   * of its active states changes. An unknown outcome and a cancelled task are no failures. At least
   * 1, beside `failure` only. Default: none.
   */
  readonly retries?: number | undefined;
  /**
   * What an error of the tool says of its outcome. With `'unknown'`, such as for a payment whose
   * provider may time out, `uncertain` says what follows. A function that throws, or answers
   * anything else, holds the run. Default: `'failed'`.
   */
  readonly errors?: ErrorRule | undefined;
  /**
   * What counts as success, for a tool that answers "not found" without `isError`. It is a
   * condition on the result, such as `{ status: 'approved' }`, or a function of it. A result that
   * does not meet it is a failure, of the kind `not_ok`. Where the result leaves it open, or the
   * function throws or returns no boolean, a step is held. The function must be synchronous and
   * free of effects.
   * Default: each result without `isError`.
   */
  readonly ok?: Condition | ResultTest | undefined;
  /**
   * What the condition `ok` reads. `'structured'`: the result's `structuredContent`. `'text'`:
   * where that is absent, its one text block, if that is JSON of at most 64 kB. Default
   * `'structured'`.
   */
  readonly results?: 'structured' | 'text' | undefined;
  /**
   * How often the tool may be called in a run, or how much its calls may add up to; each of a list.
   * It makes each call a step. Default: no limit.
   */
  readonly limit?: Limit | readonly Limit[] | undefined;
  /**
   * Asked before the gate forwards the call. Where the guard throws, or takes longer than its
   * deadline, the gate refuses the call. Default: none.
   */
  readonly guard?: Guard<X, S, T> | undefined;
  /**
   * Who sees the tool. While it says no, the gate names the tool nowhere, and refuses its calls as
   * out of order. Of several bindings, one that is available in the state and says yes is enough.
   * Default: all clients.
   */
  readonly visible?: VisibleTest<X, S, T> | undefined;
  /**
   * Binds one action of a tool that does several things: the binding gates only calls whose
   * arguments `when` accepts. If it throws, or returns anything but a boolean, the gate refuses the
   * call. Default: every call.
   */
  readonly when?: ArgumentsTest | undefined;
  /**
   * What happens after a call with an unknown outcome. `'hold'` stops the run until the operator
   * resolves it. `'retry'` lets the same call through again, with the same idempotency key where
   * its arguments are the same. Default: `'retry'` where the tool's annotations allow it, else
   * `'hold'`.
   */
  readonly uncertain?: Uncertain | undefined;
  /**
   * The author's word that the tool changes nothing. It is needed beside `whileHeld`, and means
   * nothing without it. Default `false`.
   */
  readonly readOnly?: boolean | undefined;
  /**
   * Whether calls go on while the run is held, also under a loop shield, which counts none of them
   * then. For a binding without an event, beside `readOnly: true`. Default: a call that needs the
   * run's claim waits for the operator. That is each call under a loop shield, and of a tool that
   * sends an event in other states or for other arguments.
   */
  readonly whileHeld?: boolean | undefined;
}

/** A tool, the states in which it is available, and the events that its outcomes send. */
export interface Binding<
  S extends string = string,
  E extends string = string,
  T extends string = never,
  X = Json | undefined,
> extends BindingOptions<E, X> {
  /** The tool's name on the wire. */
  readonly tool: string;
  /** The run must be in one of them. */
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

/**
 * How the calls of a tool run.
 *
 * - `step`: one at a time in each run, with a claim, an idempotency key, and a trail.
 * - `recorded`: beside others, without a claim. The run records a success before that is seen.
 * - `free`: beside others, and nothing is saved.
 */
export type BindingKind = 'step' | 'recorded' | 'free';

/** A binding once its names are checked, so that their types no longer matter. */
export interface AnyBinding extends Binding<string, string, string> {
  /** `ok`, checked. */
  readonly isOk?: Success | undefined;
  /** What rules of order say of it. Default: a step where it sends an event, else free. */
  readonly kind?: BindingKind | undefined;
  /** What its rule, or its `limit`, asks of earlier calls, where the state does not say it. */
  readonly demands?: Demands | undefined;
  /** Who sees the tool, by what is claimed of the caller. */
  readonly caller?: Test | undefined;
}

/** How the calls of a binding run. */
export function kindOfCalls({ kind, success, failure, demands }: AnyBinding): BindingKind {
  const isFree = success === undefined && failure === undefined && demands === undefined;
  return kind ?? (isFree ? 'free' : 'step');
}

/** The option `errors` of a binding, or of a rule of order. */
export const errorsOption = lazily(() =>
  z.optional(
    z.union([z.enum(['failed', 'unknown']), functionOption<Exclude<ErrorRule, string>>()]),
  ),
);

/** The options `ok` and `results` of a binding, or of a rule of order. */
export const okOptions = lazily(() => ({
  ok: uncheckedOption(),
  results: z.optional(z.enum(['structured', 'text'])),
}));

/** @throws InterlockError `ERR_INTERLOCK_CONFIG`, and as {@link assertSynchronous} */
export function parseOk(
  what: string,
  { ok, results }: { readonly ok?: unknown; readonly results?: Success['results'] | undefined },
): Success | undefined {
  if (ok === undefined) {
    if (results === undefined) return undefined;
    throw configError(`${what}: "results" says what "ok" reads, and has no effect without it`);
  }
  assertSynchronous(what, 'ok', ok);
  const isCondition = typeof ok !== 'function';
  if (!isCondition && results !== undefined)
    throw configError(
      `${what}: "results" says what a condition reads, and "ok" is a function: leave one out`,
    );
  const test = isCondition ? parseCondition(`${what}: ok`, ok) : (ok as ResultTest);
  return Object.freeze({ test, isCondition, results: results ?? 'structured' });
}

const optionsSchema = lazyOptions(() => ({
  ...okOptions(),
  ...renamedOptions(),
  success: uncheckedOption(),
  failure: uncheckedOption(),
  sends: z.optional(z.array(z.string()).check(z.minLength(1))),
  retries: z.optional(integerOption(1)),
  errors: errorsOption(),
  guard: optionalFunction<Guard>(),
  visible: optionalFunction<VisibleTest>(),
  when: optionalFunction<ArgumentsTest>(),
  uncertain: z.optional(z.enum(['hold', 'retry'])),
  readOnly: z.optional(z.boolean()),
  whileHeld: z.optional(z.boolean()),
  limit: uncheckedOption(),
}));

/**
 * Checks the shape of a binding; {@link checkBinding} checks it against a workflow.
 *
 * @throws InterlockError `ERR_INTERLOCK_BINDING` for the name, the states and async functions,
 * `ERR_INTERLOCK_EVENT` for the events, `ERR_INTERLOCK_CONFIG` for the other options.
 */
export function parseBinding(name: unknown, states: unknown, event: unknown): AnyBinding {
  const tool = parseToolName(name);
  const { success, failure, limit, ...rest } = parseEventOrOptions(tool, event);
  const what = `tool ${showValue(tool)}`;
  const limits = parseLimits(`binding of ${what}: limit`, tool, limit);
  const isMoving = success !== undefined || failure !== undefined;
  const isLimited = limits.length > 0;
  const { whileHeld = false, readOnly = false } = rest;
  const [given, missing] = whileHeld ? ['whileHeld', 'readOnly'] : ['readOnly', 'whileHeld'];
  const faults: readonly (readonly [isSo: boolean, words: string])[] = [
    [
      rest.retries !== undefined && failure === undefined,
      '"retries" counts the failures before "failure" is sent; give "failure" too',
    ],
    [
      rest.sends !== undefined && ![success, failure].some((each) => typeof each === 'function'),
      '"sends" lists what a function may send; give a function as "success" or "failure", or leave ' +
        '"sends" out',
    ],
    [
      whileHeld && isMoving,
      '"whileHeld" lets reads through, and ' +
        `"${success === undefined ? 'failure' : 'success'}" moves the run; leave one of the two ` +
        'out, or bind the reads apart, by a "when" or other states',
    ],
    [
      whileHeld && isLimited,
      '"limit" makes each call a step, and "whileHeld" lets reads through; leave one of the two out',
    ],
    [
      rest.when !== undefined && isLimited,
      '"limit" counts all calls of the tool, and "when" binds some of them; say which calls count ' +
        'by a condition: limit: { times, when }',
    ],
    [
      whileHeld !== readOnly,
      `"${given}" has no effect without "${missing}": true; give both, or none`,
    ],
    [
      rest.ok !== undefined && !isMoving && !isLimited,
      '"ok" distinguishes success and failure; give "success", "failure" or "limit" too',
    ],
  ];
  const [, fault] = faults.find(([isSo]) => isSo) ?? [];
  if (fault !== undefined) throw configError(`binding of ${what}: ${fault}`);
  assertSynchronous(what, 'errors', rest.errors);
  const isOk = parseOk(`binding of ${what}`, rest);
  return Object.freeze({
    tool,
    states: parseStates(what, states),
    ...(success === undefined ? {} : { success: parseSource(what, 'success', success) }),
    ...(failure === undefined ? {} : { failure: parseSource(what, 'failure', failure) }),
    ...rest,
    ...(isOk && { isOk }),
    ...(isLimited && { limit, demands: { ...NO_DEMANDS, tool, limits } }),
  }) as AnyBinding;
}

/**
 * The bindings in a declaration by `tool()`.
 *
 * @throws InterlockError as {@link parseBinding}, and `ERR_INTERLOCK_BINDING` for any other value
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
function namedEvents(binding: AnyBinding): string[] {
  return [...(eventsSent(binding, 'success') ?? []), ...(eventsSent(binding, 'failure') ?? [])];
}

function parseEventOrOptions(
  tool: string,
  event: unknown,
): Partial<ParsedBy<typeof optionsSchema>> {
  if (isTable(event))
    return parseOptions(`binding of tool ${showValue(tool)}`, optionsSchema, event);
  return { success: event };
}

/**
 * Checks a binding against the workflow.
 *
 * @returns the binding as the machine takes it: a flat machine takes plain names only
 * @throws InterlockError `ERR_INTERLOCK_BINDING` as {@link resolveStates}; `ERR_INTERLOCK_EVENT`
 * for an event that no state handles
 */
export function checkBinding(model: Model, binding: AnyBinding): AnyBinding {
  const { tool } = binding;
  const states = resolveStates(model, `tool ${showValue(tool)}`, binding.states);
  const resolved = states === binding.states ? binding : Object.freeze({ ...binding, states });
  for (const event of namedEvents(binding)) {
    const isFree = model.isFlat || !isReserved(event);
    if (isFree && model.handlers(event).length > 0) continue;
    const fault = `tool ${showValue(tool)} sends ${showValue(event)}, which no state handles`;
    const right = rightNames(event, model.events);
    throw new InterlockError('ERR_INTERLOCK_EVENT', `workflow "${model.id}": ${fault}; ${right}`);
  }
  return resolved;
}

/** What is odd about a binding, though allowed. */
export interface Oddity {
  readonly code: 'tool-rebound' | 'event-unhandled';
  readonly tool: string;
  /** In words for developers. */
  readonly message: string;
}

/**
 * Warns that a tool is bound again, since the new bindings do not replace the old ones. It does not
 * warn where `when` distinguishes the calls, nor within one declaration.
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

/** Warns of an event that no state of the binding handles, since it moves nothing. */
export function bindingWarnings(model: Model, binding: AnyBinding): Oddity[] {
  const { tool } = binding;
  return namedEvents(binding).flatMap((event): Oddity[] => {
    const handling = model.handlers(event);
    if (model.canBeIn(binding.states, handling)) return [];
    const sends = `workflow "${model.id}": tool ${showValue(tool)} sends ${showValue(event)}`;
    const others = handling.map(showValue).join(', ');
    const message = `${sends}, which none of its states handles; states that do are ${others}`;
    return [{ code: 'event-unhandled', tool, message }];
  });
}
