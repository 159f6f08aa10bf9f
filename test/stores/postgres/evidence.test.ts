import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import {
  attemptOf,
  claimed,
  claimOf,
  claimStatus,
  commitOf,
  HOUR,
  LONG,
  step,
} from '../../../packages/testing/src/fixtures.ts';
import { runsOf } from '../../../src/runs/index.ts';
import { postgresStore } from '../../../src/stores/postgres.ts';
import type { StepDescription } from '../../../src/stores/store.ts';
import { verifyTrail } from '../../../src/stores/trail.ts';
import { checkoutGate } from '../../helpers/checkout.ts';
import { insertRuns, makePostgresSchema, moveExpiry } from '../../helpers/postgres-schema.ts';

const database = await makePostgresSchema();
afterAll(() => database.drop());
const { schema } = database;
const pool = database.connect();
const store = postgresStore({ pool, schema, chainTrail: true });
await store.migrate();

const DAY = 24 * HOUR;
const RETRY: Partial<StepDescription> = { uncertain: 'retry' };

/** A run whose `hold` step has an unknown outcome, and whose session is over for want of use. */
async function heldPastItsLife(principal = 'alice') {
  const run = randomUUID();
  const entry = { tool: 'cart.pay', actor: principal };
  const held = claimOf(run, { create: { principal }, leaseMs: 0, ttlMs: 0, entry });
  await claimed(store, held);
  return { run, held };
}

/** How long until the session of the run is over, in milliseconds, and which write said so. */
async function lifeOf(run: string) {
  const { rows } = await pool.query(
    `SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 * 1000 AS left,
            xmin, ctid::text AS place
       FROM ${schema}.workflow_runs WHERE run = $1`,
    [run],
  );
  return rows[0] as { left: number; xmin: string; place: string };
}

/** Lets time pass for one run. */
async function pass(run: string, ms: number): Promise<void> {
  await pool.query(moveExpiry(`${schema}.`), [run, -ms]);
}

async function eventsOf(run: string): Promise<number> {
  const { rowCount } = await pool.query(`SELECT FROM ${schema}.workflow_events WHERE run = $1`, [
    run,
  ]);
  return rowCount ?? 0;
}

async function expectNoTraceOf(name: string): Promise<void> {
  for (const table of ['workflow_runs', 'workflows', 'workflow_events']) {
    const { rows } = await pool.query(
      `SELECT t::text FROM ${schema}.${table} t WHERE t::text LIKE '%' || $1 || '%'`,
      [name],
    );
    expect(rows, table).toEqual([]);
  }
}

describe('a held run in PostgreSQL', { timeout: 30_000 }, () => {
  it('stays through purges and the sweeps of new runs, which do not write it', async () => {
    const { run, held } = await heldPastItsLife();
    const before = await lifeOf(run);
    await store.purge();
    await store.purge({ principal: 'alice' });
    for (let index = 0; index < 3; index += 1) await store.open(randomUUID(), {}, HOUR);
    expect(await lifeOf(run)).toMatchObject({ xmin: before.xmin, place: before.place });
    await pass(run, 2 * DAY);
    await store.purge();
    expect((await store.read(run, HOUR))?.sessionEnded).toBe(true);
    expect(await store.commit(commitOf(held))).toEqual({ status: 'committed', version: 1 });
  });

  it('can be read for 24 hours once it is settled, and is gone then', async () => {
    const { run, held } = await heldPastItsLife();
    await store.release(held, held.token, { entry: attemptOf(held) });
    await pass(run, DAY - LONG);
    expect((await store.read(run, HOUR))?.sessionEnded).toBe(true);
    expect(await claimStatus(store, run)).toBe('unknown');
    expect(await store.open(run, {}, HOUR)).toEqual({ status: 'taken' });
    await pass(run, LONG);
    expect(await store.read(run, HOUR)).toBeUndefined();
    expect(await store.open(run, {}, HOUR)).toEqual({ status: 'opened' });
  });

  it('is not written by claims, reads and lists of the step beside its own claim', async () => {
    const { run } = await heldPastItsLife();
    const before = await lifeOf(run);
    await store.read(run, HOUR);
    await claimStatus(store, run);
    await store.held({ workflow: 'checkout', limit: 1_000 });
    expect(await lifeOf(run)).toMatchObject({ xmin: before.xmin, place: before.place });
  });

  it('is never removed by an operation that waited for its claim', async () => {
    for (const remove of ['delete', 'end', 'open', 'purge'] as const) {
      const run = randomUUID();
      // Expired and not needed, until the claim that holds its lock is committed.
      await step(store, run, { create: {}, leaseMs: 0, step: RETRY }, { ttlMs: 0 });
      const client = await pool.connect();
      await client.query('BEGIN');
      const inTransaction = postgresStore({
        pool: { query: client.query.bind(client), connect: () => pool.connect() },
        schema,
      });
      const held = claimOf(run, { create: {}, leaseMs: 0, ttlMs: 0 });
      await claimed(inTransaction, held);
      const removed = remove === 'open' ? store.open(run, {}, HOUR) : store[remove](run as never);
      await new Promise((resolve) => setTimeout(resolve, 50));
      await client.query('COMMIT');
      client.release();
      await removed;
      expect((await store.read(run, HOUR))?.workflows.checkout?.claim?.token, remove).toBe(
        held.token,
      );
    }
  });
});

describe('the key of a step that may be repeated, in PostgreSQL', () => {
  it('is kept as long as the longest claim said, and no read writes meanwhile', async () => {
    const run = randomUUID();
    const dead = claimOf(run, { create: {}, leaseMs: 0, keyMs: 30 * DAY, step: RETRY });
    await claimed(store, dead);
    const before = await lifeOf(run);
    expect(before.left).toBeGreaterThan(30 * DAY - LONG);
    await store.read(run, HOUR);
    await claimStatus(store, run, { states: [] });
    expect(await lifeOf(run)).toMatchObject({ xmin: before.xmin, place: before.place });
    const again = claimOf(run, { step: RETRY });
    await claimed(store, again);
    await store.commit(commitOf(again));
    expect((await lifeOf(run)).left).toBeLessThan(2 * HOUR);
  });
});

describe('a purge of a person in PostgreSQL', { timeout: 30_000 }, () => {
  it('removes expired runs and the trails of runs that are gone, and no others', async () => {
    const principal = `alice ${randomUUID()}`;
    const create = { principal };
    const runs = Array.from({ length: 6 }, () => randomUUID());
    const [expired, deleted, ended, again, live, other] = runs as [string, ...string[]] as string[];
    if (!expired || !deleted || !ended || !again || !live || !other) throw new Error('too few');
    await step(store, expired, { create, leaseMs: 0 }, { ttlMs: 0 });
    for (const run of [deleted, ended, again, live]) await step(store, run, { create });
    await step(store, other, { create: { principal: `${principal}!` } });
    for (const run of [deleted, again, other]) await store.delete(run);
    await store.end(ended);
    await step(store, again, { create: { principal: 'bob' } });

    await store.purge();
    for (const run of runs) expect(await eventsOf(run), run).toBeGreaterThan(0);
    await store.purge({ principal });
    for (const run of [expired, deleted, ended]) expect(await eventsOf(run)).toBe(0);
    for (const run of [again, live, other]) expect(await eventsOf(run)).toBe(1);
    const from = { run: live, workflow: 'checkout' };
    expect(verifyTrail(await store.history(from), { from })).toEqual([]);
    expect(await store.history({ run: again, workflow: 'checkout' })).toHaveLength(1);
  });

  it('is what erase() does, so that nothing names the person any more', async () => {
    const principal = `alice ${randomUUID()}`;
    const create = { principal };
    const entry = { actor: principal };
    const [expired, open, pinned] = [randomUUID(), randomUUID(), randomUUID()];
    await step(store, expired, { create, leaseMs: 0, entry }, { ttlMs: 0 });
    await step(store, open, { create, entry });
    await claimed(store, claimOf(pinned, { create, leaseMs: 0, ttlMs: 0, entry }));
    const runs = runsOf(checkoutGate(), { store });
    expect(await runs.erase(principal)).toMatchObject({ deleted: 1, pinned: [pinned] });
    expect(await runs.erase(principal, { held: 'anonymize' })).toMatchObject({
      anonymized: [{ freed: pinned }],
      pinned: [],
    });
    await expectNoTraceOf(principal);
  });

  it('removes more than one batch, and counts the runs', async () => {
    const principal = randomUUID();
    const rows = `
      SELECT '${principal}' || i AS run, '${principal}' AS principal, now() AS expires_at,
             'empty' AS state, now() AS updated_at, false AS ended, NULL::timestamptz AS lease_until
        FROM generate_series(1, 1200) i`;
    await pool.query(insertRuns(`${schema}.`, 'checkout', rows));
    await pool.query(
      `INSERT INTO ${schema}.workflow_events (
         workflow_id, seq, run, principal, workflow_type, version, attempt, from_state,
         occurred_at, entry
       )
       SELECT -i, 1, $1, $1, 'checkout', 1, 1, 'empty', now(), '{}'
         FROM generate_series(1, 1200) i`,
      [principal],
    );
    expect(await store.purge({ principal })).toBe(1200);
    expect(await store.purge({ principal })).toBe(0);
    expect(await eventsOf(principal)).toBe(0);
  });

  it('leaves no name with a held run that was anonymized', async () => {
    const principal = `alice ${randomUUID()}`;
    const { run, held } = await heldPastItsLife(principal);
    const beside = claimOf(run, { workflow: 'other', create: { principal } });
    await claimed(store, beside);
    await store.commit(
      commitOf(beside, { trail: { ...commitOf(beside).trail, actor: principal } }),
    );
    const unnamed = await store.anonymize(run);
    if (unnamed === undefined) throw new Error('expected another key');
    await store.purge({ principal });
    await expectNoTraceOf(principal);
    const from = { run: unnamed, workflow: 'checkout' };
    await store.commit({ ...commitOf(held), ...from });
    const trail = await store.history(from);
    expect(trail.map(({ seq }) => seq)).toEqual([1]);
    expect(verifyTrail(trail, { from })).toEqual([]);
  });
});
