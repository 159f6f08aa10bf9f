/**
 * The one stream of what the middlewares decide: each event's shape, and the door through which all
 * of them leave. Hides who listens, what is told once only, and that a run's key is a credential.
 */
import { createHash } from 'node:crypto';
import diagnosticsChannel from 'node:diagnostics_channel';

/** The name of the `diagnostics_channel` on which every event is published. */
export const EVENT_CHANNEL = 'mcp-interlock';

/** Why a call was refused. */
export type RefusalReason =
  | 'state'
  | 'arguments'
  | 'guard'
  | 'busy'
  | 'held'
  | 'loop'
  | 'unavailable'
  | 'no-run';

/** How a run is named. */
interface NamedRun {
  /**
   * The first 16 hex digits of the SHA-256 digest of the run's key: the key of a session is a
   * credential, and events are logged.
   */
  readonly run: string;
  /** The run's key. Not enumerable, so no logger writes it by accident. */
  readonly runKey: string;
}

/** What every event about a run says. */
interface OfRun extends NamedRun {
  /** The gate's id. */
  readonly workflow: string;
}

/** How a call is told from others. */
interface NamedCall {
  readonly tool: string;
  /** The id of the JSON-RPC request. */
  readonly requestId?: string | number | undefined;
  /** That of its `call.started`, where one was told in this process. */
  readonly call?: number | undefined;
}

/** The trace context that a request carries in `params._meta`, as it came (MCP, SEP-414). */
export interface TraceContext {
  readonly traceparent?: string | undefined;
  readonly tracestate?: string | undefined;
  readonly baggage?: string | undefined;
}

/** What a `tools/call` was answered, as its client saw it. */
export type CallOutcome =
  /** A result without `isError`; also one that asks for input, or that names a task. */
  | 'ok'
  /** A result with `isError`, of the tool's. */
  | 'tool_error'
  /** A JSON-RPC error, of the upstream's or of the middleware's. */
  | 'rpc_error'
  /** A gate refused it. */
  | 'refused'
  /** What it came to is unknown, or is not saved. Its client was told, unless it had left. */
  | 'unknown'
  /**
   * No answer of it passed: its client left or cancelled it, its HTTP request was turned away, or
   * its result comes on a stream that the client resumes.
   */
  | 'unanswered';

/** What both events about the whole of a `tools/call` say. */
interface OfRequest {
  /** Unique in this process, and the same in every event about the call. */
  readonly call: number;
  readonly tool: string;
  readonly requestId: string | number;
}

/** What every event about a call of a run says. */
interface OfCall extends OfRun, NamedCall {
  /** The state in which the call found the run, as it is stored. */
  readonly state: string;
  /** Who called: the principal, where there is one. */
  readonly actor?: string | undefined;
}

/** What the end of a step says. */
interface OfStep extends OfCall {
  /** Since its claim was asked for; of a task that another process began, since it was met here. */
  readonly durationMs: number;
  /** Of that, how long the store was waited for. */
  readonly storeMs: number;
  /** Another end of it was told before, since this one came late. */
  readonly isLate: boolean;
}

/** What went wrong. */
interface Failure {
  /** Of the error. That of a driver or of the app is in `error.cause` alone. */
  readonly message: string;
  /** Such as `ECONNREFUSED`: the error's own, or that of its cause. */
  readonly code?: string | undefined;
  /** Not enumerable: a driver's error may hold the keys of runs. */
  readonly error: unknown;
}

/** What each of them says beside its time. */
type EventBody =
  /**
   * A `tools/call` with an id came to the first gate of its route, of a bound tool or of another
   * one. One `call.ended` follows, whatever becomes of it.
   */
  | ({
      readonly type: 'call.started';
      /** What the request says of itself, by its header or its `_meta`. */
      readonly protocolVersion?: string | undefined;
      /** Whether it belongs to an MCP session. */
      readonly inSession: boolean;
      readonly trace?: TraceContext | undefined;
    } & OfRequest)
  /**
   * Its answer goes out, or none will. After every event about its steps, unless one is late or a
   * task carries it on.
   */
  | ({
      readonly type: 'call.ended';
      readonly outcome: CallOutcome;
      /** Of a JSON-RPC error. */
      readonly code?: number | undefined;
      /** Of a refusal, where its client was told. */
      readonly reason?: RefusalReason | undefined;
      readonly durationMs: number;
    } & OfRequest)
  /** A gate refused it. */
  | ({
      readonly type: 'call.refused';
      readonly workflow: string;
      readonly reason: RefusalReason;
      readonly state?: string | undefined;
      readonly actor?: string | undefined;
    } & NamedCall &
      Partial<NamedRun>)
  /**
   * It waited for its run's turn, in this process or for another one's claim. `state`: absent where
   * the run was not seen.
   */
  | ({
      readonly type: 'call.waited';
      readonly waitedMs: number;
      readonly granted: boolean;
      readonly state?: string | undefined;
    } & Omit<OfCall, 'state'>)
  /** A gate refused a prompt, a resource, or what is asked about one. */
  | ({
      readonly type: 'read.refused';
      readonly workflow: string;
      readonly method: string;
      /** The prompt's name, or the resource's URI. */
      readonly name: string;
      readonly reason: RefusalReason;
      readonly state?: string | undefined;
      readonly actor?: string | undefined;
      readonly requestId?: string | number | undefined;
    } & Partial<NamedRun>)
  /** A call has its run, and is about to be forwarded. `waitedMs`: for that. */
  | ({ readonly type: 'step.started'; readonly waitedMs: number } & OfCall)
  /** It moved the run, or saved what it had to. `outcome` says what the call came to. */
  | ({
      readonly type: 'step.committed';
      readonly outcome: 'succeeded' | 'failed' | 'input_required';
      readonly event: string | null;
      readonly to: string;
    } & OfStep)
  /** It failed, and that moves nothing. `cancelled`: it was a task. */
  | ({
      readonly type: 'step.failed';
      readonly kind: 'tool_error' | 'rpc_error' | 'cancelled';
    } & OfStep)
  /**
   * The run was let go without a move, for another reason than a failure. `not_run`: it was
   * forwarded, and nothing of it ran. `cancelled`, `withdrawn`: it was not forwarded after all,
   * since its client called it off, or for another reason.
   */
  | ({
      readonly type: 'step.released';
      readonly why: 'input_required' | 'not_run' | 'cancelled' | 'withdrawn';
    } & OfStep)
  /** Its outcome is unknown. `isHeld`: its run waits to be resolved, unless it comes late. */
  | ({
      readonly type: 'step.unknown';
      readonly why: string;
      readonly isHeld: boolean;
      readonly idempotencyKey: string;
    } & OfStep)
  /**
   * A claim is met that a process left behind, and that holds its run. Once for each claim in each
   * process. `sinceMs`: for how long its lease is over, where the store says so.
   */
  | ({
      readonly type: 'step.held';
      readonly idempotencyKey: string;
      readonly sinceMs?: number | undefined;
    } & Omit<OfCall, 'call'>)
  /** Something of it was committed for the first time. `state`: where it began. */
  | ({
      readonly type: 'run.begun';
      readonly state: string;
      readonly actor?: string | undefined;
    } & OfRun)
  /** Something of it was committed: its state, or only its data. */
  | ({
      readonly type: 'run.moved';
      readonly from: string;
      readonly to: string;
      readonly event: string | null;
      readonly tool?: string | undefined;
      readonly actor?: string | undefined;
    } & OfRun)
  /** It came to its end. */
  | ({ readonly type: 'run.ended'; readonly state: string } & OfRun)
  /** A person said what a held step came to. `state`: where the run is now. */
  | ({
      readonly type: 'run.resolved';
      readonly tool: string;
      readonly outcome: 'succeeded' | 'failed';
      readonly state: string;
      readonly actor?: string | undefined;
      readonly note?: string | undefined;
    } & OfRun)
  /** It began anew: by `runs.restart()`, or by a call after its end. */
  | ({
      readonly type: 'run.restarted';
      readonly from: string;
      readonly state: string;
      readonly actor?: string | undefined;
    } & OfRun)
  /** A call made resources stale. */
  | {
      readonly type: 'invalidated';
      readonly tool: string;
      readonly patterns: readonly string[];
      readonly requestId?: string | number | undefined;
    }
  /** The store took longer than a second, or than half of its deadline, whichever is less. */
  | { readonly type: 'store.slow'; readonly operation: string; readonly durationMs: number }
  /** It failed, or did not answer within its deadline. */
  | ({
      readonly type: 'store.failed';
      readonly operation: string;
      readonly durationMs: number;
    } & Failure)
  /** Clients of a run are told that lists of theirs changed. */
  | ({ readonly type: 'list.changed'; readonly lists: readonly string[] } & NamedRun)
  /** Anything else that `onError` is told of. */
  | ({ readonly type: 'error' } & Failure);

/** Every event, by its `type`. Times are milliseconds, `at` those since the epoch. */
export type InterlockEvent = { readonly at: number } & EventBody;

/** An event's name. */
export type InterlockEventType = InterlockEvent['type'];

/** Told of every event, at once and in order. What it throws or rejects with harms no request. */
export type EventListener = (event: InterlockEvent) => void;

/** An event before it is stamped: a run is named by its key, and a failure is the error alone. */
export type EventDraft = InterlockEvent extends infer Each
  ? Each extends InterlockEvent
    ? Omit<Each, 'at' | 'run' | 'message' | 'code'>
    : never
  : never;

/** Whom an {@link Events} tells. They must not throw. */
export interface EventListeners {
  readonly onEvent?: EventListener | undefined;
  readonly onError?: ((error: unknown) => void) | undefined;
}

/** What the streams have in common that come from one another. */
interface Common {
  calls: number;
  /** The claims whose unknown outcome was told, by their tokens: the oldest first. */
  readonly unknown: Set<string>;
  /** What an event has told that `onError` is told too. */
  readonly failures: WeakSet<object>;
}

/** Beyond that the oldest are forgotten, and told of again where they are met again. */
const MOST_UNKNOWN = 10_000;

const channel = diagnosticsChannel.channel(EVENT_CHANNEL);

/** Where the events of one middleware leave, and the errors that `onError` is told of. */
export class Events {
  readonly #listeners: EventListeners;
  readonly #common: Common;

  constructor(
    listeners: EventListeners,
    common: Common = { calls: 0, unknown: new Set(), failures: new WeakSet() },
  ) {
    this.#listeners = listeners;
    this.#common = common;
  }

  /** The same, but with other listeners where some are given. */
  with({ onEvent, onError }: EventListeners): Events {
    if (onEvent === undefined && onError === undefined) return this;
    const { onEvent: ownEvent, onError: ownError } = this.#listeners;
    return new Events({ onEvent: onEvent ?? ownEvent, onError: onError ?? ownError }, this.#common);
  }

  /** Whether anything listens. Ask before an event is made: then it is free where nothing does. */
  get isOn(): boolean {
    return this.#listeners.onEvent !== undefined || channel.hasSubscribers;
  }

  /** Stamps an event and tells all who listen. Never throws. */
  publish(draft: EventDraft): void {
    if (!this.isOn) return;
    const event = stamped(draft);
    if ('error' in event && typeof event.error === 'object' && event.error !== null)
      this.#common.failures.add(event.error);
    if (channel.hasSubscribers) channel.publish(event);
    try {
      const told: unknown = this.#listeners.onEvent?.(event);
      if (told instanceof Promise) told.catch((error: unknown) => this.#fail(error));
    } catch (error) {
      this.#fail(error);
    }
  }

  /** `onError` is told, and the stream unless another event says the same. */
  readonly onError = (error: unknown): void => {
    if (this.isOn && !this.#isTold(error)) this.publish({ type: 'error', error });
    this.#fail(error);
  };

  /** The number of a call that is to be told of. */
  nextCall(): number {
    return ++this.#common.calls;
  }

  /** Notes that the unknown outcome of that claim is told; `false` where it was before. */
  noteUnknown(token: string): boolean {
    const { unknown } = this.#common;
    if (unknown.has(token)) return false;
    const [oldest = ''] = unknown;
    if (unknown.size >= MOST_UNKNOWN) unknown.delete(oldest);
    unknown.add(token);
    return true;
  }

  /** `onError` is told, and the stream by an event that says more than the error. */
  fail(error: object, draft: () => EventDraft): void {
    if (this.isOn) {
      this.publish(draft());
      this.#common.failures.add(error);
    }
    this.onError(error);
  }

  #isTold(error: unknown): boolean {
    return typeof error === 'object' && error !== null && this.#common.failures.has(error);
  }

  #fail(error: unknown): void {
    this.#listeners.onError?.(error);
  }
}

/** What no logger is to write by accident. */
const HIDDEN = ['runKey', 'error'] as const;

function stamped(draft: EventDraft): InterlockEvent {
  const event: Record<string, unknown> = { at: Date.now(), ...draft };
  if (typeof event.runKey === 'string') event.run = runDigest(event.runKey);
  if ('error' in event) Object.assign(event, failureOf(event.error));
  for (const key of HIDDEN)
    if (key in event) Object.defineProperty(event, key, { enumerable: false });
  return event as unknown as InterlockEvent;
}

function failureOf(error: unknown): Pick<Failure, 'message' | 'code'> {
  if (!(error instanceof Error)) return { message: typeof error === 'string' ? error : 'unknown' };
  const code = codeOf(error) ?? codeOf(error.cause);
  return { message: error.message, ...(code !== undefined && { code }) };
}

function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

/** How a run is named where its key must not be read. */
export function runDigest(run: string): string {
  return createHash('sha256').update(run).digest('hex').slice(0, 16);
}
