import { randomUUID } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import { claimOf, commitOf, HOUR, step } from '../../../packages/testing/src/fixtures.ts';
import { POSTGRES_FORMAT } from '../../../src/stores/postgres/names.ts';
import { postgresStore } from '../../../src/stores/postgres.ts';
import { everyOperation } from '../../helpers/operations.ts';
import { makePostgresSchema, type PostgresSchema } from '../../helpers/postgres-schema.ts';
import { startStoreProcess } from '../../helpers/store-process.ts';

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
      expect(await applied()).toEqual([1]);
    },
  );

  it('can run in several processes at once', async () => {
    const { database, applied } = await openSchema();
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
    expect(await applied()).toEqual([1]);
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

describe('a schema of another format', { timeout: 60_000 }, () => {
  it.each([0, 1, 7])('is refused by every operation, and does not change: %d', async (format) => {
    const { database } = await openSchema();
    const pool = database.connect();
    const { schema } = database;
    const store = postgresStore({ pool, schema });
    await store.migrate();
    const run = randomUUID();
    await store.open(run, {}, HOUR);
    await store.claim(claimOf(run));
    await store.swapSwitch('checkout', undefined, { value: 'on', revision: 'first' });
    await pool.query(`CREATE OR REPLACE FUNCTION ${schema}.workflow_format() RETURNS integer
      LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN ${format}; END'`);
    const rows = async () => {
      const tables = ['runs', 'events', 'switches', 'migrations'].map((name) => `workflow_${name}`);
      const read = ['workflows', ...tables].map((table) =>
        pool.query(`SELECT t::text FROM ${schema}.${table} t`),
      );
      return (await Promise.all(read)).map((each) => each.rows);
    };
    const before = await rows();
    const refused = expect.objectContaining({
      code: 'ERR_INTERLOCK_STORE',
      message: expect.stringMatching(new RegExp(`format ${format}.*format ${POSTGRES_FORMAT}`)),
    });
    const page = { workflow: 'checkout', limit: 1, forMs: 0 };
    const { workflow, token, initial, ttlMs } = claimOf(run);
    const { snapshot, trail } = commitOf(claimOf(run));
    const operations = {
      ...everyOperation(store, run),
      commitIn: () => store.commitIn(pool, commitOf(claimOf(run))),
      record: () =>
        store.record({ run, workflow, token, initial, from: 0, snapshot, trail, ttlMs }),
      append: () => store.append(claimOf(run), { from: 'empty', event: null }),
      end: () => store.end(run),
      anonymize: () => store.anonymize(run),
      runs: () =>
        store
          .runs({ ...page, state: 'empty' })
          [Symbol.asyncIterator]()
          .next(),
      held: () => store.held(page),
      stuck: () => store.stuck(page),
      count: () => store.count(page),
      list: () => store.list({ principal: 'alice', limit: 1 }),
      purge: () => store.purge({ principal: 'alice' }),
      migrate: () => store.migrate(),
    };
    for (const [name, operation] of Object.entries(operations))
      await expect(operation(), name).rejects.toThrow(refused);
    expect(await rows()).toEqual(before);
  });

  it('is named also where it has none of the functions that this one calls', async () => {
    const { database } = await openSchema();
    const pool = database.connect();
    const { schema } = database;
    const store = postgresStore({ pool, schema });
    await store.migrate();
    await pool.query(`DROP FUNCTION ${schema}.workflow_read;
      CREATE OR REPLACE FUNCTION ${schema}.workflow_format() RETURNS integer
        LANGUAGE sql IMMUTABLE AS 'SELECT 7'`);
    await expect(store.read(randomUUID(), HOUR)).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_STORE',
      message: expect.stringMatching(new RegExp(`format 7.*format ${POSTGRES_FORMAT}`)),
    });
  });

  it('is this one, also where a later version of it has added columns', async () => {
    const { database } = await openSchema();
    const pool = database.connect();
    const { schema } = database;
    const store = postgresStore({ pool, schema });
    await store.migrate();
    await pool.query(`ALTER TABLE ${schema}.workflows ADD COLUMN later text DEFAULT 'kept';
      ALTER TABLE ${schema}.workflow_runs ADD COLUMN later text DEFAULT 'kept';
      ALTER TABLE ${schema}.workflow_events ADD COLUMN later text DEFAULT 'kept';
      INSERT INTO ${schema}.workflow_migrations (version) VALUES (2)`);
    await store.migrate();
    const run = randomUUID();
    await step(store, run, { create: {} });
    expect(await step(store, run)).toBe(2);
    const { rows } = await pool.query(`SELECT later FROM ${schema}.workflows WHERE run = $1`, [
      run,
    ]);
    expect(rows).toEqual([{ later: 'kept' }]);
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

describe("a connection's settings", { timeout: 60_000 }, () => {
  it('lead no function to code from a schema in the search path', async () => {
    const { database } = await openSchema();
    const { schema } = database;
    const trap = `${schema}_trap`;
    const admin = database.connect();
    onTestFinished(async () => void (await admin.query(`DROP SCHEMA ${trap} CASCADE`)));
    await admin.query(`CREATE SCHEMA ${trap}; CREATE TABLE ${trap}.stepped_in (what text)`);
    await admin.query(hostile(trap));
    const options = `-c search_path=${trap},pg_catalog`;
    const pool = database.connect({ options });
    const store = postgresStore({ pool, schema, chainTrail: true });
    await store.migrate();
    for (const operate of Object.values(everyOperation(store, randomUUID()))) await operate();
    await store.purge({ principal: 'alice' });
    await store.count({ workflow: 'checkout', forMs: 0 });
    expect((await admin.query(`SELECT DISTINCT what FROM ${trap}.stepped_in`)).rows).toEqual([]);
    const open = await admin.query(
      `SELECT proname FROM pg_proc p WHERE pronamespace = to_regnamespace($1)
          AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)`,
      [schema],
    );
    expect(open.rows).toEqual([]);
  });

  it('let no function of another signature in the schema take the place of ours', async () => {
    const { database } = await openSchema();
    const { schema } = database;
    const pool = database.connect();
    const store = postgresStore({ pool, schema, chainTrail: true });
    await store.migrate();
    // PostgreSQL prefers a function of texts wherever a parameter says no type.
    const { rows } = await pool.query(
      `SELECT proname AS name, pronargs AS many FROM pg_proc p
        WHERE pronamespace = to_regnamespace($1) AND pronargs > 0
          AND proargtypes::oid[] <@ ARRAY['json', 'text', 'text[]', 'float8', 'bool', 'int4', 'int8']::regtype[]::oid[]
          AND proargtypes::oid[] <> array_fill('text'::regtype::oid, ARRAY[pronargs::int], ARRAY[0])`,
      [schema],
    );
    expect(rows).toHaveLength(8);
    for (const { name, many } of rows) {
      const texts = Array(many).fill('text').join(', ');
      await pool.query(
        `CREATE FUNCTION ${schema}.${name}(${texts}) RETURNS json LANGUAGE plpgsql
           AS $$ BEGIN RAISE 'another signature of ${name}'; END $$`,
      );
    }
    for (const operate of Object.values(everyOperation(store, randomUUID()))) await operate();
    await store.purge({ principal: 'alice' });
    await store.count({ workflow: 'checkout', forMs: 0 });
  });

  it('may let a backslash escape in strings', async () => {
    const { database } = await openSchema();
    const options = '-c standard_conforming_strings=off -c backslash_quote=on';
    const pool = database.connect({ options });
    const schema = database.schema;
    const store = postgresStore({ pool, schema, chainTrail: true });
    await store.migrate();
    const run = `a\\' \\n ${randomUUID()}`;
    await store.open(run, { principal: "\\'; --" }, HOUR);
    expect(await step(store, run)).toBe(1);
    const seen = await store.read(run, HOUR);
    expect(seen?.session.principal).toBe("\\'; --");
    const comment = `SELECT col_description(to_regclass($1), 1) AS text`;
    const { rows } = await pool.query(comment, [`${schema}.workflow_runs`]);
    expect(rows[0].text).toContain('\\uXXXX');
  });
});

/** Functions and operators that take the place of PostgreSQL's own, and tell that they ran. */
function hostile(trap: string): string {
  const tells = (what: string, answer: string) =>
    `LANGUAGE plpgsql AS $$ BEGIN
       INSERT INTO ${trap}.stepped_in VALUES ('${what}'); RETURN ${answer}; END $$;`;
  return `
    CREATE FUNCTION ${trap}.clock_timestamp() RETURNS timestamptz
      ${tells('clock', 'pg_catalog.clock_timestamp()')}
    CREATE FUNCTION ${trap}.json_to_record(json) RETURNS record ${tells('record', 'NULL')}
    CREATE FUNCTION ${trap}.hashtextextended(text, bigint) RETURNS bigint IMMUTABLE
      ${tells('hash', '1')}
    CREATE FUNCTION ${trap}.hashtextextended(text, integer) RETURNS bigint IMMUTABLE
      ${tells('hash', '1')}
    CREATE FUNCTION ${trap}.same(text, text) RETURNS boolean ${tells('same', '$1 IS NOT NULL')}
    CREATE OPERATOR ${trap}.= (LEFTARG = text, RIGHTARG = text, FUNCTION = ${trap}.same);
    CREATE FUNCTION ${trap}.same(integer, integer) RETURNS boolean ${tells('same', 'true')}
    CREATE OPERATOR ${trap}.= (LEFTARG = integer, RIGHTARG = integer, FUNCTION = ${trap}.same);
    CREATE DOMAIN ${trap}.bigint AS text;
    CREATE FUNCTION ${trap}.cast_to(text) RETURNS boolean ${tells('cast', 'true')}
    CREATE DOMAIN ${trap}.text AS pg_catalog.text CHECK (${trap}.cast_to(VALUE));
    CREATE DOMAIN ${trap}.json AS pg_catalog.json CHECK (${trap}.cast_to(VALUE::pg_catalog.text));`;
}
