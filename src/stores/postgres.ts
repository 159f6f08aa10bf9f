import * as z from 'zod/mini';
import { atCaller } from '../basics/errors.ts';
import { flagOption, isPool, lazyOptions, parseOptions } from '../basics/options.ts';
import { DocumentStore } from './document/document-store.ts';
import { migrate } from './postgres/migrate.ts';
import { type PostgresClient, type PostgresPool, postgresNames } from './postgres/names.ts';
import { PostgresRuns } from './postgres/runs.ts';
import type { AtomicStateStore, CommitRequest, CommitResult, PurgeQuery } from './store.ts';

export type { PostgresClient, PostgresPool, PostgresPoolClient } from './postgres/names.ts';

export interface PostgresStoreOptions {
  /**
   * A `Pool` of `pg`. The caller makes it, listens to its `error` events and ends it. Give the
   * store one of its own: where handlers hold all connections, no lease can be renewed.
   */
  readonly pool: PostgresPool;
  /**
   * The schema for the tables and functions. Default `'public'`; `migrate()` makes one that does
   * not exist.
   */
  readonly schema?: string | undefined;
  /**
   * Before the name of every table and function: at most 30 letters, digits and `_`. Default none.
   */
  readonly tablePrefix?: string | undefined;
  /**
   * Chains the trail of each workflow that begins from now on by hashes (SHA-256), which
   * `verifyTrail()` checks. Default `false`.
   */
  readonly chainTrail?: boolean | undefined;
}

export interface PostgresStore extends Required<Omit<AtomicStateStore, 'evictedKeys'>> {
  /**
   * Makes the tables and functions or brings them up to date. Call it before you use the store, as
   * often as you like and from several processes at once. Where they are up to date, it needs only
   * the right to read.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` where a table of the same name is not this
   * store's; `ERR_INTERLOCK_STORE` where another version of the package has made the tables, and
   * this one cannot work with them.
   */
  migrate(): Promise<void>;

  /**
   * Commits in the transaction that is open on the caller's client. Let it be the last statement
   * before the `COMMIT`: until then other callers see the claim, and what would change this
   * workflow waits. Other workflows of the run go on. After any answer but `committed`, roll back.
   *
   * A transaction stricter than READ COMMITTED rejects with SQLSTATE 40001 if the lease was renewed
   * during it. Then roll back and run the whole transaction again.
   */
  commitIn(client: PostgresClient, request: CommitRequest): Promise<CommitResult>;

  /**
   * Removes expired runs in batches, and resolves to how many. Optional: an expired run is unknown
   * in any case, and each new run removes two of them. With a principal it also removes the trails
   * of that person's runs that are gone.
   */
  purge(query?: PurgeQuery): Promise<number>;
}

const optionsSchema = lazyOptions(() => ({
  pool: z.custom<PostgresPool>(isPool, 'expected a Pool of pg'),
  schema: z._default(
    z.string().check(z.regex(/^[^\0]{1,63}$/, 'expected the name of a schema')),
    'public',
  ),
  tablePrefix: z._default(
    z.string().check(z.regex(/^\w{0,30}$/, 'expected at most 30 letters, digits and "_"')),
    '',
  ),
  chainTrail: flagOption(),
}));

/**
 * Keeps runs in PostgreSQL (12 or later), in the tables `workflow_runs`, `workflows`,
 * `workflow_events` and `workflow_switches`. It goes by the database's clock. Each part of a step
 * is one round trip where this process knows the run; else a read comes before it. The trail of a
 * deleted or expired run is gone from `history()`, but stays in `workflow_events` as an audit log.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown.
 */
export function postgresStore(options: PostgresStoreOptions): PostgresStore {
  const { pool, schema, tablePrefix, chainTrail } = atCaller(postgresStore, () =>
    parseOptions('postgresStore() options', optionsSchema, options),
  );
  const names = postgresNames(schema, tablePrefix);
  const runs = new PostgresRuns(pool, names);
  const store = new DocumentStore(runs, Date.now, chainTrail);
  const renew = watchedRenewals(store, pool);
  return Object.assign(store as DocumentStore & Required<AtomicStateStore>, {
    renew,
    commitIn: (client: PostgresClient, request: CommitRequest): Promise<CommitResult> =>
      store.commitThrough(request, (write) => runs.swapIn(client, write)),
    migrate: () => migrate(pool, names),
  });
}

type Renew = AtomicStateStore['renew'];

/** Says once that a renewal was starved, since then a step that runs looks as if it were dead. */
function watchedRenewals(store: DocumentStore, pool: PostgresPool): Renew {
  const renew: Renew = store.renew.bind(store);
  let isSaid = false;
  return async (key, token, leaseMs, options) => {
    const { max = Number.POSITIVE_INFINITY } = pool.options ?? {};
    const { totalCount = 0, idleCount = 0 } = pool;
    const mustWait = totalCount >= max && idleCount === 0;
    const askedAt = performance.now();
    let isRefused = true;
    try {
      const isRenewed = await renew(key, token, leaseMs, options);
      isRefused = false;
      return isRenewed;
    } finally {
      const isLate = isRefused || performance.now() - askedAt >= leaseMs / 3;
      if (mustWait && isLate && !isSaid) {
        isSaid = true;
        process.emitWarning(starved(max), 'InterlockWarning');
      }
    }
  };
}

function starved(max: number): string {
  return (
    `postgresStore(): the lease of a step was not renewed in time, since no connection of the pool ` +
    `was free (max: ${max}). Another call may take the step for dead. Give the store a pool of its ` +
    'own, which no handler uses'
  );
}
