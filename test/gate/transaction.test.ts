import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import {
  currentStep,
  fsmGate,
  memoryStore,
  StateMachineGate,
  sessionStore,
} from '../../src/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { connect } from '../helpers/client.ts';
import { startUpstream } from '../helpers/upstream.ts';
import { sharedPostgres } from '../services/shared.ts';

let pool: pg.Pool;
let store: ReturnType<typeof postgresStore>;
const open: { close(): Promise<void> }[] = [];

beforeAll(async () => {
  pool = new pg.Pool({ connectionString: await sharedPostgres() });
  store = postgresStore({ pool, schema: 'transaction_test' });
  await pool.query('CREATE SCHEMA IF NOT EXISTS transaction_test');
  await store.migrate();
  await pool.query(
    'CREATE TABLE IF NOT EXISTS transaction_test.charges (key text PRIMARY KEY, sum int)',
  );
});

afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each.close();
});

afterAll(async () => {
  await pool.query('DROP SCHEMA transaction_test CASCADE');
  await pool.end();
});

function gate() {
  return new StateMachineGate({
    id: 'order',
    initial: 'open',
    states: { open: { on: { PAY: 'paid' } }, paid: { type: 'final' } },
  }).bindTool('pay', 'open', 'PAY');
}

/** A tool that charges and moves in one transaction; what happens at its end is up to the test. */
async function start(
  end: 'COMMIT' | 'ROLLBACK',
  kept: Parameters<typeof sessionStore>[0] = { store },
) {
  const workflow = gate();
  const upstream = await startUpstream({
    shape: { mode: 'stateless' },
    middlewares: [
      sessionStore({ ...kept, onError: () => {} }),
      fsmGate(workflow, { onError: () => {} }),
    ],
    makeServer: () => {
      const server = new McpServer({ name: 'order', version: '1.0.0' });
      server.registerTool('pay', { inputSchema: { sum: z.number() } }, async ({ sum }) => {
        const client = await pool.connect();
        try {
          await client.query('BEGIN');
          const step = currentStep();
          await client.query('INSERT INTO transaction_test.charges VALUES ($1, $2)', [
            step?.idempotencyKey,
            sum,
          ]);
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
      return server;
    },
  });
  open.push(upstream);
  const client = await connect(upstream.url);
  open.push(client);
  return { client, run: String(client.transport.sessionId) };
}

async function charges(): Promise<number> {
  const { rows } = await pool.query('SELECT count(*)::int AS count FROM transaction_test.charges');
  return rows[0].count;
}

describe('commitIn(client)', () => {
  it("makes the handler's own writes and the move one transaction, which counts as one step", async () => {
    const before = await charges();
    const { client, run } = await start('COMMIT');
    expect(await client.call('pay', { sum: 5 })).toMatchObject({ isError: false, text: 'charged' });
    expect(await charges()).toBe(before + 1);
    expect(await store.history({ run, workflow: 'order' })).toMatchObject([
      { version: 1, from: 'open', to: 'paid', tool: 'pay' },
    ]);
    expect((await client.call('pay', { sum: 5 })).isError).toBe(true);
    expect(await charges()).toBe(before + 1);
  });

  it('moves nothing where the handler rolls back, and the run goes on at once', async () => {
    const before = await charges();
    const { client, run } = await start('ROLLBACK');
    expect((await client.call('pay', { sum: 5 })).isError).toBe(true);
    expect(await charges()).toBe(before);
    expect(await store.history({ run, workflow: 'order' })).toEqual([]);
    expect((await client.call('pay', { sum: 5 })).meta).not.toHaveProperty('mcp-interlock/refusal');
  });

  it('throws on a store that has no transactions, so that the handler rolls back', async () => {
    const before = await charges();
    const { client } = await start('COMMIT', { store: memoryStore() });
    expect((await client.call('pay', { sum: 5 })).text).toContain('no transactions');
    expect(await charges()).toBe(before);
  });
});
