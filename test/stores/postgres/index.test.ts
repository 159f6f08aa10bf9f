import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { claimed, claimOf, commitOf, HOUR } from '../../../packages/testing/src/fixtures.ts';
import { postgresStore } from '../../../src/stores/postgres.ts';
import type { RunsPage } from '../../../src/stores/store.ts';
import { insertRuns, makePostgresSchema } from '../../helpers/postgres-schema.ts';

const database = await makePostgresSchema();
afterAll(() => database.drop());
const { schema } = database;
/** One connection that reports the plan of each statement in the functions. */
const pool = database.connect({ max: 1, idleTimeoutMillis: 0 });
const store = postgresStore({ pool, schema });

const RUNS = 100_000;
const UNDER_WAY = 500;
const HELD = 50;
const workflow = 'checkout';

beforeAll(async () => {
  await store.migrate();
  // Every two-hundredth run is under way; the others have ended.
  const rows = `
    SELECT 'run-' || i AS run, 'principal-' || i % 1000 AS principal,
           -- The session of a held run is over.
           now() + CASE WHEN i % 2000 = 0 THEN -interval '1 hour' ELSE interval '1 day' END
             AS expires_at,
           CASE WHEN i % 200 = 0 THEN 'payment' ELSE 'done' END AS state,
           date_trunc('milliseconds', now()) - i * interval '1 second' AS updated_at, i % 200 <> 0 AS ended,
           CASE WHEN i % 2000 = 0 THEN date_trunc('second', now()) - interval '1 minute' END AS lease_until
      FROM generate_series(1, ${RUNS}) i`;
  await pool.query(`${insertRuns(`${schema}.`, workflow, rows)};
    ANALYZE ${schema}.workflow_runs, ${schema}.workflows`);
});

describe('the listings of postgresStore()', { timeout: 60_000 }, () => {
  it.each([
    ['held', () => store.held({ workflow, limit: 100 }), 2 * HELD],
    ['stuck', () => store.stuck({ workflow, forMs: HOUR, limit: 100 }), 200],
    [
      'stuck in a state',
      () => store.stuck({ workflow, states: ['x'], forMs: 0, limit: 9 }),
      UNDER_WAY,
    ],
    ['count', () => store.count({ workflow, forMs: 0 }), 2 * (UNDER_WAY + HELD)],
    ['list', () => store.list({ principal: 'principal-7', limit: 1000 }), 200],
  ] as const)('read a few rows by an index where 100,000 are there: %s', async (_, ask, rows) => {
    await pool.query("LOAD 'auto_explain'");
    await pool.query(`
      SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;
      SET auto_explain.log_analyze = on; SET auto_explain.log_timing = off;
      SET client_min_messages = log`);
    const plans: string[] = [];
    const listen = (notice: { readonly message?: string | undefined }) =>
      void plans.push(notice.message ?? '');
    const client = await pool.connect();
    client.on('notice', listen);
    client.release();
    // Often enough that the server chooses a generic plan.
    for (let times = 0; times < 8; times += 1) await ask();
    client.off('notice', listen);

    const looked = plans.filter((plan) => /Scan.* on workflow/.test(plan));
    expect(looked.length).toBeGreaterThan(0);
    const text = looked.join('\n');
    expect(text).not.toMatch(/Seq Scan on workflow/);
    const read = [...text.matchAll(/Scan.* on workflow.*actual rows=(\d+) loops=(\d+)/g)].map(
      ([, count, loops]) => Number(count) * Number(loops),
    );
    expect(Math.max(...read)).toBeLessThanOrEqual(rows);
  });

  it('give each run once over pages, the oldest first', async () => {
    const seen: string[] = [];
    let page: RunsPage = { runs: [] };
    do {
      const after = page.next;
      page = await store.stuck({ workflow, forMs: 0, limit: 70, after });
      seen.push(...page.runs.map(({ run }) => run));
    } while (page.next !== undefined);
    const all = Array.from({ length: UNDER_WAY }, (_, i) => `run-${RUNS - i * 200}`);
    expect(seen).toEqual(all);
    expect((await store.held({ workflow, limit: 1000 })).runs).toHaveLength(HELD);
    expect(await store.count({ workflow, forMs: 0 })).toMatchObject({
      states: [{ state: 'payment', runs: UNDER_WAY, stuck: UNDER_WAY }],
      held: HELD,
      running: 0,
    });
  });

  it('go on behind a run whose lease ended within a millisecond', async () => {
    const names = ['fraction-1', 'fraction-2', 'fraction-3'];
    for (const run of names)
      await claimed(store, claimOf(run, { create: {}, workflow: 'fraction', leaseMs: 0.5 }));
    const seen: string[] = [];
    let after: string | undefined;
    for (let pages = 0; pages < names.length; pages += 1) {
      const page = await store.held({ workflow: 'fraction', limit: 1, after });
      seen.push(...page.runs.map(({ run }) => run));
      after = page.next;
    }
    expect(seen).toEqual(names);
  });

  it('leave out expired runs, even before a purge', async () => {
    const own = claimOf('expiring', {
      create: { principal: 'gone' },
      workflow: 'short',
      step: { uncertain: 'retry' },
      ttlMs: 0,
      leaseMs: 0,
    });
    await claimed(store, own);
    expect((await store.held({ workflow: 'short', limit: 9 })).runs).toEqual([]);
    expect((await store.stuck({ workflow: 'short', forMs: 0, limit: 9 })).runs).toEqual([]);
    expect(await store.count({ workflow: 'short', forMs: 0 })).toMatchObject({
      states: [],
      held: 0,
    });
    expect((await store.list({ principal: 'gone', limit: 9 })).runs).toEqual([]);
  });

  it('count the same with few and with many expired runs in the table', async () => {
    const own = database.connect();
    const prefix = 'expired_';
    const counted = postgresStore({ pool: own, schema, tablePrefix: prefix });
    await counted.migrate();
    const rows = `
      SELECT 'run-' || i AS run, NULL AS principal,
             now() - interval '1 minute' + (i % 10) * interval '1 day' AS expires_at, 'payment' AS state,
             now() - interval '1 hour' AS updated_at, i % 2 = 0 AS ended,
             NULL::timestamptz AS lease_until
        FROM generate_series(1, 20000) i`;
    await own.query(insertRuns(`${schema}.${prefix}`, workflow, rows));
    const expire = (share: number) =>
      own.query(`UPDATE ${schema}.${prefix}workflow_runs SET expires_at = now() - interval '1 minute'
                  WHERE substr(run, 5)::int % 20 < ${share}`);
    const underWay = async () => {
      const { states } = await counted.count({ workflow, forMs: 0 });
      return states.map(({ runs }) => runs);
    };
    expect(await counted.purge()).toBe(2000);
    expect(await underWay()).toEqual([10_000]);
    // A minute ago: the process only estimates the database's time.
    await own.query(
      `UPDATE ${schema}.${prefix}workflow_runs SET expires_at = now() - interval '1 minute'
        WHERE run = 'run-1'`,
    );
    expect(await underWay()).toEqual([9_999]);
    await expire(4);
    expect(await underWay()).toEqual([8_000]);
  });

  it('find a held step of a workflow that has ended', async () => {
    const ending = claimOf('ended', { create: {}, workflow: 'again' });
    await claimed(store, ending);
    await store.commit(commitOf(ending, { ended: true }));
    await claimed(store, claimOf('ended', { workflow: 'again', leaseMs: 0 }));
    const { runs } = await store.held({ workflow: 'again', limit: 9 });
    expect(runs).toMatchObject([{ run: 'ended', ended: true, claim: { live: false } }]);
  });
});
