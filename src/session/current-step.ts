/**
 * How code in a tool's handler finds the step that it runs in. Hides the id by which a call is
 * found again, and the memory of steps that are over.
 */
import type { IncomingMessage } from 'node:http';
import { InterlockError } from '../basics/errors.ts';
import { newToken, SESSION_HEADER } from '../basics/names.ts';
import { showValue } from '../basics/options.ts';
import type { Json, RunKey } from '../stores/store.ts';
import type { Call } from '../wire/call.ts';
import { Exchange, Note, notePlaceOf } from '../wire/exchange.ts';
import { isObject, META_TRY } from '../wire/json-rpc.ts';

/** The step that a tool's handler runs in, where that is the gate's own process. */
export interface CurrentStep {
  /** The run key. */
  readonly run: string;
  /** The gate's id. */
  readonly workflow: string;
  readonly tool: string;
  /** The run's state when the call was let through. */
  readonly state: string;
  /** The run's shared data; for a statechart, its context. */
  readonly context: Json | undefined;
  /**
   * Changes the run's shared data, and returns them. They are saved with the outcome, a failure
   * too, and lost where the outcome stays unknown. Call it before `commitIn()`.
   *
   * @throws Error where the data are no JSON, and from `commitIn()` or `unknown()` on; what
   * `change` throws
   */
  update(change: (context: Json | undefined) => Json | undefined): Json | undefined;
  /**
   * For payment providers and the like: the same for every try of one step whose outcome was
   * unknown.
   */
  readonly idempotencyKey: string;
  /**
   * Saves the move of this step's success in the transaction that is open on `client`. So the
   * handler's own writes and the move are saved together by its COMMIT, or neither of them. Return
   * a successful result afterwards. Needs a store with transactions:
   * `mcp-interlock/stores/postgres`.
   *
   * @throws Error where the store has no transactions, after `unknown()`, or where the step has
   * ended or was taken over. Roll back then.
   */
  commitIn(client: unknown): Promise<void>;
  /**
   * Says that the handler does not know what its call came to: a provider's time-out, say. What the
   * handler returns or throws afterwards does not count. The binding's `uncertain` says what
   * follows: a held run, or a next try with the same key. Where several gates claimed the call, it
   * is said to each of them.
   *
   * @param words why, for the model, the events and `onError`. Default: none
   * @throws Error from `commitIn()` on, or where the step is over
   */
  unknown(words?: string): void;
}

/** What a handler was given: the gate has marked it, or knows it. */
export type StepSource =
  | { readonly _meta?: object | undefined; readonly requestId: string | number }
  | { readonly mcpReq: { readonly _meta?: object | undefined } }
  | IncomingMessage
  | Request;

/** Options of {@link currentStep}. */
export interface CurrentStepOptions {
  /** Which gate's step, where several are mounted. Default: that of the gate mounted last. */
  gate?: { readonly id: string } | undefined;
}

/** One gate's step of a call. */
export interface HandlersStep {
  readonly key: RunKey;
  /** Whether the step is settled. What its handler began may go on for long. */
  readonly isOver: boolean;
  /** Whether the gate waits no more for an answer to the call. */
  readonly hasEnded: boolean;
  /** Whether its handler has saved the success, or is about to. */
  readonly isSavedByHandler: boolean;
  /** Its handler does not know the outcome. */
  doubt(words: string | undefined): void;
  /** What the handler sees; the same object each time. */
  readonly facade: CurrentStep;
}

/** One forwarded call, with its steps: one of each gate that claimed it, in mount order. */
export class Try {
  /**
   * Finds the steps, so no client may ever name it. Not the idempotency key, which a later try
   * shares; not a claim's token, which could settle the step.
   */
  get id(): string {
    this.#id ??= newToken();
    return this.#id;
  }

  #id: string | undefined;
  readonly #steps: HandlersStep[] = [];

  /** The try of a message that a gate has claimed. */
  static of(incoming: Call): Try | undefined {
    return incoming.attempt as Try | undefined;
  }

  static begin(incoming: Call): Try {
    const begun = new Try();
    incoming.attempt = begun;
    return begun;
  }

  /** Adds a step of a call that passes as it is: no mark in its message has the id. */
  addUnmarked(step: HandlersStep): void {
    this.#steps.push(step);
  }

  add(step: HandlersStep): void {
    this.#steps.push(step);
    ended.delete(this.id);
    open.set(this.id, this);
  }

  /**
   * Moves the try to those that ended, once each of its steps has. Late code may still ask for it.
   */
  rest(): void {
    if (this.#id === undefined) return;
    if (!this.#steps.every(({ hasEnded }) => hasEnded) || !open.delete(this.id)) return;
    ended.set(this.id, this);
    const forgotten = endedIds[oldest];
    if (forgotten !== undefined) ended.delete(forgotten);
    endedIds[oldest] = this.id;
    oldest = (oldest + 1) % MOST_ENDED;
  }

  /**
   * The handler does not know the outcome: no step of the call does.
   *
   * @throws Error where it has saved one of them, or is about to
   */
  doubt(words: string | undefined): void {
    if (this.#steps.some(({ isSavedByHandler }) => isSavedByHandler))
      throw new Error('unknown() came after commitIn(), which says that the step was done');
    for (const step of this.#steps) if (!step.isOver) step.doubt(words);
  }

  /** The step of the named gate. Default: of the gate that is mounted last. */
  step(workflow?: string): CurrentStep | undefined {
    const found = this.#steps.findLast(
      ({ key }) => workflow === undefined || key.workflow === workflow,
    );
    if (found === undefined) return undefined;
    const { facade } = found;
    if (owners.of(facade) === undefined) owners.put(facade, this);
    return facade;
  }

  /** The step of this run and gate, while its outcome is open. */
  openStep(run: string, workflow: string): CurrentStep | undefined {
    return this.#steps.find(
      ({ key, isOver }) => key.run === run && key.workflow === workflow && !isOver,
    )?.facade;
  }
}

/** How many ended tries are remembered. */
const MOST_ENDED = 1_000;

/** The tries of the steps that handlers were given. */
const owners = new Note<CurrentStep, Try>();

/**
 * The tries of calls that pass as they are, by the id of their request: the gate leaves no mark in
 * these. Several clients may use one id.
 */
const observed = new Map<string, Set<ObservedTry>>();

/** A try of a call that passes as it is. */
class ObservedTry {
  readonly session: string | undefined;
  readonly held: Try;

  constructor(session: string | undefined, held: Try) {
    this.session = session;
    this.held = held;
  }
}

/**
 * Lets a handler find the step of a call that passes as it is, until the returned function is
 * called.
 *
 * @param request Node's request, or the one that the handler of `gateFetch()` gets
 */
export function showObserved(
  incoming: Call,
  step: HandlersStep,
  request: object,
  session: string | undefined,
): () => void {
  const held = Try.of(incoming) ?? Try.begin(incoming);
  held.addUnmarked(step);
  const key = keyOfId(incoming.id);
  const tries = observed.get(key) ?? new Set();
  observed.set(key, tries);
  const own = new ObservedTry(session, held);
  tries.add(own);
  const place = notePlaceOf(request);
  byRequest.put(place, [...(byRequest.of(place) ?? []), held]);
  return () => {
    held.rest();
    tries.delete(own);
    if (tries.size === 0) observed.delete(key);
  };
}

const byRequest = new Note<object, readonly Try[]>();

function keyOfId(id: unknown): string {
  return JSON.stringify(id) ?? '';
}

/** The try of a request's id; `undefined` where several clients' calls have it. */
function observedOf(source: Record<string, unknown>, id: unknown): Try | undefined {
  const tries = [...(observed.get(keyOfId(id)) ?? [])];
  const session = sessionNamed(source);
  const [only, ...others] = tries.filter((each) => each.session === session);
  if (only !== undefined && others.length === 0) return only.held;
  return tries.length === 1 ? tries[0]?.held : undefined;
}

/** The session's id, where what a handler was given has the request's headers. */
function sessionNamed(source: Record<string, unknown>): string | undefined {
  const { requestInfo, http } = source;
  const headers = isObject(requestInfo)
    ? requestInfo.headers
    : isObject(http) && isObject(http.req)
      ? http.req.headers
      : undefined;
  if (headers instanceof Headers) return headers.get(SESSION_HEADER) ?? undefined;
  const found = isObject(headers) ? headers[SESSION_HEADER] : undefined;
  return typeof found === 'string' ? found : undefined;
}

const open = new Map<string, Try>();
const ended = new Map<string, Try>();
/** A ring of the ids of ended tries, and the place of the oldest. */
const endedIds: string[] = [];
let oldest = 0;

/** Finds the step that code runs in, without an argument: Node's `AsyncLocalStorage`. */
export interface Ambient {
  run(inside: Inside, task: () => void): void;
  getStore(): Inside | undefined;
}

/** The try that code runs in, and the one around it. */
interface Inside {
  readonly held: Try;
  readonly outer: Inside | undefined;
}

let ambient: Ambient | undefined;

/** For `import 'mcp-interlock/ambient'`. */
export function turnOnAmbient(by: Ambient): void {
  ambient ??= by;
}

/**
 * The step that a call runs in, or `undefined` outside of one: in an ungated call, or in another
 * process than the gate's.
 *
 * @param source what the tool's handler was given: `extra` of the SDK's version 1, `ctx` of its
 * version 2. Or the request: Express's `req`, or the `Request` of `gateFetch()`'s handler. The
 * request does not distinguish the tool calls of a batch, so they have no step.
 * @throws InterlockError `ERR_INTERLOCK_STEP` for anything else
 */
export function currentStep(
  source: StepSource,
  options?: CurrentStepOptions,
): CurrentStep | undefined;
/**
 * The step that this code runs in. Needs `import 'mcp-interlock/ambient'`.
 *
 * @throws InterlockError `ERR_INTERLOCK_STEP` without that
 */
export function currentStep(): CurrentStep | undefined;
export function currentStep(
  ...given: [source?: unknown, options?: CurrentStepOptions]
): CurrentStep | undefined {
  if (given.length > 0) {
    const [source, options] = given;
    const workflow = workflowIn(options);
    return tryOf(source)?.step(workflow);
  }
  if (ambient === undefined) throw bare();
  return ambient.getStore()?.held.step();
}

/** Runs `task` inside of the exchange's step, with all that it begins. */
export function insideStep(exchange: Exchange, task: () => void): void {
  const held = ambient && tryIn(exchange);
  const outer = ambient?.getStore();
  if (ambient === undefined || held === undefined || held === outer?.held) task();
  else ambient.run({ held, outer }, task);
}

/**
 * The open step of this run and gate that the code is in. It belongs to the same call as `given`,
 * or is one that the code is known to run in.
 */
function openStepOf(
  run: string,
  workflow: string,
  given: CurrentStep | undefined,
): CurrentStep | undefined {
  const found = given && owners.of(given)?.openStep(run, workflow);
  if (found !== undefined) return found;
  for (let inside = ambient?.getStore(); inside !== undefined; inside = inside.outer) {
    const step = inside.held.openStep(run, workflow);
    if (step !== undefined) return step;
  }
  return undefined;
}

/** Whether code may be in an open step of this run and gate without being known to. */
function mayBeInside(run: string, workflow: string): boolean {
  if (ambient !== undefined) return false;
  for (const held of open.values()) if (held.openStep(run, workflow) !== undefined) return true;
  return false;
}

/** Who moves runs outside of any request, and gets the warnings of likely mistakes. */
interface Moving {
  readonly workflow: { readonly id: string };
  readonly onWarning: (warning: string) => void;
}

/** The workflows for which this warning was given. */
const warned = new WeakSet<Moving['workflow']>();

/** The run's open step that makes the call. A call that does not know it would wait for it. */
export function ownStep(
  what: string,
  run: string,
  given: CurrentStep | undefined,
  { workflow, onWarning }: Moving,
): CurrentStep | undefined {
  const own = openStepOf(run, workflow.id, given);
  if (own !== undefined || given !== undefined || warned.has(workflow)) return own;
  if (mayBeInside(run, workflow.id)) {
    warned.add(workflow);
    onWarning(waitsForStep(what, workflow.id));
  }
  return undefined;
}

function waitsForStep(what: string, workflow: string): string {
  return (
    `runs.${what} waits for a step of the same run, open in ${JSON.stringify(workflow)}. If that ` +
    "step's own handler makes the call, they wait for each other. Give it { step: " +
    'currentStep(extra) }, or import "mcp-interlock/ambient". Otherwise nothing is wrong'
  );
}

/** Whether it is what {@link currentStep} returned. */
export function isCurrentStep(value: unknown): value is CurrentStep {
  return isObject(value) && owners.of(value as unknown as CurrentStep) !== undefined;
}

function tryOf(source: unknown): Try | undefined {
  if (!isObject(source)) throw noSource(source);
  const exchange = Exchange.known(source);
  if (exchange !== undefined) return tryIn(exchange);
  const passed = byRequest.of(notePlaceOf(source));
  if (passed !== undefined) return passed.length === 1 ? passed[0] : undefined;
  const { mcpReq } = source;
  if (isObject(mcpReq)) return tryNamed(mcpReq._meta) ?? observedOf(source, mcpReq.id);
  if ('_meta' in source || 'requestId' in source)
    return tryNamed(source._meta) ?? observedOf(source, source.requestId);
  // A request that passed no middleware.
  if (typeof source.method === 'string' && isObject(source.headers)) return undefined;
  throw noSource(source);
}

function tryNamed(meta: unknown): Try | undefined {
  const id = isObject(meta) && Object.hasOwn(meta, META_TRY) ? meta[META_TRY] : undefined;
  return typeof id === 'string' ? (open.get(id) ?? ended.get(id)) : undefined;
}

/** Their request does not distinguish the calls of one batch, so none finds a step by it. */
function tryIn({ forwardable }: Exchange): Try | undefined {
  const [call, ...others] = forwardable.filter(({ method }) => method === 'tools/call');
  return call === undefined || others.length > 0 ? undefined : Try.of(call);
}

function workflowIn(options: CurrentStepOptions | undefined): string | undefined {
  if (options === undefined) return undefined;
  const gate = isObject(options) ? options.gate : options;
  if (gate === undefined) return undefined;
  if (isObject(gate) && typeof gate.id === 'string') return gate.id;
  throw new InterlockError(
    'ERR_INTERLOCK_STEP',
    `currentStep(extra, { gate }): the gate must be a StateMachineGate, got ${showValue(gate)}`,
  );
}

function noSource(source: unknown): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STEP',
    'currentStep(extra): give it what the handler was given: extra (SDK 1), ctx (SDK 2), or ' +
      `the request; got ${showValue(source)}. It is a tool's first argument where the tool has ` +
      'no inputSchema, and else its second',
  );
}

function bare(): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STEP',
    'currentStep() cannot know which call it is in: give it what the handler was given, as in ' +
      "currentStep(extra), or import 'mcp-interlock/ambient'",
  );
}
