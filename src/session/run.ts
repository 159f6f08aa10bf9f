/**
 * A request that is let in, and the runs that it is about; or a request that is denied. Hides which
 * strategy names a run, and in what words a denial is answered.
 */
import type { Clock } from '../basics/clock.ts';
import type { Events } from '../basics/events.ts';
import { SESSION_HEADER } from '../basics/names.ts';
import type { StepRun } from '../step/step.ts';
import type { GuardedStore } from '../step/store-calls.ts';
import type { Turns } from '../step/turns.ts';
import type { RunRecord, SessionRecord } from '../stores/store.ts';
import { type Call, isAmbiguous } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import {
  acceptsEventStream,
  type Contradiction,
  type Era,
  hasBody,
  type RequestPort,
} from '../wire/headers.ts';
import {
  errorResponse,
  isObject,
  JSON_RPC,
  type JsonObject,
  type ListKind,
} from '../wire/json-rpc.ts';
import { memberAt } from '../wire/message.ts';
import type { Tap } from '../wire/tap.ts';
import { after, isPromise, type MaybePromise } from '../wire/task-line.ts';
import { type ClientOf, clientNamed, type Identity, type Owner } from './callers.ts';
import { type Conversations, type RequestNames, UNASKED } from './conversations.ts';
import type { HeldRuns } from './held-runs.ts';
import type { LiveSession } from './live-session.ts';
import {
  goneAdvice,
  type HandleKey,
  isHandle,
  type ManagedHandle,
  type NoRun,
  type RunKeyStrategy,
  startingAdvice,
} from './run-key.ts';

/** What all requests share: the keys, where runs are kept, and who is notified of them. */
export interface RunKeeper {
  readonly keys: readonly RunKeyStrategy[];
  readonly store: GuardedStore;
  /** How long a run lives after its last use. */
  readonly ttlOf: (run: string) => number;
  readonly clock: Clock;
  readonly turns: Turns;
  readonly events: Events;
  readonly onError: (error: unknown) => void;
  readonly held: HeldRuns;
  readonly conversations: Conversations | undefined;
  /** As {@link SessionsConfig.clientOf}. */
  readonly clientOf: ClientOf | undefined;
  /** Notifies who listens to a run, in all processes, except one session that knows already. */
  notify(run: string, lists: readonly ListKind[], except?: LiveSession): void;
  listen(
    run: string,
    notify: (lists: readonly ListKind[]) => void,
    session: LiveSession,
  ): () => void;
  /** Incomplete lists of a run went out: its clients are notified once the store is back. */
  missed(run: string, lists: readonly ListKind[]): void;
  /** As {@link Admission.holdOpen}. */
  holdOpen(tap: Tap, last: JsonObject): () => void;
}

interface Caller {
  readonly era: Era;
  readonly actor: string | undefined;
  readonly identity: Identity;
  readonly session: LiveSession;
}

/** How a request came to name a run. */
interface RunOrigin {
  /** As in {@link StepRun.create}. Set for a principal's run: its first call makes it. */
  readonly create?: SessionRecord | undefined;
  /** The strategy whose argument named the run, if one did. */
  readonly handle?: HandleKey | ManagedHandle | undefined;
  /** Whether it is the session's own run: where that is unknown, the session is over. */
  readonly isSessions?: boolean;
  /** Whether an id in the request names it: a caller may have only so many. */
  readonly isNamed?: boolean;
}

/** How long an idempotency key waits for a later try, where no session names the run. */
const NAMED_KEY_MS = 30 * 24 * 3_600_000;

/** One run that a request is about. */
export class Run implements StepRun {
  readonly run: string;
  /** The client's other requests, as far as this process knows them. */
  readonly session: LiveSession;
  /** The caller, as the trail names it. */
  readonly actor: string | undefined;
  /** Who sent the request, for rules. */
  readonly identity: Identity;
  readonly create: SessionRecord | undefined;
  /** Whether an id in the request names it. */
  readonly isNamed: boolean;
  /** The one call of this request that runs as a step: a batch forwards no second one. */
  steppingCall: Call | undefined;
  readonly #keeper: RunKeeper;
  readonly #era: Era;
  readonly #isSessions: boolean;
  readonly #handle: HandleKey | ManagedHandle | undefined;
  #record: RunRecord | undefined;
  #movesThen = 0;

  constructor(run: string, keeper: RunKeeper, caller: Caller, origin: RunOrigin) {
    this.run = run;
    this.session = caller.session;
    this.actor = caller.actor;
    this.identity = caller.identity;
    this.create = origin.create;
    this.isNamed = origin.isNamed === true;
    this.#keeper = keeper;
    this.#era = caller.era;
    this.#isSessions = origin.isSessions === true;
    this.#handle = origin.handle;
  }

  get store(): GuardedStore {
    return this.#keeper.store;
  }

  get ttlMs(): number {
    return this.#keeper.ttlOf(this.run);
  }

  /** A session's client tries again while it lives; a person or a handle comes back later. */
  get keyMs(): number | undefined {
    return this.#isSessions ? undefined : Math.max(this.ttlMs, NAMED_KEY_MS);
  }

  get turns(): Turns {
    return this.#keeper.turns;
  }

  /**
   * What the model reads where the store does not know the run; `undefined` where the session is
   * over then.
   */
  get gone(): string | undefined {
    return this.#handle ? goneAdvice(this.#handle) : this.create && EVICTED;
  }

  /** Says to the model what begins another run; `undefined` where no tool does. */
  get anew(): string | undefined {
    return this.#handle && startingAdvice(this.#handle);
  }

  /** The run was read for this request. @param moves the session's count of moves at that time */
  wasRead(record: RunRecord, moves: number): void {
    this.#record = record;
    this.#movesThen = moves;
  }

  /** The run as it was read for this request, unless it was not read or has moved since. */
  fresh(): RunRecord | undefined {
    return this.session.moves === this.#movesThen ? this.#record : undefined;
  }

  /**
   * Some of the run's lists have changed.
   *
   * @param notifiedHere whether the client is notified on the stream of its own call
   */
  listChanged(lists: readonly ListKind[], notifiedHere: boolean): void {
    const { session, run: runKey } = this;
    const { events } = this.#keeper;
    if (events.isOn) events.publish({ type: 'list.changed', runKey, lists });
    if (this.#isSessions) session.moves++;
    if (!notifiedHere && (this.#isSessions || this.#era === 'session'))
      session.notifyChanged(lists);
    if (!this.#isSessions) this.#keeper.notify(this.run, lists, session);
  }

  /** Calls `notify` at each such change, until the returned function is called. */
  listen(notify: (lists: readonly ListKind[]) => void): () => void {
    return this.#isSessions ? () => {} : this.#keeper.listen(this.run, notify, this.session);
  }
}

const UNNAMED: NoRun = {
  advice:
    'Nothing that you can send names one, so no call of it can run here. Do not try again: ' +
    'tell the user that this server has to be set up for clients without a session.',
  warning:
    'nothing in a request names its run, so each call of a bound tool is refused. Since MCP ' +
    '2026-07-28 there are no sessions: give sessionStore({ key }) principalKey() or ' +
    'managedHandle(), see mcp-interlock/docs/build/eras.md#what-names-a-run',
};
const ANONYMOUS_CALL: NoRun = {
  advice:
    'Its runs belong to users who have signed in, and this request comes from none. Ask the user ' +
    'to sign in to this server, then try again.',
  warning:
    'a request names no principal, so each call of a bound tool is refused. Mount authentication ' +
    'in front of sessionStore(), or give sessionStore({ principal })',
};

/** For a client that was connected before a gate stood there. */
export const UNCONNECTED: NoRun = {
  advice:
    'This connection is older than the server, and has no session. Reconnect to the server, or ' +
    'ask the user to do so, then try again.',
  warning: undefined,
};

const EVICTED =
  'The run of this conversation or user had to make way for newer ones. What was done in it is ' +
  'no longer known, so none of its calls run again. Tell the user. A new conversation may begin ' +
  'a new run.';

/** Who created a task: a session, or a caller by what its sessions are bound to. */
export type TaskOwner = readonly [kind: 'session' | 'principal', name: string | null];

/** A request that is let in, and the runs of its calls. */
export class Admission {
  /** The `sessionStore()` that let it in. A second one would decide differently. */
  readonly owner: object;
  readonly era: Era;
  readonly identity: Identity;
  /** The requests that are known to be the same client's. */
  readonly session: LiveSession;
  /** The run that the request names without a call: it filters the lists. */
  readonly listed: Run | undefined;
  /** Whether calls may name their runs in their arguments: then no run can filter the lists. */
  readonly byArgument: boolean;
  /** The handle that the schemas of gated tools must ask for. */
  readonly managed: ManagedHandle | undefined;
  /** Why no call of a bound tool runs for this request: its client must reconnect. */
  readonly unconnected: NoRun | undefined;
  /** Whether this request changed which conversation its session's lists show. */
  readonly isTurn: boolean;
  /** Whether its session has named different conversations: then no run filters its lists. */
  readonly isMany: boolean;
  readonly #keeper: RunKeeper;
  /** The session's own run; none where there is no session. */
  readonly #own: Run | undefined;
  readonly #names: RequestNames | undefined;
  /** The run of calls that name none. */
  readonly #fixed: Run | undefined;
  /** The strategies to try, in order, up to one that names the run of each call. */
  readonly #keys: readonly RunKeyStrategy[];
  #runs: Map<string, Run> | undefined;
  #ofCalls: Map<Call, Run | NoRun> | undefined;

  /**
   * @param own the session's own run
   * @param names what ids in the requests name
   */
  constructor(
    owner: object,
    keeper: RunKeeper,
    caller: {
      readonly era: Era;
      readonly identity: Identity;
      readonly session: LiveSession;
      readonly unconnected?: NoRun | undefined;
    },
    own?: Run,
    names?: RequestNames,
  ) {
    this.owner = owner;
    this.era = caller.era;
    this.session = caller.session;
    this.#keeper = keeper;
    this.identity = caller.identity;
    this.unconnected = caller.unconnected;
    this.#own = own;
    this.#names = names;
    this.isTurn = names?.isTurn === true;
    const { conversation } = caller.session;
    this.isMany = conversation?.isMany === true;
    // A request's own id counts before what its session showed last.
    const looked = names?.looked ?? conversation?.run ?? names?.called;
    const { keys } = keeper;
    let tried = 0;
    let listed: Run | undefined;
    let managed: ManagedHandle | undefined;
    let byArgument = false;
    // Up to the first strategy that names the run without looking at the call.
    for (; tried < keys.length && listed === undefined; tried++) {
      const key = keys[tried];
      if (key === undefined) break;
      if (key.kind === 'managed') managed ??= key;
      byArgument ||= key.kind === 'handle' || key.kind === 'managed';
      listed = this.#named(key);
    }
    this.#keys = tried === keys.length ? keys : keys.slice(0, tried);
    this.#fixed = listed;
    if (looked === undefined || !this.#keys.some(({ kind }) => kind === 'request'))
      this.listed = listed;
    else this.listed = typeof looked === 'string' ? this.#namedBy(looked) : undefined;
    this.managed = managed;
    this.byArgument = byArgument;
  }

  /** The strategies by which an argument may name the run, in order of preference. */
  get handles(): readonly (HandleKey | ManagedHandle)[] {
    return this.#keys.filter((key) => key.kind === 'handle' || key.kind === 'managed');
  }

  /** The tools that hand out the handles by which runs are named. */
  get starters(): readonly string[] {
    return this.#keeper.keys.flatMap((key) => {
      if (key.kind === 'managed') return key.start;
      return key.kind === 'handle' ? key.createdBy : [];
    });
  }

  /** The run of a call. It stays the same if the call's arguments are changed later. */
  runOf(call: Call): Run | NoRun {
    if (this.unconnected !== undefined) return this.unconnected;
    if (this.#names === undefined && this.#fixed !== undefined && !this.byArgument)
      return this.#fixed;
    this.#ofCalls ??= new Map();
    const known = this.#ofCalls.get(call);
    if (known !== undefined) return known;
    const run = this.#find(call);
    this.#ofCalls.set(call, run);
    return run;
  }

  /** For the developer: why each gated call of this client is refused, if that is known before. */
  get unnamed(): string | undefined {
    const isOpen =
      this.#own === undefined &&
      this.unconnected === undefined &&
      this.#keys.every((key) =>
        key.kind === 'request' ? !this.#mayName(key) : key.kind === 'session',
      );
    return isOpen ? UNNAMED.warning : undefined;
  }

  /** Whether ids name runs of the request's caller, by this strategy. */
  #mayName(key: RunKeyStrategy): boolean {
    return key.kind === 'request' && (key.anonymous || this.identity.principal !== undefined);
  }

  /** Whose tasks and lists this request means: its session's or, without one, its caller's. */
  get taskOwner(): TaskOwner {
    return this.#own === undefined
      ? ['principal', this.identity.binding ?? null]
      : ['session', this.#own.run];
  }

  /** Whose tasks this request may mean by their ids. A conversation's outlive its session. */
  get taskOwners(): readonly TaskOwner[] {
    const { taskOwner } = this;
    const isNaming = this.#own !== undefined && this.#keys.some((key) => this.#mayName(key));
    return isNaming ? [taskOwner, ['principal', this.identity.binding ?? null]] : [taskOwner];
  }

  /** Who asks for a task that a call of this run created. */
  taskOwnerOf({ isNamed }: Run): TaskOwner {
    return isNamed ? ['principal', this.identity.binding ?? null] : this.taskOwner;
  }

  /** A run by its key. The caller must have made sure that it is the client's. */
  runNamed(run: string): Run {
    if (this.#own?.run === run) return this.#own;
    return this.#runs?.get(run) ?? this.#newRun(run, {});
  }

  /** Makes room for a run that an id names, which a call may begin; or says why there is none. */
  roomFor(run: Run, req: RequestPort): MaybePromise<Run | NoRun> {
    const { conversations, onError } = this.#keeper;
    if (conversations === undefined) return run;
    const hasRoom = conversations.room(run.run, this.ownerOf(req));
    if (!isPromise(hasRoom)) return hasRoom ? run : conversations.full;
    return hasRoom.then(
      (has) => (has ? run : conversations.full),
      (error: unknown) => {
        onError(error);
        return UNASKED;
      },
    );
  }

  /** By whom held runs are counted. */
  ownerOf(req: RequestPort): Owner {
    const { principal } = this.identity;
    const client = principal === undefined ? clientNamed(this.#keeper.clientOf, req) : undefined;
    return { principal, client };
  }

  get held(): HeldRuns {
    return this.#keeper.held;
  }

  /** Where runs are kept, also where this request names none. */
  get store(): GuardedStore {
    return this.#keeper.store;
  }

  /**
   * These lists go out incomplete, because the store cannot be asked. The client is notified that
   * they changed once the store is back.
   */
  listMissed(lists: readonly ListKind[]): void {
    const run = this.#own?.run ?? this.listed?.run;
    if (run !== undefined) this.#keeper.missed(run, lists);
  }

  /**
   * Keeps a stream of the middleware's own alive until the returned function is called, and ends it
   * with `last` if the process ends before.
   */
  holdOpen(tap: Tap, last: JsonObject): () => void {
    return this.#keeper.holdOpen(tap, last);
  }

  #find(call: Call): Run | NoRun {
    let found: NoRun | undefined;
    for (const key of this.#keys) {
      if (key.kind === 'handle' || key.kind === 'managed') {
        const handle = handleIn(call, key.argument);
        // The upstream may read another handle there, so no run may judge the call.
        if (handle === null) return { advice: goneAdvice(key), warning: undefined };
        if (handle !== undefined)
          return this.#known(key.runKey(handle, this.identity.binding), { handle: key });
        found ??= withoutHandle(call, key);
      } else if (key.kind === 'request') {
        const named = this.#names?.of(call, key);
        if (named !== undefined) return typeof named === 'string' ? this.#namedBy(named) : named;
      } else {
        const named = this.#named(key);
        if (named !== undefined) return named;
      }
    }
    return (
      found ?? (this.#keys.some(({ kind }) => kind === 'principal') ? ANONYMOUS_CALL : UNNAMED)
    );
  }

  /** The run that a strategy names without looking at the call. */
  #named(key: RunKeyStrategy): Run | undefined {
    if (key.kind === 'session') return this.#own;
    const { principal } = this.identity;
    if (key.kind !== 'principal' || principal === undefined) return undefined;
    return this.#known(key.runKey(principal), { create: { principal } });
  }

  /** The run that an id in a request names. Its first call makes it. */
  #namedBy(run: string): Run {
    return this.#known(run, { create: { principal: this.identity.binding }, isNamed: true });
  }

  #known(run: string, origin: RunOrigin): Run {
    this.#runs ??= new Map();
    const known = this.#runs.get(run) ?? this.#newRun(run, origin);
    this.#runs.set(run, known);
    return known;
  }

  #newRun(run: string, origin: RunOrigin): Run {
    const { era, session, identity } = this;
    const caller = { era, session, identity, actor: identity.binding };
    return new Run(run, this.#keeper, caller, origin);
  }
}

export function admissionOf(exchange: Exchange): Admission | undefined {
  return exchange.admission as Admission | undefined;
}

export function letIn(exchange: Exchange, admission: Admission): Admission {
  exchange.admission = admission;
  return admission;
}

/** The keys before that of sessions: only they can name a run before there is a session. */
export function keysBeforeSessions(keys: readonly RunKeyStrategy[]): readonly RunKeyStrategy[] {
  const own = keys.findIndex(({ kind }) => kind === 'session');
  return own === -1 ? keys : keys.slice(0, own);
}

function withoutHandle({ message }: Call, key: HandleKey | ManagedHandle): NoRun {
  const advice = `It needs the argument "${key.argument}". ${startingAdvice(key)}`;
  const tool = message.at('params', 'name');
  const begins = key.kind === 'handle' && key.createdBy.some((each) => each === tool);
  const warning = begins
    ? `a call of ${JSON.stringify(tool)} was refused: it makes the handles that name runs, so it ` +
      'can have none before. Do not bind it, or have another key name its runs'
    : undefined;
  return { advice, warning };
}

/**
 * The handle in a call's arguments; `null` where the value is no handle, or where another parser
 * could read another value.
 */
function handleIn(call: Call, argument: string): string | null | undefined {
  if (isAmbiguous(call, ['params', 'arguments'], argument)) return null;
  const { args } = call;
  const value = isObject(args) && Object.hasOwn(args, argument) ? args[argument] : undefined;
  if (value === undefined) return undefined;
  // A number that JavaScript rounds names no run: an `ExactNumber` is no handle.
  const sent = typeof value === 'number' ? memberAt(call.sentArguments, [argument]) : value;
  return isHandle(sent) ? String(sent) : null;
}

/** The answer to a request that is not let in. */
export interface Denial {
  readonly status: number;
  readonly code: number;
  readonly message: string;
  readonly headers?: Readonly<Record<string, string | number>>;
}

/** The named session is over, or never was (MCP 2025-11-25, "Session Management"). */
export const UNKNOWN_SESSION: Denial = {
  status: 404,
  code: JSON_RPC.SESSION_NOT_FOUND,
  message: 'Session not found',
};

export const STORE_AWAY: Denial = {
  status: 503,
  code: JSON_RPC.SERVER_ERROR,
  message: 'The session store is unavailable',
};

export const RESTARTING: Denial = {
  status: 503,
  code: JSON_RPC.SERVER_ERROR,
  message: 'The server is being restarted',
  headers: { 'retry-after': 1 },
};

export const NOT_ALONE: Denial = {
  status: 400,
  code: JSON_RPC.INVALID_REQUEST,
  message: 'Invalid Request: initialize must stand alone',
};

/** RFC 6585, section 4. */
export const CROWDED: Denial = {
  status: 429,
  code: JSON_RPC.SERVER_ERROR,
  message:
    'Too many sessions: this caller has as many as one may have, and each of them is in use. ' +
    'End one with DELETE, or try again later',
};

export const DOUBLED: Denial = {
  status: 400,
  code: JSON_RPC.INVALID_REQUEST,
  message: 'Invalid Request: a request id is in flight already',
};

/**
 * Nothing names a run. Where `sessionStore()` stands before another route by mistake, it says so.
 */
export const NAMELESS: Denial = {
  status: 400,
  code: JSON_RPC.SERVER_ERROR,
  message:
    'Bad Request: Mcp-Session-Id header is required. ' +
    'It comes with the answer to initialize. A route that is not MCP must not stand behind ' +
    'sessionStore(): mount it with app.all() on the MCP route alone.',
};

const NOT_ALLOWED: Denial = {
  status: 405,
  code: JSON_RPC.SERVER_ERROR,
  message: 'Method not allowed',
  headers: { allow: 'GET, POST, DELETE' },
};

/**
 * Why a request that is no POST cannot be MCP. Only a POST carries messages (MCP 2025-11-25,
 * Transports). A less strict upstream must not read messages that the gate did not see.
 */
export function unfitRequest(req: RequestPort): Denial | undefined {
  const { method } = req;
  if (method !== 'GET' && method !== 'DELETE' && method !== 'HEAD') return NOT_ALLOWED;
  if (!hasBody(req)) return undefined;
  const message = `Invalid Request: a ${method} has no body`;
  return { status: 400, code: JSON_RPC.INVALID_REQUEST, message };
}

/**
 * Whether a request is for another route of the app: under `app.use()` the middlewares see those
 * too. A GET of MCP asks for a stream, names a session or resumes one (MCP 2025-11-25, Transports,
 * "Listening for Messages from the Server").
 */
export function isOtherRoute(req: RequestPort): boolean {
  if (req.method !== 'GET' && req.method !== 'HEAD') return false;
  const { [SESSION_HEADER]: session, 'last-event-id': last } = req.headers;
  return session === undefined && last === undefined && !acceptsEventStream(req);
}

/** Answers each message of an exchange with a denial. */
export function deny(
  exchange: Exchange,
  { status, code, message, headers = {} }: Denial,
): MaybePromise<undefined> {
  for (const [name, value] of Object.entries(headers)) exchange.tap.res.setHeader(name, value);
  return after(exchange.reject(status, code, message), () => undefined);
}

/**
 * Answers headers that contradict the body. A batch is answered as a whole, as SDK v2 does: the
 * version that its header names has no batches.
 */
export function denyContradiction(
  { tap, isBatch, messages }: Exchange,
  { code, message }: Contradiction,
): undefined {
  const id = isBatch ? undefined : messages[0]?.id;
  tap.respond(400, errorResponse(id ?? null, code, message));
}
