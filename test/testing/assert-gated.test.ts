import { AssertionError } from 'node:assert';
import { Hono } from 'hono';
import { describe, expect, it, onTestFinished } from 'vitest';
import { assertGated } from '../../packages/testing/src/index.ts';
import { gateFetch } from '../../src/doors/fetch.ts';
import { fsmGate, principalKey, StateMachineGate, sessionStore } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { makeStage, scene, sceneOfBothEras } from '../helpers/scene.ts';
import { callStateless, startTwoEras } from '../helpers/two-eras.ts';
import { HOSTS, startUpstream, type UpstreamOptions } from '../helpers/upstream.ts';

/** A gate of another id that refuses the same tools. */
function otherGate() {
  return new StateMachineGate({
    id: 'other',
    initial: 'a',
    states: { a: { on: { B: 'b' } }, b: {} },
  })
    .bindTool('cart.pay', 'b')
    .bindTool('cart.checkout', 'b');
}

async function upstream(options: UpstreamOptions = {}) {
  const started = await startUpstream(options);
  onTestFinished(() => started.close());
  return started;
}

/** The message of the assertion about a route that is not gated. */
async function failureOf(asserted: Promise<unknown>): Promise<string> {
  const error: unknown = await asserted.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(AssertionError);
  return (error as AssertionError).message;
}

describe('assertGated() passes, and runs no tool,', () => {
  it.each(HOSTS)('behind $host $mode $answers', async (shape) => {
    const { url, ledger } = await scene({ shape });
    expect(await assertGated(checkoutGate(), url)).toMatchObject({ tool: 'cart.checkout' });
    expect(ledger.calls).toEqual([]);
  });

  it.each([undefined, 'hide', 'stable'] as const)(
    'in both eras, with the visibility %s',
    async (visibility) => {
      const { url, calls } = await sceneOfBothEras({ gate: { visibility } });
      const gated = await assertGated(checkoutGate(), String(url));
      expect(gated).toEqual({ eras: ['session', 'stateless'], tool: 'cart.checkout' });
      expect(calls).toEqual([]);
    },
  );

  it('where runs are named by principals, with their headers', async () => {
    const { url, calls } = await sceneOfBothEras({ session: { key: principalKey() } });
    const headers = { 'x-user': 'ann' };
    expect((await assertGated(checkoutGate(), url, { headers })).eras).toHaveLength(2);
    // Her run has moved on: a call would run now.
    for (const tool of ['cart.add_item', 'cart.checkout'])
      await callStateless(url, tool, {}, { user: 'ann' });
    const gate = new StateMachineGate({
      id: 'checkout',
      initial: 'empty',
      states: {
        empty: { on: { X: 'payment' } },
        payment: { on: { PAY: 'confirmed' } },
        confirmed: {},
      },
    }).bindTool('cart.pay', ['payment'], 'PAY');
    expect(await failureOf(assertGated(gate, url, { headers }))).toContain('run has moved on');
    expect(calls.map(({ tool }) => tool)).toEqual(['cart.add_item', 'cart.checkout']);
  });

  it('beside another gate that refuses the same tool first', async () => {
    const { url, ledger } = await scene({
      workflow: [otherGate(), checkoutGate().bindTool('cart.clear', ['has_items'], 'CLEAR')],
    });
    expect(await assertGated(otherGate(), url)).toMatchObject({ tool: 'cart.pay' });
    expect((await assertGated(checkoutGate().bindTool('cart.clear', 'payment'), url)).tool).toBe(
      'cart.clear',
    );
    expect(ledger.calls).toEqual([]);
  });

  it('given an app of Express, with the route that it serves', async () => {
    const { middlewares } = makeStage({});
    const { app } = await upstream({ middlewares });
    expect((await assertGated(checkoutGate(), app)).eras).toEqual(['session']);
    expect(await failureOf(assertGated(checkoutGate(), app, { path: '/other' }))).toContain(
      'Give the URL or the { path } of its MCP route',
    );
  });

  it('given a handler of the Fetch API, or an app of one', async () => {
    const { handler } = await startTwoEras();
    onTestFinished(() => handler.close());
    const gate = checkoutGate();
    const gated = gateFetch((request) => handler.fetch(request), [sessionStore(), fsmGate(gate)]);
    expect((await assertGated(gate, gated)).eras).toEqual(['session', 'stateless']);
    const app = new Hono().all('/api/mcp', (context) => gated(context.req.raw));
    expect((await assertGated(gate, app, { path: '/api/mcp' })).tool).toBe('cart.checkout');
  });
});

describe('assertGated() fails, and runs no tool,', () => {
  it('where no gate is mounted, and says how to mount it', async () => {
    const { url, ledger } = await upstream();
    const message = await failureOf(assertGated(checkoutGate(), url));
    expect(message).toContain('the list shows "cart.checkout"');
    expect(message).toContain("app.all('/mcp', sessionStore(), fsmGate(gate), handler)");
    expect(ledger.calls).toEqual([]);
  });

  it('where the list hides a tool that no gate refuses', async () => {
    const gate = new StateMachineGate({
      id: 'checkout',
      initial: 'empty',
      states: { empty: { on: { X: 'confirmed' } }, confirmed: {} },
    }).bindTool('cart.refund', 'confirmed');
    const { url } = await upstream();
    expect(await failureOf(assertGated(gate, url))).toMatch(
      /a call of "cart.refund" was not refused by "checkout", but answered HTTP 200/,
    );
  });

  it('where only another gate is mounted', async () => {
    const { url, ledger } = await scene({ workflow: otherGate() });
    expect(await failureOf(assertGated(checkoutGate(), url))).toContain(
      'another gate refused each of "cart.checkout", "cart.pay", and "checkout" none',
    );
    expect(ledger.calls).toEqual([]);
  });

  it('where the gate keeps secret that it is one', async () => {
    const { url } = await scene({ gate: { refusal: 'unknown-tool' } });
    expect(await failureOf(assertGated(checkoutGate(), url))).toContain("refusal: 'unknown-tool'");
  });

  it('where only one of two eras is gated', async () => {
    const { middlewares } = makeStage({});
    const app = await startTwoEras({
      before: [
        (req, res, next) => {
          const isStateless = req.headers['mcp-protocol-version'] === '2026-07-28';
          const [first, second] = middlewares;
          if (isStateless || second === undefined) next();
          else first(req, res, () => second(req, res, next));
        },
      ],
    });
    onTestFinished(() => app.close());
    expect(await failureOf(assertGated(checkoutGate(), app.url))).toContain('the list shows');
    expect(app.calls).toEqual([]);
  });

  it('where no client gets in without a token', async () => {
    const { url } = await upstream({ before: [(_req, res) => void res.status(401).end()] });
    expect(await failureOf(assertGated(checkoutGate(), url))).toContain('Give { headers }');
  });

  it('where no server listens', async () => {
    const { url, close } = await startUpstream();
    await close();
    expect(await failureOf(assertGated(checkoutGate(), url))).toMatch(/cannot be reached: .*ECONN/);
  });
});

describe('assertGated() says what it cannot ask:', () => {
  const loose = assertGated as (...args: unknown[]) => Promise<unknown>;
  const open = new StateMachineGate({ id: 'open', initial: 'a', states: { a: {} } }).bindTool(
    'x',
    'a',
  );

  it.each([
    ['a gate that refuses nothing at first', [open, 'http://x.test/'], 'refuses none of its tools'],
    [
      'a gate of another copy',
      [{ compile() {}, bindTool() {} }, 'http://x.test/'],
      'of another copy of mcp-interlock',
    ],
    ['no gate', [{}, 'http://x.test/'], 'the first argument must be a StateMachineGate'],
    ['a path for a URL', [checkoutGate(), '/mcp'], 'expected a URL, got "/mcp"'],
    ['nothing', [checkoutGate(), undefined], 'an app or a handler of the Fetch API'],
    ['an unknown option', [checkoutGate(), 'http://x.test/', { header: {} }], '"headers"'],
  ])('%s', async (_, args, message) => {
    await expect(loose(...args)).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_CONFIG',
      message: expect.stringContaining(message),
    });
  });
});
