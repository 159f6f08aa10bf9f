import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { postgresStore } from '../../../src/stores/postgres.ts';
import { HOUR, step } from '../../../src/testing/fixtures.ts';
import { makePostgresSchema, type PostgresSchema } from '../../helpers/postgres-schema.ts';
import { startStoreProcess } from '../../helpers/store-process.ts';

let database: PostgresSchema;
beforeEach(async () => {
  database = await makePostgresSchema();
});
afterEach(() => database?.drop());

describe('migrate()', { timeout: 60_000 }, () => {
  it('makes the schema, its tables and its functions, and changes nothing the second time', async () => {
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
      const options = `-c default_transaction_isolation=${level.replace(' ', '\\ ')}`;
      const pool = database.connect({ max: 12, options });
      const stores = Array.from({ length: 12 }, () =>
        postgresStore({ pool, schema: database.schema }),
      );
      await Promise.all(stores.map((store) => store.migrate()));
      expect(await applied()).toEqual([1]);
    },
  );

  it('may be called from several processes at once', async () => {
    const { url, schema } = database;
    const address = { kind: 'postgres', url, schema, migrate: true } as const;
    const processes = await Promise.all([1, 2, 3].map(() => startStoreProcess(address)));
    expect(await applied()).toEqual([1]);
    const run = randomUUID();
    await processes[0]?.store.open(run, {}, HOUR);
    for (const [index, { store }] of processes.entries())
      expect(await step(store, run)).toBe(index + 1);
    await Promise.all(processes.map((process) => process.stop()));
  });

  it('may make one schema for two prefixes at once', async () => {
    const pool = database.connect();
    const prefixes = ['a_', 'b_', 'c_'];
    const { schema } = database;
    await Promise.all(
      prefixes.map((tablePrefix) => postgresStore({ pool, schema, tablePrefix }).migrate()),
    );
  });

  it('only reads where nothing is to be done, so any role may call it', async () => {
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

  it('leaves nothing behind where it fails, gives its connection back, and can be called again', async () => {
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
    expect(await applied()).toEqual([1]);
  });

  it('takes a schema and a prefix of any letters', async () => {
    const schema = `${database.schema}"Ä 'b'`;
    const pool = database.connect();
    const store = postgresStore({ pool, schema, tablePrefix: 'Mixed_Case_30_letters_xxxxxxxx' });
    await store.migrate();
    await store.open('run', {}, HOUR);
    expect(await step(store, 'run')).toBe(1);
    await pool.query(`DROP SCHEMA "${schema.replaceAll('"', '""')}" CASCADE`);
  });

  it('describes every table and column that does not speak for itself', async () => {
    const pool = database.connect();
    await postgresStore({ pool, schema: database.schema }).migrate();
    const { rows } = await pool.query(
      `SELECT relname FROM pg_class
        WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND obj_description(oid, 'pg_class') IS NULL`,
      [database.schema],
    );
    expect(rows).toEqual([]);
  });
});

async function applied(): Promise<number[]> {
  const { rows } = await database
    .connect()
    .query(`SELECT version FROM ${database.schema}.workflow_migrations ORDER BY version`);
  return rows.map(({ version }) => version as number);
}

/** What is in the schema: names, and for functions their texts. */
async function catalogue(): Promise<string[]> {
  const { rows } = await database.connect().query(
    `SELECT relname AS item FROM pg_class WHERE relnamespace = $1::regnamespace
     UNION ALL SELECT oid || pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = $1::regnamespace
     ORDER BY item`,
    [database.schema],
  );
  return rows.map(({ item }) => item as string);
}
