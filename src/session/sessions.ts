import type { RunRecord } from '../stores/store.ts';
import type { Exchange } from '../wire/exchange.ts';
import { requestHeader } from '../wire/headers.ts';
import { isRequestId, JSON_RPC } from '../wire/json-rpc.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import type { Clock } from './clock.ts';
import type { GuardedStore } from './guarded-store.ts';
import { SESSION_HEADER } from './ids.ts';
import { LiveSession, SessionTable } from './live-session.ts';
import { identityOf } from './principal.ts';
import { type Admission, admit, type RunContext } from './run-context.ts';
import { Handshake, Request, Stream, Termination } from './session-parts.ts';
import { Turns } from './turns.ts';

/** The principal of a request, however the app authenticates. `undefined` means nobody in particular. */
export type PrincipalOf = (req: Exchange['req']) => string | undefined;

export interface SessionsConfig {
  readonly store: GuardedStore;
  readonly clock: Clock;
  readonly principal: PrincipalOf | undefined;
  readonly idleMs: number;
  readonly sessionCacheMs: number;
  readonly maxSessions: number;
  readonly maxStreams: number;
  readonly serveStreams: boolean;
  readonly keepAliveMs: number;
  readonly onError: (error: unknown) => void;
  readonly onWarning: (warning: string) => void;
}

/** Finds out which run a request belongs to, and turns away those that belong to none. */
export class Sessions {
  readonly config: SessionsConfig;
  readonly table: SessionTable;
  readonly #turns: Turns;
  #warnedOfClientId = false;

  constructor(config: SessionsConfig) {
    this.config = config;
    this.table = new SessionTable(config.maxSessions);
    this.#turns = new Turns(config.clock);
  }

  /** Lets a request in, or answers it: then it resolves to `undefined`. */
  async enter(exchange: Exchange): Promise<Admission | undefined> {
    const { method } = exchange.req;
    if (method !== 'POST' && method !== 'GET' && method !== 'DELETE') return admit(exchange, this, undefined);
    const binding = this.#bindingOf(exchange);
    if (exchange.messages.some((each) => each.method === 'initialize'))
      return this.#handshake(exchange, binding);
    const run = requestHeader(exchange.req, SESSION_HEADER);
    if (run === undefined) return this.#withoutSession(exchange);
    const found = await this.#find(run, binding);
    if (found === 'unavailable')
      return turnAway(exchange, 503, JSON_RPC.SERVER_ERROR, 'The session store is unavailable');
    if (found === 'unknown') return turnAway(exchange, 404, JSON_RPC.SESSION_NOT_FOUND, 'Session not found');
    return this.#enterSession(exchange, found.session, found.fresh, binding);
  }

  /** Starts a run under the id that the client will send from now on. */
  async open(run: string, binding: string | undefined, minted: boolean): Promise<void> {
    const record = { principal: binding, minted };
    await this.config.store.open(run, record, this.config.idleMs);
    this.table.set(new LiveSession(run, record, this.config.clock.now()));
  }

  /** Ends a run; from now on it is unknown. */
  async close(session: LiveSession): Promise<void> {
    await this.config.store.delete(session.run);
    this.table.delete(session.run);
    session.streams.endAll();
  }

  #bindingOf(exchange: Exchange): string | undefined {
    const { principal } = this.config;
    if (principal !== undefined) return principal(exchange.req);
    const identity = identityOf(exchange.req);
    if (identity.principal === undefined && identity.binding !== undefined && !this.#warnedOfClientId) {
      this.#warnedOfClientId = true;
      this.config.onWarning(
        'req.auth carries no issuer and subject (extra.iss, extra.sub), so sessions are bound to the client id, which all users of one app share. ' +
          'Give sessionStore({ principal }) what names the user.',
      );
    }
    return identity.binding;
  }

  #handshake(exchange: Exchange, binding: string | undefined): MaybePromise<Admission | undefined> {
    if (exchange.messages.length > 1) {
      return turnAway(
        exchange,
        400,
        JSON_RPC.INVALID_REQUEST,
        'Invalid Request: initialize must stand alone',
      );
    }
    exchange.join(new Handshake(this, exchange, binding));
    return admit(exchange, this, undefined);
  }

  /** `server/discover` asks which era an upstream speaks, and must come back as that upstream answers it. */
  #withoutSession(exchange: Exchange): MaybePromise<Admission | undefined> {
    const probes =
      exchange.messages.length > 0 && exchange.messages.every((each) => each.method === 'server/discover');
    if (probes) return admit(exchange, this, undefined);
    return turnAway(exchange, 400, JSON_RPC.SERVER_ERROR, 'Bad Request: Mcp-Session-Id header is required');
  }

  async #find(
    run: string,
    binding: string | undefined,
  ): Promise<{ session: LiveSession; fresh: RunRecord | undefined } | 'unknown' | 'unavailable'> {
    const { store, clock, idleMs, sessionCacheMs } = this.config;
    const known = this.table.get(run);
    const bound = (record: { principal?: string | undefined }): boolean => record.principal === binding;
    if (known !== undefined && clock.now() - known.checkedAt < sessionCacheMs) {
      return bound(known.record) ? { session: known, fresh: undefined } : 'unknown';
    }
    let record: RunRecord | undefined;
    try {
      record = await store.read(run, idleMs);
    } catch (error) {
      this.config.onError(error);
      // Ungated calls of a session that this process knows go on; gated ones meet the store themselves.
      return known === undefined
        ? 'unavailable'
        : bound(known.record)
          ? { session: known, fresh: undefined }
          : 'unknown';
    }
    if (record === undefined) {
      this.table.delete(run);
      return 'unknown';
    }
    if (!bound(record.session)) return 'unknown';
    const session = this.table.get(run) ?? new LiveSession(run, record.session, clock.now());
    session.checkedAt = clock.now();
    this.table.set(session);
    return { session, fresh: record };
  }

  async #enterSession(
    exchange: Exchange,
    session: LiveSession,
    fresh: RunRecord | undefined,
    binding: string | undefined,
  ): Promise<Admission | undefined> {
    const { method } = exchange.req;
    if (method === 'DELETE') exchange.join(new Termination(this, exchange, session));
    else if (method === 'GET') exchange.join(new Stream(this, exchange, session));
    else {
      const request = Request.begin(exchange, session);
      if (request === undefined) {
        return turnAway(
          exchange,
          400,
          JSON_RPC.INVALID_REQUEST,
          'Invalid Request: a request id is in flight already',
        );
      }
      exchange.join(request);
      noteNotices(exchange, session);
    }
    const { store, idleMs } = this.config;
    const context: RunContext = {
      run: session.run,
      store,
      ttlMs: idleMs,
      session,
      turns: this.#turns,
      actor: binding,
      create: undefined,
      // What was read before a stream was opened says nothing of the time when a message comes on it.
      fresh: method === 'POST' ? fresh : undefined,
    };
    return admit(exchange, this, context);
  }
}

/** What the client tells the session beside its requests: a request is cancelled, a question of the upstream's is answered. */
function noteNotices(exchange: Exchange, session: LiveSession): void {
  for (const { kind, id, method, message } of exchange.messages) {
    if (kind === 'response' && id !== undefined) session.answered(id);
    if (method !== 'notifications/cancelled') continue;
    const cancelled = message.at('params', 'requestId');
    if (isRequestId(cancelled)) session.cancel(cancelled);
  }
}

async function turnAway(
  exchange: Exchange,
  status: number,
  code: number,
  message: string,
): Promise<undefined> {
  await exchange.reject(status, code, message);
}
