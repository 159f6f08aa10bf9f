/**
 * All events of the middlewares: their types, and the one place that publishes them. Hides who
 * listens, which events are sent only once, and how a run's key stays out of logs.
 */
import { createHash } from 'node:crypto';
import diagnosticsChannel from 'node:diagnostics_channel';
import { putNewest } from './clock.ts';
import type { RefusalReason } from './reasons.ts';

/** The name of the `diagnostics_channel` on which every event is published. */
export const EVENT_CHANNEL = 'mcp-interlock';

/**
 * How a run came to its end.
 * - `final`: it came to a final state.
 * - `session`: its client ended its session. What a step still needs of the run stays.
 * - `quota`: its caller began another session, and may have no more.
 * - `deleted`: by `runs.delete()`.
 * - `unknown`: the store does not know it any more. It has expired, or its data are lost.
 */
export type RunEnd = 'final' | 'session' | 'quota' | 'deleted' | 'unknown';

/** Names a run. */
interface NamedRun {
  /**
   * The first 16 hex digits of the SHA-256 digest of the run's key. Apps log events, and the key of
   * a session is a credential.
   */
  readonly run: string;
  /** The run's key. Not enumerable, so that no logger writes it by accident. */
  readonly runKey: string;
}

/** In each event about a run. */
interface OfRun extends NamedRun {
  /** The gate's id. */
  readonly workflow: string;
}

/** Names a call. */
interface NamedTool {
  readonly tool: string;
  /** The id of the JSON-RPC request. */
  readonly requestId?: string | number | undefined;
  /** The number of its `call.started`, where this process published one. */
  readonly call?: number | undefined;
}

/** The trace context in a request's `params._meta`, unchanged (MCP, SEP-414). */
export interface TraceContext {
  readonly traceparent?: string | undefined;
  readonly tracestate?: string | undefined;
  readonly baggage?: string | undefined;
}

/** The answer to a `tools/call`, as its client saw it. */
export type ToolAnswer =
  /** A result without `isError`, also one that asks for input or names a task. */
  | 'ok'
  /** A result of the tool with `isError`. */
  | 'tool_error'
  /** A JSON-RPC error of the upstream or the middleware. */
  | 'rpc_error'
  /** A gate refused it. */
  | 'refused'
  /** Its outcome is unknown or not saved. Its client read so, unless it had left. */
  | 'unknown'
  /**
   * No answer passed. Its client left or cancelled it, or its HTTP request was refused. Or its
   * result comes on a stream that the client resumes.
   */
  | 'unanswered';

/**
 * What a call brought: its arguments, or what rules read of its result. On both events of a call,
 * for `recordCalls()`. Not enumerable, so that no logger writes it.
 */
export const SENT: unique symbol = Symbol('mcp-interlock.sent');

/** Both are read later, so that a call does not wait for it. */
export interface SentValue {
  readonly value: () => unknown;
  /** The tool's JSON Schema of it; `undefined` where no list has shown one yet. */
  readonly schema: () => unknown;
}

/** In both events about a whole `tools/call`. */
interface OfWhole extends Partial<NamedRun> {
  readonly [SENT]?: SentValue | undefined;
  /** Unique in this process, and the same in each event about the call. */
  readonly call: number;
  readonly tool: string;
  readonly requestId: string | number;
}

/**
 * The requests that are reported beside calls. A list of prompts or resources is, where a gate of
 * its route binds some.
 */
export type ReportedMethod =
  | 'initialize'
  | 'tools/list'
  | 'prompts/list'
  | 'resources/list'
  | 'resources/templates/list';

/** In both events about another request than a call. */
interface OfRequest {
  /** Unique in this process, also among the numbers of calls. */
  readonly request: number;
  readonly method: ReportedMethod;
  readonly requestId: string | number;
}

/** What is known of a request when it comes. */
interface Started {
  /** What the request's header or `_meta` says. */
  readonly protocolVersion?: string | undefined;
  /** Whether it belongs to an MCP session. */
  readonly inSession: boolean;
  readonly trace?: TraceContext | undefined;
}

/** In each event about a call of a run. */
interface OfTool extends OfRun, NamedTool {
  /** The stored state in which the call found the run. */
  readonly state: string;
  /** The principal that called, if any. */
  readonly actor?: string | undefined;
}

/** In each event about the end of a step. */
interface OfStep extends OfTool {
  /** Since it asked for its claim. For another process's task, since this process found it. */
  readonly durationMs: number;
  /** How much of that the store took. */
  readonly storeMs: number;
  /** It came late: another event reported an end of the step before. */
  readonly isLate: boolean;
}

/** What a tool's answer says of its call. */
export type Answered = 'succeeded' | 'failed' | 'input_required';

/** In both events about an outcome that the run does not have. */
interface OfUnknown extends OfStep {
  readonly why: string;
  readonly isHeld: boolean;
  readonly idempotencyKey: string;
}

/** What went wrong. */
interface Failure {
  /** Of the error. The message of a driver or of the app is only in `error.cause`. */
  readonly message: string;
  /**
   * The first code of the error and its causes, such as `ECONNREFUSED`, PostgreSQL's `42501` or
   * Redis's `NOPERM`.
   */
  readonly code?: string | undefined;
  /** The class of the innermost cause, such as `DatabaseError`: never a driver's own words. */
  readonly causedBy?: string | undefined;
  /** Not enumerable: a driver's error may contain the keys of runs. */
  readonly error: unknown;
}

/** The events, without their time. */
type EventBody =
  /**
   * A `tools/call` with an id came to the first gate of its route, whether its tool is bound or
   * not. One `call.ended` follows.
   */
  | ({
      readonly type: 'call.started';
      /** The name that its client gives itself, which may be any. */
      readonly client?: string | undefined;
    } & OfWhole &
      Started)
  /**
   * The answer goes out, or there is none. It comes after the events about the call's steps, except
   * those of late outcomes and of tasks.
   */
  | ({
      readonly type: 'call.ended';
      readonly outcome: ToolAnswer;
      /** Of a JSON-RPC error. */
      readonly code?: number | undefined;
      /** Of a refusal that its client read. */
      readonly reason?: RefusalReason | undefined;
      /** What an `ok` leaves open: the server asks for an input, or has created a task. */
      readonly left?: 'input' | 'task' | undefined;
      readonly durationMs: number;
    } & OfWhole)
  /** An `initialize` or a list came to the first gate of its route. One `request.ended` follows. */
  | ({ readonly type: 'request.started' } & OfRequest & Started)
  /** Its answer goes out, or there is none. */
  | ({
      readonly type: 'request.ended';
      readonly outcome: 'ok' | 'rpc_error' | 'unanswered';
      /** Of a JSON-RPC error. */
      readonly code?: number | undefined;
      /** How many tools, prompts or resources this page of the list shows its client. */
      readonly shown?: number | undefined;
      /** What the server chose in its answer to `initialize`. */
      readonly protocolVersion?: string | undefined;
      readonly durationMs: number;
    } & OfRequest)
  /**
   * A gate refused it. With `enforced: false` a gate that observes would have refused it: the call
   * ran, and the event comes late. `way`: the tools by which it would have been allowed.
   */
  | ({
      readonly type: 'call.refused';
      readonly workflow: string;
      readonly reason: RefusalReason;
      readonly state?: string | undefined;
      readonly actor?: string | undefined;
      readonly enforced?: false | undefined;
      readonly way?: readonly string[] | undefined;
    } & NamedTool &
      Partial<NamedRun>)
  /**
   * The call waited for its run: for its turn in this process, or for a claim of another process.
   * `state` is absent where the run was not read.
   */
  | ({
      readonly type: 'call.waited';
      readonly waitedMs: number;
      readonly granted: boolean;
      readonly state?: string | undefined;
    } & Omit<OfTool, 'state'>)
  /**
   * A call that runs beside others succeeded, and its success could not be recorded. So it does not
   * count for what comes after it. Its client read so.
   */
  | ({ readonly type: 'call.unrecorded' } & OfTool)
  /** A gate refused a prompt, a resource, or a request about one. */
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
  /** The gate is about to forward the call. `waitedMs`: how long the call waited for its run. */
  | ({ readonly type: 'step.started'; readonly waitedMs: number } & OfTool)
  /** The step's outcome was saved, often with a move. */
  | ({
      readonly type: 'step.committed';
      readonly outcome: 'succeeded' | 'failed' | 'input_required';
      readonly event: string | null;
      readonly to: string;
    } & OfStep)
  /**
   * The call failed, and that moves nothing. `not_ok`: its result does not meet the binding's `ok`.
   * `cancelled`: a task was cancelled.
   */
  | ({
      readonly type: 'step.failed';
      readonly kind: 'tool_error' | 'rpc_error' | 'not_ok' | 'cancelled';
    } & OfStep)
  /**
   * The step released its run without a move, and did not fail. `not_run`: the call was forwarded,
   * and nothing of it ran. `cancelled`: its client cancelled it before it was forwarded.
   * `withdrawn`: it was not forwarded, for another reason.
   */
  | ({
      readonly type: 'step.released';
      readonly why: 'input_required' | 'not_run' | 'cancelled' | 'withdrawn';
    } & OfStep)
  /**
   * The tool may have run: the step's outcome is unknown. `isHeld`: a person must resolve it,
   * unless it comes late. Else the call may be repeated, with the same key.
   */
  | ({ readonly type: 'step.unknown' } & OfUnknown)
  /**
   * The tool ran, and its outcome is not recorded. The store failed, the binding did not say where
   * it leads, or the run went on without it. `isHeld`: a person must resolve it, unless it is saved
   * late. Else a person must compare the tool's effect with the run.
   */
  | ({
      readonly type: 'step.unrecorded';
      /** What the tool answered, where it did: apart from what the store made of it. */
      readonly answered?: Answered | undefined;
    } & OfUnknown)
  /**
   * This process found a claim that another one left behind, which holds its run. Once for each
   * claim in each process. `sinceMs`: how long ago its lease ended, where the store says so.
   * `kind`: why it is held, where that process said so: `undecided` or `unknown`.
   */
  | ({
      readonly type: 'step.held';
      readonly idempotencyKey: string;
      readonly sinceMs?: number | undefined;
      readonly kind?: string | undefined;
    } & Omit<OfTool, 'call'>)
  /** A person has stopped a tool by `freezeAll()`, or the whole workflow, or has let it go on. */
  | {
      readonly type: 'workflow.frozen' | 'workflow.unfrozen';
      readonly workflow: string;
      /** Absent where all of its bound tools are meant. */
      readonly tool?: string;
      readonly actor: string;
      readonly note: string;
    }
  /**
   * A person has said that the workflow's gates observe, or that they enforce. `living`: they also
   * enforce the runs that were observed before.
   */
  | {
      readonly type: 'workflow.observed' | 'workflow.enforced';
      readonly workflow: string;
      readonly living?: boolean;
      readonly actor: string;
      readonly note: string;
    }
  /**
   * The store had lost the workflow's switch, or had an older one, and this process wrote back what
   * it knew: what operators said holds on. The store may have lost runs too.
   */
  | {
      readonly type: 'workflow.restored';
      readonly workflow: string;
      readonly found: 'none' | 'older';
    }
  /** A person has stopped the run by `freeze()`, or has let it go on. */
  | ({
      readonly type: 'run.frozen' | 'run.unfrozen';
      readonly state: string;
      readonly actor: string;
      readonly note: string;
    } & OfRun)
  /** The first commit of the run. `state`: where it began. */
  | ({
      readonly type: 'run.begun';
      readonly state: string;
      readonly actor?: string | undefined;
    } & OfRun)
  /** A commit of the run: of its state, or only of its data. */
  | ({
      readonly type: 'run.moved';
      readonly from: string;
      readonly to: string;
      readonly event: string | null;
      readonly tool?: string | undefined;
      readonly actor?: string | undefined;
    } & OfRun)
  /** The run came to its end. `workflow` and `state` are there where it came to a final state. */
  | ({
      readonly type: 'run.ended';
      readonly cause: RunEnd;
      readonly state?: string | undefined;
    } & NamedRun &
      Partial<OfRun>)
  /**
   * Requests named sessions that the store does not know: they have ended, or never were. A process
   * reports them at most each ten seconds.
   */
  | {
      readonly type: 'session.unknown';
      readonly requests: number;
      /**
       * How many of them named a session that this process knew. Many mean that a store lost its
       * data.
       */
      readonly lost: number;
      /** In which time they came: since the event before, or since the process began. */
      readonly sinceMs: number;
    }
  /** A person resolved a held run. `state`: where it is now. */
  | ({
      readonly type: 'run.resolved';
      readonly tool: string;
      readonly outcome: 'succeeded' | 'failed';
      readonly state: string;
      readonly actor?: string | undefined;
      readonly note?: string | undefined;
    } & OfRun)
  /** The run began again: by `runs.restart()`, or by a call after its end. */
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
  /** The store took longer than a second or half of its deadline, by the shorter of the two. */
  | { readonly type: 'store.slow'; readonly operation: string; readonly durationMs: number }
  /** The store failed, or did not answer within its deadline. */
  | ({
      readonly type: 'store.failed';
      readonly operation: string;
      readonly durationMs: number;
    } & Failure)
  /** The clients of a run are notified that their lists changed. */
  | ({ readonly type: 'list.changed'; readonly lists: readonly string[] } & NamedRun)
  /** Each other error that `onError` gets. */
  | ({ readonly type: 'error' } & Failure);

/** An event, by its `type`. All times are in milliseconds; `at` is the time since the epoch. */
export type InterlockEvent = { readonly at: number } & EventBody;

/** An event's name. */
export type InterlockEventType = InterlockEvent['type'];

/** Called for each event, at once and in order. What it throws or rejects with harms no request. */
export type EventListener = (event: InterlockEvent) => void;

/** An event before it is published: it names a run by its key, and a failure by the error. */
export type EventDraft = InterlockEvent extends infer Each
  ? Each extends InterlockEvent
    ? Omit<Each, 'at' | 'run' | 'message' | 'code' | 'causedBy'>
    : never
  : never;

/** The listeners of {@link Events}. `onError` must not throw. */
export interface EventListeners {
  readonly onEvent?: EventListener | undefined;
  readonly onError?: ((error: unknown) => void) | undefined;
}

/** What all streams share that were made by {@link Events.with} from one another. */
interface Common {
  /** How many have a number. */
  requests: number;
  /** The tokens of claims whose unknown outcome was reported, the oldest first. */
  readonly unknown: Set<string>;
  /** What tools answered whose outcome was not saved, by idempotency key, the oldest first. */
  readonly answers: Map<string, Answered>;
  /** The errors that an event has reported already. */
  readonly failures: WeakSet<object>;
}

/** With more, the oldest are forgotten, and reported again where a process finds them again. */
const MOST_UNKNOWN = 10_000;

const channel = diagnosticsChannel.channel(EVENT_CHANNEL);

/** Publishes the events of one middleware, and gives `onError` its errors. */
export class Events {
  readonly #listeners: EventListeners;
  readonly #common: Common;

  constructor(
    listeners: EventListeners,
    common: Common = {
      requests: 0,
      unknown: new Set(),
      answers: new Map(),
      failures: new WeakSet(),
    },
  ) {
    this.#listeners = listeners;
    this.#common = common;
  }

  /** The same stream with other listeners, where some are given. */
  with({ onEvent, onError }: EventListeners): Events {
    if (onEvent === undefined && onError === undefined) return this;
    const { onEvent: ownEvent, onError: ownError } = this.#listeners;
    return new Events({ onEvent: onEvent ?? ownEvent, onError: onError ?? ownError }, this.#common);
  }

  /** Whether anything listens. Ask before making an event, so that it costs nothing otherwise. */
  get isOn(): boolean {
    return this.#listeners.onEvent !== undefined || channel.hasSubscribers;
  }

  /** Calls all listeners. Never throws. */
  publish(draft: EventDraft): void {
    if (!this.isOn) return;
    const event = stamped(draft);
    if ('error' in event && typeof event.error === 'object' && event.error !== null)
      this.#common.failures.add(event.error);
    if (channel.hasSubscribers) channel.publish(event);
    try {
      const answer: unknown = this.#listeners.onEvent?.(event);
      if (answer instanceof Promise) answer.catch((error: unknown) => this.#fail(error));
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Reports to `onError`, and to the stream unless an event has reported this error already. */
  readonly onError = (error: unknown): void => {
    if (this.isOn && !this.#isReported(error)) this.publish({ type: 'error', error });
    this.#fail(error);
  };

  /** The number of the next request, for its events. */
  nextNumber(): number {
    return ++this.#common.requests;
  }

  /** Notes that the unknown outcome of that claim is reported. `false`: it was before. */
  noteUnknown(token: string): boolean {
    const { unknown } = this.#common;
    if (unknown.has(token)) return false;
    const [oldest = ''] = unknown;
    if (unknown.size >= MOST_UNKNOWN) unknown.delete(oldest);
    unknown.add(token);
    return true;
  }

  /** What tools answered whose outcome was not saved, by idempotency key. */
  get answers(): ReadonlyMap<string, Answered> {
    return this.#common.answers;
  }

  noteAnswer(idempotencyKey: string, answered: Answered): void {
    putNewest(this.#common.answers, idempotencyKey, answered, MOST_UNKNOWN);
  }

  /** Gives `onError` the error, and the stream an event that says more than it. */
  fail(error: object, draft: () => EventDraft): void {
    if (this.isOn) {
      this.publish(draft());
      this.#common.failures.add(error);
    }
    this.onError(error);
  }

  #isReported(error: unknown): boolean {
    return typeof error === 'object' && error !== null && this.#common.failures.has(error);
  }

  #fail(error: unknown): void {
    this.#listeners.onError?.(error);
  }
}

/** What no logger should write by accident. */
const HIDDEN = ['runKey', 'error', SENT] as const;

function stamped(draft: EventDraft): InterlockEvent {
  const event: Record<string | symbol, unknown> = { at: Date.now(), ...draft };
  if (typeof event.runKey === 'string') event.run = runDigest(event.runKey);
  if ('error' in event) Object.assign(event, failureOf(event.error));
  for (const key of HIDDEN)
    if (key in event) Object.defineProperty(event, key, { enumerable: false });
  return event as unknown as InterlockEvent;
}

function failureOf(error: unknown): Pick<Failure, 'message' | 'code' | 'causedBy'> {
  if (!(error instanceof Error)) return { message: typeof error === 'string' ? error : 'unknown' };
  const chain = causesOf(error);
  const code = chain.map(codeOf).find((each) => each !== undefined);
  const name = chain.length > 1 ? chain.at(-1)?.constructor.name : undefined;
  return {
    message: error.message,
    ...(code !== undefined && { code }),
    ...(name !== undefined && SAFE_NAME.test(name) && { causedBy: name }),
  };
}

/** Causes may lead in a circle. */
const MOST_CAUSES = 8;

/** The error, then each cause. Of an error for several addresses, the first one's counts. */
function causesOf(error: Error): Error[] {
  const chain: Error[] = [];
  for (let next: unknown = error; next instanceof Error && chain.length < MOST_CAUSES; ) {
    chain.push(next);
    next = next instanceof AggregateError ? next.errors[0] : next.cause;
  }
  return chain;
}

/** Has no room for a URL, a password with signs, or a digest. */
const SAFE_NAME = /^[A-Za-z]\w{0,39}$/;
const SAFE_CODE = /^[A-Z0-9_]{2,40}$/;
/** Redis begins each error with its code. */
const REDIS_CODE = /^([A-Z]{2,20}) /;

function codeOf(error: Error): string | undefined {
  if ('code' in error && typeof error.code === 'string')
    return SAFE_CODE.test(error.code) ? error.code : undefined;
  const isReply = /^(?:ReplyError|ErrorReply|SimpleError|UpstashError)$/.test(
    error.constructor.name,
  );
  return isReply ? REDIS_CODE.exec(error.message)?.[1] : undefined;
}

/** Names a run where its key must not be seen. */
export function runDigest(run: string): string {
  return createHash('sha256').update(run).digest('hex').slice(0, 16);
}
