/**
 * The door of session/: lets each request in or denies it. Hides in which order a request's era,
 * its caller and its session are looked at, what the store is asked, and how the process ends.
 */
import { lifeOf } from '../basics/clock.ts';
import { configError, type InterlockError } from '../basics/errors.ts';
import type { RunEnd } from '../basics/events.ts';
import { newToken, SESSION_HEADER } from '../basics/names.ts';
import type { NotificationBus } from '../notify/bus.ts';
import { HeldStreams, Relay } from '../notify/relay.ts';
import { leftRunning, Turns } from '../step/turns.ts';
import type { ClientInfo, OpenResult, RunRecord, SessionRecord } from '../stores/store.ts';
import type { Call } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import {
  type Era,
  eraOf,
  headerSaysStateless,
  type RequestPort,
  requestHeader,
  setRequestHeader,
} from '../wire/headers.ts';
import { isLongId, isRequestId, type ListKind, META_CLIENT } from '../wire/json-rpc.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { Audiences, MissedLists } from './audiences.ts';
import { ANONYMOUS, Callers, clientInfoIn, clientNamed, type Identity, Quotas } from './callers.ts';
import { Conversations, type RequestNames } from './conversations.ts';
import { serveHandles } from './handles.ts';
import { HeldRuns } from './held-runs.ts';
import { LiveSession, SessionTable } from './live-session.ts';
import {
  Admission,
  CROWDED,
  DOUBLED,
  deny,
  denyContradiction,
  isOtherRoute,
  keysBeforeSessions,
  letIn,
  NAMELESS,
  NOT_ALONE,
  RESTARTING,
  Run,
  type RunKeeper,
  STORE_AWAY,
  UNCONNECTED,
  UNKNOWN_SESSION,
  unfitRequest,
} from './run.ts';
import type { NoRun } from './run-key.ts';
import {
  GetStream,
  Handshake,
  type KeptGate,
  Post,
  type SessionKeeper,
  type SessionOpener,
  type SessionsConfig,
  Termination,
} from './session-filters.ts';
import { hasKnownId, KeptIds, LoneSessions } from './stuck-clients.ts';

/** A session that the caller may use. */
interface FoundSession {
  readonly session: LiveSession;
  /** Its run, where that had to be read. */
  readonly record?: RunRecord;
  /** The session's count of moves before the run was read. */
  readonly moves?: number;
}

/**
 * Each instance reports so many calls and lists of a session to the others. One may be the client's
 * only call, or its first list; a second one is not.
 */
const MOST_HINTS = 2;

/** How often a process reports unknown sessions at most, in milliseconds. */
const UNKNOWN_EACH_MS = 10_000;

/** A request that passes as it is. */
export interface PassingRequest {
  readonly req: RequestPort;
  readonly messages: readonly Call[];
  readonly isBatch: boolean;
}

/** The sessions of one mounted `sessionStore()`. */
export class Sessions implements SessionKeeper {
  readonly config: SessionsConfig;
  readonly table: SessionTable;
  readonly #relay: Relay | undefined;
  readonly keeper: RunKeeper;
  readonly #audiences = new Audiences();
  readonly #callers: Callers;
  readonly #quotas: Quotas<LiveSession>;
  readonly #held: HeldStreams;
  readonly #missed: MissedLists;
  readonly #cacheMs: number;
  readonly #conversations: Conversations | undefined;
  readonly #loneCalls: LoneSessions | undefined;
  readonly #keptIds: KeptIds | undefined;
  /** Whether calls may name their runs in their arguments. */
  readonly #hasHandles: boolean;
  /** Whether requests without a session may have runs, though they have no id of one. */
  readonly #servesAlone: boolean;
  /** The sessions that were watched to begin, and that are not saved yet. */
  readonly #opening = new Map<string, Promise<unknown>>();
  #storeWarning: string | undefined;
  /** The longest time that a rule of a gate of these sessions looks back on. */
  #longestWindow = 0;
  /** Why a gate cannot use these sessions; `undefined` where it can. */
  readonly #faults = new WeakMap<KeptGate, InterlockError | undefined>();
  readonly #ttlOf = (run: string): number => lifeOf(run, this.config.idleMs, this.#longestWindow);
  /** The requests that named unknown sessions since the last event about them. */
  #unknown: { readonly requests: number; readonly lost: number; readonly since: number };
  #stopReporting: (() => void) | undefined;
  #ended: Promise<void> | undefined;

  constructor(config: SessionsConfig) {
    this.config = config;
    this.table = new SessionTable({ ...config, hasTopics: config.bus !== undefined });
    this.#quotas = new Quotas(config);
    this.#relay = config.bus && this.#join(config.bus);
    this.#held = new HeldStreams(config);
    this.#storeWarning = config.storeWarning;
    this.#unknown = { requests: 0, lost: 0, since: config.clock.now() };
    this.#missed = new MissedLists({
      ...config,
      ttlOf: this.#ttlOf,
      maxRuns: config.maxSessions,
      notify: (run, lists) => this.notifyListChanged(run, lists),
    });
    this.#conversations = Conversations.of({
      ...config,
      follow: (session, run) => this.#follow(session, run),
    });
    this.#loneCalls = LoneSessions.of(config);
    this.#keptIds = KeptIds.of(config);
    this.keeper = {
      keys: config.keys,
      store: config.store,
      ttlOf: this.#ttlOf,
      clock: config.clock,
      onError: config.onError,
      turns: new Turns(config.clock),
      events: config.events,
      held: new HeldRuns({ ...config, ttlOf: this.#ttlOf }),
      conversations: this.#conversations,
      clientOf: config.clientOf,
      notify: (run, lists, except?: LiveSession) => {
        this.#audiences.notify(run, lists, except);
        this.#relay?.changed(run, lists, except?.run);
      },
      listen: (run, notify, session) => this.#audiences.add(run, { notify, session }),
      missed: (run, lists) => this.#missed.add(run, lists),
      holdOpen: (tap, last) => this.#held.hold(tap, last),
    };
    this.#hasHandles = config.keys.some(({ kind }) => kind === 'handle' || kind === 'managed');
    const needsSession = config.keys.some(({ kind }) => kind === 'session');
    this.#servesAlone = config.keys.some(
      ({ kind }) => kind !== 'session' && (kind !== 'request' || !needsSession),
    );
    this.#callers = new Callers(config.principal, config.onWarning, config.claims);
    // A cached session is not touched in the store, and must not expire there meanwhile.
    this.#cacheMs = Math.min(config.sessionCacheMs, config.idleMs / 10);
  }

  /**
   * Lets a request in, or answers it and gives `undefined`. Synchronous, unless the store is asked.
   */
  enter(exchange: Exchange): MaybePromise<Admission | undefined> {
    const { req } = exchange;
    if (req.method !== 'POST') {
      const unfit = unfitRequest(req);
      if (unfit !== undefined) return deny(exchange, unfit);
      if (isOtherRoute(req)) return this.#admitNowhere(exchange);
    }
    const identity = this.#callers.identify(req);
    const era = eraOf(exchange);
    if (typeof era === 'object') return denyContradiction(exchange, era);
    if (era === 'stateless') {
      const names = this.#conversations?.namesIn(exchange, identity, false);
      return this.#enterAlone(exchange, era, identity, names);
    }
    if (exchange.messages.some((each) => each.method === 'initialize'))
      return this.#handshake(exchange, identity);
    const run = requestHeader(req, SESSION_HEADER);
    if (run === undefined) return this.#withoutSession(exchange, identity);
    // A session's id has only visible ASCII characters (MCP); the keys of other runs have a space.
    if (!/^[\x21-\x7e]+$/.test(run)) return deny(exchange, UNKNOWN_SESSION);
    const known = this.#known(run, identity);
    if (known !== undefined) return this.#enterSession(exchange, { session: known }, identity);
    return this.#find(run, identity, req).then((found) => {
      if (found === 'unavailable') return deny(exchange, STORE_AWAY);
      if (found === 'over' && exchange.messages.some(({ method }) => method === 'tools/call'))
        this.#keptIds?.called(run, exchange, identity.principal !== undefined);
      if (found === 'over' || found === 'unknown') return deny(exchange, UNKNOWN_SESSION);
      return this.#enterSession(exchange, found, identity);
    });
  }

  /**
   * Finds the runs of a request that passes as it is. Where {@link enter} would deny it, its calls
   * have no run.
   */
  watch({ req, messages, isBatch }: PassingRequest): MaybePromise<Admission> {
    const requests = messages.filter(({ kind }) => kind === 'request');
    let identity = ANONYMOUS;
    try {
      identity = this.#callers.identify(req);
    } catch (error) {
      this.config.onError(error);
    }
    const said = eraOf({ req, messages, isBatch });
    const era = said === 'stateless' ? said : 'session';
    const id = era === 'session' ? requestHeader(req, SESSION_HEADER) : undefined;
    const names = this.#conversations?.namesIn({ req, requests }, identity, id !== undefined);
    const admit = (session: LiveSession, isSessions: boolean): Admission => {
      const caller = { era, identity, session, actor: identity.binding } as const;
      const own = isSessions
        ? new Run(session.run, this.keeper, caller, { isSessions })
        : undefined;
      return new Admission(this, this.keeper, caller, own, names);
    };
    const first = messages[0]?.message;
    const info = first?.at('params', '_meta', META_CLIENT) ?? first?.at('params', 'clientInfo');
    const alone = (): Admission => admit(newScope(clientInfoIn(info)), false);
    if (id === undefined || !/^[\x21-\x7e]+$/.test(id)) return alone();
    const known = this.#known(id, identity);
    if (known !== undefined) return admit(known, true);
    const find = async (): Promise<Admission> => {
      await this.#opening.get(id);
      const session = this.#known(id, identity);
      if (session !== undefined) return admit(session, true);
      const found = await this.#find(id, identity, req);
      return typeof found === 'string' ? alone() : admit(found.session, true);
    };
    return find();
  }

  /** Why a gate cannot use these sessions. From now on their runs live as its rules need it. */
  faultOf(workflow: KeptGate): InterlockError | undefined {
    if (this.#faults.has(workflow)) return this.#faults.get(workflow);
    const { keys, idleMs, isIdleSet, faultOfKeeping } = this.config;
    const { longestWindow } = workflow.rules;
    const isShort = isIdleSet && idleMs < longestWindow;
    const fault =
      faultOfKeeping(workflow) ??
      (isShort && keys.some(({ kind }) => kind !== 'session')
        ? tooShort(workflow.id, idleMs, longestWindow)
        : undefined);
    this.#faults.set(workflow, fault);
    if (fault === undefined) this.#longestWindow = Math.max(this.#longestWindow, longestWindow);
    return fault;
  }

  /** Whether some run is that of a session, so that an `initialize` needs an id. */
  get needsIds(): boolean {
    return this.config.keys.some(({ kind }) => kind === 'session');
  }

  /** Opens a session whose `initialize` has passed as it is. Never rejects. */
  watchOpened(id: string, minted: boolean, { req, messages }: PassingRequest): void {
    const identity = this.watch({ req, messages, isBatch: false });
    const clientInfo = clientInfoIn(messages[0]?.message.at('params', 'clientInfo'));
    const opened = Promise.resolve(identity)
      .then(({ identity: { principal, binding } }) => {
        const client = clientNamed(this.config.clientOf, req);
        const caller = { principal, binding, client, clientInfo, from: undefined };
        return this.open(id, caller, minted);
      })
      .catch(this.config.onError)
      .finally(() => this.#opening.delete(id));
    this.#opening.set(id, opened);
  }

  /** A client has ended its session by a DELETE that has passed as it is. Never rejects. */
  watchEnded({ session }: Admission): void {
    if (session.run !== '') void this.close(session, 'session').catch(this.config.onError);
  }

  async open(
    run: string,
    caller: SessionOpener,
    minted: boolean,
  ): Promise<OpenResult['status'] | 'full'> {
    this.#warnOfStore();
    const seat = await this.#quotas.makeRoom(caller, (session) => this.#endUnlessUsed(session));
    if (seat === undefined) return 'full';
    const record = { principal: caller.binding, minted, clientInfo: caller.clientInfo };
    try {
      const { status } = await this.config.store.open(run, record, this.config.idleMs, newToken());
      if (status === 'opened') {
        const session = this.#live(run, record);
        this.table.add(session, seat, this.config.clock.now());
        if (caller.from !== undefined) this.#loneCalls?.opened(session, caller.from);
      } else seat.leave();
      return status;
    } catch (error) {
      seat.leave();
      throw error;
    }
  }

  /**
   * Ends a session that is to make way, unless it is in use. A claim in the store says that another
   * process runs a step of it, or that the outcome of one is unknown.
   */
  async #endUnlessUsed(session: LiveSession): Promise<void> {
    const { run, seat } = session;
    if (session.running || seat?.isFree || this.table.get(run) !== session) return;
    await this.close(session, 'quota');
  }

  async close({ run }: LiveSession, cause: 'session' | 'quota'): Promise<void> {
    const { store } = this.config;
    const result = await store.end(run, { ifUnclaimed: cause === 'quota' });
    if (result === 'claimed') return;
    this.forgetRun(run);
    if (result === 'ended') this.#reportEnded(run, cause);
  }

  #reportEnded(runKey: string, cause: RunEnd): void {
    const { events } = this.config;
    if (events.isOn) events.publish({ type: 'run.ended', cause, runKey });
  }

  /** There is no such run any more. If a session named it, it ends in all processes. */
  forgetRun(run: string): void {
    this.#forget(run);
    this.#relay?.sendHint(run, { kind: 'ended' });
  }

  /**
   * Begins no more steps, waits at most `drainMs` for those that run, ends the streams that the
   * middleware serves, and leaves the bus.
   */
  async shutDown(drainMs: number): Promise<void> {
    const { turns } = this.keeper;
    turns.close();
    const left = await turns.drain(drainMs);
    if (left.length > 0 && this.#ended === undefined)
      this.config.onError(leftRunning(left, drainMs));
    this.#ended ??= this.#end();
    await this.#ended;
  }

  async #end(): Promise<void> {
    if (this.#stopReporting !== undefined) this.#reportUnknown();
    this.#missed.close();
    this.#held.endAll();
    this.table.each((session) => session.streams.endAll());
    this.#audiences.endAll();
    await this.#relay?.close().catch(this.config.onError);
  }

  /** Whether this instance receives from the others now; `undefined` where it has no bus. */
  get receivesOthers(): boolean | undefined {
    return this.#relay?.hears;
  }

  /** The session shows this run from now on: its open streams report what others do to it. */
  #follow(session: LiveSession, run: string): void {
    if (session.streams.size === 0) return;
    session.follow(run, () =>
      this.#audiences.add(run, { notify: (lists) => session.notifyChanged(lists), session }),
    );
  }

  /** Notifies the clients of a run, in all processes, that lists of it changed. */
  notifyListChanged(run: string, lists: readonly ListKind[]): void {
    const { events } = this.config;
    if (events.isOn) events.publish({ type: 'list.changed', runKey: run, lists });
    const session = this.table.get(run) ?? this.#live(run, {});
    session.moves++;
    session.notifyChanged(lists);
    this.keeper.notify(run, lists);
  }

  /** Warns of authentication behind the middleware, with an initialize or without sessions. */
  #lookOut(exchange: Exchange, { principal }: Identity): void {
    const lookout = principal === undefined ? this.#callers.lookout(exchange.req) : undefined;
    if (lookout !== undefined) exchange.join(lookout);
  }

  #warnOfStore(): void {
    if (this.#storeWarning !== undefined) this.config.onWarning(this.#storeWarning);
    this.#storeWarning = undefined;
  }

  #join(bus: NotificationBus): Relay {
    const { clock, onError } = this.config;
    return new Relay(bus, clock, {
      find: (topic) => this.table.byTopic(topic),
      ended: ({ run }) => this.#forget(run),
      changed: (topic, lists, but) =>
        this.#audiences.notifyTopic(
          topic,
          lists,
          but === undefined ? undefined : this.table.byTopic(but),
        ),
      onError,
    });
  }

  #live(run: string, record: SessionRecord): LiveSession {
    return new LiveSession(run, record, this.config.clock.now(), this.#relay);
  }

  #handshake(exchange: Exchange, identity: Identity): MaybePromise<Admission | undefined> {
    if (exchange.isBatch) return deny(exchange, NOT_ALONE);
    if (this.keeper.turns.closed) return deny(exchange, RESTARTING);
    // A handshake that names a session must neither learn of it nor take it over.
    setRequestHeader(exchange.req, SESSION_HEADER, undefined);
    const { binding, principal } = identity;
    const client = clientNamed(this.config.clientOf, exchange.req);
    const clientInfo = clientInfoIn(exchange.messages[0]?.message.at('params', 'clientInfo'));
    const from = this.#loneCalls?.callerOf(exchange, principal, client, clientInfo?.name ?? '');
    const caller = { binding, principal, client, clientInfo, from };
    if (this.#quotas.isBarred(caller)) return deny(exchange, CROWDED);
    exchange.join(new Handshake(this, exchange, caller));
    this.#lookOut(exchange, identity);
    return this.#admitNowhere(exchange, identity, keysBeforeSessions(this.config.keys), {
      clientInfo,
    });
  }

  #withoutSession(exchange: Exchange, identity: Identity): MaybePromise<Admission | undefined> {
    const { req, messages } = exchange;
    // A client's probe for the era must be answered by the upstream itself.
    const probes =
      messages.length > 0 && messages.every((each) => each.method === 'server/discover');
    // The header says stateless, and the body does not: the upstream refuses that. No gated call
    // passes.
    if (probes || headerSaysStateless(req)) return this.#admitNowhere(exchange, identity);
    const names = this.#conversations?.namesIn(exchange, identity, false);
    if (names !== undefined || this.#servesAlone)
      return this.#enterAlone(exchange, 'session', identity, names);
    const { withoutSession } = this.config;
    const isAsking = messages.length > 0 && messages.every((each) => each.kind === 'request');
    if (withoutSession === 'pass' && isAsking)
      return this.#admitNowhere(exchange, identity, [], { unconnected: UNCONNECTED });
    return deny(exchange, NAMELESS);
  }

  /**
   * Lets in a request that has no session; its calls have runs only by the given keys.
   *
   * @param unconnected as {@link Admission.unconnected}
   */
  #admitNowhere(
    exchange: Exchange,
    identity: Identity = ANONYMOUS,
    keys: RunKeeper['keys'] = [],
    {
      clientInfo,
      unconnected,
    }: Pick<SessionRecord, 'clientInfo'> & { readonly unconnected?: NoRun } = {},
  ): Admission {
    const session = newScope(clientInfo);
    const caller = { era: 'session', identity, session, unconnected } as const;
    return letIn(exchange, new Admission(this, { ...this.keeper, keys }, caller));
  }

  /** Lets in a request that nothing joins to other requests of its client. */
  #enterAlone(
    exchange: Exchange,
    era: Era,
    identity: Identity,
    names?: RequestNames,
  ): MaybePromise<Admission | undefined> {
    this.#warnOfStore();
    const said = era === 'stateless' ? exchange.messages[0]?.message : undefined;
    const session = newScope(clientInfoIn(said?.at('params', '_meta', META_CLIENT)));
    // The header means nothing here: an upstream that read it would serve another client's session.
    setRequestHeader(exchange.req, SESSION_HEADER, undefined);
    const post = Post.begin(exchange, session);
    if (post === undefined) return deny(exchange, DOUBLED);
    exchange.join(post);
    this.#lookOut(exchange, identity);
    const admitted = this.#letIn(
      exchange,
      new Admission(this, this.keeper, { era, identity, session }, undefined, names),
    );
    if (exchange.req.method !== 'GET') return admitted;
    return after(admitted, (admission) => this.#listenAlone(exchange, session, admission));
  }

  /**
   * A client without a session may open a GET stream too, and is notified there of its run's lists.
   * Each stream is, since nothing says which streams are the same client's.
   */
  #listenAlone(
    exchange: Exchange,
    session: LiveSession,
    admission: Admission | undefined,
  ): Admission | undefined {
    const listed = admission?.byArgument === false ? admission.listed : undefined;
    if (listed === undefined) return admission;
    const { maxSessionsPerPrincipal } = this.config;
    const hasRoom = (): boolean => this.#audiences.sizeOf(listed.run) < maxSessionsPerPrincipal;
    exchange.join(new GetStream(this, exchange, session, listed, hasRoom));
    return admission;
  }

  #letIn(exchange: Exchange, admission: Admission): MaybePromise<Admission | undefined> {
    if (!this.#hasHandles) return letIn(exchange, admission);
    return serveHandles(exchange, admission, this.keeper).then((isServed) =>
      isServed ? letIn(exchange, admission) : undefined,
    );
  }

  /** The caller's session, if the store confirmed it lately. */
  #known(run: string, { binding }: Identity): LiveSession | undefined {
    const known = this.table.get(run);
    // Another caller's request goes to the store, so that it takes as long as an unknown session.
    if (known === undefined || known.record.principal !== binding) return undefined;
    // Where the clock was set back, the store is asked until the clock has caught up.
    const now = this.config.clock.now();
    this.table.use(known, now);
    const age = now - known.checkedAt;
    return age >= 0 && age < this.#cacheMs ? known : undefined;
  }

  /** `over`: no caller has such a session. `unknown`: it is another caller's. */
  async #find(
    run: string,
    { binding, principal }: Identity,
    req: RequestPort,
  ): Promise<FoundSession | 'over' | 'unknown' | 'unavailable'> {
    const { store, clock, idleMs } = this.config;
    const known = this.table.get(run);
    const moves = known?.moves ?? 0;
    let record: RunRecord | undefined;
    try {
      record = await store.read(run, idleMs);
    } catch (error) {
      this.config.onError(error);
      // Ungated calls of a known session go on. Gated calls ask the store themselves.
      return known?.record.principal === binding && known !== undefined
        ? { session: known }
        : 'unavailable';
    }
    if (record === undefined || record.sessionEnded) {
      this.#noteUnknown(known !== undefined);
      const isFirst = known !== undefined && this.table.get(run) === known;
      if (isFirst && record === undefined) this.#reportEnded(run, 'unknown');
      this.#forget(run);
      return 'over';
    }
    if (record.session.principal !== binding) return 'unknown';
    const session = this.table.get(run) ?? this.#adopt(run, record.session, principal, req);
    session.checkedAt = clock.now();
    this.#conversations?.learn(session, record);
    return { session, record, moves };
  }

  /** @param isLost whether this process knew the session */
  #noteUnknown(isLost: boolean): void {
    const { events, clock } = this.config;
    if (!events.isOn) return;
    const { requests, lost, since } = this.#unknown;
    this.#unknown = { requests: requests + 1, lost: lost + Number(isLost), since };
    const age = clock.now() - since;
    if (age < 0 || age >= UNKNOWN_EACH_MS) this.#reportUnknown();
    else this.#stopReporting ??= clock.after(UNKNOWN_EACH_MS - age, () => this.#reportUnknown());
  }

  #reportUnknown(): void {
    const { events, clock } = this.config;
    const { since, ...counted } = this.#unknown;
    this.#stopReporting?.();
    this.#stopReporting = undefined;
    this.#unknown = { requests: 0, lost: 0, since: clock.now() };
    const sinceMs = Math.max(0, clock.now() - since);
    events.publish({ type: 'session.unknown', ...counted, sinceMs });
  }

  /** Takes up a session that another process began, or that this one forgot. */
  #adopt(
    run: string,
    record: SessionRecord,
    principal: string | undefined,
    req: RequestPort,
  ): LiveSession {
    const session = this.#live(run, record);
    session.isAdopted = true;
    const seat = this.#quotas.seat({ principal, client: clientNamed(this.config.clientOf, req) });
    this.table.add(session, seat, session.checkedAt);
    return session;
  }

  #forget(run: string): void {
    const session = this.table.get(run);
    this.table.delete(run);
    this.#missed.forget(run);
    if (session === undefined) return;
    session.isOver = true;
    session.streams.endAll();
    this.#keptIds?.ended(run, session.record.clientInfo?.name);
  }

  #enterSession(
    exchange: Exchange,
    { session, record, moves = 0 }: FoundSession,
    identity: Identity,
  ): MaybePromise<Admission | undefined> {
    const { method } = exchange.req;
    const caller = { era: 'session', identity, session, actor: identity.binding } as const;
    const own = new Run(session.run, this.keeper, caller, { isSessions: true });
    let met: Promise<RequestNames | undefined> | undefined;
    if (method === 'POST') {
      // Only for a POST: what was read would be out of date when a message comes on a GET's stream.
      if (record !== undefined) own.wasRead(record, moves);
      const post = Post.begin(exchange, session);
      if (post === undefined) return deny(exchange, DOUBLED);
      exchange.join(post);
      this.#noteNotices(exchange, session);
      const names = this.#conversations?.namesIn(exchange, identity, true);
      if (names !== undefined)
        met = this.#conversations?.meet(session, names, record !== undefined);
    }
    const admitted =
      met === undefined
        ? this.#letIn(exchange, new Admission(this, this.keeper, caller, own))
        : met.then((names) =>
            this.#letIn(exchange, new Admission(this, this.keeper, caller, own, names)),
          );
    if (method !== 'GET' && method !== 'DELETE') return admitted;
    return after(admitted, (admission) => {
      if (method === 'DELETE') exchange.join(new Termination(this, exchange, session));
      else {
        const hasRoom = (): boolean => session.streams.size < this.config.maxStreams;
        exchange.join(new GetStream(this, exchange, session, admission?.listed, hasRoom));
      }
      return admission;
    });
  }

  /**
   * Notes cancellations, and answers to the upstream's own requests. SDK servers do not answer what
   * was cancelled (MCP, "Cancellation": a server "SHOULD NOT"). So the cancellation of a step that
   * must not be interrupted is kept from the upstream: its outcome would stay unknown.
   */
  #noteNotices(exchange: Exchange, session: LiveSession): void {
    for (const incoming of exchange.messages) {
      const { kind, id, method, message } = incoming;
      if (kind === 'response' && id !== undefined) session.answered(id);
      if (method === 'tools/call') {
        const hasId = session.calls === 0 && hasKnownId(message);
        session.noteCall(hasId);
        if (session.callsSinceNotified !== undefined) session.callsSinceNotified++;
        const isCounted = this.#loneCalls !== undefined && session.isAdopted;
        if (isCounted && session.calls <= MOST_HINTS)
          this.#relay?.sendHint(session.run, { kind: 'called', hasId });
      } else if (method === 'tools/list') {
        session.noteList();
        if (session.lists++ < MOST_HINTS) this.#relay?.sendHint(session.run, { kind: 'listed' });
      }
      if (method !== 'notifications/cancelled') continue;
      const cancelled = message.at('params', 'requestId');
      // All instances would receive it, and no request of the session has such an id.
      if (!isRequestId(cancelled) || isLongId(cancelled)) continue;
      if (!session.cancel(cancelled))
        this.#relay?.sendHint(session.run, { kind: 'cancelled', id: cancelled });
      else if (session.inFlight(cancelled)?.mustEnd) incoming.drop();
    }
  }
}

function tooShort(workflow: string, idleMs: number, longestWindow: number): InterlockError {
  return configError(
    `sessionStore(): idleMs: got ${idleMs}, and a rule of "${workflow}" looks back ` +
      `${longestWindow} ms: a run of a principal, handle or conversation would be forgotten ` +
      'before. Give at least as much, or leave idleMs out: then such a run lives as long as its ' +
      'longest window',
  );
}

/** Takes the place of a session where requests have none. */
function newScope(clientInfo?: ClientInfo): LiveSession {
  return new LiveSession('', { clientInfo }, 0);
}
