import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import { atCaller } from '../errors.ts';
import { anonymousKey } from '../names.ts';
import { isPool, lazyOptions, parseOptions } from '../options.ts';
import {
  appendDocument,
  type ClaimAnswer,
  type CommitAnswer,
  type CountRow,
  claimDocument,
  commitDocument,
  countDocument,
  type Document,
  durationNumber,
  type EventRow,
  type FreezeAnswer,
  freezeDocument,
  type KeyRow,
  listDocument,
  openDocument,
  type PageRow,
  pageDocument,
  type RecordAnswer,
  type RunInState,
  type RunRow,
  recordDocument,
  releaseDocument,
  renewDocument,
  runsDocument,
  type SweptRow,
  type SwitchRow,
  switchDocument,
  toClaimResult,
  toCommitResult,
  toFreezeResult,
  toKeysPage,
  toRecordResult,
  toRunRecord,
  toRunsCount,
  toRunsPage,
  toSwitchRecord,
  toTrailEntry,
} from './postgres/documents.ts';
import { migrate } from './postgres/migrate.ts';
import {
  otherPostgresFormat,
  POSTGRES_FORMAT,
  type PostgresClient,
  type PostgresNames,
  type PostgresPool,
  postgresNames,
} from './postgres/names.ts';
import { decodeText, encodeKey, encodeText, textOrNull } from './sql-text.ts';
import type {
  CommitRequest,
  CommitResult,
  CountQuery,
  DeleteResult,
  EndResult,
  HeldQuery,
  KeysPage,
  ListQuery,
  PurgeQuery,
  RunKey,
  RunsCount,
  RunsPage,
  RunsQuery,
  StuckQuery,
  SwitchRecord,
  TrailDraft,
  TransactionalStateStore,
} from './store.ts';
import { digestOfName } from './trail.ts';

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

export interface PostgresStore extends TransactionalStateStore<PostgresClient> {
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

  append(key: RunKey, entry: TrailDraft): Promise<void>;
  runs(query: RunsQuery): AsyncIterable<string>;
  held(query: HeldQuery): Promise<RunsPage>;
  stuck(query: StuckQuery): Promise<RunsPage>;
  count(query: CountQuery): Promise<RunsCount>;
  list(query: ListQuery): Promise<KeysPage>;
  anonymize(run: string): Promise<string | undefined>;
  readSwitch(workflow: string): Promise<SwitchRecord | undefined>;
  swapSwitch(workflow: string, expected: string | undefined, next: SwitchRecord): Promise<boolean>;
}

/** How many rows one statement of a purge removes, so that no step waits long for it. */
const PURGED_AT_ONCE = 500;

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
  const ask = <Answer>(invocation: string, ...values: readonly Parameter[]) =>
    call<Answer>(pool, names, invocation, values);

  const commitIn = async (
    client: PostgresClient,
    request: CommitRequest,
  ): Promise<CommitResult> => {
    const values = [commitDocument(request)];
    return toCommitResult(
      await call<CommitAnswer>(client, names, `${names.commit}($1::pg_catalog.json)`, values),
    );
  };

  return {
    contract: 1,

    open: (run, session, ttlMs, token = randomUUID()) =>
      ask(`${names.open}($1::pg_catalog.json)`, openDocument(run, session, ttlMs, token)),

    async read(run, ttlMs, about) {
      const row = await ask<RunRow | null>(
        `${names.readRun}($1::pg_catalog.text, $2::pg_catalog.float8, $3::pg_catalog.text)`,
        encodeKey(run),
        durationNumber(ttlMs),
        about === undefined ? null : encodeText(about),
      );
      return row ? toRunRecord(row) : undefined;
    },

    async claim(request) {
      const document = claimDocument(request, chainTrail);
      return toClaimResult(
        await ask<ClaimAnswer>(`${names.claim}($1::pg_catalog.json)`, document),
        request,
      );
    },

    commit: (request) => commitIn(pool, request),
    commitIn,

    async record(request) {
      const document = recordDocument(request, chainTrail);
      return toRecordResult(
        await ask<RecordAnswer>(`${names.record}($1::pg_catalog.json)`, document),
        request,
      );
    },

    async freeze(request) {
      const document = freezeDocument(request, chainTrail);
      return toFreezeResult(
        await ask<FreezeAnswer>(`${names.freeze}($1::pg_catalog.json)`, document),
        request,
      );
    },

    renew: (key, token, leaseMs, options) =>
      ask<boolean>(
        `${names.renew}($1::pg_catalog.json)`,
        renewDocument(key, token, leaseMs, options),
      ),

    async release(key, token, options) {
      await ask(`${names.release}($1::pg_catalog.json)`, releaseDocument(key, token, options));
    },

    async append(key, entry) {
      await ask(`${names.append}($1::pg_catalog.json)`, appendDocument(key, entry));
    },

    end: (run, { ifUnclaimed = false } = {}) =>
      ask<EndResult>(
        `${names.endRun}($1::pg_catalog.text, $2::pg_catalog.bool)`,
        encodeKey(run),
        ifUnclaimed,
      ),

    delete: (run) => ask<DeleteResult>(`${names.deleteRun}($1::pg_catalog.text)`, encodeKey(run)),

    async anonymize(run) {
      const unnamed = anonymousKey();
      const values = [encodeKey(run), encodeKey(unnamed), digestOfName(unnamed)];
      return (await ask<boolean>(
        `${names.anonymize}($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.text)`,
        ...values,
      ))
        ? unnamed
        : undefined;
    },

    async history({ run, workflow }, limit = 50) {
      const atMost = Math.max(0, Math.min(Math.trunc(limit), Number.MAX_SAFE_INTEGER));
      const values = [encodeKey(run), encodeText(workflow), atMost];
      const rows = await ask<EventRow[]>(
        `${names.trail}($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.int8)`,
        ...values,
      );
      return rows.map(toTrailEntry);
    },

    async *runs(query) {
      let last: RunInState | undefined;
      do {
        const page = await ask<RunInState[]>(
          `${names.inState}($1::pg_catalog.json)`,
          runsDocument(query, last),
        );
        for (const { run } of page) yield decodeText(run);
        last = page.at(-1);
      } while (last);
    },

    held: async (query) =>
      toRunsPage(
        await ask<PageRow>(`${names.held}($1::pg_catalog.json)`, pageDocument(query)),
        query,
      ),

    stuck: async (query) =>
      toRunsPage(
        await ask<PageRow>(`${names.stuck}($1::pg_catalog.json)`, pageDocument(query)),
        query,
      ),

    count: async (query) =>
      toRunsCount(await ask<CountRow>(`${names.count}($1::pg_catalog.json)`, countDocument(query))),

    list: async (query) =>
      toKeysPage(
        await ask<KeyRow[]>(`${names.list}($1::pg_catalog.json)`, listDocument(query)),
        query,
      ),

    async readSwitch(workflow) {
      const values = [encodeKey(workflow)];
      const row = await ask<SwitchRow | null>(
        `${names.readSwitch}($1::pg_catalog.text)`,
        ...values,
      );
      return row ? toSwitchRecord(row) : undefined;
    },

    swapSwitch: (...args) =>
      ask<boolean>(`${names.swapSwitch}($1::pg_catalog.json)`, switchDocument(...args)),

    migrate: () => migrate(pool, names),

    async purge({ principal } = {}) {
      const owner = textOrNull(principal);
      let purged = 0;
      for (let looked = PURGED_AT_ONCE; looked >= PURGED_AT_ONCE; ) {
        const values = '$1::pg_catalog.int4, NULL::pg_catalog.text, $2::pg_catalog.text';
        const sweep = `${names.sweepRuns}(${values})`;
        const swept = await ask<SweptRow>(sweep, PURGED_AT_ONCE, owner);
        purged += swept.removed;
        looked = swept.looked;
      }
      const purgeEvents = `${names.purgeEvents}($1::pg_catalog.text, $2::pg_catalog.int4)`;
      while (owner !== null && (await ask<number>(purgeEvents, owner, PURGED_AT_ONCE)) > 0);
      return purged;
    },
  };
}

type Parameter = Document | string | number | boolean | null;

/**
 * Calls a function in one round trip, but not where the tables are of another format. Asks for the
 * answer as text, which the caller's type parsers leave alone. No name in the statement, and no
 * choice between functions of one name, depends on the connection's `search_path`.
 */
async function call<Answer>(
  client: PostgresClient,
  names: PostgresNames,
  invocation: string,
  values: readonly Parameter[],
): Promise<Answer> {
  const parameters = values.map((value) =>
    typeof value === 'object' && value !== null ? JSON.stringify(value) : value,
  );
  const format = `${names.format}()`;
  const isKnown = `${format} OPERATOR(pg_catalog.=) ${POSTGRES_FORMAT}`;
  const answer = `CASE WHEN ${isKnown} THEN ${invocation}::pg_catalog.text END`;
  const statement = `SELECT ${answer} AS answer, ${format}::pg_catalog.text AS format`;
  const { rows } = await client
    .query(statement, parameters)
    .catch((error) => explain(error, client, names));
  const [row] = rows as { answer: string | null; format: string }[];
  if (!row) throw new TypeError('The database answered without a row');
  const refused = otherPostgresFormat(row.format, names);
  if (refused) throw refused;
  return JSON.parse(row.answer || 'null');
}

/** PostgreSQL's code for a call of a function that does not exist. */
const UNDEFINED_FUNCTION = '42883';

async function explain(
  error: unknown,
  client: PostgresClient,
  names: PostgresNames,
): Promise<never> {
  const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
  if (code !== UNDEFINED_FUNCTION) throw error;
  // Another format may have other functions. A client in a failed transaction cannot say it.
  const format = `SELECT ${names.format}()::pg_catalog.text AS format`;
  const { rows } = await client.query(format).catch(() => ({ rows: [] }));
  const [row] = rows as { format: string }[];
  const refused = row && otherPostgresFormat(row.format, names);
  if (refused) throw refused;
  throw new Error(`call migrate() of postgresStore() first: ${message}`, { cause: error });
}
