import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { postgresStore } from '../../../src/stores/postgres.ts';
import type { TrailEntry } from '../../../src/stores/store.ts';
import { verifyTrail } from '../../../src/stores/trail.ts';
import { claimOf, commitOf, HOUR, repeated, step } from '../../../src/testing/fixtures.ts';
import { everyOperation } from '../../helpers/operations.ts';
import { makePostgresSchema, type PostgresSchema } from '../../helpers/postgres-schema.ts';
import { startStoreProcess } from '../../helpers/store-process.ts';

/** The schema that the first version of migrate() made. */
const schemaOfVersion1 = await readFile(new URL('schema-1.sql', import.meta.url), 'utf8');
/** The schema that the second version made, before the trail had attempts. */
const schemaOfVersion2 = await readFile(new URL('schema-2.sql', import.meta.url), 'utf8');

/** A schema of the test's own, and its content. */
async function openSchema() {
  const database = await makePostgresSchema();
  onTestFinished(() => database.drop());
  return { database, applied: () => applied(database), catalogue: () => catalogue(database) };
}

describe('migrate()', { timeout: 60_000 }, () => {
  it('makes the schema with tables and functions, and changes nothing later', async () => {
    const { database, catalogue } = await openSchema();
    const store = postgresStore({ pool: database.connect(), schema: database.schema });
    await store.migrate();
    const run = randomUUID();
    await store.open(run, {}, HOUR);
    await step(store, run);
    const before = await catalogue();
    await store.migrate();
    expect(await catalogue()).toEqual(before);
    expect((await store.read(run, HOUR))?.workflows.checkout?.snapshot.version).toBe(1);
  });

  it.each(['read committed', 'serializable'])(
    'may be called from many connections at once whose default is %s',
    async (level) => {
      const { database, applied } = await openSchema();
      const options = `-c default_transaction_isolation=${level.replace(' ', '\\ ')}`;
      const pool = database.connect({ max: 12, options });
      const stores = Array.from({ length: 12 }, () =>
        postgresStore({ pool, schema: database.schema }),
      );
      await Promise.all(stores.map((store) => store.migrate()));
      expect(await applied()).toEqual([1, 2, 3]);
    },
  );

  it('can run in several processes at once', async () => {
    const { database, applied } = await openSchema();
    const { url, schema } = database;
    const address = { kind: 'postgres', url, schema, migrate: true } as const;
    const processes = await Promise.all([1, 2, 3].map(() => startStoreProcess(address)));
    expect(await applied()).toEqual([1, 2, 3]);
    const run = randomUUID();
    await processes[0]?.store.open(run, {}, HOUR);
    for (const [index, { store }] of processes.entries())
      expect(await step(store, run)).toBe(index + 1);
    await Promise.all(processes.map((process) => process.stop()));
  });

  it('can make one schema for two prefixes at once', async () => {
    const { database } = await openSchema();
    const pool = database.connect();
    const prefixes = ['a_', 'b_', 'c_'];
    const { schema } = database;
    await Promise.all(
      prefixes.map((tablePrefix) => postgresStore({ pool, schema, tablePrefix }).migrate()),
    );
  });

  it('only reads a schema that is up to date, so any role may call it', async () => {
    const { database } = await openSchema();
    const owner = database.connect();
    const { schema } = database;
    await postgresStore({ pool: owner, schema }).migrate();
    const role = `${schema}_app`;
    await owner.query(`
      CREATE ROLE ${role};
      GRANT USAGE ON SCHEMA ${schema} TO ${role};
      GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${schema} TO ${role}`);
    const pool = database.connect({ options: `-c role=${role}` });
    const store = postgresStore({ pool, schema });
    await store.migrate();
    const run = randomUUID();
    await store.open(run, {}, HOUR);
    expect(await step(store, run)).toBe(1);
    await owner.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
  });

  it('leaves nothing where it fails, releases its connection, and can run again', async () => {
    const { database, applied, catalogue } = await openSchema();
    const pool = database.connect({ max: 1 });
    const { schema } = database;
    const store = postgresStore({ pool, schema });
    await pool.query(`CREATE SCHEMA ${schema}; CREATE TABLE ${schema}.workflows (id int)`);
    await expect(store.migrate()).rejects.toThrow(
      expect.objectContaining({
        code: 'ERR_INTERLOCK_CONFIG',
        message: expect.stringMatching(/workflows.*tablePrefix/s),
      }),
    );
    expect(await catalogue()).toEqual(['workflows']);
    await pool.query(`DROP TABLE ${schema}.workflows`);
    await store.migrate();
    expect(await applied()).toEqual([1, 2, 3]);
  });

  it('takes a schema and a prefix of any letters', async () => {
    const { database } = await openSchema();
    const schema = `${database.schema}"Ä 'b'`;
    const pool = database.connect();
    const store = postgresStore({ pool, schema, tablePrefix: 'Mixed_Case_30_letters_xxxxxxxx' });
    await store.migrate();
    await store.open('run', {}, HOUR);
    expect(await step(store, 'run')).toBe(1);
    await pool.query(`DROP SCHEMA "${schema.replaceAll('"', '""')}" CASCADE`);
  });

  it('describes every table and column that does not speak for itself', async () => {
    const { database } = await openSchema();
    const pool = database.connect();
    await postgresStore({ pool, schema: database.schema }).migrate();
    const { rows } = await pool.query(
      `SELECT relname FROM pg_class
        WHERE relnamespace = $1::regnamespace AND relkind = 'r'
          AND obj_description(oid, 'pg_class') IS NULL`,
      [database.schema],
    );
    expect(rows).toEqual([]);
  });
});

/** The calls of an older process, whose documents have only members that it knew. */
type Ask = (call: string, ...values: unknown[]) => Promise<unknown>;

/** A schema that an older version made. */
async function openOldSchema(statements: string, schema: string) {
  const { database, applied } = await openSchema();
  const pool = database.connect();
  await pool.query(statements.replaceAll(`"${schema}"`, database.schema));
  const old: Ask = async (call, ...values) => {
    const { rows } = await pool.query(`SELECT ${database.schema}.${call}::text AS answer`, values);
    return JSON.parse(rows[0].answer || 'null');
  };
  const run = randomUUID();
  const documents = {
    claim: (token: string) => claimDocument(run, token),
    commit: (token: string) => commitDocument(run, token),
    request: (token: string) => ({ ...claimOf(run), token }),
  };
  return { database, applied, pool, old, run, documents };
}

const claimDocument = (run: string, token: string) => ({
  ...{ run, long_key: null, principal: 'alice', minted: null, workflow: 'checkout', token },
  ...{ tool: 'cart.pay', digest: 'd', uncertain: 'hold', states: null, state: 'empty' },
  ...{ context: '{"sum":1}', version: 0, make_run: true, new_key: randomUUID() },
  ...{ lease_ms: HOUR, ttl_ms: HOUR },
});
const commitDocument = (run: string, token: string) => ({
  ...{ run, workflow: 'checkout', token, state: 'paid', context: null, from_state: 'empty' },
  ...{ to_state: 'paid', event: 'PAY', tool: 'cart.pay', actor: null, payload: null },
  ...{ ttl_ms: HOUR, settles: true },
});

describe('migrate() of a schema of version 1', { timeout: 60_000 }, () => {
  it('keeps its runs, their claims and their trails', async () => {
    const { database, applied, pool, old, run, documents } = await openOldSchema(
      schemaOfVersion1,
      'schema_1',
    );
    await old('workflow_claim($1)', documents.claim('one'));
    await old('workflow_commit($1)', documents.commit('one'));
    await old('workflow_claim($1)', documents.claim('two'));
    const store = postgresStore({ pool, schema: database.schema });
    await store.migrate();
    expect(await applied()).toEqual([1, 2, 3]);
    const record = await store.read(run, HOUR);
    expect(record?.session).toEqual({ principal: 'alice' });
    expect(record?.workflows.checkout).toMatchObject({
      snapshot: { state: 'paid', version: 1 },
      claim: { token: 'two', live: true },
    });
    expect(record?.workflows.checkout).not.toHaveProperty('ended');
    expect(await store.commit(commitOf(documents.request('one')))).toEqual(repeated(1));
    expect(await store.commit(commitOf(documents.request('two')))).toEqual({
      status: 'committed',
      version: 2,
    });
    expect(await store.history({ run, workflow: 'checkout' })).toHaveLength(2);
  });

  it('still serves the processes of the older version', async () => {
    const { database, pool, old, run, documents } = await openOldSchema(
      schemaOfVersion1,
      'schema_1',
    );
    const store = postgresStore({ pool, schema: database.schema });
    await store.migrate();
    expect(await old('workflow_claim($1)', documents.claim('one'))).toMatchObject({
      status: 'claimed',
    });
    expect(await old('workflow_renew($1, $2)', documents.commit('one'), HOUR)).toBe(true);
    expect(await old('workflow_commit($1)', documents.commit('one'))).toEqual({
      status: 'committed',
      version: 1,
    });
    await old('workflow_claim($1)', documents.claim('two'));
    await old('workflow_release($1)', { run, workflow: 'checkout', token: 'two', settles: true });
    expect(await old('workflow_read_run($1, $2)', run, HOUR)).toMatchObject({
      principal: 'alice',
      workflows: [{ state: 'paid', version: 1, claim: null }],
    });
    await old('workflow_make_run($1, true)', { run, long_key: null, ttl_ms: HOUR });
    expect((await store.read(run, HOUR))?.workflows).toEqual({});
  });
});

describe('migrate() of a schema of version 2', { timeout: 60_000 }, () => {
  const open = () => openOldSchema(schemaOfVersion2, 'schema_2');
  const stamps = (trail: readonly TrailEntry[]) =>
    trail.map(({ seq, version, attempt, to }) => `${seq} v${version} a${attempt} ${to ?? 'stays'}`);

  it('reads older entries as moves, and goes on after them', async () => {
    const { database, pool, old, run, documents } = await open();
    for (const token of ['one', 'two']) {
      await old('workflow_claim($1)', documents.claim(token));
      await old('workflow_commit($1)', documents.commit(token));
    }
    await old('workflow_claim($1)', documents.claim('three'));
    const store = postgresStore({ pool, schema: database.schema });
    await store.migrate();
    const record = await store.read(run, HOUR);
    expect(record?.workflows.checkout?.claim).not.toHaveProperty('since');
    expect(await store.claim(documents.request('one'))).toMatchObject({ status: 'state' });
    const failed = { from: 'paid', event: null, outcome: 'failed' } as const;
    await store.release({ run, workflow: 'checkout' }, 'three', { entry: failed });
    expect(await store.claim(documents.request('two'))).toMatchObject({ status: 'state' });
    expect(await step(store, run)).toBe(3);
    expect(stamps(await store.history({ run, workflow: 'checkout' }))).toEqual([
      '1 v1 a1 paid',
      '2 v2 a1 paid',
      '3 v2 a1 stays',
      '4 v3 a2 has_items',
    ]);
    for (const token of ['one', 'two'])
      expect(await store.claim(documents.request(token))).toMatchObject({ status: 'state' });
  });

  it('serves older and newer processes in turns, in one trail without gaps', async () => {
    const { database, pool, old, run, documents } = await open();
    const store = postgresStore({ pool, schema: database.schema, chainTrail: true });
    await store.migrate();
    await step(store, run, { create: {} });
    const retried = claimOf(run, {
      leaseMs: 0,
      step: { uncertain: 'retry' },
      entry: { actor: 'ann' },
    });
    await store.claim(retried);
    // An older process takes over a newer one's claim, and the other way round.
    await old('workflow_claim($1)', { ...documents.claim('one'), uncertain: 'retry', lease_ms: 0 });
    await step(store, run);
    await old('workflow_claim($1)', documents.claim('two'));
    expect(await old('workflow_commit($1)', documents.commit('two'))).toEqual({
      status: 'committed',
      version: 3,
    });
    await old('workflow_claim($1)', documents.claim('three'));
    await old('workflow_release($1)', { run, workflow: 'checkout', token: 'three', settles: true });
    expect(await step(store, run)).toBe(4);
    const trail = await store.history({ run, workflow: 'checkout' });
    expect(stamps(trail)).toEqual([
      '1 v1 a1 has_items',
      '2 v1 a1 stays',
      '3 v2 a2 has_items',
      '4 v3 a1 paid',
      '5 v4 a1 has_items',
    ]);
    expect(trail[1]).toMatchObject({ kind: 'taken_over', outcome: 'unknown', actor: 'ann' });
    expect(verifyTrail(trail)).toEqual([]);
    // Older processes take every entry for a move, so they get no others.
    expect(await old('workflow_history($1, $2, $3)', run, 'checkout', 50)).toMatchObject([
      { version: 1 },
      { version: 2 },
      { version: 3, from: 'empty', to: 'paid' },
      { version: 4 },
    ]);
  });

  it('removes all of a run that an older process deletes', async () => {
    const { database, pool, run } = await open();
    const store = postgresStore({ pool, schema: database.schema });
    await store.migrate();
    await step(store, run, { create: {} });
    await pool.query(`DELETE FROM ${database.schema}.workflow_runs WHERE run = $1`, [run]);
    expect(await store.history({ run, workflow: 'checkout' })).toEqual([]);
  });
});

describe('a schema of a newer format', { timeout: 60_000 }, () => {
  it('is refused by every operation with both numbers, and does not change', async () => {
    const { database } = await openSchema();
    const pool = database.connect();
    const { schema } = database;
    const store = postgresStore({ pool, schema });
    await store.migrate();
    const run = randomUUID();
    await store.open(run, {}, HOUR);
    await store.claim(claimOf(run));
    await pool.query(`CREATE OR REPLACE FUNCTION ${schema}.workflow_format() RETURNS integer
      LANGUAGE sql IMMUTABLE AS 'SELECT 7'`);
    const rows = async () => {
      const tables = ['workflow_runs', 'workflows', 'workflow_events', 'workflow_migrations'];
      const read = tables.map((table) => pool.query(`SELECT t::text FROM ${schema}.${table} t`));
      return (await Promise.all(read)).map((each) => each.rows);
    };
    const before = await rows();
    const refused = expect.objectContaining({
      code: 'ERR_INTERLOCK_STORE',
      message: expect.stringMatching(/format 7.*format 1/),
    });
    const page = { workflow: 'checkout', limit: 1, forMs: 0 };
    const operations = {
      ...everyOperation(store, run),
      commitIn: () => store.commitIn(pool, commitOf(claimOf(run))),
      append: () => store.append(claimOf(run), { from: 'empty', event: null }),
      runs: () =>
        store
          .runs({ ...page, state: 'empty' })
          [Symbol.asyncIterator]()
          .next(),
      held: () => store.held(page),
      stuck: () => store.stuck(page),
      count: () => store.count(page),
      list: () => store.list({ principal: 'alice', limit: 1 }),
      sweep: () => store.sweep(),
      migrate: () => store.migrate(),
    };
    for (const [name, operation] of Object.entries(operations))
      await expect(operation(), name).rejects.toThrow(refused);
    expect(await rows()).toEqual(before);
  });
});

async function applied(database: PostgresSchema): Promise<number[]> {
  const { rows } = await database
    .connect()
    .query(`SELECT version FROM ${database.schema}.workflow_migrations ORDER BY version`);
  return rows.map(({ version }) => version as number);
}

/** The content of the schema: names, and of functions their texts. */
async function catalogue(database: PostgresSchema): Promise<string[]> {
  const { rows } = await database.connect().query(
    `SELECT relname AS item FROM pg_class WHERE relnamespace = $1::regnamespace
     UNION ALL
     SELECT oid || pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = $1::regnamespace
     ORDER BY item`,
    [database.schema],
  );
  return rows.map(({ item }) => item as string);
}
