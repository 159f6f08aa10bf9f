import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import { anonymousKey } from '../names.ts';
import { functionOption, lazyOptions, parseOptions } from '../options.ts';
import {
  anonymized,
  claimStep,
  commitStep,
  endSession,
  isPinned,
  type Life,
  newLife,
  openedAgain,
  recordOf,
  recordStep,
  releaseStep,
  renewStep,
  ttlOfLook,
  withTrailEntry,
} from './run-state.ts';
import { decodeText } from './sql-text.ts';
import { type SqliteDatabase, setUp, Transactions } from './sqlite/database.ts';
import {
  type PagedRun,
  type PageEnd,
  type SqliteRun,
  SqliteRuns,
  type SweptRun,
} from './sqlite/rows.ts';
import type {
  AtomicStateStore,
  ClaimRequest,
  ClaimResult,
  CommitRequest,
  CommitResult,
  CountQuery,
  DeleteResult,
  EndResult,
  HeldQuery,
  KeysPage,
  ListQuery,
  OpenResult,
  PurgeQuery,
  RecordRequest,
  RecordResult,
  ReleaseOptions,
  RenewOptions,
  RunKey,
  RunRecord,
  RunsCount,
  RunsPage,
  RunsQuery,
  SessionRecord,
  StuckQuery,
  TrailDraft,
  TrailEntry,
} from './store.ts';

export type { SqliteDatabase, SqliteStatement, SqliteValue } from './sqlite/database.ts';

export interface SqliteStoreOptions {
  /**
   * An opened database of `libsql`, `better-sqlite3` or `node:sqlite`, on a disk of this machine.
   * The caller closes it, and does not use this connection itself: while the caller has a
   * transaction open on it, the store's calls fail.
   */
  readonly database: SqliteDatabase;
  /**
   * The clock, in milliseconds since the epoch; one for all processes that use the file. Default
   * `Date.now`.
   */
  readonly now?: (() => number) | undefined;
  /**
   * How long an operation waits for other processes before it rejects, in milliseconds. Default
   * 2,000.
   */
  readonly busyTimeoutMs?: number | undefined;
  /** Chains the trail of each run by hashes, which `verifyTrail()` checks. Default `false`. */
  readonly chainTrail?: boolean | undefined;
}

export interface SqliteStore extends AtomicStateStore {
  append(key: RunKey, entry: TrailDraft): Promise<void>;
  runs(query: RunsQuery): AsyncIterable<string>;
  held(query: HeldQuery): Promise<RunsPage>;
  stuck(query: StuckQuery): Promise<RunsPage>;
  count(query: CountQuery): Promise<RunsCount>;
  list(query: ListQuery): Promise<KeysPage>;
  anonymize(run: string): Promise<string | undefined>;

  /** Removes expired runs, and resolves to how many. Optional: each new run removes two of them. */
  purge(query?: PurgeQuery): Promise<number>;
}

const optionsSchema = lazyOptions(() => ({
  database: z.custom<SqliteDatabase>(
    isDatabase,
    'expected an opened SQLite database with exec() and prepare()',
  ),
  now: z._default(functionOption<() => number>(), () => Date.now),
  busyTimeoutMs: z._default(z.int().check(z.minimum(0)), 2000),
  chainTrail: z._default(z.boolean(), false),
}));

/** In front of every run. */
const FIRST: PageEnd = { score: Number.MIN_SAFE_INTEGER, id: '' };

/** More than one, so that expired runs cannot pile up. */
const SWEPT_BY_EACH_NEW_RUN = 2;

/** How many expired runs one transaction removes, so that no step waits long for it. */
const PURGED_AT_ONCE = 200;

/**
 * Keeps runs in one SQLite file, in the tables `workflow_runs`, `workflows` and `workflow_events`,
 * which it makes itself. For one machine: steps are exact between all processes that open the file.
 * A commit survives a crash of the process and a power failure, since it flushes the disk. The
 * trail of a run goes with the run.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown,
 * `ERR_INTERLOCK_STORE` where another version of the package has made the file
 */
export function sqliteStore(options: SqliteStoreOptions): SqliteStore {
  const { database, now, busyTimeoutMs, chainTrail } = parseOptions(
    'sqliteStore() options',
    optionsSchema,
    options,
  );
  const runs = setUp(database, busyTimeoutMs, () => new SqliteRuns(database));
  return new FileStore(runs, new Transactions(database, busyTimeoutMs), now, chainTrail);
}

/** Each method is one transaction. */
class FileStore implements SqliteStore {
  readonly contract = 1;
  readonly #runs: SqliteRuns;
  readonly #transactions: Transactions;
  readonly #now: () => number;
  readonly #isChained: boolean;

  constructor(runs: SqliteRuns, transactions: Transactions, now: () => number, isChained: boolean) {
    this.#isChained = isChained;
    this.#runs = runs;
    this.#transactions = transactions;
    this.#now = now;
  }

  open(key: string, session: SessionRecord, ttlMs: number, token?: string): Promise<OpenResult> {
    return this.#change(key, (known, now) => {
      if (known) return openedAgain(known, token);
      this.#make(key, session, now, ttlMs, token);
      return { status: 'opened' };
    });
  }

  async read(key: string, ttlMs: number, about?: string): Promise<RunRecord | undefined> {
    const lifeOf = (run: SqliteRun, now: number) =>
      newLife(run, now, { ttlMs: ttlOfLook(run, ttlMs, about) });
    const seen = await this.#look(() => {
      const now = this.#now();
      const run = this.#runs.find(key, now);
      if (!run) return undefined;
      // Read again: another process may have written the run after `now`.
      return { record: recordOf(run, now, this.#now()), isFresh: lifeOf(run, now) === undefined };
    });
    if (!seen || seen.isFresh) return seen?.record;
    return this.#change(key, (run, now) => {
      if (run) this.#live(run, lifeOf(run, now));
      return run && recordOf(run, now);
    });
  }

  claim(request: ClaimRequest): Promise<ClaimResult> {
    const { create } = request;
    return this.#change(request.run, (known, now) => {
      if (!known && !create) return { status: 'unknown' };
      const run = known ?? this.#make(request.run, create ?? {}, now, request.ttlMs);
      const isChained = this.#isChained;
      const { result, next, life } = claimStep(run, request, now, randomUUID, { isChained });
      if (next) this.#runs.save(run, request.workflow, next);
      this.#live(run, life);
      return result;
    });
  }

  commit(request: CommitRequest): Promise<CommitResult> {
    return this.#change(request.run, (run, now) => {
      if (!run) return { status: 'unknown' };
      const { result, next, life } = commitStep(run, request, now);
      if (next) this.#runs.save(run, request.workflow, next);
      this.#live(run, life);
      return result;
    });
  }

  record(request: RecordRequest): Promise<RecordResult> {
    const { create } = request;
    return this.#change(request.run, (known, now) => {
      if (!known && !create) return { status: 'unknown' };
      const run = known ?? this.#make(request.run, create ?? {}, now, request.ttlMs);
      const isChained = this.#isChained;
      const { result, next, life } = recordStep(run, request, now, { isChained });
      if (next) this.#runs.save(run, request.workflow, next);
      this.#live(run, life);
      return result;
    });
  }

  renew(key: RunKey, token: string, leaseMs: number, options: RenewOptions = {}): Promise<boolean> {
    return this.#change(key.run, (run, now) => {
      if (!run) return false;
      const { result, next, life } = renewStep(run, key.workflow, token, leaseMs, options, now);
      if (next) this.#runs.save(run, key.workflow, next);
      this.#live(run, life);
      return result;
    });
  }

  release(key: RunKey, token: string, options: ReleaseOptions = {}): Promise<void> {
    return this.#change(key.run, (run, now) => {
      if (!run) return;
      const { next, life } = releaseStep(run, key.workflow, token, options, now);
      if (next) this.#runs.save(run, key.workflow, next);
      this.#live(run, life);
    });
  }

  end(key: string, options: Parameters<AtomicStateStore['end']>[1] = {}): Promise<EndResult> {
    return this.#change(key, (run, now) => {
      if (!run) return 'unknown';
      const { result, life } = endSession(run, options, now);
      if (life) this.#live(run, life);
      else if (result === 'ended') this.#runs.remove(key);
      return result;
    });
  }

  delete(key: string): Promise<DeleteResult> {
    return this.#change(key, (run) => {
      if (!run) return 'unknown';
      if (isPinned(run)) return 'pinned';
      this.#runs.remove(key);
      return 'deleted';
    });
  }

  anonymize(key: string): Promise<string | undefined> {
    const unnamed = anonymousKey();
    return this.#change(key, (run, now) => {
      const changed = run && anonymized(run, unnamed, now);
      if (!changed) return undefined;
      this.#runs.remove(key);
      const workflows = new Map(changed.workflows);
      this.#runs.make(unnamed, { ...changed, workflows, expiresAt: now }, now);
      return unnamed;
    });
  }

  async history(key: RunKey, limit = 50): Promise<TrailEntry[]> {
    const atMost = Math.max(0, Math.min(Math.trunc(limit), Number.MAX_SAFE_INTEGER));
    return this.#look(() => {
      const run = this.#runs.find(key.run, this.#now());
      return run ? this.#runs.trail(run, key.workflow, atMost) : [];
    });
  }

  append(key: RunKey, entry: TrailDraft): Promise<void> {
    return this.#change(key.run, (run, now) => {
      const workflow = run?.workflows.get(key.workflow);
      if (run && workflow) this.#runs.save(run, key.workflow, withTrailEntry(workflow, entry, now));
    });
  }

  held({ workflow, limit, after }: HeldQuery): Promise<RunsPage> {
    return this.#page(after, limit, (now, place, atMost) =>
      this.#runs.held(workflow, now, place, atMost),
    );
  }

  stuck({ workflow, states, forMs, limit, after }: StuckQuery): Promise<RunsPage> {
    return this.#page(after, limit, (now, place, atMost) =>
      this.#runs.stuck(workflow, now, { latest: now - forMs, states }, place, atMost),
    );
  }

  count({ workflow, forMs }: CountQuery): Promise<RunsCount> {
    return this.#look(() => {
      const now = this.#now();
      const { running, held, oldest } = this.#runs.countClaims(workflow, now);
      const states = this.#runs.countStates(workflow, now, now - forMs);
      return { states, held, running, ...(oldest !== null && { oldestClaim: oldest }), now };
    });
  }

  list({ principal, limit, after = '' }: ListQuery): Promise<KeysPage> {
    return this.#look(() => {
      const found = this.#runs.owned(principal, this.#now(), after, limit + 1);
      const given = found.slice(0, limit);
      return {
        runs: given.map(decodeText),
        ...(found.length > limit && { next: given.at(-1) ?? '' }),
      };
    });
  }

  /** The page behind the place where the page before ended. */
  #page(
    after: string | undefined,
    limit: number,
    find: (now: number, place: PageEnd, atMost: number) => PagedRun[],
  ): Promise<RunsPage> {
    return this.#look(() => {
      const now = this.#now();
      const found = find(now, after === undefined ? FIRST : JSON.parse(after), limit + 1);
      const given = found.slice(0, limit);
      const last = given.at(-1);
      return {
        runs: given.map(({ run }) => run),
        ...(last && found.length > limit && { next: JSON.stringify(last.place) }),
        now,
      };
    });
  }

  async *runs({ workflow, state, forMs = 0 }: RunsQuery): AsyncGenerator<string> {
    let last: SweptRun | undefined;
    do {
      const page = await this.#look(() => {
        const now = this.#now();
        return this.#runs.inState(workflow, state, now - forMs, now, last);
      });
      for (const { run } of page) yield decodeText(run);
      last = page.at(-1);
    } while (last);
  }

  async purge({ principal }: PurgeQuery = {}): Promise<number> {
    let purged = 0;
    for (;;) {
      const { looked, removed } = await this.#transactions.change(() => {
        this.#runs.assertFormat();
        return this.#runs.sweep(this.#now(), PURGED_AT_ONCE, principal);
      });
      purged += removed;
      if (looked < PURGED_AT_ONCE) return purged;
    }
  }

  #look<T>(work: () => T): Promise<T> {
    return this.#transactions.look(() => {
      this.#runs.assertFormat();
      return work();
    });
  }

  #change<T>(key: string, work: (run: SqliteRun | undefined, now: number) => T): Promise<T> {
    return this.#transactions.change(() => {
      this.#runs.assertFormat();
      const now = this.#now();
      return work(this.#runs.find(key, now), now);
    });
  }

  #make(
    key: string,
    session: SessionRecord,
    now: number,
    ttlMs: number,
    openedBy?: string,
  ): SqliteRun {
    this.#runs.sweep(now, SWEPT_BY_EACH_NEW_RUN);
    const made = { session, openedBy, workflows: new Map(), expiresAt: now + ttlMs };
    return this.#runs.make(key, made, now);
  }

  #live(run: SqliteRun, life: Life | undefined): void {
    if (life !== undefined) this.#runs.live(run, life);
  }
}

function isDatabase(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return ['exec', 'prepare'].every((name) => typeof Reflect.get(value, name) === 'function');
}
