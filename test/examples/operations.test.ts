import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { StateMachineGate } from 'mcp-interlock';
import { runsOf } from 'mcp-interlock/runs';
import { verifyTrail } from 'mcp-interlock/stores';
import { postgresStore } from 'mcp-interlock/stores/postgres';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { connect } from '../helpers/client.ts';
import { makePostgresSchema } from '../helpers/postgres-schema.ts';
import { ADDRESS, startProgram } from '../helpers/program.ts';
import { RawSession, send } from '../helpers/raw.ts';

const SERVER = fileURLToPath(new URL('../../examples/operations/server.ts', import.meta.url));

const database = await makePostgresSchema();
afterAll(() => database.drop());

async function start() {
  const program = await startProgram(SERVER, {
    env: {
      PORT: '0',
      DATABASE_URL: database.url,
      SCHEMA: database.schema,
      OPERATOR_TOKEN: 'operator',
    },
    ready: ADDRESS,
  });
  onTestFinished(() => program.kill9());
  return { ...program, url: new URL(program.match) };
}

const probe = async (at: URL, path: string, headers = {}) => {
  const { status, text } = await send(new URL(path, at), { method: 'GET', headers });
  return { status, body: text === '' ? undefined : JSON.parse(text) };
};

describe('the example of operations', () => {
  it('says how it is, shows a model its way, traces calls, and ends without a held run', async () => {
    const program = await start();
    const client = await connect(program.url);
    onTestFinished(() => client.close());
    expect(await client.tools()).toContain('checkout_status');
    await client.call('cart_add_item', { sku: 'tea' });
    const { text } = await client.call('checkout_status');
    expect(text).toContain('cart_checkout');
    expect(await probe(program.url, '/live')).toMatchObject({ status: 200 });
    const ready = await probe(program.url, '/ready');
    expect(ready.status).toBe(200);
    expect(JSON.stringify(ready.body)).not.toContain(String(client.transport.sessionId));
    await expect.poll(() => program.output()).toContain('tools/call cart_add_item');
    program.child.kill('SIGTERM');
    const [code] = await once(program.child, 'exit');
    expect(code, program.output()).toBe(0);
    expect(program.output()).toContain('mcp_interlock.');
  });

  it('finds a run whose process was killed, and resolves it', async () => {
    const first = await start();
    const session = await RawSession.begin(first.url);
    await session.call('cart_add_item', { sku: 'tea' });
    const checkout = new StateMachineGate({
      id: 'checkout',
      initial: 'empty',
      states: {
        empty: { on: { ADD_ITEM: 'has_items' } },
        has_items: { on: { CHECKOUT: 'payment' } },
        payment: {},
      },
    }).bindTool('cart_checkout', ['has_items'], 'CHECKOUT');
    const pool = database.connect();
    const store = postgresStore({ pool, schema: database.schema, chainTrail: true });
    // What a process leaves that is killed in the middle of a step.
    const claimed = await store.claim({
      run: session.id,
      workflow: 'checkout',
      token: randomUUID(),
      step: { tool: 'cart_checkout', digest: 'd', uncertain: 'hold' },
      entry: { tool: 'cart_checkout', digest: 'd', requestId: 7 },
      states: undefined,
      initial: { state: 'empty', updatedAt: 0 },
      leaseMs: 1,
      ttlMs: 60_000,
    });
    expect(claimed.status).toBe('claimed');
    await first.kill9();
    const second = await start();
    const operator = { authorization: 'Bearer operator' };
    await expect
      .poll(async () => JSON.stringify((await probe(second.url, '/ready', operator)).body))
      .toContain(session.id);
    const runs = runsOf(checkout, { store });
    const { runs: held } = await runs.held();
    expect(held.map(({ run }) => run)).toEqual([session.id]);
    const note = 'the cart has an order number';
    await runs.resolve(session.id, 'succeeded', { actor: 'ann', note });
    const trail = await runs.history(session.id);
    expect(trail.at(-1)).toMatchObject({ to: 'payment', kind: 'resolved', actor: 'ann', note });
    expect(verifyTrail(trail, { from: { run: session.id, workflow: 'checkout' } })).toEqual([]);
    expect((await runs.held()).runs).toEqual([]);
  });
});
