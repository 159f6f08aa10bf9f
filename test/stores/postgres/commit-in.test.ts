import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import {
  claimed,
  claimOf,
  claimStatus,
  commitOf,
  HOUR,
  repeated,
} from '../../../packages/testing/src/fixtures.ts';
import { postgresStore } from '../../../src/stores/postgres.ts';
import { makePostgresSchema } from '../../helpers/postgres-schema.ts';

const database = await makePostgresSchema();
afterAll(() => database.drop());
const pool = database.connect();
const store = postgresStore({ pool, schema: database.schema });
await store.migrate();
await pool.query(`CREATE TABLE ${database.schema}.orders (id text PRIMARY KEY)`);

/** A claimed step, whose handler has written an order in an open transaction. */
async function orderWritten() {
  const run = randomUUID();
  const request = claimOf(run);
  await store.open(run, {}, HOUR);
  await claimed(store, request);
  const client = await pool.connect();
  onTestFinished(() => client.release(true));
  await client.query('BEGIN');
  await client.query(`INSERT INTO ${database.schema}.orders VALUES ($1)`, [run]);

  async function seenByOthers() {
    const { rowCount } = await pool.query(`SELECT FROM ${database.schema}.orders WHERE id = $1`, [
      run,
    ]);
    const workflow = (await store.read(run, HOUR))?.workflows.checkout;
    const events = (await store.history(request)).length;
    return {
      orders: rowCount,
      state: workflow?.snapshot.state,
      claimed: workflow?.claim !== undefined,
      events,
    };
  }
  return { run, request, client, seenByOthers };
}

describe('commitIn()', { timeout: 60_000 }, () => {
  it('makes the writes of a handler and the move visible together', async () => {
    const { request, client, seenByOthers } = await orderWritten();
    expect(await store.commitIn(client, commitOf(request))).toEqual({
      status: 'committed',
      version: 1,
    });
    expect(await seenByOthers()).toEqual({ orders: 0, state: 'empty', claimed: true, events: 0 });
    await client.query('COMMIT');
    expect(await seenByOthers()).toEqual({
      orders: 1,
      state: 'has_items',
      claimed: false,
      events: 1,
    });
  });

  it('takes back the move with the writes', async () => {
    const { request, client, seenByOthers } = await orderWritten();
    await store.commitIn(client, commitOf(request));
    await client.query('ROLLBACK');
    expect(await seenByOthers()).toEqual({ orders: 0, state: 'empty', claimed: true, events: 0 });
    expect(await store.commit(commitOf(request))).toEqual({ status: 'committed', version: 1 });
  });

  it('leaves what the step would use until the transaction ends, and its earlier try', async () => {
    const { run, request, client } = await orderWritten();
    await store.release(request, request.token);
    const step = { uncertain: 'retry', use: { amount: 1 } } as const;
    await claimed(store, claimOf(run, { step, leaseMs: 0 }));
    const again = claimOf(run, { step: { ...step, use: { amount: 2 } } });
    const told = [expect.objectContaining({ use: { amount: 1 } })];
    expect((await claimed(store, again)).unsettled).toEqual(told);

    await store.commitIn(client, commitOf(again));
    const claim = (await store.read(run, HOUR))?.workflows.checkout?.claim;
    expect(claim?.use).toEqual({ amount: 2 });
    await client.query('ROLLBACK; BEGIN');
    expect((await claimed(store, again)).unsettled).toEqual(told);
    await store.commitIn(client, commitOf(again));
    await client.query('COMMIT');
    expect(await claimed(store, claimOf(run))).not.toHaveProperty('unsettled');
  });

  it('makes the later commit of the middleware a repeated one', async () => {
    const { request, client, seenByOthers } = await orderWritten();
    await store.commitIn(client, commitOf(request, { snapshot: { state: 'payment' } }));
    await client.query('COMMIT');
    expect(await store.commit(commitOf(request))).toEqual(repeated(1));
    expect(await seenByOthers()).toMatchObject({ state: 'payment', events: 1 });
  });

  it('says that the claim was lost, so that nothing else is committed either', async () => {
    const { request, client, seenByOthers } = await orderWritten();
    await store.release(request, request.token);
    expect(await store.commitIn(client, commitOf(request))).toEqual({ status: 'lost' });
    await client.query('ROLLBACK');
    expect(await seenByOthers()).toEqual({ orders: 0, state: 'empty', claimed: false, events: 0 });
  });

  it('says that the workflow has moved since, and leaves the claim', async () => {
    const { run, request, client, seenByOthers } = await orderWritten();
    const { workflow, initial, ttlMs } = request;
    const { snapshot, trail } = commitOf(request);
    const record = { run, workflow, token: randomUUID(), initial, from: 0, snapshot, trail, ttlMs };
    await store.record(record);
    expect(await store.commitIn(client, commitOf(request, { from: 0 }))).toMatchObject({
      status: 'moved',
      snapshot: { version: 1 },
    });
    await client.query('ROLLBACK');
    expect(await seenByOthers()).toMatchObject({ orders: 0, claimed: true, events: 1 });
    expect(await store.commit(commitOf(request, { from: 1 }))).toMatchObject({ version: 2 });
  });

  it('says that the run is gone', async () => {
    const { run, request, client } = await orderWritten();
    await store.release(request, request.token);
    await store.delete(run);
    expect(await store.commitIn(client, commitOf(request))).toEqual({ status: 'unknown' });
  });

  it('meanwhile refuses other claims, and lets a renewal of the lease wait', async () => {
    const { run, request, client } = await orderWritten();
    await store.commitIn(client, commitOf(request));
    expect(await claimStatus(store, run)).toBe('busy');
    const renewed = store.renew(request, request.token, HOUR);
    await client.query('COMMIT');
    expect(await renewed).toBe(false);
  });

  it('holds only its own workflow: other gates of the run and lookups go on meanwhile', async () => {
    const { run, request, client } = await orderWritten();
    await store.commitIn(client, commitOf(request));
    // As in another process, which knows nothing of the run.
    const other = postgresStore({ pool: database.connect(), schema: database.schema });
    const second = claimOf(run, { workflow: 'approval', ttlMs: 3 * HOUR });
    expect(await claimStatus(other, run, second)).toBe('claimed');
    expect(await other.renew(second, second.token, HOUR)).toBe(true);
    expect(await other.commit(commitOf(second))).toMatchObject({ status: 'committed' });
    // The use is written down, and waits for no workflow.
    expect((await other.read(run, 9 * HOUR))?.workflows.approval?.snapshot.version).toBe(1);
    const lookup = { ...commitOf(second), token: randomUUID(), initial: second.initial, from: 1 };
    expect(await other.record(lookup)).toMatchObject({ status: 'recorded' });
    await client.query('COMMIT');
    expect((await other.read(run, HOUR))?.workflows.checkout?.snapshot.version).toBe(1);
  });

  it('rejects in a stricter transaction after a renewal, and changes nothing', async () => {
    const { request, client } = await orderWritten();
    await client.query('ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
    await store.renew(request, request.token, HOUR);
    await expect(store.commitIn(client, commitOf(request))).rejects.toMatchObject({
      code: '40001',
    });
    await client.query('ROLLBACK');
    expect(await store.commit(commitOf(request))).toEqual({ status: 'committed', version: 1 });
  });

  it('commits two gates of one call in one transaction', async () => {
    const { run, request, client } = await orderWritten();
    const second = claimOf(run, { workflow: 'approval' });
    await claimed(store, second);
    await store.commitIn(client, commitOf(request));
    await store.commitIn(client, commitOf(second));
    await client.query('COMMIT');
    const workflows = (await store.read(run, HOUR))?.workflows;
    expect(workflows?.checkout?.snapshot.version).toBe(1);
    expect(workflows?.approval?.snapshot.version).toBe(1);
  });
});
