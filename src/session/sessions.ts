import type { NotificationBus } from '../notify/bus.ts';
import { Relay } from '../notify/relay.ts';
import type { RunRecord, SessionRecord } from '../stores/store.ts';
import type { Exchange } from '../wire/exchange.ts';
import { requestHeader, setRequestHeader } from '../wire/headers.ts';
import { isRequestId, JSON_RPC } from '../wire/json-rpc.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import { SESSION_HEADER } from './ids.ts';
import { LiveSession } from './live-session.ts';
import { Callers } from './principal.ts';
import { type Admission, admit, type RunContext } from './run-context.ts';
import type { SessionKeeper, SessionsConfig } from './session-keeper.ts';
import { Handshake, Request, Stream, Termination } from './session-parts.ts';
import { SessionTable } from './session-table.ts';
import { Turns } from './turns.ts';

/** A session that the caller may use, and its run where that had to be read. */
type Found = Pick<RunContext, 'session' | 'fresh'>;

function foundWithout(session: LiveSession): Found {
  return { session, fresh: () => undefined };
}

/** Finds out which run a request belongs to, and turns away those that belong to none. */
export class Sessions implements SessionKeeper {
  readonly config: SessionsConfig;
  readonly table: SessionTable;
  readonly #relay: Relay | undefined;
  readonly #turns: Turns;
  readonly #callers: Callers;
  readonly #cacheMs: number;

  constructor(config: SessionsConfig) {
    this.config = config;
    this.table = new SessionTable(config.maxSessions, config.bus !== undefined);
    this.#relay = config.bus && this.#join(config.bus);
    this.#turns = new Turns(config.clock);
    this.#callers = new Callers(config.principal, config.onWarning);
    // A session that is taken for granted is not touched in the store. It must not expire there meanwhile.
    this.#cacheMs = Math.min(config.sessionCacheMs, config.idleMs / 10);
  }

  /** Lets a request in, or answers it: then it resolves to `undefined`. */
  async enter(exchange: Exchange): Promise<Admission | undefined> {
    const unfit = unfitRequest(exchange);
    if (unfit !== undefined) return unfit;
    if (exchange.req.method === 'HEAD') return admit(exchange, this, undefined);
    const binding = this.#callers.bindingOf(exchange.req);
    if (exchange.messages.some((each) => each.method === 'initialize'))
      return this.#handshake(exchange, binding);
    const run = requestHeader(exchange.req, SESSION_HEADER);
    if (run === undefined) return this.#withoutSession(exchange);
    const found = await this.#find(run, binding);
    if (found === 'unavailable')
      return turnAway(exchange, 503, JSON_RPC.SERVER_ERROR, 'The session store is unavailable');
    if (found === 'unknown') return turnAway(exchange, 404, JSON_RPC.SESSION_NOT_FOUND, 'Session not found');
    return this.#enterSession(exchange, found, binding);
  }

  /** Starts a run under the id that the client will send from now on. */
  async open(run: string, binding: string | undefined, minted: boolean): Promise<void> {
    const record = { principal: binding, minted };
    await this.config.store.open(run, record, this.config.idleMs);
    this.table.set(this.#live(run, record));
  }

  /** Ends a run; from now on it is unknown. */
  async close(session: LiveSession): Promise<void> {
    await this.config.store.delete(session.run);
    this.#forget(session.run);
    this.#relay?.ended(session.run);
  }

  /** Ends the streams that are served here, and leaves the bus: for an orderly end of the process. */
  async shutDown(): Promise<void> {
    this.table.each((session) => session.streams.endAll());
    await this.#relay?.close();
  }

  #join(bus: NotificationBus): Relay {
    const { clock, onError } = this.config;
    return new Relay(bus, clock, {
      find: (topic) => this.table.byTopic(topic),
      ended: ({ run }) => this.#forget(run),
      onError,
    });
  }

  #live(run: string, record: SessionRecord): LiveSession {
    return new LiveSession(run, record, this.config.clock.now(), this.#relay);
  }

  #handshake(exchange: Exchange, binding: string | undefined): MaybePromise<Admission | undefined> {
    if (exchange.isBatch) {
      return turnAway(
        exchange,
        400,
        JSON_RPC.INVALID_REQUEST,
        'Invalid Request: initialize must stand alone',
      );
    }
    // A handshake begins a session. One that names another must neither learn of it nor take it over.
    setRequestHeader(exchange.req, SESSION_HEADER, undefined);
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

  async #find(run: string, binding: string | undefined): Promise<Found | 'unknown' | 'unavailable'> {
    const { store, clock, idleMs } = this.config;
    const known = this.table.get(run);
    // Whoever is not the owner is asked about in the store like any unknown session, which answers him alike, and as late.
    const own = known?.record.principal === binding ? known : undefined;
    if (own !== undefined && clock.now() - own.checkedAt < this.#cacheMs) return foundWithout(own);
    const moves = known?.moves ?? 0;
    let record: RunRecord | undefined;
    try {
      record = await store.read(run, idleMs);
    } catch (error) {
      this.config.onError(error);
      // Ungated calls of a session that this process knows go on; gated ones meet the store themselves.
      return own === undefined ? 'unavailable' : foundWithout(own);
    }
    if (record === undefined) this.#forget(run);
    if (record === undefined || record.session.principal !== binding) return 'unknown';
    const session = this.table.get(run) ?? this.#live(run, record.session);
    session.checkedAt = clock.now();
    this.table.set(session);
    return { session, fresh: () => (session.moves === moves ? record : undefined) };
  }

  #forget(run: string): void {
    const session = this.table.get(run);
    this.table.delete(run);
    session?.streams.endAll();
  }

  async #enterSession(
    exchange: Exchange,
    { session, fresh }: Found,
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
      noteNotices(exchange, session, this.#relay);
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
      fresh: method === 'POST' ? fresh : () => undefined,
    };
    return admit(exchange, this, context);
  }
}

/** Only a POST carries messages (MCP 2025-11-25, Transports). An upstream that is less strict must not find one that nobody looked at. */
function unfitRequest(exchange: Exchange): Promise<undefined> | undefined {
  const { req, tap } = exchange;
  if (req.method === 'POST') return undefined;
  if (req.method !== 'GET' && req.method !== 'DELETE' && req.method !== 'HEAD') {
    tap.res.setHeader('allow', 'GET, POST, DELETE');
    return turnAway(exchange, 405, JSON_RPC.SERVER_ERROR, 'Method not allowed');
  }
  const isEmpty =
    requestHeader(req, 'transfer-encoding') === undefined &&
    Number(requestHeader(req, 'content-length') ?? 0) === 0;
  if (isEmpty) return undefined;
  return turnAway(exchange, 400, JSON_RPC.INVALID_REQUEST, `Invalid Request: a ${req.method} has no body`);
}

/** What the client tells the session beside its requests: a request is cancelled, a question of the upstream's is answered. */
function noteNotices(exchange: Exchange, session: LiveSession, relay: Relay | undefined): void {
  for (const { kind, id, method, message } of exchange.messages) {
    if (kind === 'response' && id !== undefined) session.answered(id);
    if (method !== 'notifications/cancelled') continue;
    const cancelled = message.at('params', 'requestId');
    if (isRequestId(cancelled) && !session.cancel(cancelled)) relay?.cancelled(session.run, cancelled);
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
