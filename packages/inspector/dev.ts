/**
 * Something to look at: two instances of one app on one store, a model that uses both, and runs
 * that need a person. `npm run dev` in packages/inspector; `PORT` is the first instance's, by
 * default 4100, and the second one's is the next. `RUNS` fills the checkout with so many runs more.
 */
import { randomUUID } from 'node:crypto';
import { mkdtempSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Request, type Response } from 'express';
import Database from 'libsql';
import { fsmGate, StateMachineGate, sessionStore } from 'mcp-interlock';
import { runsOf } from 'mcp-interlock/runs';
import { sqliteStore } from 'mcp-interlock/stores/sqlite';
import { assign, setup } from 'xstate';
import { inspector } from './src/index.ts';

const PORT = Number(process.env.PORT ?? 4100);
const MINUTE = 60_000;

const checkout = () =>
  new StateMachineGate({
    id: 'checkout',
    initial: 'empty',
    states: {
      empty: { on: { ADD_ITEM: 'has_items' } },
      has_items: { on: { CHECKOUT: 'payment', CLEAR: 'empty' } },
      payment: {
        on: { PAY: 'confirmed', DECLINED: 'has_items', CANCEL: 'has_items' },
        after: { [15 * MINUTE]: 'has_items' },
      },
      confirmed: { type: 'final' },
    },
  })
    .bindTool('cart_add_item', ['empty', 'has_items'], 'ADD_ITEM')
    .bindTool('cart_clear', 'has_items', 'CLEAR')
    .bindTool('cart_checkout', 'has_items', 'CHECKOUT')
    .bindTool('cart_pay', 'payment', { success: 'PAY', failure: 'DECLINED' })
    .bindTool('receipt_show', 'confirmed');

const fulfilment = setup({
  types: {
    context: {} as { packed: number },
    events: {} as
      | { type: 'ACCEPT' }
      | { type: 'CHARGE' }
      | { type: 'REFUSE' }
      | { type: 'PICK' }
      | { type: 'PACK' }
      | { type: 'HAND_OVER' }
      | { type: 'CANCEL' },
    tags: {} as 'money',
  },
  guards: { isAnyPacked: ({ context }) => context.packed > 0 },
}).createMachine({
  id: 'fulfilment',
  context: { packed: 0 },
  initial: 'received',
  states: {
    received: { on: { ACCEPT: 'working', CANCEL: 'cancelled' } },
    working: {
      type: 'parallel',
      on: { CANCEL: 'cancelled' },
      onDone: 'ready',
      states: {
        billing: {
          initial: 'due',
          states: {
            due: { tags: 'money', on: { CHARGE: 'paid', REFUSE: 'refused' } },
            refused: { tags: 'money', on: { CHARGE: 'paid' } },
            paid: { type: 'final' },
          },
        },
        packing: {
          initial: 'picking',
          states: {
            picking: {
              on: {
                PICK: { actions: assign({ packed: ({ context }) => context.packed + 1 }) },
                PACK: { target: 'packed', guard: 'isAnyPacked' },
              },
            },
            packed: { type: 'final' },
          },
        },
      },
    },
    ready: { on: { HAND_OVER: 'shipped' } },
    shipped: { type: 'final' },
    cancelled: { type: 'final' },
  },
});

const order = () =>
  new StateMachineGate(fulfilment)
    .bindTool('order_accept', 'received', 'ACCEPT')
    .bindTool('order_charge', { tag: 'money' }, { success: 'CHARGE', failure: 'REFUSE' })
    .bindTool('order_pick', 'working.packing.picking', 'PICK')
    .bindTool('order_pack', 'working.packing.picking', 'PACK')
    .bindTool('order_hand_over', 'ready', 'HAND_OVER')
    .bindTool('order_cancel', ['received', 'working'], 'CANCEL');

const folder = mkdtempSync(join(tmpdir(), 'interlock-inspector-'));
const store = () => sqliteStore({ database: new Database(join(folder, 'runs.db')) });
const quiet = { onError: () => {}, onWarning: () => {} };

/** Tools that do nothing but take their time or fail, as the header `x-how` says. */
function handler(tools: readonly string[]) {
  return async (req: Request, res: Response): Promise<void> => {
    if (req.method !== 'POST') return void res.status(405).set('allow', 'POST').end();
    const server = new McpServer({ name: 'shop', version: '1.0.0' });
    for (const tool of tools)
      server.registerTool(tool, { description: `Does ${tool}.` }, async () => {
        const how = req.get('x-how');
        if (how === 'slow') await wait(4_000);
        const text = how === 'failing' ? 'It did not work.' : 'Done.';
        return { content: [{ type: 'text', text }], isError: how === 'failing' };
      });
    const transport = new StreamableHTTPServerTransport();
    res.on('close', () => void server.close());
    await server.connect(transport as Parameters<typeof server.connect>[0]);
    await transport.handleRequest(req, res, req.body);
  };
}

const CART = ['cart_add_item', 'cart_clear', 'cart_checkout', 'cart_pay', 'receipt_show', 'help'];
const ORDER = 'accept charge pick pack hand_over cancel'.split(' ').map((name) => `order_${name}`);

function startInstance(port: number): void {
  const gates = { checkout: checkout(), order: order() };
  const sessions = { checkout: sessionStore(options()), order: sessionStore(options()) };
  const page = inspector({
    runs: [
      runsOf(gates.checkout, { sessions: sessions.checkout }),
      runsOf(gates.order, { sessions: sessions.order }),
    ],
    authorize: () => ({ read: true, write: true, keys: true, actor: 'dev' }),
    secret: 'the same secret for both of the instances',
    share: ({ context }) => context,
    stuckAfterMs: 2 * MINUTE,
  });
  const app = express();
  const trail = { trail: { refusals: true } };
  app.use('/inspector', page);
  app.all('/mcp/cart', sessions.checkout, fsmGate(gates.checkout, trail), handler(CART));
  app.all('/mcp/order', sessions.order, fsmGate(gates.order, trail), handler(ORDER));
  createServer(app).listen(port, '127.0.0.1', () => {
    console.log(`http://127.0.0.1:${port}/inspector/`);
  });
}

function options() {
  return { store: store(), ...quiet };
}

/** A model, whose calls come to one instance or the other. */
class Model {
  readonly #path: string;
  #client: Client | undefined;
  #session: string | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  async call(name: string, how = 'well'): Promise<void> {
    const port = PORT + Math.round(Math.random());
    const transport = new StreamableHTTPClientTransport(
      new URL(`http://127.0.0.1:${port}/mcp/${this.#path}`),
      {
        requestInit: { headers: { 'x-how': how } },
        ...(this.#session !== undefined && { sessionId: this.#session }),
      },
    );
    const client = new Client({ name: 'model', version: '1.0.0' });
    await client.connect(transport as Parameters<typeof client.connect>[0]);
    this.#session ??= transport.sessionId;
    await client.callTool({ name, arguments: {} }).catch(() => {});
    await this.#client?.close();
    this.#client = client;
  }
}

const WAYS: readonly (readonly [path: string, ...calls: string[]])[] = [
  ['cart', 'cart_add_item', 'cart_add_item', 'cart_checkout', 'cart_pay slow', 'receipt_show'],
  ['cart', 'cart_add_item', 'cart_pay', 'cart_checkout', 'cart_pay failing', 'cart_checkout'],
  ['order', 'order_accept', 'order_pick', 'order_charge slow', 'order_pack', 'order_hand_over'],
  ['order', 'order_accept', 'order_pack', 'order_charge failing', 'order_pick', 'order_cancel'],
  ['cart', 'cart_add_item', 'cart_clear', 'cart_add_item', 'cart_checkout'],
];

async function walk([path, ...calls]: (typeof WAYS)[number]): Promise<void> {
  const model = new Model(path);
  for (const call of calls) {
    await model.call(...(call.split(' ') as [string, string?]));
    await wait(1_000 + Math.random() * 2_000);
  }
}

const filled = store();
const LIFE = { ttlMs: 24 * 60 * MINUTE, states: undefined, create: {}, leaseMs: 3_000 };

/** A run that was brought to a state, so as an instance does it. */
async function put(workflow: string, run: string, tool: string, to: string): Promise<void> {
  const from = workflow === 'checkout' ? 'empty' : 'received';
  const key = { workflow, run, token: randomUUID(), ttlMs: LIFE.ttlMs };
  const step = { tool, digest: 'd', uncertain: 'hold' } as const;
  await filled.claim({ ...LIFE, ...key, step, initial: { state: from, updatedAt: 0 } });
  const trail = { from, to, event: 'PUT', tool, outcome: 'succeeded' } as const;
  await filled.commit({ ...key, snapshot: { state: to }, trail });
}

/** What a process leaves behind that is killed while a call runs. */
async function hold(workflow: string, run: string, tool: string, actor: string): Promise<void> {
  const step = { tool, digest: 'd', uncertain: 'hold' } as const;
  const initial = { state: 'unused', updatedAt: 0 };
  const entry = { tool, actor, requestId: 7 };
  const token = randomUUID();
  await filled.claim({ ...LIFE, workflow, run, token, step, entry, initial });
}

startInstance(PORT);
startInstance(PORT + 1);
await put('checkout', 'held-payment', 'cart_checkout', 'payment');
await hold('checkout', 'held-payment', 'cart_pay', 'ann@example.com');
await put('checkout', 'held-till', 'cart_add_item', 'has_items');
await hold('checkout', 'held-till', 'cart_checkout', 'bob@example.com');
for (let i = 0; i < Number(process.env.RUNS ?? 0); i++)
  await put('checkout', `run-${i}`, 'cart_add_item', i % 7 === 0 ? 'payment' : 'has_items');
for (let round = 0; ; round++) {
  const way = WAYS[round % WAYS.length];
  if (way) void walk(way).catch((error: unknown) => console.error(error));
  await wait(5_000);
}
