import type { Era } from '../wire/era.ts';
import type { Incoming } from '../wire/incoming.ts';
import { isAmbiguous } from '../wire/incoming.ts';
import type { JsonObject, ListKind } from '../wire/json-rpc.ts';
import type { ResponseTap } from '../wire/response-tap.ts';
import type { GuardedStore } from './guarded-store.ts';
import type { LiveSession } from './live-session.ts';
import type { Identity } from './principal.ts';
import type { Admission, NoRun, RunContext } from './run-context.ts';
import type { HandleKey, ManagedHandle, RunKeyStrategy } from './run-key.ts';
import type { Turns } from './turns.ts';

/** What is shared by all requests: the keys, and where runs are kept and heard of. */
export interface RunKeeper {
  readonly keys: readonly RunKeyStrategy[];
  readonly store: GuardedStore;
  readonly ttlMs: number;
  readonly turns: Turns;
  /** Tells whoever listens to a run, here and elsewhere, but for one session that knows already. */
  tell(run: string, lists: readonly ListKind[], except?: LiveSession): void;
  listen(run: string, tell: (lists: readonly ListKind[]) => void, session: LiveSession): () => void;
  /**
   * Lists of a run were served incomplete: its clients are told again once the store can be asked.
   */
  missed(run: string, lists: readonly ListKind[]): void;
  /** As {@link Admission.holdOpen}. */
  holdOpen(tap: ResponseTap, last: JsonObject): () => void;
}

/** Who asks, and on what connection. */
export interface Caller {
  readonly era: Era;
  readonly identity: Identity;
  readonly session: LiveSession;
  /** The session's own run, as it was found; none where there is no session. */
  readonly own: RunContext | undefined;
}

const UNNAMED: NoRun = {
  advice: 'Nothing in this request names a run of it. The operator must choose what does.',
  warning:
    'nothing in its request names a run. Say what does with sessionStore({ key }); since MCP 2026-07-28 there are no sessions',
};
const BY_NOBODY: NoRun = {
  advice: 'Its runs belong to those who call it, and this request names nobody.',
  warning:
    'its request names no principal. Mount authentication in front of sessionStore(), or give sessionStore({ principal })',
};
const LONGEST_HANDLE = 1_024;

/**
 * The runs that one request is about: each of its calls has one, or the advice that there is for
 * it.
 */
export class CallRuns implements Admission {
  readonly owner: object;
  readonly era: Era;
  readonly session: LiveSession;
  readonly listed: RunContext | undefined;
  readonly byArgument: boolean;
  readonly managed: ManagedHandle | undefined;
  readonly #keeper: RunKeeper;
  readonly #caller: Caller;
  /** Those that may be tried, in order: nothing after one that names the run of every call. */
  readonly #keys: readonly RunKeyStrategy[];
  readonly #contexts = new Map<string, RunContext>();
  readonly #runs = new Map<Incoming, RunContext | NoRun>();

  constructor(owner: object, keeper: RunKeeper, caller: Caller) {
    this.owner = owner;
    this.#keeper = keeper;
    this.#caller = caller;
    this.era = caller.era;
    this.session = caller.session;
    const { keys } = keeper;
    const last = keys.findIndex((key) => this.#named(key) !== undefined);
    this.#keys = last === -1 ? keys : keys.slice(0, last + 1);
    const naming = keys[last];
    this.listed = naming && this.#named(naming);
    this.managed = this.#keys.find((key) => key.kind === 'managed');
    this.byArgument = this.#keys.some(({ kind }) => kind === 'handle' || kind === 'managed');
  }

  /** The same each time that it is asked, whatever becomes of the call's arguments. */
  runOf(call: Incoming): RunContext | NoRun {
    const known = this.#runs.get(call);
    if (known !== undefined) return known;
    const run = this.#find(call);
    this.#runs.set(call, run);
    return run;
  }

  get taskOwner(): Admission['taskOwner'] {
    const { own, identity } = this.#caller;
    return own === undefined ? ['principal', identity.binding ?? null] : ['session', own.run];
  }

  runNamed(run: string): RunContext {
    const { own } = this.#caller;
    if (own?.run === run) return own;
    return (
      this.#contexts.get(run) ??
      this.#newContext(run, { create: undefined, gone: undefined, anew: undefined })
    );
  }

  listMissed(lists: readonly ListKind[]): void {
    const run = this.#caller.own?.run ?? this.listed?.run;
    if (run !== undefined) this.#keeper.missed(run, lists);
  }

  holdOpen(tap: ResponseTap, last: JsonObject): () => void {
    return this.#keeper.holdOpen(tap, last);
  }

  #find(call: Incoming): RunContext | NoRun {
    let found: NoRun | undefined;
    for (const key of this.#keys) {
      if (key.kind === 'handle' || key.kind === 'managed') {
        const handle = handleIn(call, key.argument);
        // What the upstream may take for a handle must not be judged by another run.
        if (handle === null) return { advice: goneAdvice(key), warning: undefined };
        if (handle !== undefined) return this.#handled(key, handle);
        found ??= withoutHandle(call, key);
      } else {
        const named = this.#named(key);
        if (named !== undefined) return named;
      }
    }
    return found ?? (this.#keys.some(({ kind }) => kind === 'principal') ? BY_NOBODY : UNNAMED);
  }

  /** The run that a strategy names whatever is called. */
  #named(key: RunKeyStrategy): RunContext | undefined {
    if (key.kind === 'session') return this.#caller.own;
    const { principal } = this.#caller.identity;
    if (key.kind !== 'principal' || principal === undefined) return undefined;
    return this.#context(key.runKey(principal), {
      create: { principal },
      gone: undefined,
      anew: undefined,
    });
  }

  #handled(key: HandleKey | ManagedHandle, handle: string): RunContext {
    const run = key.runKey(handle, this.#caller.identity.binding);
    const [gone, anew] = [goneAdvice(key), startingAdvice(key)];
    return this.#context(run, { create: undefined, gone, anew });
  }

  #context(run: string, parts: Pick<RunContext, 'create' | 'gone' | 'anew'>): RunContext {
    const known = this.#contexts.get(run);
    if (known !== undefined) return known;
    const context = this.#newContext(run, parts);
    this.#contexts.set(run, context);
    return context;
  }

  #newContext(run: string, parts: Pick<RunContext, 'create' | 'gone' | 'anew'>): RunContext {
    const keeper = this.#keeper;
    const { session, era, identity } = this.#caller;
    return {
      run,
      ...parts,
      store: keeper.store,
      ttlMs: keeper.ttlMs,
      session,
      turns: keeper.turns,
      actor: identity.binding,
      fresh: () => undefined,
      listChanged(lists, toldHere) {
        if (!toldHere && era === 'session') session.notifyChanged(lists);
        keeper.tell(run, lists, session);
      },
      listen: (tell) => keeper.listen(run, tell, session),
    };
  }
}

/** The run of a session, which began with it. */
export function runOfSession(
  { store, ttlMs, turns }: RunKeeper,
  session: LiveSession,
  actor: string | undefined,
  fresh: RunContext['fresh'],
): RunContext {
  return {
    run: session.run,
    store,
    ttlMs,
    session,
    turns,
    actor,
    create: undefined,
    gone: undefined,
    anew: undefined,
    fresh,
    listChanged(lists, toldHere) {
      session.noteMove();
      if (!toldHere) session.notifyChanged(lists);
    },
    listen: () => () => {},
  };
}

/** The keys that come before that of sessions: what they name is not the session's. */
export function keysBeforeSessions(keys: readonly RunKeyStrategy[]): readonly RunKeyStrategy[] {
  const own = keys.findIndex(({ kind }) => kind === 'session');
  return own === -1 ? keys : keys.slice(0, own);
}

function withoutHandle({ message }: Incoming, key: HandleKey | ManagedHandle): NoRun {
  const advice = `It needs the argument "${key.argument}". ${startingAdvice(key)}`;
  const tool = message.at('params', 'name');
  const begins = key.kind === 'handle' && key.createdBy.some((each) => each === tool);
  const warning = begins
    ? 'it makes the handles that name runs, so it can have none before. Do not bind it, or have another key name its runs'
    : undefined;
  return { advice, warning };
}

function goneAdvice(key: HandleKey | ManagedHandle): string {
  return `Its "${key.argument}" names no run that is known: it has expired, or never was. ${startingAdvice(key)}`;
}

/** What makes a new run, in words for the model. */
function startingAdvice(key: HandleKey | ManagedHandle): string {
  const tools = key.kind === 'managed' ? [key.start] : key.createdBy;
  return `Call ${tools.join(' or ')} to begin a new one, and pass the "${key.argument}" that it returns.`;
}

/**
 * The handle in a call's arguments; `null` where what stands there is none, or where another parser
 * would take another one.
 */
function handleIn(call: Incoming, argument: string): string | null | undefined {
  const path = ['params', 'arguments'];
  if (isAmbiguous(call, path, argument)) return null;
  const value = call.message.at(...path, argument);
  if (value === undefined) return undefined;
  return isHandle(value) ? String(value) : null;
}

export function isHandle(value: unknown): value is string | number {
  if (typeof value === 'number') return Number.isSafeInteger(value);
  return typeof value === 'string' && value !== '' && value.length <= LONGEST_HANDLE;
}
