import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import { functionOption, parseOptions } from '../options.ts';
import {
  claimStep,
  commitStep,
  newExpiry,
  openedAgain,
  recordOf,
  releaseStep,
  renewStep,
  ttlOfLook,
} from './run-state.ts';
import { decodeText } from './sql-text.ts';
import { type SqliteDatabase, setUp, Transactions } from './sqlite/database.ts';
import { type FoundRun, type Run, SqliteRuns } from './sqlite/rows.ts';
import type {
  AtomicStateStore,
  ClaimRequest,
  ClaimResult,
  CommitRequest,
  CommitResult,
  OpenResult,
  ReleaseOptions,
  RunKey,
  RunRecord,
  RunsQuery,
  SessionRecord,
  TrailEntry,
} from './store.ts';

export type { SqliteDatabase, SqliteStatement, SqliteValue } from './sqlite/database.ts';

export interface SqliteStoreOptions {
  /**
   * An opened database of `libsql`, `better-sqlite3` or `node:sqlite`, on a disk of this machine.
   * The caller closes it, and leaves this connection to the store: a transaction of the caller's on
   * it would make the store's calls fail.
   */
  readonly database: SqliteDatabase;
  /**
   * The clock, in milliseconds since the epoch; one for all processes that use the file. Default
   * `Date.now`.
   */
  readonly now?: (() => number) | undefined;
  /**
   * How long an operation waits for those of other processes before it rejects, in milliseconds.
   * Default 2,000.
   */
  readonly busyTimeoutMs?: number | undefined;
}

export interface SqliteStore extends AtomicStateStore {
  runs(query: RunsQuery): AsyncIterable<string>;

  /**
   * Removes expired runs, and resolves to how many. Optional: each new run removes two old ones.
   */
  sweep(): Promise<number>;
}

const optionsSchema = z.strictObject({
  database: z.custom<SqliteDatabase>(
    isDatabase,
    'expected an opened SQLite database with exec() and prepare()',
  ),
  now: z._default(functionOption<() => number>(), () => Date.now),
  busyTimeoutMs: z._default(z.int().check(z.minimum(0)), 2000),
});

/** More than one, so that what expired cannot pile up. */
const SWEPT_BY_EACH_NEW_RUN = 2;

/**
 * Keeps runs in one SQLite file, in the tables `workflow_runs`, `workflows` and `workflow_events`,
 * which it makes itself. For one machine: steps are exact between all processes that open the file.
 * What is committed outlives the process and, as the disk is flushed at each commit, a power
 * failure. The trail of a run goes with the run.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown.
 */
export function sqliteStore(options: SqliteStoreOptions): SqliteStore {
  const { database, now, busyTimeoutMs } = parseOptions(
    'sqliteStore() options',
    optionsSchema,
    options,
  );
  const runs = setUp(database, busyTimeoutMs, () => new SqliteRuns(database));
  return new FileStore(runs, new Transactions(database, busyTimeoutMs), now);
}

/** Each method is one transaction. */
class FileStore implements SqliteStore {
  readonly #runs: SqliteRuns;
  readonly #transactions: Transactions;
  readonly #now: () => number;

  constructor(runs: SqliteRuns, transactions: Transactions, now: () => number) {
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
    const seen = await this.#transactions.look(() => {
      const now = this.#now();
      const run = this.#runs.find(key, now);
      if (!run) return undefined;
      const isFresh = newExpiry(run, now, ttlOfLook(run, ttlMs, about)) === undefined;
      // What was found may have been written since `now`, by another process.
      return { record: recordOf(run, now, this.#now()), isFresh };
    });
    if (!seen || seen.isFresh) return seen?.record;
    return this.#change(key, (run, now) => {
      if (run) this.#keepAlive(run, now, ttlOfLook(run, ttlMs, about));
      return run && recordOf(run, now);
    });
  }

  claim(request: ClaimRequest): Promise<ClaimResult> {
    const { create } = request;
    return this.#change(request.run, (known, now) => {
      if (!known && !create) return { status: 'unknown' };
      const run = known ?? this.#make(request.run, create ?? {}, now, request.ttlMs);
      const { result, next, ttlMs } = claimStep(run, request, now, randomUUID);
      if (next) this.#runs.save(run, request.workflow, next);
      this.#keepAlive(run, now, ttlMs);
      return result;
    });
  }

  commit(request: CommitRequest): Promise<CommitResult> {
    return this.#change(request.run, (run, now) => {
      if (!run) return { status: 'unknown' };
      const { result, next } = commitStep(run, request, now);
      if (next) this.#runs.save(run, request.workflow, next);
      this.#keepAlive(run, now, request.ttlMs);
      return result;
    });
  }

  renew(key: RunKey, token: string, leaseMs: number): Promise<boolean> {
    return this.#change(key.run, (run, now) => {
      const renewed = run && renewStep(run, key.workflow, token, now + leaseMs);
      if (!renewed) return false;
      this.#runs.save(run, key.workflow, renewed);
      if (run.expiresAt < now + leaseMs) this.#runs.expire(run, now + leaseMs);
      return true;
    });
  }

  release(key: RunKey, token: string, options?: ReleaseOptions): Promise<void> {
    return this.#change(key.run, (run) => {
      const released = run && releaseStep(run, key.workflow, token, options);
      if (released) this.#runs.save(run, key.workflow, released);
    });
  }

  delete(key: string): Promise<void> {
    return this.#transactions.change(() => this.#runs.remove(key));
  }

  history(key: RunKey, limit = 50): Promise<TrailEntry[]> {
    const atMost = Math.max(0, Math.min(Math.trunc(limit), Number.MAX_SAFE_INTEGER));
    return this.#transactions.look(() => {
      const run = this.#runs.find(key.run, this.#now());
      return run ? this.#runs.trail(run, key.workflow, atMost) : [];
    });
  }

  async *runs({ workflow, state, forMs = 0 }: RunsQuery): AsyncGenerator<string> {
    let last: FoundRun | undefined;
    do {
      const page = await this.#transactions.look(() => {
        const now = this.#now();
        return this.#runs.inState(workflow, state, now - forMs, now, last);
      });
      for (const { run } of page) yield decodeText(run);
      last = page.at(-1);
    } while (last);
  }

  sweep(): Promise<number> {
    return this.#transactions.change(() => this.#runs.sweep(this.#now(), Number.MAX_SAFE_INTEGER));
  }

  #change<T>(key: string, work: (run: Run | undefined, now: number) => T): Promise<T> {
    return this.#transactions.change(() => {
      const now = this.#now();
      return work(this.#runs.find(key, now), now);
    });
  }

  #make(key: string, session: SessionRecord, now: number, ttlMs: number, openedBy?: string): Run {
    this.#runs.sweep(now, SWEPT_BY_EACH_NEW_RUN);
    return this.#runs.make(key, { session, openedBy, expiresAt: now + ttlMs }, now);
  }

  #keepAlive(run: Run, now: number, ttlMs: number | undefined): void {
    const until = newExpiry(run, now, ttlMs);
    if (until !== undefined) this.#runs.expire(run, until);
  }
}

function isDatabase(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return ['exec', 'prepare'].every((name) => typeof Reflect.get(value, name) === 'function');
}
