import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { describe, expect, it } from 'vitest';
import { handleKey, StateMachineGate, sessionKey } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { connect } from '../helpers/client.ts';
import { ListEventStore } from '../helpers/event-store.ts';
import { latch } from '../helpers/latch.ts';
import {
  callOf,
  type RawSession,
  type RawStream,
  reasonOf,
  type WireMessage,
} from '../helpers/raw.ts';
import { pass, type SceneOptions, scene } from '../helpers/scene.ts';
import type { Ledger } from '../helpers/upstream.ts';

const CHANGED = 'notifications/tools/list_changed';
const PAID = [
  'cart.pay done',
  '[System: checkout is now in "confirmed". No tool of checkout is available now.]',
  '[System: Cache invalidated for orders.* — caused by cart.pay]',
];
const textsOf = (message: WireMessage | undefined): unknown =>
  message?.result?.content?.map((block: { text: string }) => block.text);
const resultIn = ({ messages }: RawStream): WireMessage | undefined =>
  messages.find(({ result }) => result !== undefined);

/**
 * A cart server whose `cart.pay` closes the call's stream and goes on, so that its client polls.
 */
function pollingServer(ledger: Ledger): McpServer {
  const server = new McpServer({ name: 'cart', version: '1.0.0' });
  for (const name of ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view']) {
    server.registerTool(name, {}, async (extra) => {
      ledger.calls.push(name);
      if (name === 'cart.pay') extra.closeSSEStream?.();
      await ledger.gates.get(name);
      return { content: [{ type: 'text', text: `${name} done` }] };
    });
  }
  return server;
}

/** Hosts that keep events: the SDK's transport, in Node and with the Fetch API. */
const HOSTS = ['express', 'sdk'] as const;

const startWith = (host: (typeof HOSTS)[number], options: SceneOptions = {}) =>
  scene({
    shape: { host },
    eventStore: () => new ListEventStore(),
    gate: { announce: true },
    sync: { policies: [{ match: 'cart.pay', invalidates: ['orders.*'] }] },
    ...options,
  });

/**
 * Resumes a stream, again and again until the server knows that the old connection is gone. Before
 * that it answers 409.
 */
async function resume(session: RawSession, id: string): Promise<RawStream> {
  let resumed = await session.listen(id);
  await expect
    .poll(async () => {
      if (resumed.status !== 200) resumed = await session.listen(id);
      return resumed.status;
    })
    .toBe(200);
  return resumed;
}

/** The id of the event with which each stream begins. */
async function primed(stream: RawStream): Promise<string> {
  await expect.poll(() => stream.lastEventId).toBeDefined();
  return stream.lastEventId ?? '';
}

describe.each(HOSTS)(
  'a call whose stream the server closed, so that the client polls, %s',
  (host) => {
    const start = (options?: SceneOptions) => startWith(host, options);
    const startPolling = () => start({ makeServer: pollingServer });

    it('is saved, and its result comes on the resumed stream, changed as on its own', async () => {
      const app = await startPolling();
      const session = await app.sessionAt('payment');
      const handler = latch();
      app.ledger.gates.set('cart.pay', handler.opened);
      const calling = await session.stream(callOf('p', 'cart.pay'));
      const id = await primed(calling);
      await expect.poll(() => calling.ended).toBe(true);
      expect(calling.messages).toEqual([]);
      const resumed = await session.listen(id);
      expect(resumed.status).toBe(200);
      handler.open();
      await expect.poll(() => textsOf(resultIn(resumed))).toEqual(PAID);
      expect(resumed.messages.map(({ method }) => method)).toContain(CHANGED);
      expect(await session.tools()).toEqual(['cart.view']);
      expect(app.errors).toEqual([]);
    });

    it('goes on while its result is to come: other steps wait for it', async () => {
      const app = await startPolling();
      const session = await app.sessionAt('payment');
      const handler = latch();
      app.ledger.gates.set('cart.pay', handler.opened);
      const calling = await session.stream(callOf('p', 'cart.pay'));
      const id = await primed(calling);
      await expect.poll(() => calling.ended).toBe(true);
      await pass(app.clock, 30_000);
      const waiting = session.call('cart.pay');
      await app.isServing(1);
      handler.open();
      const resumed = await session.listen(id);
      await expect.poll(() => textsOf(resultIn(resumed))).toEqual(PAID);
      expect(reasonOf(await waiting)).toBe('state');
      expect(app.ledger.calls).toEqual(['cart.pay']);
    });

    it('done before its client resumes is saved then, and each replay is the same', async () => {
      const app = await startPolling();
      const session = await app.sessionAt('payment');
      const calling = await session.stream(callOf('p', 'cart.pay'));
      const id = await primed(calling);
      await expect.poll(() => calling.ended).toBe(true);
      const texts: string[] = [];
      for (let replay = 0; replay < 3; replay++) {
        const resumed = await resume(session, id);
        await expect.poll(() => textsOf(resultIn(resumed))).toEqual(PAID);
        texts.push(resumed.text.slice(resumed.text.lastIndexOf('id: ')));
        resumed.cut();
      }
      expect(new Set(texts).size).toBe(1);
      expect(await session.tools()).toEqual(['cart.view']);
      expect(app.ledger.calls).toEqual(['cart.pay']);
    });

    it('is recorded before the resumed stream shows it, where it holds no claim', async () => {
      const rules = { 'cart.checkout': { after: 'cart.pay' } } as const;
      const workflow = StateMachineGate.fromOrder(rules, { id: 'checkout' });
      const app = await start({ makeServer: pollingServer, workflow });
      const session = await app.session();
      const handler = latch();
      app.ledger.gates.set('cart.pay', handler.opened);
      const calling = await session.stream(callOf('p', 'cart.pay'));
      const id = await primed(calling);
      await expect.poll(() => calling.ended).toBe(true);
      const resumed = await session.listen(id);
      app.store.take();
      handler.open();
      await expect.poll(() => resultIn(resumed)).toBeDefined();
      expect(app.store.times('record')).toBe(1);
      await app.run(session.id).isIn('{cart.pay}', 'idle');
      resumed.cut();
      const again = await resume(session, id);
      await expect.poll(() => resultIn(again)).toBeDefined();
      expect(textsOf(resultIn(again))).toEqual(textsOf(resultIn(resumed)));
      expect(await app.run(session.id).moves()).toEqual(['cart.pay']);
      expect(app.errors).toEqual([]);
    });

    it("is not noticed by the SDK's client", async () => {
      const app = await startPolling();
      const client = await connect(app.url);
      await client.call('cart.add_item');
      await client.call('cart.checkout');
      const { texts } = await client.call('cart.pay');
      expect(texts).toEqual(PAID);
      expect(await client.tools()).toEqual(['cart.view']);
      await expect.poll(() => client.log.filter((each) => each === 'list_changed').length).toBe(3);
      await client.close();
    });

    it('keeps its id while its result is to come: no other request may have it', async () => {
      const app = await startPolling();
      const session = await app.sessionAt('payment');
      const handler = latch();
      app.ledger.gates.set('cart.pay', handler.opened);
      const calling = await session.stream(callOf('p', 'cart.pay'));
      const id = await primed(calling);
      await expect.poll(() => calling.ended).toBe(true);
      expect((await session.post(callOf('p', 'cart.view'))).status).toBe(400);
      handler.open();
      const resumed = await resume(session, id);
      await expect.poll(() => textsOf(resultIn(resumed))).toEqual(PAID);
      expect((await session.post(callOf('p', 'cart.view'))).status).toBe(200);
      expect(app.ledger.calls).toEqual(['cart.pay', 'cart.view']);
    });

    it('is not forgotten while its result is to come, despite many other sessions', async () => {
      const app = await start({ makeServer: pollingServer, session: { maxSessions: 1 } });
      const session = await app.sessionAt('payment');
      const handler = latch();
      app.ledger.gates.set('cart.pay', handler.opened);
      const calling = await session.stream(callOf('p', 'cart.pay'));
      const id = await primed(calling);
      await expect.poll(() => calling.ended).toBe(true);
      for (let more = 0; more < 3; more++) await app.session();
      handler.open();
      const resumed = await resume(session, id);
      await expect.poll(() => textsOf(resultIn(resumed))).toEqual(PAID);
      expect(await session.tools()).toEqual(['cart.view']);
    });

    it('whose client stays away is given up on after maxStepMs, and holds the run', async () => {
      const app = await start({ makeServer: pollingServer, gate: { maxStepMs: 20_000 } });
      const session = await app.sessionAt('payment');
      const calling = await session.stream(callOf('p', 'cart.pay'));
      await expect.poll(() => calling.ended).toBe(true);
      await pass(app.clock, 19_000);
      expect(app.errors).toEqual([]);
      await pass(app.clock, 10_000);
      expect(app.errors.map(String)).toEqual([
        expect.stringContaining('outcome of a call of "cart.pay" is unknown'),
      ]);
      expect(reasonOf(await session.call('cart.pay'))).toBe('held');
    });

    it('whose client resumes after maxStepMs is saved then, and its result is shown', async () => {
      const app = await start({
        makeServer: pollingServer,
        gate: { maxStepMs: 20_000, announce: true },
      });
      const session = await app.sessionAt('payment');
      const calling = await session.stream(callOf('p', 'cart.pay'));
      const id = await primed(calling);
      await expect.poll(() => calling.ended).toBe(true);
      await pass(app.clock, 60_000);
      expect(reasonOf(await session.call('cart.pay'))).toBe('held');
      const resumed = await resume(session, id);
      await expect.poll(() => textsOf(resultIn(resumed))).toEqual(PAID);
      expect(await session.tools()).toEqual(['cart.view']);
    });
  },
);

describe.each(HOSTS)(
  'a client that loses its connection in the middle of a call, and resumes, %s',
  (host) => {
    const start = (options?: SceneOptions) => startWith(host, options);

    it('while the handler runs, meets no 409, and gets the result, which is saved', async () => {
      const app = await start();
      const session = await app.sessionAt('payment');
      const handler = latch();
      app.ledger.gates.set('cart.pay', handler.opened);
      const calling = await session.stream(callOf('p', 'cart.pay'));
      const id = await primed(calling);
      calling.cut();
      const resumed = await resume(session, id);
      handler.open();
      await expect.poll(() => textsOf(resultIn(resumed))).toEqual(PAID);
      expect(await session.tools()).toEqual(['cart.view']);
      expect(app.ledger.calls).toEqual(['cart.pay']);
      expect(app.errors).toEqual([]);
    });

    it('and loses it again, and resumes again, gets the result all the same', async () => {
      const app = await start();
      const session = await app.sessionAt('payment');
      const handler = latch();
      app.ledger.gates.set('cart.pay', handler.opened);
      const calling = await session.stream(callOf('p', 'cart.pay'));
      const id = await primed(calling);
      calling.cut();
      (await session.listen(id)).cut();
      const resumed = await resume(session, id);
      await pass(app.clock, 20_000);
      handler.open();
      await expect.poll(() => textsOf(resultIn(resumed))).toEqual(PAID);
      expect(await session.tools()).toEqual(['cart.view']);
      expect(app.errors).toEqual([]);
    });

    it('after the handler is done, gets the result, changed as on its own stream', async () => {
      const app = await start();
      const session = await app.sessionAt('payment');
      const handler = latch();
      app.ledger.gates.set('cart.pay', handler.opened);
      const calling = await session.stream(callOf('p', 'cart.pay'));
      const id = await primed(calling);
      calling.cut();
      handler.open();
      await expect.poll(() => session.tools()).toEqual(['cart.view']);
      const resumed = await session.listen(id);
      await expect.poll(() => textsOf(resultIn(resumed))).toEqual(PAID);
    });

    it('although it had its result, gets the same one again', async () => {
      const app = await start();
      const session = await app.sessionAt('payment');
      const calling = await session.stream(callOf('p', 'cart.pay'));
      await expect.poll(() => calling.ended).toBe(true);
      expect(textsOf(resultIn(calling))).toEqual(PAID);
      const [, id] = /^id: (.*)$/m.exec(calling.text) ?? [];
      const resumed = await session.listen(id);
      await expect.poll(() => resultIn(resumed)).toEqual(resultIn(calling));
      expect(app.ledger.calls).toEqual(['cart.pay']);
      expect(await session.tools()).toEqual(['cart.view']);
    });
  },
);

describe.each(HOSTS)('a list that is replayed, %s', (host) => {
  const start = (options?: SceneOptions) => startWith(host, options);

  async function listed(session: RawSession): Promise<string> {
    const listing = await session.stream({ jsonrpc: '2.0', id: 'l', method: 'tools/list' });
    await expect.poll(() => listing.ended).toBe(true);
    const [, id = ''] = /^id: (.*)$/m.exec(listing.text) ?? [];
    return id;
  }
  const namesIn = (stream: RawStream): unknown =>
    resultIn(stream)?.result.tools.map((tool: { name: string }) => tool.name);

  it('hides what is hidden now, and not what was hidden then', async () => {
    const app = await start();
    const session = await app.session();
    const id = await listed(session);
    const early = await session.listen(id);
    await expect.poll(() => namesIn(early)).toEqual(['cart.add_item', 'cart.view']);
    early.cut();
    await session.call('cart.add_item');
    await session.call('cart.checkout');
    const late = await resume(session, id);
    await expect.poll(() => namesIn(late)).toEqual(['cart.pay', 'cart.view']);
  });

  it('is replayed to its own session only', async () => {
    const app = await start();
    const [ann, bob] = [await app.session(), await app.session()];
    const id = await listed(ann);
    expect((await bob.listen(id)).status).not.toBe(200);
  });
});

describe('a session with many steps whose streams can be resumed', () => {
  it('keeps the late outcome of one, despite more than 100 finished ones', async () => {
    const looks = new StateMachineGate<string, string>({
      id: 'looks',
      initial: 'looking',
      states: { looking: { on: { LOOK: 'looking' } } },
    }).bindTool('cart.view', 'looking', 'LOOK');
    const app = await startWith('express', {
      makeServer: pollingServer,
      workflow: [checkoutGate(), looks],
    });
    const session = await app.sessionAt('payment');
    const handler = latch();
    app.ledger.gates.set('cart.pay', handler.opened);
    const calling = await session.stream(callOf('p', 'cart.pay'));
    const id = await primed(calling);
    await expect.poll(() => calling.ended).toBe(true);
    for (let view = 0; view < 110; view++) await session.call('cart.view');
    handler.open();
    const resumed = await resume(session, id);
    await expect.poll(() => resultIn(resumed)?.id).toBe('p');
    await app.run(session.id).isIn('confirmed', 'idle');
    expect(app.errors).toEqual([]);
  });

  it('is busy while 100 of them have no outcome', async () => {
    const key = [handleKey('sku', { createdBy: 'cart.view' }), sessionKey()];
    const workflow = new StateMachineGate<string, string>({
      id: 'order',
      initial: 'open',
      states: { open: { on: { PAY: 'paid' } }, paid: {} },
    }).bindTool('cart.pay', 'open', 'PAY');
    const app = await startWith('express', {
      makeServer: pollingServer,
      workflow,
      session: { key },
    });
    const session = await app.session();
    const runOf = (sku: string): string =>
      key[0]?.kind === 'handle' ? key[0].runKey(sku, undefined) : '';
    const skus = Array.from({ length: 101 }, (_, at) => `s${at}`);
    for (const sku of skus) await app.data.open(runOf(sku), {}, 3_600_000);
    const handler = latch();
    app.ledger.gates.set('cart.pay', handler.opened);
    const ids: string[] = [];
    for (const sku of skus.slice(0, 100)) {
      const calling = await session.stream(callOf(sku, 'cart.pay', { sku }));
      ids.push(await primed(calling));
      await expect.poll(() => calling.ended).toBe(true);
    }
    const last = { sku: skus.at(-1) };
    expect(reasonOf(await session.call('cart.pay', last))).toBe('busy');
    handler.open();
    const resumed = await resume(session, ids[0] ?? '');
    await expect.poll(() => resultIn(resumed)?.id).toBe('s0');
    await app.run(runOf('s0')).isIn('paid', 'idle');
    const calling = await session.stream(callOf('z', 'cart.pay', last));
    const again = await resume(session, await primed(calling));
    await expect.poll(() => resultIn(again)?.id).toBe('z');
    expect(app.ledger.calls).toHaveLength(101);
  });
});
