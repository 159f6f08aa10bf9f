import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type RequestHandler } from 'express';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type FsmGateOptions,
  fsmGate,
  type SessionStoreOptions,
  StateMachineGate,
  sessionStore,
} from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { connect } from '../helpers/client.ts';
import { callOf, PROTOCOL, send, type WireMessage } from '../helpers/raw.ts';
import { serve } from '../helpers/serve.ts';
import { connectV2, startTwoEras } from '../helpers/two-eras.ts';
import { cartServer, type Ledger } from '../helpers/upstream.ts';

const RECONNECT =
  '[System: cart.pay was not run, because it belongs to no run of checkout. This connection is ' +
  'older than the server, and has no session. Reconnect to the server, or ask the user to do so, ' +
  'then try again.]';

interface Deployed {
  readonly session?: SessionStoreOptions;
  readonly gate?: FsmGateOptions;
  readonly workflow?: StateMachineGate<string, string>;
}

/** A door that lets requests by until the gate is deployed. */
function doorOf({ session, gate, workflow = checkoutGate() }: Deployed) {
  const warnings: string[] = [];
  const told = { onWarning: (warning: string) => warnings.push(warning) };
  const middlewares = [
    sessionStore({ withoutSession: 'pass', ...told, ...session }),
    fsmGate(workflow, gate),
  ] as readonly RequestHandler[];
  let isDeployed = false;
  const doors = middlewares.map((each): RequestHandler => {
    return (req, res, next) => (isDeployed ? each(req, res, next) : next());
  });
  const deploy = (): void => {
    isDeployed = true;
  };
  return { doors, warnings, deploy };
}

/** A stateless server of SDK v1, which a gate is put in front of while clients are connected. */
async function shop(options: Deployed = {}) {
  const { doors, ...rest } = doorOf(options);
  const ledger: Ledger = { calls: [], gates: new Map() };
  const app = express();
  app.all('/mcp', ...doors, async (req, res) => {
    const server = cartServer(ledger);
    server.registerResource('terms', 'docs://terms', {}, () => ({ contents: [] }));
    const transport = new StreamableHTTPServerTransport({});
    await server.connect(transport as never);
    await transport.handleRequest(req, res, req.body);
  });
  const { url } = await serve(app);
  return { url, ledger, ...rest };
}

const refusedAs = (meta: Record<string, unknown>): unknown =>
  (meta['mcp-interlock/refusal'] as Record<string, unknown> | undefined)?.reason;

const post = (url: URL, body: WireMessage) =>
  send(url, { body, headers: { 'mcp-protocol-version': PROTOCOL } });

describe("a client that was connected before the gate, under withoutSession: 'pass'", () => {
  it('goes on with ungated tools, and reads that it must reconnect for others', async () => {
    const app = await shop();
    const client = await connect(app.url);
    onTestFinished(() => client.close());
    await client.call('cart.pay');
    app.deploy();
    expect(await client.tools()).toEqual(['cart.view']);
    await client.client.ping();
    await client.call('cart.view');
    const refused = await client.call('cart.pay');
    expect(refused.text).toBe(RECONNECT);
    expect(refusedAs(refused.meta)).toBe('no-run');
    expect(app.ledger.calls).toEqual(['cart.pay', 'cart.view']);
    const again = await connect(app.url);
    onTestFinished(() => again.close());
    expect(await again.tools()).toEqual(['cart.add_item', 'cart.view']);
    for (const tool of ['cart.add_item', 'cart.checkout', 'cart.pay'])
      expect((await again.call(tool)).isError).toBe(false);
    expect(app.warnings).toEqual([]);
  });

  it('may be one of SDK v2', async () => {
    const { doors, deploy } = doorOf({});
    const app = await startTwoEras({ before: doors });
    onTestFinished(() => app.close());
    const client = await connectV2(app.url);
    onTestFinished(() => client.close());
    deploy();
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual(['cart.view']);
    await client.callTool({ name: 'cart.view', arguments: {} });
    const refused = await client.callTool({ name: 'cart.pay', arguments: {} });
    expect(refused.content).toEqual([{ type: 'text', text: RECONNECT }]);
    expect(app.calls.map(({ tool }) => tool)).toEqual(['cart.view']);
  });

  it('is answered 400 by default', async () => {
    const app = await shop({ session: { withoutSession: undefined } });
    const client = await connect(app.url);
    onTestFinished(() => client.close());
    app.deploy();
    await expect(client.tools()).rejects.toMatchObject({ code: 400 });
    await expect(client.call('cart.view')).rejects.toMatchObject({ code: 400 });
  });

  it('runs no ungated tool where none may run', async () => {
    const app = await shop({ gate: { unbound: 'refuse' } });
    const client = await connect(app.url);
    onTestFinished(() => client.close());
    app.deploy();
    expect(await client.tools()).toEqual([]);
    expect(refusedAs((await client.call('cart.view')).meta)).toBe('unbound');
    expect(refusedAs((await client.call('cart.pay')).meta)).toBe('no-run');
    expect(app.ledger.calls).toEqual([]);
  });

  it('is refused each tool that a rule names, also one that is always available', async () => {
    const workflow = StateMachineGate.fromOrder(
      { 'cart.pay': { after: ['cart.checkout'] } },
      { id: 'checkout' },
    ) as StateMachineGate<string, string>;
    const app = await shop({ workflow });
    const client = await connect(app.url);
    onTestFinished(() => client.close());
    app.deploy();
    for (const tool of ['cart.pay', 'cart.checkout'])
      expect(refusedAs((await client.call(tool)).meta), tool).toBe('no-run');
    for (const tool of ['cart.view', 'cart.add_item']) await client.call(tool);
    expect(app.ledger.calls).toEqual(['cart.view', 'cart.add_item']);
  });

  it('is refused each call of a bound tool, also one that no binding is about', async () => {
    const workflow = checkoutGate().bindTool('cart.view', 'payment', { when: () => false });
    const app = await shop({ workflow });
    app.deploy();
    const { messages } = await post(app.url, callOf(1, 'cart.view'));
    expect(refusedAs(messages[0]?.result._meta)).toBe('no-run');
    expect(app.ledger.calls).toEqual([]);
  });

  it('gets no prompt and no resource that is bound, in the same words', async () => {
    const app = await shop({
      workflow: checkoutGate().bindResource('docs://terms', 'payment'),
    });
    app.deploy();
    const read = { jsonrpc: '2.0', id: 1, method: 'resources/read' };
    const { messages } = await post(app.url, { ...read, params: { uri: 'docs://terms' } });
    expect(messages[0]?.error.data['mcp-interlock/refusal'].reason).toBe('no-run');
    expect(messages[0]?.error.message).toContain('Reconnect to the server');
    expect(app.warnings).toEqual([]);
  });

  it("gets the server's own words of an unknown tool under refusal: 'unknown-tool'", async () => {
    const app = await shop({ gate: { refusal: 'unknown-tool' } });
    app.deploy();
    const { text } = await post(app.url, callOf(1, 'cart.pay'));
    const { text: absent } = await post(app.url, callOf(1, 'cart.pax'));
    expect(text).toBe(absent.replaceAll('pax', 'pay'));
    expect(app.ledger.calls).toEqual([]);
  });

  it('is answered 400 to notifications, responses, streams and DELETE', async () => {
    const app = await shop();
    app.deploy();
    const bodies = [
      { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } },
      { jsonrpc: '2.0', id: 1, result: {} },
    ];
    for (const body of bodies) expect((await post(app.url, body)).status).toBe(400);
    const mixed = [callOf(1, 'cart.view'), bodies[0]] as unknown as WireMessage;
    expect((await post(app.url, mixed)).status).toBe(400);
    expect(app.ledger.calls).toEqual([]);
    for (const method of ['GET', 'DELETE']) {
      const { status } = await send(app.url, {
        method,
        headers: { accept: 'text/event-stream', 'mcp-protocol-version': PROTOCOL },
      });
      expect([method, status]).toEqual([method, 400]);
    }
  });
});
