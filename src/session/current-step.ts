import type { IncomingMessage } from 'node:http';
import { InterlockError } from '../errors.ts';
import { newToken } from '../ids.ts';
import { showValue } from '../options.ts';
import type { Json, RunKey } from '../stores/store.ts';
import type { Call } from '../wire/call.ts';
import { Exchange, Note } from '../wire/exchange.ts';
import { isObject, META_TRY } from '../wire/json-rpc.ts';

/** The step that a tool's handler runs in, when it runs in the same process as the gate. */
export interface CurrentStep {
  /** The run key. */
  readonly run: string;
  /** The gate's id. */
  readonly workflow: string;
  readonly tool: string;
  /** The run's state when the call was let through. */
  readonly state: string;
  /** The run's shared data; for a statechart its context. */
  readonly context: Json | undefined;
  /**
   * Changes the run's shared data, and returns it. It is saved with the outcome, whichever that is,
   * and lost where nobody learns the outcome; call it before `commitIn()`.
   *
   * @throws Error where it is no JSON; and whatever `change` throws
   */
  update(change: (context: Json | undefined) => Json | undefined): Json | undefined;
  /**
   * For payment providers and the like: the same for every try of one step whose outcome was
   * unknown.
   */
  readonly idempotencyKey: string;
  /**
   * Saves the move of this step's success in the transaction that is open on `client`, so that the
   * handler's own writes and the move are one: both are there after its COMMIT, neither after a
   * ROLLBACK. Needs a store that has transactions, such as `mcp-interlock/stores/postgres`. Return
   * a successful result afterwards.
   *
   * @throws Error where the store has none, or the step is not this call's any more. Roll back
   * then.
   */
  commitIn(client: unknown): Promise<void>;
}

/** What a handler was given, and the gate has marked. */
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

/** One gate's step, as the try that it belongs to keeps it. */
export interface HandlersStep {
  readonly key: RunKey;
  /** Whether what the step saves is settled: what its handler began may go on for long. */
  readonly isOver: boolean;
  /** Whether no answer of the call is waited for any more. */
  readonly hasEnded: boolean;
  /** What the handler sees; the same object each time. */
  readonly facade: CurrentStep;
}

/**
 * One call that is forwarded once, and the steps that it is: one of each gate that claimed it, in
 * mount order.
 */
export class Try {
  /**
   * It finds the steps, so a client must never be able to name one. Not the idempotency key, which
   * a later try shares, and not a claim's token, which settles.
   */
  readonly id = newToken();
  readonly #steps: HandlersStep[] = [];

  /** The try that the message goes on as, once a gate has claimed it. */
  static of(incoming: Call): Try | undefined {
    return incoming.attempt as Try | undefined;
  }

  static begin(incoming: Call): Try {
    const begun = new Try();
    incoming.attempt = begun;
    return begun;
  }

  add(step: HandlersStep): void {
    this.#steps.push(step);
    ended.delete(this.id);
    open.set(this.id, this);
  }

  /** The try needs to be found only by what its handlers left behind, if anything. */
  rest(): void {
    if (!this.#steps.every(({ hasEnded }) => hasEnded) || !open.delete(this.id)) return;
    ended.set(this.id, this);
    const forgotten = endedIds[oldest];
    if (forgotten !== undefined) ended.delete(forgotten);
    endedIds[oldest] = this.id;
    oldest = (oldest + 1) % MOST_ENDED;
  }

  /** The step of the gate that is mounted last, or of the one that is named. */
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

/** What has ended is found for as long as so many others have not ended after it. */
const MOST_ENDED = 1_000;

/** By what the handler was given. */
const owners = new Note<CurrentStep, Try>();

const open = new Map<string, Try>();
const ended = new Map<string, Try>();
/** A ring of the ids of those that ended, and where the oldest one stands. */
const endedIds: string[] = [];
let oldest = 0;

/** The way by which code finds out by itself that it runs inside of a step. */
export interface Ambient {
  run(inside: Inside, task: () => void): void;
  getStore(): Inside | undefined;
}

/** A try that code runs in, and the one around it. */
interface Inside {
  readonly held: Try;
  readonly outer: Inside | undefined;
}

let ambient: Ambient | undefined;

/** What `import 'mcp-interlock/ambient'` does. */
export function turnOnAmbient(by: Ambient): void {
  ambient ??= by;
}

/**
 * The step that a call runs in, or `undefined` outside of one: in an ungated call, or in another
 * process than the gate's.
 *
 * @param source what the tool's handler was given: `extra` of the SDK's version 1, `ctx` of its
 * version 2. Or the request: Express's `req`, or the `Request` of `gateFetch()`'s handler. By the
 * request the tool calls of a batch cannot be told apart, and have no step.
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

/**
 * Runs `task`, and all that it begins, inside of the one step that the exchange is forwarded as.
 */
export function insideStep(exchange: Exchange, task: () => void): void {
  const held = ambient && tryIn(exchange);
  const outer = ambient?.getStore();
  if (ambient === undefined || held === undefined || held === outer?.held) task();
  else ambient.run({ held, outer }, task);
}

/**
 * The step of this run and gate, while its outcome is open: of the call that `given` is a step of,
 * or else the one that this code is known to run in.
 */
export function openStepOf(
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

/**
 * Whether a step of this run and gate is open in this process, and code in it could not be told.
 */
export function mayBeInside(run: string, workflow: string): boolean {
  if (ambient !== undefined) return false;
  for (const held of open.values()) if (held.openStep(run, workflow) !== undefined) return true;
  return false;
}

/** Whether it is what {@link currentStep} returned. */
export function isCurrentStep(value: unknown): value is CurrentStep {
  return isObject(value) && owners.of(value as unknown as CurrentStep) !== undefined;
}

function tryOf(source: unknown): Try | undefined {
  if (!isObject(source)) throw noSource(source);
  const exchange = Exchange.known(source as unknown as IncomingMessage);
  if (exchange !== undefined) return tryIn(exchange);
  const { mcpReq } = source;
  if (isObject(mcpReq)) return tryNamed(mcpReq._meta);
  if ('_meta' in source || 'requestId' in source) return tryNamed(source._meta);
  // A request that passed no middleware.
  if (typeof source.method === 'string' && isObject(source.headers)) return undefined;
  throw noSource(source);
}

function tryNamed(meta: unknown): Try | undefined {
  const id = isObject(meta) && Object.hasOwn(meta, META_TRY) ? meta[META_TRY] : undefined;
  return typeof id === 'string' ? (open.get(id) ?? ended.get(id)) : undefined;
}

/** Handlers of one batch cannot be told apart, and none must find itself in the step of another. */
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
