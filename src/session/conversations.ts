/**
 * Runs that ids in requests name. Hides where the ids are found and which of them count, which
 * conversation a session shows, and how many of them a caller may have.
 */
import type { Clock } from '../basics/clock.ts';
import type { Events } from '../basics/events.ts';
import { isNamedRun, newToken } from '../basics/names.ts';
import { wrongAnswer } from '../basics/options.ts';
import type { GuardedStore } from '../step/store-calls.ts';
import type { EndResult, FsmSnapshot, RunRecord } from '../stores/store.ts';
import { type Call, isAmbiguous } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { RequestPort } from '../wire/headers.ts';
import { isObject } from '../wire/json-rpc.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import { type Identity, type Owner, ownerKey } from './callers.ts';
import type { LiveSession, ShownRun } from './live-session.ts';
import { isRunId, type NoRun, type RequestKey, type RunKeyStrategy } from './run-key.ts';

/** How long a process goes by what the store last listed of a principal's runs. */
const LISTED_FOR_MS = 60_000;
/** How long a caller is refused without asking the store, once each of the runs had a claim. */
const FULL_FOR_MS = 1_000;
const PAGE = 1_000;

/** The workflow of a session's run in which it is saved which conversation the session shows. */
const SHOWN = 'mcp-interlock conversation';
/** How often a session's conversation is saved anew, because another process was faster. */
const TRIES = 4;

const TWICE: NoRun = {
  advice:
    'Its _meta names a conversation in two ways, so that servers could read different ones. ' +
    'Send one of them.',
  warning: undefined,
};
/** The app or the store failed to say which run a request names. */
export const UNASKED: NoRun = {
  advice: 'What names its run cannot be asked now. Try again later.',
  warning: undefined,
};

/** What the requests of one exchange say of their runs. */
export class RequestNames {
  readonly #byCall = new Map<Call, Map<RequestKey, string | NoRun>>();
  /** The run that the last tool call names. */
  called: string | undefined;
  /** What the first other request names, such as a list. */
  looked: string | NoRun | undefined;
  /** Whether this exchange changed which run its session's lists show. */
  isTurn = false;
  #isLost = false;

  /** The run that a call names by a strategy, or why it can have none. */
  of(call: Call, key: RequestKey): string | NoRun | undefined {
    const named = this.#byCall.get(call)?.get(key);
    return this.#isLost && named !== undefined ? UNASKED : named;
  }

  add(call: Call, key: RequestKey, named: string | NoRun): void {
    const known = this.#byCall.get(call);
    if (known === undefined) this.#byCall.set(call, new Map([[key, named]]));
    else known.set(key, named);
    if (call.method !== 'tools/call') this.looked ??= named;
    else if (known === undefined && typeof named === 'string') this.called = named;
  }

  /** The store cannot say whether the session has a run of its own: nothing gated may go on. */
  lose(): void {
    this.#isLost = true;
    this.called = undefined;
    if (this.looked !== undefined) this.looked = UNASKED;
  }
}

/** What {@link Conversations} needs. */
export interface ConversationsConfig {
  readonly keys: readonly RunKeyStrategy[];
  readonly store: GuardedStore;
  readonly clock: Clock;
  readonly events: Events;
  readonly onError: (error: unknown) => void;
  readonly onWarning: (warning: string) => void;
  readonly idleMs: number;
  /** How many named runs to remember at most, of all callers. */
  readonly maxSessions: number;
  /** How many named runs a caller has at most: a principal, or else a client. */
  readonly maxConversationsPerCaller: number;
  /** Follows a run of others for the session's streams, as in {@link LiveSession.follow}. */
  readonly follow: (session: LiveSession, run: string) => void;
}

/** The named runs of one caller that this process knows, the least recently used first. */
interface Group {
  readonly runs: Set<string>;
  /** Those of them that have begun, as the store said. They make way last. */
  readonly begun: Set<string>;
  /** When the store last listed them; `undefined` before. */
  listedAt: number | undefined;
  /** When each of them had a claim last; `undefined` before. */
  fullAt: number | undefined;
  /** Settles once room was made, or was not, for the last run so far. */
  last: Promise<unknown>;
  /** Whether the process has forgotten it meanwhile, and counts it no more. */
  isForgotten: boolean;
}

/** The runs of one mounted `sessionStore()` that ids in requests name. */
export class Conversations {
  readonly #config: ConversationsConfig;
  /** The strategies that name runs in a session, and those that do without one. */
  readonly #inSession: readonly RequestKey[];
  readonly #alone: readonly RequestKey[];
  readonly #hasAnonymous: boolean;
  readonly #hasFunctions: boolean;
  /** Whether the session itself can name a run. */
  readonly #hasOwn: boolean;
  readonly #groups = new Map<string, Group>();
  #count = 0;
  readonly #warned = new Set<RequestKey>();

  private constructor(config: ConversationsConfig, alone: readonly RequestKey[]) {
    this.#config = config;
    this.#alone = alone;
    const own = config.keys.findIndex(({ kind }) => kind === 'session');
    this.#hasOwn = own !== -1;
    this.#inSession = this.#hasOwn ? alone.filter((key) => config.keys.indexOf(key) < own) : alone;
    this.#hasAnonymous = alone.some(({ anonymous }) => anonymous);
    this.#hasFunctions = alone.some(({ of }) => of !== undefined);
  }

  /** `undefined` where no strategy reads ids in requests. */
  static of(config: ConversationsConfig): Conversations | undefined {
    const keys = config.keys.filter((key) => key.kind === 'request');
    return keys.length === 0 ? undefined : new Conversations(config, keys);
  }

  /**
   * What the requests of an exchange name; `undefined` where they name nothing, as most do. Asks
   * the app's functions, whose errors name no run.
   */
  namesIn(
    { req, requests }: Pick<Exchange, 'req' | 'requests'>,
    identity: Identity,
    isSession: boolean,
  ): RequestNames | undefined {
    if (identity.principal === undefined && !this.#hasAnonymous) return undefined;
    let names: RequestNames | undefined;
    for (const call of requests) {
      const { params } = call.message.value;
      const meta = isObject(params) ? params._meta : undefined;
      if (meta === undefined && !this.#hasFunctions) continue;
      for (const key of isSession ? this.#inSession : this.#alone) {
        if (identity.principal === undefined && !key.anonymous) continue;
        const named = this.#named(call, key, isObject(meta) ? meta : {}, req, identity);
        if (named === undefined) continue;
        names ??= new RequestNames();
        names.add(call, key, named);
      }
    }
    return names;
  }

  #named(
    call: Call,
    key: RequestKey,
    meta: Readonly<Record<string, unknown>>,
    req: RequestPort,
    { principal, binding }: Identity,
  ): string | NoRun | undefined {
    if (key.of !== undefined) {
      const tool = call.method === 'tools/call' ? call.named : undefined;
      let given: unknown;
      try {
        given = key.of({
          http: req,
          principal,
          method: call.method ?? '',
          tool: typeof tool === 'string' ? tool : undefined,
          meta: Object.freeze({ ...meta }),
        });
        const right = 'a string, or undefined for no id';
        if (given !== undefined && typeof given !== 'string')
          throw wrongAnswer(`runKey({ name: '${key.name}' }): of must return ${right}`, given);
      } catch (error) {
        this.#config.onError(error);
        return UNASKED;
      }
      if (isRunId(given)) return key.runKey(given, binding);
      if (given !== undefined) this.#warnOfId(key, 'what its of returned');
      return undefined;
    }
    for (const name of key.names) {
      const value = Object.hasOwn(meta, name) ? meta[name] : undefined;
      if (value === undefined) continue;
      if (!isRunId(value)) {
        this.#warnOfId(key, `_meta[${JSON.stringify(name)}]`);
        continue;
      }
      // The upstream may keep what it does by the other one.
      return isAmbiguous(call, ['params', '_meta'], name) ? TWICE : key.runKey(value, binding);
    }
    return undefined;
  }

  /** A value that no client of ours sends is no reason to refuse: it names nothing. */
  #warnOfId(key: RequestKey, what: string): void {
    if (this.#warned.has(key)) return;
    this.#warned.add(key);
    this.#config.onWarning(
      `${what} named no run for the key "${key.name}": an id is a string of 16 to 256 bytes ` +
        'without control characters. The next key counts for such requests',
    );
  }

  /** The store gave a session's run: notes which conversation it shows, or that it has none. */
  learn(session: LiveSession, { workflows }: RunRecord): void {
    const saved = workflows[SHOWN];
    const known = session.conversation;
    if (saved !== undefined) {
      const next = shownIn(saved.snapshot);
      if (next !== undefined && next.version > (known?.version ?? 0)) session.shown = next;
    } else if (known === undefined)
      session.shown = Object.keys(workflows).length > 0 && this.#hasOwn ? 'own' : undefined;
  }

  /**
   * A session named conversations. Gives the names that count: none, where the session has a run
   * of its own already, which it keeps.
   *
   * @param isRead whether the store gave the session's run for this request
   */
  async meet(
    session: LiveSession,
    names: RequestNames,
    isRead: boolean,
  ): Promise<RequestNames | undefined> {
    const { store, idleMs, onError } = this.#config;
    if (session.shown === undefined && !isRead && this.#hasOwn) {
      try {
        const record = await store.read(session.run, idleMs);
        if (record !== undefined) this.learn(session, record);
      } catch (error) {
        onError(error);
        names.lose();
        return names;
      }
    }
    session.isServed = true;
    if (session.shown === 'own') return undefined;
    if (names.called === undefined) return names;
    const before = session.conversation;
    await this.#show(session, names.called);
    const shown = session.conversation;
    if (shown === undefined) return names;
    names.isTurn = before === undefined || before.isMany !== shown.isMany;
    // A list that has become stable depends on no run.
    if (shown.isMany) session.unfollow();
    else if (names.isTurn) this.#config.follow(session, shown.run);
    return names;
  }

  /** Saves which conversation the session shows, at most twice in its life. */
  async #show(session: LiveSession, run: string): Promise<void> {
    const { store, idleMs, onError } = this.#config;
    for (let tries = 0; tries < TRIES; tries++) {
      const known = session.conversation;
      const { version = 0, isMany = false } = known ?? {};
      if (known !== undefined && (isMany || known.run === run)) {
        if (known.run !== run) session.shown = { ...known, run };
        return;
      }
      const [from, to] = known === undefined ? ['none', 'one'] : ['one', 'many'];
      session.shown = { run, isMany: known !== undefined, version: version + 1 };
      const saved = await store
        .record({
          run: session.run,
          workflow: SHOWN,
          token: newToken(),
          from: version,
          initial: { state: 'none', updatedAt: 0 },
          snapshot: { state: to, context: run },
          trail: { from, to, event: null },
          ttlMs: idleMs,
        })
        // Other processes show the session's lists by what they know: the calls are not wrong.
        .catch(onError);
      if (saved?.status !== 'moved') return;
      session.shown = shownIn(saved.snapshot);
    }
  }

  /** Why a call of one more run is refused. */
  get full(): NoRun {
    const { maxConversationsPerCaller: most } = this.#config;
    const advice =
      `This caller has ${most} conversations with a step under way, and may have no more. ` +
      'Try again later.';
    return { advice, warning: undefined };
  }

  /**
   * Makes room for a run that may begin: `false` where the caller has as many as one may have, and
   * a step of each is at work. One without a claim makes way: first those that have not begun, and
   * of those the least recently used one. Rejects where the store fails.
   */
  room(run: string, owner: Owner): MaybePromise<boolean> {
    const caller = ownerKey(owner);
    if (caller === undefined) return true;
    const group = this.#groupOf(caller);
    if (group.runs.delete(run)) {
      group.runs.add(run);
      return true;
    }
    if (this.#isRecent(group.fullAt, FULL_FOR_MS)) return false;
    // One after the other: else each of many calls could ask the store about all runs.
    const made = group.last.then(() => this.#makeRoom(run, owner, group));
    group.last = made.catch(() => {});
    return made;
  }

  async #makeRoom(run: string, owner: Owner, group: Group): Promise<boolean> {
    if (group.runs.has(run)) return true;
    if (this.#isRecent(group.fullAt, FULL_FOR_MS)) return false;
    const { clock, maxConversationsPerCaller } = this.#config;
    if (owner.principal !== undefined && !this.#isRecent(group.listedAt, LISTED_FOR_MS))
      await this.#list(owner.principal, group);
    this.#add(group, run);
    const claimed = new Set([run]);
    for (const evict of ['unbegun', 'any'] as const)
      for (const oldest of [...group.runs]) {
        if (group.runs.size <= maxConversationsPerCaller) return true;
        const isLater = evict === 'unbegun' && group.begun.has(oldest);
        if (isLater || claimed.has(oldest) || !group.runs.has(oldest)) continue;
        const ended = await this.#evict(oldest, evict).catch((error: unknown) => {
          this.#remove(group, run);
          throw error;
        });
        if (ended === 'claimed') claimed.add(oldest);
        else if (ended === 'begun') group.begun.add(oldest);
        else this.#remove(group, oldest);
      }
    if (group.runs.size <= maxConversationsPerCaller) return true;
    this.#remove(group, run);
    group.fullAt = clock.now();
    return false;
  }

  async #evict(run: string, evict: 'unbegun' | 'any'): Promise<EndResult> {
    const { store, events } = this.#config;
    const ended = await store.end(run, { evict });
    if (ended === 'ended' && events.isOn)
      events.publish({ type: 'run.ended', cause: 'quota', runKey: run });
    return ended;
  }

  /** Where the clock was set back, nothing is recent. */
  #isRecent(at: number | undefined, forMs: number): boolean {
    const age = at === undefined ? -1 : this.#config.clock.now() - at;
    return age >= 0 && age < forMs;
  }

  /** Reads which named runs the principal has: other processes make some, and some expire. */
  async #list(principal: string, group: Group): Promise<void> {
    const { store, clock } = this.#config;
    if (store.list === undefined) return;
    const at = clock.now();
    const listed = new Set<string>();
    let after: string | undefined;
    do {
      const { runs, next } = await store.list({ principal, limit: PAGE, after });
      for (const run of runs) if (isNamedRun(run)) listed.add(run);
      after = next;
    } while (after !== undefined);
    group.listedAt = at;
    const known = new Set(group.runs);
    const begun = [...group.begun];
    for (const run of known) this.#remove(group, run);
    // Of those that this process has not used, nothing says which was used last.
    for (const run of listed) if (!known.has(run)) this.#add(group, run);
    for (const run of known) if (listed.has(run)) this.#add(group, run);
    for (const run of begun) if (listed.has(run)) group.begun.add(run);
  }

  #add(group: Group, run: string): void {
    if (!group.runs.has(run) && !group.isForgotten) this.#count++;
    group.runs.add(run);
  }

  #remove(group: Group, run: string): void {
    group.begun.delete(run);
    if (group.runs.delete(run) && !group.isForgotten) this.#count--;
  }

  /** The caller's group, as the one that was used last. Others are forgotten, and listed anew. */
  #groupOf(caller: string): Group {
    const group: Group = this.#groups.get(caller) ?? {
      runs: new Set(),
      begun: new Set(),
      listedAt: undefined,
      fullAt: undefined,
      last: Promise.resolve(),
      isForgotten: false,
    };
    this.#groups.delete(caller);
    this.#groups.set(caller, group);
    for (const [other, oldest] of this.#groups) {
      if (this.#count <= this.#config.maxSessions || other === caller) break;
      this.#groups.delete(other);
      oldest.isForgotten = true;
      this.#count -= oldest.runs.size;
    }
    return group;
  }
}

function shownIn({ state, context, version = 0 }: FsmSnapshot): ShownRun | undefined {
  if (typeof context !== 'string') return undefined;
  return { run: context, isMany: state === 'many', version };
}
