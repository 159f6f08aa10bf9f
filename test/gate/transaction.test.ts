import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { describe, expect, it, onTestFinished } from 'vitest';
import * as z from 'zod';
import { currentStep, StateMachineGate } from '../../src/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { makePostgresSchema } from '../helpers/postgres-schema.ts';
import { scene } from '../helpers/scene.ts';

function orderGate() {
  return new StateMachineGate({
    id: 'order',
    initial: 'open',
    states: { open: { on: { PAY: 'paid' } }, paid: { type: 'final' } },
  }).bindTool('pay', 'open', 'PAY');
}

/** A database with the charges that were made, and the store in it. */
async function database() {
  const { schema, connect, drop } = await makePostgresSchema();
  onTestFinished(drop);
  const pool = connect();
  const store = postgresStore({ pool, schema });
  await store.migrate();
  await pool.query(`CREATE TABLE ${schema}.charges (key text PRIMARY KEY, sum int)`);
  return {
    pool,
    store,
    charge: `INSERT INTO ${schema}.charges VALUES ($1, $2)`,
    async charges(): Promise<number> {
      const { rows } = await pool.query(`SELECT count(*)::int AS count FROM ${schema}.charges`);
      return rows[0].count;
    },
  };
}

/** A client of a tool that charges and moves in one transaction, which ends this way. */
async function order(
  end: 'COMMIT' | 'ROLLBACK',
  kept: 'in its database' | 'in memory',
  workflow: StateMachineGate<string, string> = orderGate(),
  meanwhile: () => Promise<unknown> = async () => {},
) {
  const { pool, store, charge, charges } = await database();
  const app = await scene({
    workflow,
    shape: { mode: 'stateless' },
    session: kept === 'in its database' ? { store } : {},
    makeServer: () => {
      const server = new McpServer({ name: 'order', version: '1.0.0' });
      server.registerTool('pay', { inputSchema: { sum: z.number() } }, async ({ sum }, extra) => {
        const client = await pool.connect();
        try {
          await client.query('BEGIN');
          const step = currentStep(extra);
          await client.query(charge, [step?.idempotencyKey, sum]);
          await meanwhile();
          await step?.commitIn(client);
          await client.query(end);
          if (end === 'ROLLBACK') throw new Error('the charge was declined');
          return { content: [{ type: 'text', text: 'charged' }] };
        } catch (error) {
          await client.query('ROLLBACK');
          throw error;
        } finally {
          client.release();
        }
      });
      const text = { content: [{ type: 'text' as const, text: 'looked' }] };
      server.registerTool('look', {}, async () => text);
      server.registerTool('track', {}, async () => text);
      return server;
    },
  });
  return { ...app, client: await app.client(), charges };
}

describe('commitIn(client)', () => {
  it("makes the handler's own writes and the move one transaction", async () => {
    const { client, runs, charges } = await order('COMMIT', 'in its database');
    expect((await client.calls('pay', { sum: 5 })).text).toBe('charged');
    expect(await charges()).toBe(1);
    expect(await runs.history(client.run)).toMatchObject([
      { version: 1, from: 'open', to: 'paid', tool: 'pay' },
    ]);
    await client.isRefused('pay', 'state', { sum: 5 });
    expect(await charges()).toBe(1);
  });

  it('moves nothing if the handler rolls back, and the run goes on at once', async () => {
    const { client, runs, charges } = await order('ROLLBACK', 'in its database');
    for (let call = 0; call < 2; call++) {
      const { isError, meta } = await client.raw.call('pay', { sum: 5 });
      expect(isError).toBe(true);
      expect(meta).not.toHaveProperty('mcp-interlock/refusal');
      expect(await charges()).toBe(0);
      const trail = await runs.history(client.run);
      expect(trail.map(({ outcome, to }) => ({ outcome, to }))).toEqual(
        Array.from({ length: call + 1 }, () => ({ outcome: 'failed', to: undefined })),
      );
    }
  });

  it.each(['COMMIT', 'ROLLBACK'] as const)(
    'keeps what was recorded while the handler worked, on %s',
    async (end) => {
      const rules = { pay: { after: ['look'], once: true }, audit: { after: 'track' } } as const;
      const workflow = StateMachineGate.fromOrder(rules, { id: 'order' });
      let track: (() => Promise<unknown>) | undefined;
      const app = await order(end, 'in its database', workflow, async () => track?.());
      track = () => app.client.calls('track');
      await app.client.calls('look');
      const { isError } = await app.client.raw.call('pay', { sum: 5 });
      const isPaid = end === 'COMMIT';
      expect([isError, await app.charges()]).toEqual([!isPaid, isPaid ? 1 : 0]);
      await app.run(app.client.run).isIn(isPaid ? '{look, pay, track}' : '{look, track}', 'idle');
      expect(app.errors).toEqual([]);
    },
  );

  it('throws on a store that has no transactions, so that the handler rolls back', async () => {
    const { client, charges } = await order('COMMIT', 'in memory');
    expect((await client.raw.call('pay', { sum: 5 })).text).toContain('no transactions');
    expect(await charges()).toBe(0);
  });
});
