/**
 * A shop with a gated checkout, as several instances on one SQLite file. Each serves the shop's own
 * MCP routes and the inspector. A client of the SDK calls its tools.
 */
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Request, type Response } from 'express';
import { fsmGate, StateMachineGate, sessionStore } from 'mcp-interlock';
import { runsOf } from 'mcp-interlock/runs';
import type { AtomicStateStore } from 'mcp-interlock/stores';
import { sqliteStore } from 'mcp-interlock/stores/sqlite';
import { createMachine } from 'xstate';
import { connect, type TestClient } from '../../../test/helpers/client.ts';
import { latch } from '../../../test/helpers/latch.ts';
import { listen } from '../../../test/helpers/serve.ts';
import { makeSqliteFile, type SqliteFile } from '../../../test/helpers/sqlite-file.ts';
import { type InspectorOptions, inspector } from '../src/index.ts';

/** How long a call with an unknown outcome blocks its run. */
const LEASE_MS = 1000;
const SECRET = 'both instances seal with the same secret';

export function checkoutGate() {
  return new StateMachineGate({
    id: 'checkout',
    initial: 'empty',
    states: {
      empty: { on: { ADD_ITEM: 'has_items' } },
      has_items: { on: { ADD_ITEM: 'has_items', CHECKOUT: 'payment', CLEAR: 'empty' } },
      payment: {
        on: { PAY: 'confirmed', DECLINED: 'has_items', EDIT: 'has_items', APPROVE: 'confirmed' },
        after: { 900000: 'has_items' },
      },
      confirmed: { type: 'final' },
    },
  })
    .bindTool('cart.add_item', ['empty', 'has_items'], 'ADD_ITEM')
    .bindTool('cart.clear', 'has_items', 'CLEAR')
    .bindTool('cart.checkout', 'has_items', 'CHECKOUT')
    .bindTool('cart.edit', 'payment', 'EDIT')
    .bindTool('cart.pay', 'payment', { success: 'PAY', failure: 'DECLINED' })
    .bindTool('receipt.show', 'confirmed');
}

export function fulfilmentGate() {
  const machine = createMachine({
    id: 'fulfilment',
    initial: 'received',
    states: {
      received: { on: { ACCEPT: 'working', CANCEL: 'cancelled' } },
      working: {
        type: 'parallel',
        on: { CANCEL: 'cancelled' },
        onDone: 'shipped',
        states: {
          billing: {
            initial: 'due',
            states: {
              due: { on: { CHARGE: 'paid', REFUSE: 'refused' } },
              refused: { on: { CHARGE: 'paid' } },
              paid: { type: 'final' },
            },
          },
          packing: {
            initial: 'picking',
            states: {
              picking: { on: { PACK: 'packed' } },
              packed: { on: { HAND_OVER: 'handed_over', RECALL: 'picking' } },
              handed_over: { type: 'final' },
            },
          },
        },
      },
      shipped: { type: 'final' },
      cancelled: { type: 'final' },
    },
  });
  return new StateMachineGate(machine)
    .bindTool('order.accept', 'received', 'ACCEPT')
    .bindTool('order.charge', ['working.billing.due', 'working.billing.refused'], {
      success: 'CHARGE',
      failure: 'REFUSE',
    })
    .bindTool('order.pack', 'working.packing.picking', 'PACK')
    .bindTool('order.hand_over', 'working.packing.packed', 'HAND_OVER')
    .bindTool('order.cancel', ['received', 'working'], 'CANCEL');
}

const TOOLS = [
  ...['cart.add_item', 'cart.clear', 'cart.checkout', 'cart.edit', 'cart.pay', 'receipt.show'],
  ...['order.accept', 'order.charge', 'order.pack', 'order.hand_over', 'order.cancel'],
];

export interface Instance {
  /** Where its inspector is. */
  readonly url: string;
  readonly port: number;
  /** A client of the SDK, with a session of its own, of the checkout or of `/orders`. */
  client(path?: string): Promise<TestClient>;
  /** Ends it as a process that is killed: connections are cut. */
  close(): Promise<void>;
}

export interface InstanceOptions extends Partial<InspectorOptions> {
  /** Default: one on the shop's file. */
  readonly store?: AtomicStateStore;
  /** Default: a free one. */
  readonly port?: number;
  /** Whether its gates only observe. */
  readonly observes?: boolean;
  /** Whether its trails have refused calls too. */
  readonly refusals?: boolean;
}

export class Shop {
  readonly #file: SqliteFile = makeSqliteFile();
  readonly #instances = new Set<Instance>();
  /** Opened by a test to let `slow` calls come to their end. */
  readonly slow = latch();

  async instance({
    store,
    port,
    observes,
    refusals,
    ...options
  }: InstanceOptions = {}): Promise<Instance> {
    const kept = store ?? sqliteStore({ database: this.#file.connect(), busyTimeoutMs: 10_000 });
    const gates = { checkout: checkoutGate(), fulfilment: fulfilmentGate() };
    const sessions = sessionStore({ store: kept, onError: () => {}, onWarning: () => {} });
    const page = inspector({
      runs: [runsOf(gates.checkout, { sessions }), runsOf(gates.fulfilment, { sessions })],
      authorize: () => ({ read: true, write: true, actor: 'kim' }),
      secret: SECRET,
      pollMs: 200,
      ...options,
    });
    const app = express();
    app.use('/inspector', page);
    const told = { onError: () => {}, onWarning: () => {} };
    const step = {
      leaseMs: LEASE_MS,
      ...told,
      ...(observes && { enforce: false }),
      ...(refusals && { trail: { refusals } }),
    };
    const serve = (req: Request, res: Response) => this.#serve(req, res);
    app.all('/mcp', sessions, fsmGate(gates.checkout, step), serve);
    app.all('/orders', sessions, fsmGate(gates.fulfilment, step), serve);
    const served = await listen(app, port);
    const clients: TestClient[] = [];
    const instance: Instance = {
      url: new URL('/inspector/', served.url).href,
      port: Number(served.url.port),
      client: async (path = '/mcp') => {
        const client = await connect(new URL(path, served.url));
        clients.push(client);
        return client;
      },
      close: async () => {
        this.#instances.delete(instance);
        page.close();
        await Promise.all(clients.map((client) => client.close()));
        await served.close();
      },
    };
    this.#instances.add(instance);
    return instance;
  }

  async #serve(req: Request, res: Response): Promise<void> {
    if (req.method !== 'POST') {
      res.status(405).set('allow', 'POST').end();
      return;
    }
    const server = new McpServer({ name: 'shop', version: '1.0.0' });
    for (const name of TOOLS)
      server.registerTool(name, { description: `Does ${name}.` }, async ({ _meta }) => {
        const how = _meta?.how;
        // The server dies before it answers, so the outcome is unknown.
        if (how === 'dies') res.destroy();
        if (how === 'slow') await this.slow.opened;
        const isError = how === 'fails';
        return { content: [{ type: 'text', text: isError ? 'It failed.' : 'Done.' }], isError };
      });
    const transport = new StreamableHTTPServerTransport({});
    res.on('close', () => void server.close());
    await server.connect(transport);
    await transport.handleRequest(req, res);
  }

  async close(): Promise<void> {
    this.slow.open();
    await Promise.all([...this.#instances].map((instance) => instance.close()));
    this.#file.remove();
  }
}
