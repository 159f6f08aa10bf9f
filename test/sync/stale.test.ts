import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  fsmGate,
  type StateMachineGate,
  type SyncPolicy,
  sessionStore,
  stateSync,
} from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { connect, type TestClient } from '../helpers/client.ts';
import { startUpstream } from '../helpers/upstream.ts';

const STALE = 'orders.* — caused by';

/** A cart whose `cart.view` and `cart.total` say of themselves that they change nothing. */
function annotatedServer(): McpServer {
  const server = new McpServer({ name: 'cart', version: '1.0.0' });
  const readOnlyHint = true;
  for (const name of ['cart.add_item', 'cart.checkout', 'cart.pay']) {
    server.registerTool(name, { annotations: { destructiveHint: true } }, () => done(name));
  }
  for (const name of ['cart.view', 'cart.total'])
    server.registerTool(name, { annotations: { readOnlyHint } }, () => done(name));
  server.registerTool('cart.log', { annotations: { readOnlyHint: false } }, () => done('cart.log'));
  return server;
}

const done = (name: string) => ({ content: [{ type: 'text' as const, text: `${name} done` }] });

type Gate = StateMachineGate<string, string>;

async function start(policies: readonly SyncPolicy[], gate: Gate = checkoutGate()) {
  const told: string[] = [];
  const upstream = await startUpstream({
    shape: { mode: 'stateless', answers: 'json' },
    makeServer: annotatedServer,
    middlewares: [
      sessionStore(),
      fsmGate(gate),
      stateSync({
        policies,
        onInvalidation: ({ causedBy }) => void told.push(causedBy),
        notificationSink: ({ params }) => void told.push(params.uri),
      }),
    ],
  });
  onTestFinished(() => upstream.close());
  const client = await connect(upstream.url);
  onTestFinished(() => client.close());
  return { client, told };
}

const staleAfter = async (client: TestClient, tool: string): Promise<string | undefined> =>
  (await client.call(tool)).texts[1];

describe('a tool that is annotated readOnlyHint', () => {
  it('makes nothing stale where only a glob matched it', async () => {
    const { client, told } = await start([{ match: 'cart.*', invalidates: ['orders.*'] }]);
    await client.tools();
    expect(await staleAfter(client, 'cart.view')).toBeUndefined();
    expect(await staleAfter(client, 'cart.total')).toBeUndefined();
    expect(told).toEqual([]);
    expect(await staleAfter(client, 'cart.add_item')).toContain(STALE);
    expect(await staleAfter(client, 'cart.log')).toContain(STALE);
    expect(told).toHaveLength(4);
  });

  it('makes nothing stale either where a gate hid it from the list', async () => {
    const gate = checkoutGate().bindTool('cart.total', 'has_items');
    const { client } = await start([{ match: 'cart.*', invalidates: ['orders.*'] }], gate);
    expect(await client.tools()).not.toContain('cart.total');
    await client.call('cart.add_item');
    expect(await staleAfter(client, 'cart.total')).toBeUndefined();
  });

  it('makes stale what its own policy says', async () => {
    const { client } = await start([
      { match: 'cart.view', invalidates: ['orders.*'] },
      { match: 'cart.*', invalidates: ['orders.*'] },
    ]);
    await client.tools();
    expect(await staleAfter(client, 'cart.view')).toContain(STALE);
    expect(await staleAfter(client, 'cart.total')).toBeUndefined();
  });

  it('counts as any other until a list has said that it is', async () => {
    const { client } = await start([{ match: 'cart.*', invalidates: ['orders.*'] }]);
    expect(await staleAfter(client, 'cart.view')).toContain(STALE);
    await client.tools();
    expect(await staleAfter(client, 'cart.view')).toBeUndefined();
  });
});

describe('a list of what went stale', () => {
  it.each([[['cart.view']], [['cart.view', 'cart.view']]])(
    'is left out where it names the caller alone: %j',
    async (invalidates) => {
      const { client, told } = await start([{ match: 'cart.view', invalidates }]);
      expect(await staleAfter(client, 'cart.view')).toBeUndefined();
      expect(told).toEqual([]);
    },
  );

  it('is whole where it names others too', async () => {
    const { client, told } = await start([
      { match: 'cart.view', invalidates: ['cart.view', 'cart.total'] },
    ]);
    expect(await staleAfter(client, 'cart.view')).toBe(
      '[System: Cache invalidated for cart.view, cart.total — caused by cart.view]',
    );
    expect(told).toHaveLength(3);
  });
});
