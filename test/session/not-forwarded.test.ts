import type { Request, Response } from 'express';
import { describe, expect, it } from 'vitest';
import { gateFetch } from '../../src/doors/fetch.ts';
import {
  fsmGate,
  handleKey,
  memoryStore,
  notForwarded,
  StateMachineGate,
  sessionKey,
  sessionStore,
} from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import {
  callOf,
  INITIALIZE,
  PROTOCOL,
  reasonOf,
  sendAndHold,
  type WireMessage,
} from '../helpers/raw.ts';
import {
  pass,
  type Scene,
  type SceneOptions,
  scene,
  settle,
  staysQuiet,
} from '../helpers/scene.ts';

type Host = (req: Request, res: Response) => unknown;

/**
 * The checkout behind a host. While `fails` holds, the test says what becomes of calls of `tool`.
 */
async function start(host: Host, options: SceneOptions = {}) {
  const state = { fails: true };
  const app = await scene({
    shape: { mode: 'stateless', parser: true },
    ...options,
    behind: [
      (req, res, next) => {
        const isCall = JSON.stringify(req.body ?? {}).includes('"cart.pay"');
        if (!isCall || !state.fails) return next();
        void host(req, res);
      },
    ],
  });
  return { ...app, state };
}

const refused: Host = (req, res) => {
  void notForwarded(req);
  res.status(504).end('refused');
};

const viewOf = (app: Scene, run: string) => runsOf(checkoutGate(), { store: app.data }).read(run);

describe('a call that the host did not forward, and says so', () => {
  it.each(['text', 'json'])(
    'releases its run at once, and can be made again with the next request (%s)',
    async (type) => {
      const app = await start((req, res) => {
        void notForwarded(req);
        if (type === 'text') res.status(504).end('refused');
        else res.status(502).json({ jsonrpc: '2.0', id: 1, error: { code: -32000, message: 'x' } });
      });
      const session = await app.sessionAt('payment');
      const { status, text } = await session.post(callOf(1, 'cart.pay'));
      expect(status).toBe(type === 'text' ? 504 : 502);
      expect(text).not.toContain('unknown');
      await expect.poll(async () => (await viewOf(app, session.id))?.status).toBe('idle');
      app.state.fails = false;
      expect((await session.call('cart.pay')).result.content[0].text).toBe('cart.pay done');
      await staysQuiet(app);
      expect([app.errors, app.ledger.calls]).toEqual([[], ['cart.pay']]);
    },
  );

  it('holds its run as before, where the host says nothing', async () => {
    const app = await start((_req, res) => res.status(504).end('lost'));
    const session = await app.sessionAt('payment');
    await session.post(callOf(1, 'cart.pay'));
    await pass(app.clock, 8_500);
    expect(reasonOf(await session.call('cart.pay'))).toBe('held');
  });

  it('keeps the key of an earlier try for the next one', async () => {
    const keys: unknown[] = [];
    let fails: 'lost' | 'refused' | undefined = 'lost';
    const app = await start(
      (req, res) => {
        if (fails === 'refused') return refused(req, res);
        keys.push(req.body.params._meta['mcp-interlock/idempotencyKey']);
        if (fails === 'lost') return res.status(504).end('lost');
        res.json({ jsonrpc: '2.0', id: req.body.id, result: { content: [] } });
      },
      {
        workflow: new StateMachineGate<string, string>({
          id: 'order',
          initial: 'open',
          states: { open: { on: { PAY: 'paid' } }, paid: {} },
        }).bindTool('cart.pay', 'open', { success: 'PAY', uncertain: 'retry' }),
      },
    );
    const session = await app.session();
    await session.post(callOf(1, 'cart.pay'));
    await pass(app.clock, 8_500);
    fails = 'refused';
    await session.post(callOf(2, 'cart.pay'));
    await settle();
    fails = undefined;
    await session.post(callOf(3, 'cart.pay'));
    expect([keys.length, new Set(keys).size]).toEqual([2, 1]);
  });

  it('releases each step of its batch, in each run', async () => {
    const workflow = () =>
      new StateMachineGate<string, string>({
        id: 'order',
        initial: 'open',
        states: { open: { on: { PAY: 'paid' } }, paid: {} },
      }).bindTool('cart.pay', 'open', 'PAY');
    const key = [handleKey('sku', { createdBy: 'cart.view' }), sessionKey()];
    const app = await start(refused, { workflow: workflow(), session: { key } });
    const session = await app.session();
    const runs = runsOf(workflow(), { store: app.data });
    const names = ['a', 'b'].map((sku) =>
      key[0]?.kind === 'handle' ? key[0].runKey(sku, undefined) : '',
    );
    for (const run of names) await app.data.open(run, {}, 3_600_000);
    app.store.take();
    const batch = ['a', 'b'].map((sku) => callOf(sku, 'cart.pay', { sku }));
    expect((await session.post(batch)).status).toBe(504);
    for (const run of names)
      await expect.poll(async () => (await runs.read(run))?.status).toBe('idle');
    const asked = app.store.take().filter((each) => each === 'claim' || each === 'release');
    expect(asked.sort()).toEqual(['claim', 'claim', 'release', 'release']);
    await staysQuiet(app);
    expect(app.errors).toEqual([]);
  });

  it('releases the claims of two gates', async () => {
    const second = new StateMachineGate<string, string>({
      id: 'shipping',
      initial: 'waiting',
      states: { waiting: { on: { PAY: 'ready' } }, ready: {} },
    }).bindTool('cart.pay', 'waiting', 'PAY');
    const app = await start(refused, { workflow: [checkoutGate(), second] });
    const session = await app.sessionAt('payment');
    await session.post(callOf(1, 'cart.pay'));
    await settle();
    for (const gate of [checkoutGate(), second])
      expect((await runsOf(gate, { store: app.data }).read(session.id))?.status).toBe('idle');
    expect(app.errors).toEqual([]);
  });

  it('is free again though its client left, or was told that the outcome is unknown', async () => {
    const held: Request[] = [];
    const app = await start((req) => held.push(req));
    const session = await app.sessionAt('payment');
    const gone = sendAndHold(app.url, { headers: session.headers, body: callOf(1, 'cart.pay') });
    await expect.poll(() => held).toHaveLength(1);
    gone.cut();
    const cancel = { method: 'notifications/cancelled', params: { requestId: 1 } };
    await session.post({ jsonrpc: '2.0', ...cancel });
    await pass(app.clock, 20_000);
    expect(reasonOf(await session.call('cart.pay'))).toBe('held');
    await notForwarded(held[0] as Request);
    expect((await viewOf(app, session.id))?.status).toBe('idle');
  });

  it('shows its client no success that comes all the same', async () => {
    const app = await start(async (req, res) => {
      await notForwarded(req);
      res.json({ jsonrpc: '2.0', id: req.body.id, result: { content: [] } });
    });
    const session = await app.sessionAt('payment');
    const { result } = await session.call('cart.pay');
    expect(result._meta['mcp-interlock/outcome']).toMatchObject({ outcome: 'unknown' });
    expect(app.errors.map(String)).toEqual([expect.stringContaining('after notForwarded()')]);
  });

  it('is not undone where it was answered before', async () => {
    const app = await start((req, res) => {
      res.json({ jsonrpc: '2.0', id: req.body.id, result: { content: [] } });
      void notForwarded(req);
    });
    const session = await app.sessionAt('payment');
    await session.call('cart.pay');
    expect((await viewOf(app, session.id))?.snapshot.state).toBe('confirmed');
  });

  it('is ignored for a request that no middleware has seen', async () => {
    await expect(notForwarded(new globalThis.Request('http://x.example'))).resolves.toBeUndefined();
  });
});

describe('notForwarded() in a handler of the Fetch API', () => {
  it('frees the run as well', async () => {
    const store = memoryStore();
    const middlewares = [sessionStore({ store }), fsmGate(checkoutGate())] as const;
    const fetch = gateFetch(async (request) => {
      const { id, method, params } = (await request.json()) as WireMessage;
      if (params?.name === 'cart.pay') {
        void notForwarded(request);
        return new globalThis.Response('refused', { status: 504 });
      }
      if (id === undefined) return new globalThis.Response(null, { status: 202 });
      const result = { content: [], capabilities: {}, method };
      return globalThis.Response.json({ jsonrpc: '2.0', id, result });
    }, middlewares);
    const post = (body: WireMessage, headers = {}) => {
      const accept = 'application/json, text/event-stream';
      const all = { 'content-type': 'application/json', accept, ...headers };
      const init = { method: 'POST', headers: all, body: JSON.stringify(body) };
      return fetch(new globalThis.Request('http://shop.example/mcp', init));
    };
    const id = (await post(INITIALIZE)).headers.get('mcp-session-id') ?? '';
    const headers = { 'mcp-session-id': id, 'mcp-protocol-version': PROTOCOL };
    for (const tool of ['cart.add_item', 'cart.checkout'])
      await (await post(callOf(tool, tool), headers)).text();
    expect((await post(callOf(1, 'cart.pay'), headers)).status).toBe(504);
    const runs = runsOf(checkoutGate(), { store });
    await expect.poll(async () => (await runs.read(id))?.status).toBe('idle');
  });
});
