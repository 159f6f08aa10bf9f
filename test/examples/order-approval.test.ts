import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { orderApp } from '../../examples/order-approval/app.ts';
import type { User } from '../../examples/order-approval/auth.ts';
import { connect, type TestClient } from '../helpers/client.ts';
import { makePostgresSchema } from '../helpers/postgres-schema.ts';
import { ADDRESS, startProgram } from '../helpers/program.ts';
import { listen } from '../helpers/serve.ts';
import { freePort } from '../services/ports.ts';

const SERVER = fileURLToPath(new URL('../../examples/order-approval/server.ts', import.meta.url));

const USERS = new Map<string, User>([
  ['agent-token', { name: 'agent-7', role: 'agent' }],
  ['other-token', { name: 'agent-8', role: 'agent' }],
  ['manager-token', { name: 'mia', role: 'manager' }],
  ['carrier-token', { name: 'parcels', role: 'carrier' }],
]);

const database = await makePostgresSchema();
const pool = database.connect();
await pool.query(`CREATE SCHEMA ${database.schema}`);
const app = await orderApp({
  pool,
  schema: database.schema,
  users: USERS,
  stuckAfterMs: 30 * 60_000,
});
const { url, close } = await listen(app);
afterAll(async () => {
  await close();
  await database.drop();
});

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

async function enter(at = url, token = 'agent-token'): Promise<TestClient> {
  const client = await connect(at, bearer(token));
  onTestFinished(() => client.close());
  return client;
}

/** An agent that ordered so much that a manager has to say yes, and the order's number. */
async function orderMuch(at = url): Promise<{ client: TestClient; order: string }> {
  const client = await enter(at);
  const { text } = await client.call('reserve_inventory', { quantity: 20 });
  await client.call('authorize_payment');
  return { client, order: /Order (\S+) is/.exec(text)?.[1] ?? '' };
}

async function get(
  path: string,
  token = 'manager-token',
  at = url,
): Promise<{ status: number; body: unknown }> {
  const response = await fetch(new URL(path, at), { headers: bearer(token) });
  return { status: response.status, body: await response.json().catch(() => undefined) };
}

async function post(order: string, event: string, token = 'manager-token', at = url) {
  const response = await fetch(new URL(`/orders/${order}/events/${event}`, at), {
    method: 'POST',
    headers: { ...bearer(token), 'content-type': 'application/json' },
    body: JSON.stringify({ note: 'as agreed' }),
  });
  return { status: response.status, body: await response.json().catch(() => undefined) };
}

async function stateOf(client: TestClient): Promise<string> {
  return JSON.parse((await client.call('get_order_workflow')).text).current_state;
}

/** Makes it look as if the order had not moved for so long. */
async function age(order: string, interval: string): Promise<void> {
  const { schema } = database;
  await pool.query(
    `UPDATE ${schema}.workflows
        SET updated_at = updated_at - $1::interval,
            head = jsonb_set(head::jsonb, '{updatedAt}', to_jsonb(floor(
              extract(epoch FROM updated_at - $1::interval) * 1000)::bigint))::json
      WHERE run = (SELECT run FROM ${schema}.orders WHERE id = $2)`,
    [interval, order],
  );
}

describe('an order below the limit', () => {
  it('goes through without a manager, and each tool shows when it is its turn', async () => {
    const client = await enter();
    const shown = [await client.tools()];
    const steps = [
      ['reserve_inventory', { quantity: 1 }],
      ['authorize_payment'],
      ['capture_payment'],
      ['trigger_fulfillment'],
    ] as const;
    for (const [tool, args] of steps) {
      expect((await client.call(tool, args)).isError).toBe(false);
      shown.push(await client.tools());
    }
    expect(shown).toEqual([
      ['get_order_workflow', 'reserve_inventory', 'cancel_order'],
      ['get_order_workflow', 'authorize_payment', 'cancel_order'],
      ['get_order_workflow', 'capture_payment', 'cancel_order'],
      ['get_order_workflow', 'trigger_fulfillment'],
      ['get_order_workflow'],
    ]);
  });
});

describe('an order above the limit', () => {
  it('waits, and the list of its agent changes at the moment when the manager approves', async () => {
    const { client, order } = await orderMuch();
    await client.streaming;
    expect(await client.tools()).toEqual(['get_order_workflow', 'cancel_order']);
    expect((await client.call('capture_payment')).meta['mcp-interlock/refusal']).toMatchObject({
      reason: 'state',
      state: 'awaiting_manager_approval',
    });
    expect((await get('/approvals')).body).toContainEqual({ order, total: 2000 });

    const heard = client.log.length;
    expect(await post(order, 'approve_payment')).toEqual({
      status: 200,
      body: { sent: true, changed: true, state: 'payment_authorized' },
    });
    await vi.waitFor(() => expect(client.log.slice(heard)).toEqual(['list_changed']));
    expect(await client.tools()).toEqual(['get_order_workflow', 'capture_payment', 'cancel_order']);
    expect((await get('/approvals')).body).not.toContainEqual({ order, total: 2000 });
  });

  it('is approved once, and not after it was cancelled', async () => {
    const { order } = await orderMuch();
    const twice = await Promise.all([
      post(order, 'approve_payment'),
      post(order, 'approve_payment'),
    ]);
    expect(twice.map(({ status }) => status).sort()).toEqual([200, 409]);

    const second = await orderMuch();
    await second.client.call('cancel_order');
    expect(await post(second.order, 'approve_payment')).toEqual({
      status: 409,
      body: { sent: false, reason: 'unhandled' },
    });
    expect(await stateOf(second.client)).toBe('cancelled');
  });

  it('ends where the manager says no', async () => {
    const { client, order } = await orderMuch();
    await post(order, 'reject_payment');
    expect(await stateOf(client)).toBe('cancelled');
    expect(await client.tools()).toEqual(['get_order_workflow']);
  });

  it('is captured once, in one transaction with its move, by two calls at the same time', async () => {
    const { client, order } = await orderMuch();
    await post(order, 'approve_payment');
    const answers = await Promise.all([
      client.call('capture_payment'),
      client.call('capture_payment'),
    ]);
    expect(answers.map(({ isError }) => isError).sort()).toEqual([false, true]);
    const { rows } = await pool.query(
      `SELECT charge FROM ${database.schema}.orders WHERE id = $1`,
      [order],
    );
    expect(rows).toEqual([{ charge: expect.any(String) }]);
  });

  it('is followed to its end by people and webhooks, and its trail says who moved it', async () => {
    const { client, order } = await orderMuch();
    await post(order, 'approve_payment');
    await client.call('capture_payment');
    await client.call('trigger_fulfillment');
    await post(order, 'mark_shipped', 'carrier-token');
    await post(order, 'mark_delivered', 'carrier-token');
    await post(order, 'refund');
    const agent = JSON.stringify(['https://orders.example', 'agent-7']);
    const trail = (await get(`/orders/${order}/history`)).body as Record<string, unknown>[];
    expect(trail.map(({ event, to, actor }) => [event, to, actor])).toEqual([
      ['reserve_inventory', 'inventory_reserved', agent],
      ['ask_manager', 'awaiting_manager_approval', agent],
      ['approve_payment', 'payment_authorized', 'mia'],
      ['capture_payment', 'payment_captured', agent],
      ['trigger_fulfillment', 'fulfillment_triggered', agent],
      ['mark_shipped', 'shipped', 'parcels'],
      ['mark_delivered', 'delivered', 'parcels'],
      ['refund', 'refunded', 'mia'],
    ]);
    expect(trail[2]).toMatchObject({ version: 3, payload: { note: 'as agreed' } });
  });
});

describe('another user', () => {
  it('does not come in without a token, nor into the session of another agent', async () => {
    await expect(connect(url)).rejects.toThrow();
    expect((await get('/approvals', 'made-up')).status).toBe(401);
    const { client } = await orderMuch();
    const response = await fetch(url, {
      method: 'POST',
      headers: {
        ...bearer('other-token'),
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-session-id': String(client.transport.sessionId),
      },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: { name: 'cancel_order' },
      }),
    });
    expect(response.status).toBe(404);
    expect(await stateOf(client)).toBe('awaiting_manager_approval');
  });

  it('approves nothing, whatever the route: an agent cannot be its own manager', async () => {
    const { client, order } = await orderMuch();
    for (const token of ['agent-token', 'carrier-token']) {
      expect((await post(order, 'approve_payment', token)).status).toBe(403);
      expect((await get('/approvals', token)).status).toBe(403);
      expect((await get(`/orders/${order}/history`, token)).status).toBe(403);
    }
    expect((await post('nothing', 'approve_payment')).status).toBe(404);
    expect(await stateOf(client)).toBe('awaiting_manager_approval');
  });
});

describe('the health of the workflows', () => {
  it('is good while orders move, and bad where one stands still for too long', async () => {
    const { order } = await orderMuch();
    expect(await get('/health/workflows')).toEqual({ status: 200, body: { stuck: {} } });
    await age(order, '1 hour');
    expect(await get('/health/workflows')).toEqual({
      status: 503,
      body: { stuck: { awaiting_manager_approval: 1 } },
    });
    await post(order, 'reject_payment');
    expect((await get('/health/workflows')).status).toBe(200);
  });
});

describe('the server of the example', () => {
  it('keeps an order waiting while it is down, and has it approved by the next process', async () => {
    const env = {
      DATABASE_URL: database.url,
      SCHEMA: database.schema,
      PORT: String(await freePort()),
    };
    const start = async () => {
      const program = await startProgram(SERVER, { env, ready: ADDRESS });
      onTestFinished(program.kill9);
      return program;
    };
    const first = await start();
    const at = new URL(first.match);
    const { client, order } = await orderMuch(at);
    await first.kill9();
    await start();
    expect((await post(order, 'approve_payment', 'manager-token', at)).status).toBe(200);
    expect((await client.call('capture_payment')).text).toBe('The payment is captured.');
  }, 60_000);
});
