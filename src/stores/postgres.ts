import * as z from 'zod/mini';
import { atCaller } from '../errors.ts';
import { isPool, lazyOptions, parseOptions } from '../options.ts';
import type { DocumentStore } from './document/document-store.ts';
import { storeOf } from './document/indexed-store.ts';
import { migrate } from './postgres/migrate.ts';
import { type PostgresClient, type PostgresPool, postgresNames } from './postgres/names.ts';
import { PostgresRuns } from './postgres/runs.ts';
import type { AtomicStateStore, CommitRequest, CommitResult, PurgeQuery } from './store.ts';

export type { PostgresClient, PostgresPool, PostgresPoolClient } from './postgres/names.ts';

export interface PostgresStoreOptions {
  /** A `Pool` of `pg`. The caller makes it, listens to its `error` events and ends it. */
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
   * Chains the trail of each workflow that begins from now on by hashes (SHA-256, made by the
   * database), which `verifyTrail()` checks. Default `false`.
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
   * before the `COMMIT`: until then other callers see the claim, and all that would change the run
   * wait. After any answer but `committed`, roll back.
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
  chainTrail: z._default(z.boolean(), false),
}));

/**
 * Keeps runs in PostgreSQL (12 or later), in the tables `workflow_runs`, `workflows`,
 * `workflow_events` and `workflow_switches`. Each operation is one round trip, which calls a
 * function that `migrate()` has made, and goes by the database's clock. The trail of a deleted or
 * expired run is gone from `history()`, but stays in `workflow_events` as an audit log.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown.
 */
export function postgresStore(options: PostgresStoreOptions): PostgresStore {
  const { pool, schema, tablePrefix, chainTrail } = atCaller(postgresStore, () =>
    parseOptions('postgresStore() options', optionsSchema, options),
  );
  const names = postgresNames(schema, tablePrefix);
  const runs = new PostgresRuns(pool, names);
  const store = storeOf(runs, Date.now, chainTrail);
  return Object.assign(store as DocumentStore & Required<AtomicStateStore>, {
    commitIn: (client: PostgresClient, request: CommitRequest): Promise<CommitResult> =>
      store.commitThrough(request, (write) => runs.swapIn(client, write)),
    migrate: () => migrate(pool, names),
  });
}
