import { describe, expect, it, onTestFinished } from 'vitest';
import { assign, setup } from 'xstate';
import { NO_ANSWER, type TestGate, testGate } from '../../packages/testing/src/index.ts';
import { gateFetch } from '../../src/doors/fetch.ts';
import {
  fsmGate,
  managedHandle,
  principalKey,
  StateMachineGate,
  sessionStore,
} from '../../src/index.ts';
import { runsOf, workflowHealth } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { latch } from '../helpers/latch.ts';

/** Closes it at the end of the test. */
function closing<T extends Pick<TestGate, 'close'>>(tested: T): T {
  onTestFinished(() => tested.close());
  return tested;
}

/** A gate of one state in which a tool is bound as the test says. */
function deskGate(options: Parameters<typeof bindDesk>[0] = {}) {
  return bindDesk(options);
}

function bindDesk(options: {
  readonly guard?: (call: {
    readonly context: unknown;
    readonly principal?: unknown;
  }) => boolean | string;
  readonly uncertain?: 'hold' | 'retry';
}) {
  return new StateMachineGate({
    id: 'desk',
    initial: 'open',
    states: { open: { on: { SIGN: 'signed' } }, signed: { on: { FILE: 'filed' } }, filed: {} },
  })
    .bindTool('paper.sign', 'open', { success: 'SIGN', ...options })
    .bindTool('paper.file', 'signed', 'FILE');
}

describe('a gate that a test calls', () => {
  it('lists, refuses and moves on as it does behind a server', async () => {
    const t = closing(testGate(checkoutGate(), { tools: ['cart.view'] }));
    expect(await t.list()).toEqual(['cart.add_item', 'cart.view']);
    const early = await t.call('cart.pay');
    expect(early).toMatchObject({ outcome: 'refused', ran: false });
    expect(t.refusal()).toMatchObject({
      reason: 'state',
      available: ['cart.add_item'],
      path: ['cart.add_item', 'cart.checkout'],
      text: expect.stringMatching(/^\[System: cart.pay is not available/),
    });
    const added = await t.call('cart.add_item', { sku: 'tea' }, 'in the cart');
    expect(added).toMatchObject({ outcome: 'ok', ran: true, text: 'in the cart' });
    expect([t.refusal(), t.refusal(early)?.reason]).toEqual([undefined, 'state']);
    expect(await t.list()).toEqual(['cart.add_item', 'cart.checkout', 'cart.view']);
    expect(await t.state()).toBe('has_items');
    expect((await t.history()).map(({ tool, from, to }) => [tool, from, to])).toEqual([
      ['cart.add_item', 'empty', 'has_items'],
    ]);
    expect([t.errors, t.warnings]).toEqual([[], []]);
  });

  it('tells of what is odd about the gate, as the mounted one would', () => {
    const gate = checkoutGate().bindTool('cart.pay', 'empty', 'PAY');
    expect(closing(testGate(gate)).warnings).toEqual(gate.warnings);
    expect(gate.warnings).not.toEqual([]);
  });

  it('lets a tool through that is not bound', async () => {
    const t = closing(testGate(checkoutGate(), { tools: ['cart.view'] }));
    const seen = await t.call('cart.view', {}, { content: [], structuredContent: { items: 0 } });
    expect(seen).toMatchObject({ outcome: 'ok', result: { structuredContent: { items: 0 } } });
    expect(await t.history()).toEqual([]);
  });

  it('suggests the right name for a tool that the server does not have', async () => {
    const t = closing(testGate(checkoutGate(), { tools: ['cart.view'] }));
    await expect(t.call('cart.ad_item')).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_CONFIG',
      message: expect.stringContaining('did you mean "cart.add_item"?'),
    });
    await expect(t.call('cart.veiw')).rejects.toThrow('did you mean "cart.view"?');
  });

  it('asks the guard, with the principal and the data of the run', async () => {
    const asked: unknown[] = [];
    const gate = deskGate({
      guard: ({ context, principal }) => {
        asked.push([context, principal]);
        return principal === 'ann' || 'Only ann signs';
      },
    });
    const ben = closing(testGate(gate, { principal: 'ben', context: { copies: 2 } }));
    await ben.call('paper.sign');
    expect(ben.refusal()).toMatchObject({
      reason: 'guard',
      text: expect.stringContaining('Only ann signs.'),
    });
    const ann = closing(testGate(gate, { principal: 'ann' }));
    expect((await ann.call('paper.sign')).outcome).toBe('ok');
    expect(asked).toEqual([
      [{ copies: 2 }, 'ben'],
      [undefined, 'ann'],
    ]);
    expect(await ben.context()).toEqual({ copies: 2 });
  });

  it('tells of a guard that throws', async () => {
    const broken = new Error('no such clerk');
    const gate = deskGate({
      guard: () => {
        throw broken;
      },
    });
    const t = closing(testGate(gate));
    expect((await t.call('paper.sign')).refusal?.reason).toBe('guard');
    expect(t.errors).toEqual([broken]);
  });

  it('gates single actions of a tool, and sends what a function makes of the outcome', async () => {
    const gate = new StateMachineGate({
      id: 'vote',
      initial: 'open',
      states: { open: { on: { YES: 'passed', NO: 'failed' } }, passed: {}, failed: {} },
    }).bindTool('poll', 'open', {
      when: ({ action }) => action === 'close',
      success: ({ result }) => (result.structuredContent?.yes === true ? 'YES' : 'NO'),
    });
    const t = closing(testGate(gate));
    expect((await t.call('poll', { action: 'show' })).outcome).toBe('ok');
    expect(await t.state()).toBe('open');
    await t.call('poll', { action: 'close' }, { structuredContent: { yes: true } });
    expect(await t.state()).toBe('passed');
    expect((await t.call('poll', { action: 'close' })).refusal?.reason).toBe('state');
    expect((await t.call('poll', { action: 'show' })).outcome).toBe('ok');
  });

  it.each([
    ['an Error', new Error('card declined'), 'tool_error', 'card declined'],
    ['a result', { content: [], isError: true }, 'tool_error', ''],
    [
      'a JSON-RPC error',
      Object.assign(new Error('bad sku'), { code: -32602 }),
      'rpc_error',
      'bad sku',
    ],
    ['a rejected promise', async () => Promise.reject(new Error('gone')), 'tool_error', 'gone'],
  ])('sees a failure: %s', async (_, result, outcome, text) => {
    const t = closing(testGate(checkoutGate()));
    expect(await t.call('cart.add_item', {}, result)).toMatchObject({ outcome, text, ran: true });
    expect(await t.state()).toBe('empty');
    expect((await t.history()).map((entry) => entry.outcome)).toEqual(['failed']);
  });

  it('runs a function as the handler, inside of the step', async () => {
    const t = closing(testGate(checkoutGate(), { run: 'order-7' }));
    const answer = await t.call('cart.add_item', { sku: 'tea' }, ({ sku }, step) => {
      step?.update(() => ({ items: [String(sku)] }));
      return `${step?.tool} of ${step?.run}`;
    });
    expect(answer.text).toBe('cart.add_item of order-7');
    expect([await t.context(), await t.run()]).toEqual([{ items: ['tea'] }, 'order-7']);
  });

  it('lets calls wait for one another, in the order in which they came', async () => {
    const t = closing(testGate(checkoutGate(), { state: 'payment' }));
    const provider = latch();
    const paying = t.call(
      'cart.pay',
      {},
      provider.opened.then(() => 'paid'),
    );
    const again = t.call('cart.pay');
    provider.open();
    const [first, second] = await Promise.all([paying, again]);
    expect([first.text, second.ran, second.refusal?.reason]).toEqual(['paid', false, 'state']);
    expect(await t.state()).toBe('confirmed');
  });

  it('keeps the run of a call that takes longer than a lease', async () => {
    const t = closing(testGate(checkoutGate(), { state: 'payment' }));
    const [entered, provider] = [latch(), latch()];
    const paying = t.call('cart.pay', {}, async () => {
      entered.open();
      await provider.opened;
      return 'paid';
    });
    await entered.opened;
    await t.clock.advance(60_000);
    provider.open();
    expect((await paying).outcome).toBe('ok');
    expect(await t.state()).toBe('confirmed');
  });

  it('holds a run whose server died, until it is resolved', async () => {
    const t = closing(testGate(checkoutGate(), { state: 'payment' }));
    expect(await t.call('cart.pay', {}, NO_ANSWER)).toMatchObject({
      outcome: 'unknown',
      ran: true,
    });
    expect((await t.call('cart.pay')).refusal?.reason).toBe('held');
    expect(t.errors).toMatchObject([{ name: 'UnknownOutcome' }]);
    expect(await t.resolve('succeeded', { actor: 'ann' })).toMatchObject({ resolved: true });
    expect(await t.state()).toBe('confirmed');
  });

  it('tells of a server that died in a call that moves no run', async () => {
    const gate = new StateMachineGate({ initial: 'a', states: { a: {} } }).bindTool('look', 'a');
    const t = closing(testGate(gate, { tools: ['free'] }));
    for (const tool of ['look', 'free'])
      expect(await t.call(tool, {}, NO_ANSWER)).toEqual({
        outcome: 'unknown',
        text: '',
        ran: true,
      });
    expect((await t.call('look')).outcome).toBe('ok');
  });

  it('reads a clock that keeps its time in itself', async () => {
    class Stopped {
      readonly #time = 1_000;
      now() {
        return this.#time;
      }
      after() {
        return () => {};
      }
    }
    const clock = new Stopped();
    const gate = new StateMachineGate({
      initial: 'a',
      states: { a: { on: { GO: 'b' } }, b: {} },
    }).bindTool('go', 'a', 'GO');
    const sessions = sessionStore({ clock });
    const runs = runsOf(gate, { sessions });
    const events: unknown[] = [];
    const onEvent = (event: unknown) => void events.push(event);
    const server = gateFetch(
      () => Response.json({ jsonrpc: '2.0', id: 1, result: { content: [] } }),
      [sessions, fsmGate(gate, { clock, onEvent })],
    );
    const headers = { 'content-type': 'application/json', accept: 'application/json' };
    const ask = (more: object, body: object) =>
      server(
        new Request('http://mcp.test/mcp', {
          method: 'POST',
          headers: { ...headers, ...more },
          body: JSON.stringify({ jsonrpc: '2.0', id: 1, ...body }),
        }),
      );
    const begun = await ask(
      {},
      { method: 'initialize', params: { protocolVersion: '2025-11-25' } },
    );
    const id = begun.headers.get('mcp-session-id') ?? '';
    await ask({ 'mcp-session-id': id }, { method: 'tools/call', params: { name: 'go' } });
    expect(await runs.read(id)).toMatchObject({ state: 'b' });
    const health = workflowHealth({ runs: [runs], stuckAfterMs: 1_000 });
    expect((await health.fetch(new Request('http://mcp.test/health'))).status).toBe(200);
  });

  it('tries again, with the same key, where the binding or the tool says that it may', async () => {
    for (const t of [
      closing(testGate(deskGate({ uncertain: 'retry' }))),
      closing(
        testGate(deskGate(), {
          tools: [{ name: 'paper.sign', annotations: { idempotentHint: true } }],
        }),
      ),
    ]) {
      const keys: unknown[] = [];
      await t.call('paper.sign', { page: 1 }, (_, step) => {
        keys.push(step?.idempotencyKey);
        return NO_ANSWER;
      });
      const again = await t.call('paper.sign', { page: 1 }, (_, step) => {
        keys.push(step?.idempotencyKey);
        return 'signed';
      });
      expect([again.outcome, await t.state()]).toEqual(['ok', 'signed']);
      expect(keys).toEqual([expect.any(String), keys[0]]);
    }
  });

  it('leaves a state whose time is over, and not a moment before', async () => {
    const gate = new StateMachineGate({
      id: 'offer',
      initial: 'made',
      states: { made: { on: { TAKE: 'taken' }, after: { 900000: 'gone' } }, taken: {}, gone: {} },
    }).bindTool('take', 'made', 'TAKE');
    const t = closing(testGate(gate, { state: 'made', now: 1_000 }));
    await t.clock.advance(899_999);
    expect([await t.state(), t.clock.now()]).toEqual(['made', 900_999]);
    await t.clock.advance(1);
    expect(await t.state()).toBe('gone');
    expect((await t.call('take')).refusal?.state).toBe('gone');
  });

  it('counts calls for the loop shield', async () => {
    const gate = new StateMachineGate(
      { id: 'help', initial: 'self', states: { self: { on: { X: 'desk' } }, desk: {} } },
      { loopShield: { max: 2, fallback: { state: 'desk' } } },
    ).bindTool('search', 'self');
    const t = closing(testGate(gate));
    const reasons: unknown[] = [];
    for (let call = 0; call < 3; call++) reasons.push((await t.call('search')).refusal?.reason);
    expect([reasons, await t.state()]).toEqual([[undefined, undefined, 'loop'], 'desk']);
  });

  it('is moved by events from outside', async () => {
    const t = closing(testGate(checkoutGate(), { state: 'payment' }));
    expect(await t.send('CANCEL', { actor: 'support' })).toMatchObject({ sent: true });
    expect(await t.state()).toBe('has_items');
    expect((await t.runs().read(await t.run()))?.available).toContain('cart.checkout');
  });

  it('takes a statechart, its context included', async () => {
    const machine = setup({
      types: {} as { context: { left: number }; events: { type: 'TAKE' } | { type: 'STOP' } },
      guards: { some: ({ context }) => context.left > 0 },
      actions: { less: assign({ left: ({ context }) => context.left - 1 }) },
    }).createMachine({
      id: 'stock',
      initial: 'open',
      context: { left: 5 },
      states: {
        open: { on: { TAKE: { guard: 'some', actions: 'less' }, STOP: 'shut' } },
        shut: {},
      },
    });
    const gate = new StateMachineGate(machine).bindTool('take', 'open', 'TAKE');
    const t = closing(testGate(gate, { context: { left: 1 } }));
    await t.call('take');
    const { left } = await t.context();
    expect([left, await t.state()]).toEqual([0, 'open']);
    expect((await t.call('take')).refusal?.reason).toBe('guard');
  });

  it('mounts several gates on one route', async () => {
    const [cart, desk] = [checkoutGate(), deskGate()];
    const t = closing(testGate([cart, desk], { tools: ['cart.view'] }));
    expect(await t.list()).toEqual(['cart.add_item', 'paper.sign', 'cart.view']);
    await t.call('paper.sign');
    expect([await t.state(), await t.state(desk)]).toEqual(['empty', 'signed']);
    expect([(await t.history()).length, (await t.history(desk)).length]).toEqual([0, 1]);
    expect(() => t.runs(checkoutGate())).toThrow('one of the tested gates');
  });

  it('tells of stale data where stateSync() is given its policies', async () => {
    const policies = [{ match: 'cart.add_item', invalidates: ['cart.*'] }];
    const t = closing(testGate(checkoutGate(), { sync: { policies } }));
    expect((await t.call('cart.add_item')).text).toContain('Cache invalidated for cart.*');
  });

  it('takes the options of fsmGate() and sessionStore()', async () => {
    const t = closing(
      testGate(checkoutGate(), {
        principal: 'ann',
        session: { key: principalKey() },
        gate: { statusTool: 'status', whenEnded: 'keep' },
        state: 'payment',
      }),
    );
    expect(await t.run()).toBe('principal ann');
    await t.call('cart.pay');
    expect((await t.call('status')).text).toContain('has ended');
    expect(await t.state()).toBe('confirmed');
  });

  it('knows the tool that begins a run, and asks for its key where a handle names it', async () => {
    const key = managedHandle({ start: 'cart.new', argument: 'cart' });
    const t = closing(testGate(checkoutGate(), { session: { key } }));
    const { result } = await t.call('cart.new');
    const handle = String(result?.structuredContent?.cart);
    expect((await t.call('cart.add_item')).refusal?.reason).toBe('no-run');
    expect((await t.call('cart.add_item', { cart: handle })).outcome).toBe('ok');
    await expect(t.run()).rejects.toThrow('named by a handle');
    expect((await t.runs().read(key.runKey(handle)))?.state).toBe('has_items');
  });

  it('says how to keep a session that was idle for too long', async () => {
    const t = closing(testGate(checkoutGate()));
    await t.call('cart.add_item');
    await t.clock.advance(25 * 60 * 60 * 1000);
    await expect(t.call('cart.checkout')).rejects.toThrow('idleMs');
  });

  it('is closed by `await using`', async () => {
    let seen: unknown;
    {
      await using t = testGate(checkoutGate());
      seen = await t.list();
    }
    expect(seen).toEqual(['cart.add_item']);
  });
});

describe('a test that is set up wrongly', () => {
  /** A call from JavaScript, which checks no types. */
  const loose = testGate as (...args: unknown[]) => unknown;

  it.each([
    ['no gate', [{}], 'must be a StateMachineGate, got an object'],
    ['an empty list', [[]], 'got an empty array'],
    [
      'a gate of another copy',
      [[checkoutGate(), { compile() {}, bindTool() {} }]],
      'of another copy of mcp-interlock',
    ],
    ['an unknown option', [checkoutGate(), { tool: [] }], 'did you mean "tools"?'],
    ['an unknown state', [checkoutGate(), { state: 'paymnet' }], 'did you mean "payment"?'],
    ['a tool without a name', [checkoutGate(), { tools: [{}] }], 'tools'],
    ['a run that no session can be', [checkoutGate(), { run: 'order 7' }], 'run'],
    ['an option of a gate', [checkoutGate(), { gate: { announced: true } }], '"announce"'],
    [
      'the state of two gates',
      [[checkoutGate(), deskGate()], { state: 'open' }],
      'state, facts and context are those of one gate',
    ],
  ])('is told at once: %s', (_, args, message) => {
    expect(() => loose(...args)).toThrow(
      expect.objectContaining({
        code: 'ERR_INTERLOCK_CONFIG',
        message: expect.stringContaining(message),
      }),
    );
  });

  it('is told of a wrong number of milliseconds', async () => {
    const t = closing(testGate(checkoutGate()));
    await expect(t.clock.advance(-1)).rejects.toThrow('from 0 on, got -1');
    await expect(t.clock.advance(Number.NaN)).rejects.toThrow('got NaN');
  });
});
