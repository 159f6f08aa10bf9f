/**
 * What requests do to a session: a handshake opens it, a POST puts ids in flight, a GET listens, a
 * DELETE ends it. Hides the statuses and headers that say so.
 */

import type { Clock } from '../basics/clock.ts';
import type { InterlockError } from '../basics/errors.ts';
import { newSessionId, SESSION_HEADER } from '../basics/names.ts';
import type { NotificationBus } from '../notify/bus.ts';
import { keepAlive } from '../notify/relay.ts';
import type { GuardedStore } from '../step/store-calls.ts';
import type { ClientInfo, OpenResult } from '../stores/store.ts';
import type { Exchange, Observers } from '../wire/exchange.ts';
import type { Filter } from '../wire/filter.ts';
import {
  acceptsEventStream,
  announceStream,
  exposing,
  type HeadPort,
  requestHeader,
} from '../wire/headers.ts';
import {
  errorResponse,
  isObject,
  isRequestId,
  JSON_RPC,
  type JsonObject,
  type RequestId,
} from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import type { ClaimsOf, ClientOf, Identity, Owner, PrincipalOf } from './callers.ts';
import type { InFlight, LiveSession } from './live-session.ts';
import { CROWDED, type Denial, type Run } from './run.ts';
import type { RunKeyStrategy } from './run-key.ts';
import type { OpeningCaller } from './stuck-clients.ts';

/** What sessions need to know of a gate. */
export interface KeptGate {
  readonly id: string;
  readonly isNamed: boolean;
  readonly rules: { readonly longestWindow: number };
}

/** How the sessions of one mounted middleware are kept. */
export interface SessionsConfig extends Observers {
  readonly store: GuardedStore;
  /** What names a run, in order of preference. */
  readonly keys: readonly RunKeyStrategy[];
  /** What becomes of a request without a session, where only a session could name its run. */
  readonly withoutSession: 'refuse' | 'pass';
  readonly clock: Clock;
  readonly principal: PrincipalOf | undefined;
  readonly claims: ClaimsOf | undefined;
  readonly clientOf: ClientOf | undefined;
  readonly idleMs: number;
  /** Whether the app has set it. */
  readonly isIdleSet: boolean;
  /** Why the store cannot keep the runs of a gate; `undefined` where it can. */
  readonly faultOfKeeping: (gate: KeptGate) => InterlockError | undefined;
  readonly sessionCacheMs: number;
  readonly maxSessions: number;
  readonly maxSessionsPerPrincipal: number;
  readonly maxConversationsPerCaller: number;
  readonly maxSessionsPerClient: number;
  readonly maxHeld: number;
  readonly maxHeldPerCaller: number;
  readonly maxStreams: number;
  readonly serveStreams: boolean;
  readonly keepAliveMs: number;
  readonly bus: NotificationBus | undefined;
  /** What is likely wrong with the store in this deployment. The first run warns of it. */
  readonly storeWarning: string | undefined;
}

/** Who opens a session. */
export interface SessionOpener extends Identity, Owner {
  /** As {@link LoneSessions.callerOf} names it; `undefined` where nothing is counted. */
  readonly from: OpeningCaller | undefined;
  /** What its client calls itself. */
  readonly clientInfo: ClientInfo | undefined;
}

/** Opens and closes sessions. */
export interface SessionKeeper {
  readonly config: SessionsConfig;
  /**
   * Opens a session under this id, and its run. `taken`: the id is in use. `full`: the caller may
   * have no more sessions, and none of them can make way.
   *
   * @param minted whether the middleware made the id, and not the upstream
   */
  open(run: string, caller: SessionOpener, minted: boolean): Promise<OpenResult['status'] | 'full'>;
  /** Ends a session. Its run goes with it, unless a step of it needs the run. */
  close(session: LiveSession, cause: 'session' | 'quota'): Promise<void>;
}

const NOT_RECORDED: Denial = {
  status: 503,
  code: JSON_RPC.SERVER_ERROR,
  message: 'The session could not be recorded; try again later',
};
const ID_TAKEN: Denial = {
  status: 500,
  code: JSON_RPC.INTERNAL_ERROR,
  message:
    'The server named the session by an id that is in use, so none was opened. ' +
    'It must make a new id for each session, such as randomUUID()',
};
/** Does not say the id, which is a credential. */
const IN_USE =
  'the upstream answered initialize with the id of a session that is in use. ' +
  'That session goes on, and the new one was refused. Make a new id for each session, such as ' +
  'sessionIdGenerator: () => randomUUID(), or none, and the middleware makes it';

/** An `initialize`: a session opens only when it succeeds. */
export class Handshake implements Filter {
  readonly stage = 'session';
  readonly #sessions: SessionKeeper;
  readonly #exchange: Exchange;
  readonly #caller: SessionOpener;
  #succeeded = false;

  constructor(sessions: SessionKeeper, exchange: Exchange, caller: SessionOpener) {
    this.#sessions = sessions;
    this.#exchange = exchange;
    this.#caller = caller;
  }

  wants(): boolean {
    return true;
  }

  async onMessage(message: Message): Promise<void> {
    if (message.value.id !== this.#exchange.messages[0]?.id || !isObject(message.value.result))
      return;
    const { res } = this.#exchange.tap;
    const adopted = res.getHeader(SESSION_HEADER);
    // Without sessionKey() no run needs a session, so the middleware makes none.
    if (adopted === undefined && !this.#sessions.config.keys.some(({ kind }) => kind === 'session'))
      return;
    const run = adopted === undefined ? newSessionId() : String(adopted);
    try {
      const opened = await this.#sessions.open(run, this.#caller, adopted === undefined);
      if (opened === 'full') return this.#fail(message, CROWDED);
      if (opened === 'taken') return this.#fail(message, ID_TAKEN, new Error(IN_USE));
    } catch (error) {
      return this.#fail(message, NOT_RECORDED, error);
    }
    this.#succeeded = true;
    if (adopted === undefined) res.setHeader(SESSION_HEADER, run);
  }

  #fail(message: Message, why: Denial, error?: unknown): void {
    const { res } = this.#exchange.tap;
    if (error !== undefined) this.#sessions.config.onError(error);
    message.replace(errorResponse(message.value.id as RequestId, why.code, why.message));
    res.statusCode = why.status;
    res.removeHeader(SESSION_HEADER);
  }

  onHead(): void {
    const { res } = this.#exchange.tap;
    if (!this.#succeeded || !res.hasHeader('access-control-allow-origin')) return;
    const exposed = String(res.getHeader('access-control-expose-headers') ?? '');
    const all = exposing(exposed, 'Mcp-Session-Id');
    if (all !== undefined) res.setHeader('access-control-expose-headers', all);
  }
}

/** A POST of a session: its request ids are in flight until it is answered. */
export class Post implements Filter {
  readonly stage = 'session';
  readonly #exchange: Exchange;
  readonly #session: LiveSession;
  readonly #begun: readonly InFlight[];
  #isAnswered = false;

  private constructor(exchange: Exchange, session: LiveSession, begun: readonly InFlight[]) {
    this.#exchange = exchange;
    this.#session = session;
    this.#begun = begun;
  }

  /** `undefined` where an id is in flight already, in the session or twice in this batch. */
  static begin(exchange: Exchange, session: LiveSession): Post | undefined {
    const begun: InFlight[] = [];
    for (const { id } of exchange.requests) {
      if (id === undefined) continue;
      const entry = session.begin(id, exchange);
      if (entry === undefined) {
        for (const each of begun) each.end();
        return undefined;
      }
      begun.push(entry);
    }
    return new Post(exchange, session, begun);
  }

  onEnd(): JsonObject[] {
    const { page, tap } = this.#exchange;
    this.#isAnswered = true;
    // After a proxy's 5xx, or a stream that ends to be resumed, the upstream may still answer.
    const isOpen = page !== undefined && tap.mode === 'sse' && tap.unanswered.length > 0;
    if (isOpen || tap.res.statusCode >= 500) this.#session.hasStrays = true;
    for (const entry of this.#begun) entry.end();
    return [];
  }

  /** The client gets another answer, while the upstream's may go on. */
  onUnreadable(): void {
    this.#session.hasStrays = true;
  }

  /** The client left: a call that waits for its turn is never forwarded. */
  onDepart(): void {
    for (const entry of this.#begun) entry.leave();
  }

  onClose(): void {
    const isAnswered = this.#isAnswered;
    if (!isAnswered) {
      const { page, tap, forwardable } = this.#exchange;
      // A list may have been answered from the cache, so that nothing was forwarded after all.
      const isCached = page !== undefined && tap.isWhole;
      if (forwardable.length > 0 && !isCached) this.#session.hasStrays = true;
    }
    for (const entry of this.#begun) {
      entry.leave();
      // The upstream's answer has freed the ids already.
      if (!isAnswered) entry.end();
    }
  }
}

/** A GET: the session's own stream, or one that resumes another. */
export class GetStream implements Filter {
  readonly stage = 'session';
  readonly #sessions: SessionKeeper;
  readonly #exchange: Exchange;
  readonly #session: LiveSession;
  /** The run that filters the client's lists. Other sessions may move it. */
  readonly #listed: Run | undefined;
  /** Whether the middleware may serve one more stream. */
  readonly #hasRoom: () => boolean;
  #stopKeepAlive: (() => void) | undefined;

  constructor(
    sessions: SessionKeeper,
    exchange: Exchange,
    session: LiveSession,
    listed: Run | undefined,
    hasRoom: () => boolean,
  ) {
    this.#sessions = sessions;
    this.#exchange = exchange;
    this.#session = session;
    this.#listed = listed;
    this.#hasRoom = hasRoom;
    if (requestHeader(exchange.req, 'last-event-id') !== undefined) session.releaseDeparted();
  }

  wants(): boolean {
    return this.#session.late.size > 0;
  }

  onMessage(message: Message): MaybePromise<void> {
    const { id, method } = message.value;
    if (method === undefined && isRequestId(id)) return this.#session.late.apply(id, message);
  }

  /** Where the upstream serves no streams and answers 405, the middleware serves one of its own. */
  takesOver(res: HeadPort): 'stream' | undefined {
    if (res.statusCode !== 405 || !this.#sessions.config.serveStreams) return undefined;
    return acceptsEventStream(this.#exchange.req) && this.#hasRoom() ? 'stream' : undefined;
  }

  onHead(): void {
    const { tap } = this.#exchange;
    if (tap.mode === 'stream') {
      tap.res.removeHeader('allow');
      announceStream(tap.res);
      const { clock, keepAliveMs } = this.#sessions.config;
      this.#stopKeepAlive = keepAlive(tap, clock, keepAliveMs);
    }
    if (tap.mode !== 'stream' && (tap.mode !== 'sse' || tap.res.statusCode !== 200)) return;
    const session = this.#session;
    session.addStream(tap);
    const listed = this.#listed;
    // A list that shows several conversations depends on no run.
    if (listed !== undefined && session.conversation?.isMany !== true)
      session.follow(listed.run, () => listed.listen((lists) => session.notifyChanged(lists)));
  }

  onEnd(): JsonObject[] {
    this.onClose();
    return [];
  }

  onClose(): void {
    this.#stopKeepAlive?.();
    this.#session.removeStream(this.#exchange.tap);
  }
}

/**
 * A DELETE: the session ends if the upstream agrees. A session of the middleware's own ends though
 * the upstream refuses, unless it refuses the caller.
 */
export class Termination implements Filter {
  readonly stage = 'session';
  readonly #sessions: SessionKeeper;
  readonly #exchange: Exchange;
  readonly #session: LiveSession;

  constructor(sessions: SessionKeeper, exchange: Exchange, session: LiveSession) {
    this.#sessions = sessions;
    this.#exchange = exchange;
    this.#session = session;
  }

  takesOver(res: HeadPort): 'empty' | undefined {
    const { statusCode } = res;
    const ours = this.#session.record.minted === true;
    const isCaller = statusCode === 401 || statusCode === 403;
    return ours && statusCode >= 400 && statusCode < 500 && !isCaller ? 'empty' : undefined;
  }

  onHead(): MaybePromise<void> {
    const { res, mode } = this.#exchange.tap;
    const taken = mode === 'empty';
    if (!taken && res.statusCode !== 404 && (res.statusCode < 200 || res.statusCode >= 300)) return;
    return after(this.#close(), (closed) => {
      if (!closed) res.statusCode = 503;
      else if (taken) res.statusCode = 200;
      if (!taken) return;
      res.removeHeader('content-type');
      res.removeHeader('allow');
    });
  }

  async #close(): Promise<boolean> {
    try {
      await this.#sessions.close(this.#session, 'session');
      return true;
    } catch (error) {
      this.#sessions.config.onError(error);
      return false;
    }
  }
}
