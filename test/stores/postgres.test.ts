import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import {
  claimed,
  claimOf,
  claimStatus,
  commitOf,
  HOUR,
  step,
} from '../../packages/testing/src/fixtures.ts';
import { describeStateStore } from '../../packages/testing/src/index.ts';
import { InterlockError } from '../../src/basics/errors.ts';
import { type PostgresPool, type PostgresStore, postgresStore } from '../../src/stores/postgres.ts';
import { Page } from '../helpers/markdown.ts';
import { everyOperation } from '../helpers/operations.ts';
import { insertRuns, makePostgresSchema } from '../helpers/postgres-schema.ts';
import { withWrongClock } from '../helpers/wrong-clock.ts';

const database = await makePostgresSchema();
afterAll(() => database.drop());
const { schema } = database;
const pool = database.connect();
await postgresStore({ pool, schema }).migrate();

async function makeStore() {
  const pools: Pool[] = [];
  const reopen = async () => {
    const own = database.connect();
    pools.push(own);
    return postgresStore({ pool: own, schema, chainTrail: true });
  };
  const close = async () => {
    await Promise.all(pools.map(database.disconnect));
  };
  const reopenWithClock = async (offMs: number) => withWrongClock(await reopen(), offMs);
  return { store: await reopen(), reopen, reopenWithClock, close };
}

describeStateStore('postgresStore()', makeStore, {
  describe: describe.concurrent,
  it,
  chainTrail: true,
});

const openStore = () => ({ store: postgresStore({ pool, schema }), run: randomUUID() });

describe('postgresStore()', { timeout: 30_000 }, () => {
  it('takes one round trip for each part of a step, and else a read before a write', async () => {
    const { run } = openStore();
    // Nothing is known of the database's clock yet.
    const twice = ['open', 'freeze', 'thaw', 'end', 'release', 'delete', 'swapSwitch'];
    const queries = vi.fn(pool.query.bind(pool) as PostgresPool['query']);
    const counting = postgresStore({ pool: { query: queries, connect: vi.fn() }, schema });
    for (const [name, operation] of Object.entries(everyOperation(counting, run))) {
      queries.mockClear();
      await operation();
      expect(queries, name).toHaveBeenCalledTimes(twice.includes(name) ? 2 : 1);
      expect(queries.mock.calls[0]?.[0], name).not.toContain(';');
    }
  });

  it('goes by the clock of the database, and not by that of the process', async () => {
    const { store, run } = openStore();
    await store.open(run, {}, HOUR);
    await claimed(store, claimOf(run));
    vi.useFakeTimers({ toFake: ['Date'] });
    try {
      vi.setSystemTime(Date.now() + 24 * HOUR);
      expect(await claimStatus(store, run)).toBe('busy');
      const { snapshot, now = 0 } = await claimed(store, claimOf(run, { workflow: 'fast' }));
      expect(Math.abs(now - snapshot.updatedAt)).toBeLessThan(HOUR);
      expect(Math.abs(now - Date.now())).toBeGreaterThan(HOUR);
      vi.setSystemTime(Date.now() - 48 * HOUR);
      expect(await claimStatus(store, run)).toBe('busy');
    } finally {
      vi.useRealTimers();
    }
  });

  it('does not use the type parsers of the caller', async () => {
    const { run } = openStore();
    const nonsense = () => 'nonsense';
    const own = database.connect({
      types: { getTypeParser: (id: number) => (id === 25 ? String : nonsense) },
    });
    const parsed = postgresStore({ pool: own, schema });
    await parsed.open(run, { principal: 'alice', minted: true }, HOUR);
    expect(await step(parsed, run)).toBe(1);
    expect((await parsed.read(run, HOUR))?.session).toEqual({ principal: 'alice', minted: true });
    expect(await parsed.history({ run, workflow: 'checkout' })).toHaveLength(1);
  });

  it('makes its tables through a pool whose type parsers all give text', async () => {
    const own = database.connect({ types: { getTypeParser: () => String } });
    const parsed = postgresStore({ pool: own, schema, tablePrefix: 'texts_' });
    await parsed.migrate();
    await parsed.migrate();
    const { run } = openStore();
    await parsed.open(run, {}, HOUR);
    expect(await step(parsed, run)).toBe(1);
    expect(await parsed.count({ workflow: 'checkout', forMs: 0 })).toMatchObject({
      states: [{ state: 'has_items', runs: 1, stuck: 1 }],
    });
  });

  it.each(['read committed', 'repeatable read', 'serializable'])(
    'takes a claim once where the default is %s, and refuses the others without an error',
    async (level) => {
      const { run } = openStore();
      const options = `-c default_transaction_isolation=${level.replace(' ', '\\ ')}`;
      const strict = postgresStore({ pool: database.connect({ options, max: 8 }), schema });
      for (let race = 0; race < 20; race += 1) {
        const requests = Array.from({ length: 8 }, () => claimOf(run, { create: {} }));
        const results = await Promise.all(requests.map((request) => strict.claim(request)));
        const taken = requests.filter((_, i) => results[i]?.status === 'claimed');
        expect(taken).toHaveLength(1);
        expect(await strict.commit(commitOf(taken[0] ?? claimOf(run)))).toEqual({
          status: 'committed',
          version: race + 1,
        });
      }
    },
  );

  it('undoes a commit of which one part fails', async () => {
    const { store, run } = openStore();
    await store.open(run, {}, HOUR);
    const request = claimOf(run);
    await claimed(store, request);
    await pool.query(
      `ALTER TABLE ${schema}.workflow_events ADD CONSTRAINT refuse CHECK (event <> 'REFUSED')`,
    );
    const refused = { from: 'empty', to: 'has_items', event: 'REFUSED' };
    await expect(store.commit(commitOf(request, { trail: refused }))).rejects.toThrow('refuse');
    expect((await store.read(run, HOUR))?.workflows.checkout).toMatchObject({
      snapshot: { state: 'empty', version: 0 },
      claim: { token: request.token },
    });
    expect(await store.commit(commitOf(request))).toEqual({ status: 'committed', version: 1 });
  });

  it('reads, and refuses a claim, without waiting for a lock on the run', async () => {
    const { store, run } = openStore();
    await store.open(run, {}, HOUR);
    await claimed(store, claimOf(run));
    const client = await pool.connect();
    await client.query('BEGIN');
    await client.query(`SELECT FROM ${schema}.workflow_runs WHERE run = $1 FOR UPDATE`, [run]);
    expect(await store.read(run, HOUR / 2)).toBeDefined();
    expect(await claimStatus(store, run)).toBe('busy');
    expect(await claimStatus(store, run, { workflow: 'other', states: [] })).toBe('state');
    await client.query('ROLLBACK');
    client.release();
  });

  it('does not write to read a run whose expiry moved a moment ago', async () => {
    const { store, run } = openStore();
    const expiry = async () => {
      const { rows } = await pool.query(
        `SELECT xmin, extract(epoch FROM expires_at - clock_timestamp())::float8 * 1000 AS left
           FROM ${schema}.workflow_runs WHERE run = $1`,
        [run],
      );
      return rows[0] as { xmin: string; left: number };
    };
    await store.open(run, {}, HOUR);
    const before = await expiry();
    await store.read(run, HOUR * 1.05);
    expect((await expiry()).xmin).toBe(before.xmin);
    await store.read(run, HOUR * 2);
    const after = await expiry();
    expect(after.xmin).not.toBe(before.xmin);
    expect(after.left).toBeGreaterThan(HOUR * 1.9);
  });

  it('removes two expired runs for each new one, and all of them in a purge', async () => {
    const { run } = openStore();
    const own = await separateStore('swept_');
    for (let index = 0; index < 5; index += 1) await own.open(`${run}-${index}`, {}, 1);
    await vi.waitFor(async () => expect(await own.read(`${run}-4`, 1)).toBeUndefined());
    await own.open(run, {}, HOUR);
    const { rows } = await pool.query(
      `SELECT count(*)::int AS runs FROM ${schema}.swept_workflow_runs`,
    );
    const left = (rows[0] as { runs: number }).runs - 1;
    expect(left).toBeLessThanOrEqual(3);
    expect(await own.purge()).toBe(left);
    expect(await own.read(run, HOUR)).toBeDefined();
  });

  it('keeps the events of a deleted run, apart from those of its successor', async () => {
    const { store, run } = openStore();
    await store.open(run, {}, HOUR);
    await step(store, run);
    await step(store, run);
    await store.delete(run);
    await store.open(run, {}, HOUR);
    await step(store, run);
    expect(await store.history({ run, workflow: 'checkout' })).toHaveLength(1);
    const { rows } = await pool.query(
      `SELECT version::int FROM ${schema}.workflow_events WHERE run = $1 ORDER BY workflow_id, seq`,
      [run],
    );
    expect(rows.map(({ version }) => version)).toEqual([1, 2, 1]);
  });

  it('is read with ordinary SQL', async () => {
    const { store, run } = openStore();
    await store.open(run, {}, HOUR);
    await step(store, run, {}, { snapshot: { state: 'payment', context: { total: 12.5 } } });
    const client = await pool.connect();
    await client.query(`SET search_path = ${schema}`);
    const [, documented = ''] = new Page('docs/operate/stores.md').blocks('sql');
    expect((await client.query(documented)).rows).toContainEqual({
      run,
      state: 'payment',
      total: '12.5',
    });
    client.release(true);
    const { rows } = await pool.query(
      `SELECT w.state, w.context ->> 'total' AS total, e.from_state, e.event, e.tool
         FROM ${schema}.workflows w JOIN ${schema}.workflow_events e ON e.workflow_id = w.id
        WHERE w.run = $1`,
      [run],
    );
    const event = { from_state: 'empty', event: 'ADD_ITEM', tool: 'cart.pay' };
    expect(rows).toEqual([{ state: 'payment', total: '12.5', ...event }]);
  });

  it('lists the runs in a state over several pages, among many in other states', async () => {
    const own = await separateStore('many_');
    const rows = `
      SELECT i::text AS run, NULL AS principal, now() + interval '1 hour' AS expires_at,
             CASE WHEN i % 20 = 0 THEN 'payment' ELSE 'done' END AS state,
             date_trunc('second', now()) - i % 7 * interval '1 minute' AS updated_at,
             NULL::boolean AS ended, NULL::timestamptz AS lease_until
        FROM generate_series(1, 20000) i`;
    await pool.query(`${insertRuns(`${schema}.many_`, 'checkout', rows)};
      ANALYZE ${schema}.many_workflow_runs, ${schema}.many_workflows`);
    const found: string[] = [];
    for await (const each of own.runs({ workflow: 'checkout', state: 'payment', forMs: 180_000 }))
      found.push(each);
    const ageOf = (each: string) => Number(each) % 7;
    const expected = Array.from({ length: 1000 }, (_, i) => String((i + 1) * 20)).filter(
      (each) => ageOf(each) >= 3,
    );
    expect(found.toSorted()).toEqual(expected.toSorted());
    expect(found.map(ageOf)).toEqual(expected.map(ageOf).sort((a, b) => b - a));
  });

  it('says at the first renewal that found no free connection that its pool is too small', async () => {
    const heard: string[] = [];
    const hear = ({ message }: Error) => void (message.includes('pool') && heard.push(message));
    process.on('warning', hear);
    onTestFinished(() => void process.off('warning', hear));
    const { run } = openStore();
    const small = database.connect({ max: 1 });
    const starving = postgresStore({ pool: small, schema });
    await starving.open(run, {}, HOUR);
    const request = claimOf(run);
    await claimed(starving, request);
    expect(await starving.renew(request, request.token, 0)).toBe(true);
    expect(heard).toEqual([]);
    for (let times = 0; times < 2; times += 1) {
      // A handler has the only connection, for longer than the lease.
      const handler = await small.connect();
      const renewed = starving.renew(request, request.token, 0);
      handler.release();
      expect(await renewed).toBe(true);
    }
    await new Promise(setImmediate);
    expect(heard).toEqual([expect.stringMatching(/max: 1.*a pool of its own/s)]);
  });

  it('keeps stores with different prefixes apart', async () => {
    const { run } = openStore();
    const [one, other] = [await separateStore('one_'), await separateStore('other_')];
    await one.open(run, {}, HOUR);
    expect(await other.read(run, HOUR)).toBeUndefined();
  });

  it('says at construction which option is wrong, and what is right', () => {
    expect(() => postgresStore({ pool: {} as PostgresPool })).toThrow(InterlockError);
    expect(() => postgresStore({ pool, schema: '' })).toThrow(/schema/);
    expect(() => postgresStore({ pool, tablePrefix: 'a-b' })).toThrow(/tablePrefix/);
    expect(() => postgresStore({ pool, tablePrefx: 'a' } as never)).toThrow(
      /did you mean "tablePrefix"/,
    );
  });

  it('says that migrate() has not made its tables yet', async () => {
    const { run } = openStore();
    const bare = postgresStore({ pool, schema, tablePrefix: 'bare_' });
    await expect(bare.read(run, HOUR)).rejects.toThrow(
      /call migrate\(\) of postgresStore\(\) first: function .* does not exist/,
    );
  });

  async function separateStore(tablePrefix: string): Promise<PostgresStore> {
    const own = postgresStore({ pool, schema, tablePrefix });
    await own.migrate();
    return own;
  }
});
