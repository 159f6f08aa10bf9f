import { describe, expect, it } from 'vitest';
import { connect } from '../helpers/client.ts';
import { latch } from '../helpers/latch.ts';
import { callOf, reasonOf } from '../helpers/raw.ts';
import { scene, staysQuiet } from '../helpers/scene.ts';
import { HOSTS } from '../helpers/upstream.ts';

const PROGRESS = { _meta: { progressToken: 'p' } };
const withProgress = (id: number, tool: string) => {
  const call = callOf(id, tool);
  return { ...call, params: { ...call.params, ...PROGRESS } };
};

describe.each(HOSTS)('a checkout, $host $mode $answers', (shape) => {
  it("works with the SDK's client: each list shows what is valid, each move is told", async () => {
    const app = await scene({
      shape,
      sync: { policies: [{ match: 'cart.pay', invalidates: ['cart.*'] }] },
    });
    const { client, tools, call, log, close } = await connect(app.url);
    expect(client.getServerCapabilities()?.tools?.listChanged).toBe(true);
    expect(await tools()).toEqual(['cart.add_item', 'cart.view']);
    await call('cart.add_item');
    expect(await tools()).toEqual(['cart.add_item', 'cart.checkout', 'cart.view']);
    await call('cart.checkout');
    expect(await tools()).toEqual(['cart.pay', 'cart.view']);
    expect((await call('cart.pay')).text).toContain('cart.*');
    expect(await tools()).toEqual(['cart.view']);
    await expect
      .poll(() => log.filter((entry) => entry === 'list_changed').length)
      .toBeGreaterThanOrEqual(2);
    await close();
    expect(app.ledger.calls).toEqual(['cart.add_item', 'cart.checkout', 'cart.pay']);
    expect(app.errors).toEqual([]);
  });

  it('refuses a call out of order, and the handler never sees it', async () => {
    const app = await scene({ shape });
    const session = await app.session();
    const refused = await session.call('cart.pay');
    expect(reasonOf(refused)).toBe('state');
    expect(app.ledger.calls).toEqual([]);
  });

  it('runs one of three parallel payments', async () => {
    const app = await scene({ shape });
    const session = await app.sessionAt('payment');
    const answers = await Promise.all([1, 2, 3].map(() => session.call('cart.pay')));
    expect(answers.map(reasonOf).sort()).toEqual(['state', 'state', undefined]);
    expect(app.ledger.calls).toEqual(['cart.pay']);
  });
});

describe.each(HOSTS.filter(({ answers }) => answers === 'sse'))(
  'a stream, $host $mode',
  (shape) => {
    it('is passed on event by event: progress comes while the handler runs', async () => {
      const app = await scene({ shape });
      const session = await app.sessionAt('payment');
      const handler = latch();
      app.ledger.gates.set('cart.pay', handler.opened);
      const streaming = await session.stream(withProgress(7, 'cart.pay'));
      await expect
        .poll(() => streaming.messages.map(({ method }) => method))
        .toEqual(['notifications/progress']);
      expect(streaming.ended).toBe(false);
      handler.open();
      await expect.poll(() => streaming.ended).toBe(true);
      expect(streaming.messages.map(({ method, id }) => method ?? id)).toEqual([
        'notifications/progress',
        'notifications/tools/list_changed',
        7,
      ]);
    });
  },
);

describe.each([
  { host: 'mcp-handler', mode: 'stateless', answers: 'sse' },
  { host: 'hono', mode: 'stateless', answers: 'json' },
] as const)('a session of a handler that has none, $host $answers', (shape) => {
  it('gets a stream of our own, which is kept alive while the client stays', async () => {
    const app = await scene({ shape, session: { keepAliveMs: 20_000 } });
    const session = await app.session();
    const listening = await session.listen();
    expect([listening.status, listening.headers['content-type']]).toEqual([
      200,
      'text/event-stream',
    ]);
    await app.isServing(1);
    app.clock.advance(20_000);
    await expect.poll(() => listening.text).toBe(': keep-alive\n\n');
    listening.cut();
    await app.isServing(0);
    await staysQuiet(app);
  });

  it('is told once that its list changed, on the call’s stream or on ours', async () => {
    const app = await scene({ shape });
    const session = await app.session();
    const listening = await session.listen();
    const { messages } = await session.post(callOf(1, 'cart.add_item'));
    const told = messages.map(({ method, id }) => method ?? id);
    if (shape.answers === 'sse') {
      expect(told).toEqual(['notifications/tools/list_changed', 1]);
      expect(listening.messages).toEqual([]);
    } else {
      expect(told).toEqual([1]);
      await expect
        .poll(() => listening.messages.map(({ method }) => method))
        .toEqual(['notifications/tools/list_changed']);
    }
  });

  it('ends when the client ends it, and is unknown from then on', async () => {
    const app = await scene({ shape });
    const session = await app.session();
    expect((await session.end()).status).toBe(200);
    expect((await session.post(callOf(1, 'cart.view'))).status).toBe(404);
  });
});
