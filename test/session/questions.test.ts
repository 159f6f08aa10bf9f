import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it, onTestFinished } from 'vitest';
import { StateMachineGate } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { type Latch, latch } from '../helpers/latch.ts';
import { callOf, reasonOf, type WireMessage } from '../helpers/raw.ts';
import { begins, type SceneOptions, scene, settle } from '../helpers/scene.ts';
import type { Ledger } from '../helpers/upstream.ts';

const QUESTION = {
  message: 'Pay 10?',
  requestedSchema: { type: 'object' as const, properties: { yes: { type: 'boolean' as const } } },
};
const textOf = (message: WireMessage | undefined): unknown => message?.result?.content?.[0]?.text;

/** A cart server whose `cart.pay` first asks the client `times` questions at once. */
function askingServer(times = 1): (ledger: Ledger) => McpServer {
  return (ledger) => {
    const server = new McpServer({ name: 'cart', version: '1.0.0' });
    for (const name of ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view']) {
      server.registerTool(name, {}, async (extra) => {
        ledger.calls.push(name);
        const questions = name === 'cart.pay' ? times : 0;
        const asked = Array.from({ length: questions }, () =>
          server.server.elicitInput(QUESTION, { relatedRequestId: extra.requestId }),
        );
        const answers = (await Promise.all(asked)).map(({ action }) => action);
        await ledger.gates.get(name);
        return { content: [{ type: 'text', text: [name, ...answers].join(' ') }] };
      });
    }
    return server;
  };
}

/** Hosts whose sessions have one transport, so that a client's answer finds its question. */
const HOSTS = ['express', 'sdk'] as const;

const startAsking = (options: SceneOptions & { times?: number } = {}) =>
  scene({ makeServer: askingServer(options.times), ...options });

const accept = (id: unknown): WireMessage => ({
  jsonrpc: '2.0',
  id,
  result: { action: 'accept', content: { yes: true } },
});

describe.each(HOSTS)('a question of the server, in the middle of a step, %s', (host) => {
  const start: typeof startAsking = (options = {}) => startAsking({ shape: { host }, ...options });

  it('reaches the client, and its answer the server: the step goes on and is saved', async () => {
    const app = await start();
    const session = await app.sessionAt('payment');
    const paying = await session.stream(callOf('p', 'cart.pay'));
    await expect.poll(() => paying.messages).toHaveLength(1);
    const [question] = paying.messages;
    expect(question).toMatchObject({ method: 'elicitation/create', params: QUESTION });
    const answered = await session.post(accept(question?.id));
    expect([answered.status, answered.text]).toEqual([202, '']);
    await expect.poll(() => paying.ended).toBe(true);
    expect(paying.messages.slice(1).map((message) => message.method ?? textOf(message))).toEqual([
      'notifications/tools/list_changed',
      'cart.pay accept',
    ]);
    expect(await session.tools()).toEqual(['cart.view']);
  });

  it("is answered by the SDK's client while another call of it is in flight", async () => {
    const app = await start();
    const client = new Client(
      { name: 'test', version: '1' },
      { capabilities: { elicitation: {} } },
    );
    const asking: Latch = latch();
    let asked = 0;
    client.setRequestHandler(ElicitRequestSchema, async () => {
      asked++;
      await asking.opened;
      return { action: 'accept', content: { yes: true } };
    });
    await client.connect(new StreamableHTTPClientTransport(app.url) as never);
    onTestFinished(() => client.close());
    const call = async (name: string) =>
      (await client.callTool({ name, arguments: {} })) as { content: unknown };
    await call('cart.add_item');
    await call('cart.checkout');
    const paying = call('cart.pay');
    await expect.poll(() => asked).toBe(1);
    expect((await call('cart.view')).content).toEqual([{ type: 'text', text: 'cart.view' }]);
    asking.open();
    expect((await paying).content).toEqual([{ type: 'text', text: 'cart.pay accept' }]);
  });

  it('has other steps of the run refused at once as busy, until it is answered', async () => {
    const app = await start();
    const session = await app.sessionAt('payment');
    const handler = latch();
    app.ledger.gates.set('cart.pay', handler.opened);
    const paying = await session.stream(callOf('p', 'cart.pay'));
    await expect.poll(() => paying.messages).toHaveLength(1);
    expect(reasonOf(await session.call('cart.pay'))).toBe('busy');
    expect(reasonOf(await session.call('cart.add_item'))).toBe('busy');
    expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
    await session.post(accept(paying.messages[0]?.id));
    const waiting = session.call('cart.pay');
    await app.isServing(2);
    handler.open();
    expect(reasonOf(await waiting)).toBe('state');
    expect(app.ledger.calls).toEqual(['cart.pay']);
  });

  it('has steps refused at once that wait already', async () => {
    const app = await start();
    const session = await app.sessionAt('has_items');
    const checking = await begins(app, 'cart.checkout', () => session.call('cart.checkout'));
    const paying = session.stream(callOf('p', 'cart.pay'));
    await app.isServing(2);
    const adding = session.call('cart.add_item');
    await app.isServing(3);
    checking.finish();
    await checking.answer;
    expect(reasonOf(await adding)).toBe('busy');
    const { messages } = await paying;
    await expect.poll(() => messages).toHaveLength(1);
    await session.post(accept(messages[0]?.id));
    await expect.poll(() => textOf(messages.at(-1))).toBe('cart.pay accept');
  });

  it('does not hold up other runs', async () => {
    const app = await start();
    const [ann, bob] = [await app.sessionAt('payment'), await app.session()];
    const paying = await ann.stream(callOf('p', 'cart.pay'));
    await expect.poll(() => paying.messages).toHaveLength(1);
    expect(textOf(await bob.call('cart.add_item'))).toBe('cart.add_item');
    await ann.post(accept(paying.messages[0]?.id));
    await expect.poll(() => paying.ended).toBe(true);
  });

  it('is one of several: steps are refused until the last of them is answered', async () => {
    const app = await start({ times: 2 });
    const session = await app.sessionAt('payment');
    const handler = latch();
    app.ledger.gates.set('cart.pay', handler.opened);
    const paying = await session.stream(callOf('p', 'cart.pay'));
    await expect.poll(() => paying.messages).toHaveLength(2);
    await session.post(accept(paying.messages[0]?.id));
    expect(reasonOf(await session.call('cart.pay'))).toBe('busy');
    await session.post(accept(paying.messages[1]?.id));
    const waiting = session.call('cart.pay');
    await app.isServing(2);
    handler.open();
    expect(reasonOf(await waiting)).toBe('state');
  });

  it('of a step of two workflows has steps of both refused, until it is answered', async () => {
    const shipping = new StateMachineGate<string, string>({
      id: 'shipping',
      initial: 'waiting',
      states: {
        waiting: { on: { PAY: 'ready', VIEW: 'waiting' } },
        ready: { on: { VIEW: 'ready' } },
      },
    })
      .bindTool('cart.pay', 'waiting', 'PAY')
      .bindTool('cart.view', ['waiting', 'ready'], 'VIEW');
    const app = await start({ workflow: [checkoutGate(), shipping] });
    const session = await app.sessionAt('payment');
    const handler = latch();
    app.ledger.gates.set('cart.pay', handler.opened);
    const paying = await session.stream(callOf('p', 'cart.pay'));
    await expect.poll(() => paying.messages).toHaveLength(1);
    expect(reasonOf(await session.call('cart.view'))).toBe('busy');
    expect(reasonOf(await session.call('cart.add_item'))).toBe('busy');
    await session.post(accept(paying.messages[0]?.id));
    const waiting = [session.call('cart.view'), session.call('cart.add_item')];
    await app.isServing(3);
    handler.open();
    const [viewed, added] = await Promise.all(waiting);
    expect([textOf(viewed), reasonOf(added)]).toEqual(['cart.view', 'state']);
  });

  it('counts as answered where it is declined, or answered with an error', async () => {
    const app = await start();
    const session = await app.sessionAt('payment');
    const declining = await session.stream(callOf('p', 'cart.pay'));
    await expect.poll(() => declining.messages).toHaveLength(1);
    const { id } = declining.messages[0] ?? {};
    await session.post({ jsonrpc: '2.0', id, error: { code: -1, message: 'user is out' } });
    await expect.poll(() => declining.ended).toBe(true);
    expect(declining.messages.at(-1)?.result.isError).toBe(true);
    expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
    const again = await session.stream(callOf('p', 'cart.pay'));
    await expect.poll(() => again.messages).toHaveLength(1);
    await session.post({
      jsonrpc: '2.0',
      id: again.messages[0]?.id,
      result: { action: 'decline' },
    });
    await expect.poll(() => again.ended).toBe(true);
    expect(await session.tools()).toEqual(['cart.view']);
  });

  it("may have the id of one of the client's requests: an answer is no request", async () => {
    const app = await start();
    const session = await app.sessionAt('payment');
    const paying = await session.stream(callOf(0, 'cart.pay'));
    await expect.poll(() => paying.messages[0]?.id).toBe(0);
    expect((await session.post(accept(0))).status).toBe(202);
    await expect.poll(() => textOf(paying.messages.at(-1))).toBe('cart.pay accept');
  });

  it('that was never asked cannot be answered: nothing changes', async () => {
    const app = await start();
    const session = await app.sessionAt('payment');
    const paying = await session.stream(callOf('p', 'cart.pay'));
    await expect.poll(() => paying.messages).toHaveLength(1);
    for (const id of [99, 'x']) await session.post(accept(id));
    expect(reasonOf(await session.call('cart.pay'))).toBe('busy');
    await session.post(accept(paying.messages[0]?.id));
    await session.post(accept(paying.messages[0]?.id));
    await expect.poll(() => paying.ended).toBe(true);
    await settle();
    expect(await session.tools()).toEqual(['cart.view']);
  });

  it('that is still open when its step ends holds up no more calls', async () => {
    const app = await start();
    const session = await app.sessionAt('payment');
    const paying = await session.stream(callOf('p', 'cart.pay'));
    await expect.poll(() => paying.messages).toHaveLength(1);
    const cancelled = {
      jsonrpc: '2.0',
      method: 'notifications/cancelled',
      params: { requestId: 'p' },
    };
    await session.post(cancelled);
    app.clock.advance(5_000);
    await expect.poll(() => paying.ended).toBe(true);
    expect(textOf(paying.messages.at(-1))).toContain('may have run: its outcome is unknown');
    app.clock.advance(8_000);
    expect(reasonOf(await session.call('cart.pay'))).toBe('held');
  });
});
