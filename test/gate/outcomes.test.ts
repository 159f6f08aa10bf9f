import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import {
  type BindingOptions,
  type FsmGateOptions,
  StateMachineGate,
  type ToolResult,
  tool,
  UnknownOutcome,
} from '../../src/index.ts';
import { passUntil, scene } from '../helpers/scene.ts';
import type { Ledger } from '../helpers/upstream.ts';

/** What the model reads of a call that is undecided. */
const RAN =
  '[System: pay ran, but its outcome could not be recorded. ' +
  'Do not call it again; the operator must check what happened.]';

function orderGate(pay: BindingOptions) {
  return new StateMachineGate<string, string>({
    id: 'order',
    initial: 'open',
    states: {
      open: { on: { PAID: 'paid', DECLINED: 'declined', BROKE: 'review' } },
      paid: {},
      declined: { on: { RETRY: 'open' } },
      review: {},
    },
  })
    .bindTool('pay', 'open', pay)
    .bindTool('retry', 'declined', 'RETRY');
}

/** Its `pay` answers as its argument says: `paid`, `declined`, `error` or `broken`. */
function orderServer(ledger: Ledger): McpServer {
  const server = new McpServer({ name: 'order', version: '1.0.0' });
  const inputSchema = { as: z.string(), sum: z.number().optional() };
  server.registerTool('pay', { inputSchema }, ({ as }) => {
    ledger.calls.push('pay');
    if (as === 'broken') throw new Error('terminal is broken');
    const content = [{ type: 'text' as const, text: as }];
    return { content, structuredContent: { as }, isError: as === 'error' };
  });
  server.registerTool('retry', {}, () => ({ content: [] }));
  return server;
}

/** A client of an order with this binding of `pay`. */
async function order(pay: BindingOptions, gate: FsmGateOptions = {}) {
  const app = await scene({
    workflow: orderGate(pay),
    gate,
    shape: { mode: 'stateless', answers: 'json' },
    makeServer: orderServer,
  });
  const client = await app.client();
  app.store.take();
  return {
    ...app,
    client,
    key: client.run,
    order: app.run(client.run),
    trail: () => app.runs.history(client.run),
    /** A call that pays, while the store fails until its lease is over. */
    async loseOutcome(): Promise<void> {
      app.store.fail('commit');
      await passUntil(app.clock, client.raw.call('pay', { as: 'paid' }));
      // One more try to save it fails, and the next one comes later.
      app.clock.advance(8_000);
      app.store.heal();
    },
  };
}

describe('a success that is a function', () => {
  const byResult: BindingOptions = {
    success: ({ args, result }) =>
      result.structuredContent?.as === 'paid'
        ? { type: 'PAID', payload: { sum: Number(args.sum) } }
        : 'DECLINED',
  };

  it('decides by arguments and result where the run goes, and what the trail keeps', async () => {
    const { client, errors, trail, ...app } = await order(byResult);
    await client.calls('pay', { as: 'declined' });
    await app.order.isIn('declined');
    await client.sees(['retry']);
    await client.calls('retry');
    await client.calls('pay', { as: 'paid', sum: 3 });
    expect(await trail()).toMatchObject([
      { from: 'open', to: 'declined', event: 'DECLINED', tool: 'pay' },
      { from: 'declined', to: 'open', event: 'RETRY' },
      { from: 'open', to: 'paid', event: 'PAID', payload: { sum: 3 } },
    ]);
    expect(errors).toEqual([]);
  });

  it('costs no extra round trip, and a failure moves nothing', async () => {
    const { client, store } = await order(byResult);
    await client.raw.call('pay', { as: 'error' });
    expect(store.take()).toEqual(['claim', 'release']);
    await client.calls('pay', { as: 'paid', sum: 1 });
    expect(store.take()).toEqual(['claim', 'commit']);
  });

  it('may send nothing: the call is saved, and the run stays', async () => {
    const { client, errors, trail } = await order({ success: () => undefined });
    expect((await client.calls('pay', { as: 'paid' })).text).toBe('paid');
    expect(await trail()).toMatchObject([{ from: 'open', to: 'open', event: null }]);
    expect(errors).toEqual([]);
  });

  it.each<[string, (call: { readonly result: ToolResult }) => unknown, string]>([
    [
      'throws',
      () => {
        throw new Error('no such field');
      },
      'no such field',
    ],
    [
      'returns an event that no state handles',
      () => 'PAYED',
      '"PAYED", which no state handles; did you mean "PAID"?',
    ],
    ['returns no event', () => 7, 'expected the name of an event, got 7'],
    [
      'returns a promise',
      () => Promise.resolve('PAID'),
      'expected the name of an event, got a promise',
    ],
    [
      'reads a path that is not there',
      ({ result }) => (result.data as { as: string }).as,
      'Cannot read properties of undefined',
    ],
    [
      'returns a payload that is not JSON',
      () => ({ type: 'PAID', payload: new Date(0) }),
      'is a Date',
    ],
  ])(
    'that %s holds the run, also with `retry`: the handler runs once',
    async (_, success, told) => {
      for (const uncertain of ['hold', 'retry'] as const) {
        const app = await order({ success: success as () => 'PAID', uncertain });
        const { client, errors, trail, key, runs } = app;
        const answer = await client.raw.call('pay', { as: 'paid', sum: 4_711 });
        expect(answer.isError).toBe(true);
        expect(answer.texts).toEqual([RAN]);
        for (let times = 0; times < 2; times++)
          await client.isRefused('pay', 'held', { as: 'paid', sum: 4_711 });
        app.clock.advance(60_000);
        await client.isRefused('pay', 'held', { as: 'paid', sum: 4_711 });
        expect(app.ledger.calls).toEqual(['pay']);
        await app.order.isIn('open', 'held');
        expect((await runs.read(key))?.claim).toMatchObject({ kind: 'undecided', tool: 'pay' });

        expect(errors).toEqual([expect.any(UnknownOutcome)]);
        const [error] = errors as [UnknownOutcome];
        expect(error.message).toContain('a call of "pay" ran');
        expect(error.message).toContain('the binding of "pay" in "open"');
        expect(error.message).toContain('its "success" could not be followed');
        expect(error.message).toContain(
          'content, structuredContent, structuredContent.as, isError',
        );
        expect(error.message).not.toMatch(/4711|paid|PAYED/);
        expect(String(error.cause)).toContain(told);

        await expect(runs.resolve(key, 'succeeded')).rejects.toThrow('{ event: null } for none');
        const resolved = { resolved: true, state: 'paid' };
        expect(await runs.resolve(key, 'succeeded', { event: 'PAID' })).toEqual(resolved);
        expect(await trail()).toMatchObject([{ from: 'open', to: 'paid', kind: 'resolved' }]);
      }
    },
  );

  it('that was undecided may be resolved as a success without a move', async () => {
    const { client, key, runs, trail, ...app } = await order({
      success: () => {
        throw new Error('oops');
      },
    });
    await client.raw.call('pay', { as: 'paid' });
    const resolved = { resolved: true, state: 'open' };
    expect(await runs.resolve(key, 'succeeded', { event: null })).toEqual(resolved);
    expect(await trail()).toMatchObject([{ to: 'open', event: null, outcome: 'succeeded' }]);
    await app.order.isIn('open', 'idle');
  });

  it('is held by a store that comes back while the gate asks again', async () => {
    const { client, key, runs, store, clock, errors, ...app } = await order({
      success: () => 'PAYED' as 'PAID',
      uncertain: 'retry',
    });
    store.fail('renew', 2);
    const answer = await passUntil(clock, client.raw.call('pay', { as: 'paid' }));
    expect(answer.texts).toEqual([RAN]);
    await app.order.is('held');
    store.fail('renew');
    await runs.resolve(key, 'failed', { event: null });
    await passUntil(clock, client.raw.call('pay', { as: 'paid' }));
    expect((await runs.read(key))?.claim?.kind).toBeUndefined();
    store.heal();
    clock.advance(8_000);
    await app.order.becomes('held');
    expect(errors.filter((error) => error instanceof UnknownOutcome)).toHaveLength(2);
  });

  it('and is an async function is refused as it is bound', () => {
    const wrong = expect.objectContaining({
      code: 'ERR_INTERLOCK_BINDING',
      message: expect.stringContaining('must not be an async function'),
    });
    for (const option of ['success', 'failure', 'errors'] as const) {
      const binding = { failure: 'BROKE', [option]: async () => 'PAID' } as BindingOptions;
      expect(() => orderGate(binding)).toThrow(wrong);
      expect(() => tool('pay').bindState('open', binding as object)).toThrow(wrong);
    }
  });

  it('of a held run is not guessed: resolve() needs the event', async () => {
    const { key, runs, trail, loseOutcome, ...app } = await order(byResult);
    await loseOutcome();
    await app.order.is('held');
    await expect(runs.resolve(key, 'succeeded')).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_EVENT',
    });
    expect(
      await runs.resolve(key, 'succeeded', { event: 'PAID', payload: { by: 'phone' } }),
    ).toEqual({
      resolved: true,
      state: 'paid',
    });
    expect(await trail()).toMatchObject([{ to: 'paid', event: 'PAID', payload: { by: 'phone' } }]);
  });
});

describe('a failure event', () => {
  it.each(['error', 'broken'])(
    'moves the run when the tool fails (%s), and the client sees the failure',
    async (as) => {
      const binding = { success: 'PAID', failure: 'BROKE' };
      const { client, store, trail } = await order(binding, { announce: true });
      const failed = await client.raw.call('pay', { as });
      expect(failed.isError).toBe(true);
      expect(failed.texts.at(-1)).toBe(
        '[System: order is now in "review". No tool of order is available now.]',
      );
      expect(store.take()).toEqual(['claim', 'commit']);
      expect(await trail()).toMatchObject([
        { from: 'open', to: 'review', event: 'BROKE', tool: 'pay' },
      ]);
    },
  );

  it('is sent by itself if a success sends nothing', async () => {
    const { client, ...app } = await order({ failure: 'BROKE' });
    await client.calls('pay', { as: 'paid' });
    await app.order.isIn('open');
    await client.raw.call('pay', { as: 'error' });
    await app.order.isIn('review');
  });

  it('may be a function of the result, and lets the claim go if it sends nothing', async () => {
    const seen: unknown[] = [];
    const { client, store } = await order({
      failure: ({ args, result, error }) => {
        seen.push([args, result?.structuredContent, error]);
        return args.sum === 1 ? 'BROKE' : undefined;
      },
    });
    await client.raw.call('pay', { as: 'error' });
    expect(store.take()).toEqual(['claim', 'release']);
    await client.raw.call('pay', { as: 'error', sum: 1 });
    expect(store.take()).toEqual(['claim', 'commit']);
    expect(seen).toEqual([
      [{ as: 'error' }, { as: 'error' }, undefined],
      [{ as: 'error', sum: 1 }, { as: 'error' }, undefined],
    ]);
  });

  it('whose function throws holds the run, and is told to onError', async () => {
    const { client, errors, key, runs, ...app } = await order({
      uncertain: 'retry',
      failure: () => {
        throw new Error('oops');
      },
    });
    expect((await client.raw.call('pay', { as: 'error' })).texts).toEqual([RAN]);
    await app.order.isIn('open', 'held');
    expect((await runs.read(key))?.claim?.kind).toBe('undecided');
    expect(String(errors)).toContain('its "failure" could not be followed');
    await client.isRefused('pay', 'held', { as: 'paid' });
    await runs.resolve(key, 'failed', { event: 'BROKE' });
    await app.order.isIn('review', 'idle');
  });

  it('also moves a held run that turns out to have failed', async () => {
    const binding = { success: 'PAID', failure: 'BROKE' };
    const { key, runs, trail, loseOutcome } = await order(binding);
    await loseOutcome();
    expect(await runs.resolve(key, 'failed', { actor: 'ops' })).toEqual({
      resolved: true,
      state: 'review',
    });
    expect(await trail()).toMatchObject([
      { from: 'open', to: 'review', event: 'BROKE', actor: 'ops' },
    ]);
  });
});

describe('what counts as success', () => {
  const approved: BindingOptions = { success: 'PAID', ok: { as: 'paid' } };

  it('is a condition on the result: what does not meet it fails, and the answer stays', async () => {
    const { client, trail, store, ...app } = await order({ ...approved, failure: 'DECLINED' });
    const declined = await client.raw.call('pay', { as: 'declined' });
    expect(declined).toMatchObject({ isError: false });
    expect(declined.texts[0]).toBe('declined');
    await app.order.isIn('declined');
    await client.calls('retry');
    store.take();
    await client.calls('pay', { as: 'paid' });
    expect(store.take()).toEqual(['claim', 'commit']);
    await app.order.isIn('paid');
    expect(await trail()).toMatchObject([
      { event: 'DECLINED', outcome: 'failed', kind: 'not_ok', to: 'declined' },
      { event: 'RETRY' },
      { event: 'PAID', outcome: 'succeeded' },
    ]);
  });

  it('lets the run go where a failure sends nothing, and counts among the retries', async () => {
    const { client, trail, store, ...app } = await order(approved);
    await client.raw.call('pay', { as: 'declined' });
    expect(store.take()).toEqual(['claim', 'release']);
    await app.order.isIn('open', 'idle');
    expect(await trail()).toMatchObject([{ outcome: 'failed', kind: 'not_ok' }]);
    const again = await order({ ...approved, failure: 'BROKE', retries: 1 });
    await again.client.raw.call('pay', { as: 'declined' });
    await again.order.isIn('open');
    await again.client.raw.call('pay', { as: 'declined' });
    await again.order.isIn('review');
  });

  it('leaves an error what it was, and asks "errors" about errors alone', async () => {
    const { client, trail, ...app } = await order({ ...approved, errors: 'unknown' });
    await client.raw.call('pay', { as: 'declined' });
    await app.order.isIn('open', 'idle');
    await client.raw.call('pay', { as: 'error' });
    await app.order.isIn('open', 'held');
  });

  it.each<[string, BindingOptions['ok'], string]>([
    ['is open', { 'payment.status': 'approved' }, 'no value to compare at "payment.status"'],
    [
      'throws',
      () => {
        throw new Error('no such field');
      },
      'no such field',
    ],
    ['returns a promise', (() => Promise.resolve(true)) as never, '"ok" returned no boolean'],
  ])('holds the run where it %s, since the tool ran', async (_, ok, cause) => {
    const { client, errors, ...app } = await order({ success: 'PAID', ok });
    const { text } = await client.raw.call('pay', { as: 'paid' });
    expect(text).toBe(RAN);
    await app.order.isIn('open', 'held');
    const told = errors.find((error) => error instanceof UnknownOutcome);
    expect(String(told)).toContain('its "ok" could not be followed');
    expect(String((told as UnknownOutcome).cause)).toContain(cause);
    expect(String(told)).not.toContain('approved');
  });

  it('may be a function of the result', async () => {
    const ok = ({ structuredContent }: ToolResult): boolean => structuredContent?.as === 'paid';
    const { client, ...app } = await order({ success: 'PAID', failure: 'DECLINED', ok });
    await client.raw.call('pay', { as: 'other' });
    await app.order.isIn('declined');
  });

  it('reads a text block as JSON where the binding says so, and nothing else of the answer', async () => {
    const textServer = (ledger: Ledger): McpServer => {
      const server = new McpServer({ name: 'order', version: '1.0.0' });
      const inputSchema = { texts: z.array(z.string()) };
      server.registerTool('pay', { inputSchema }, ({ texts }) => {
        ledger.calls.push('pay');
        return { content: texts.map((text) => ({ type: 'text' as const, text })) };
      });
      return server;
    };
    const pay: BindingOptions = { ...approved, failure: 'DECLINED', results: 'text' };
    const play = async (...texts: string[]) => {
      const app = await scene({ workflow: orderGate(pay), makeServer: textServer });
      const client = await app.client();
      await client.raw.call('pay', { texts });
      const view = await app.runs.read(client.run);
      return [view?.state, view?.status];
    };
    expect(await play('{"as":"paid"}')).toEqual(['paid', 'idle']);
    expect(await play('{"as":"declined"}')).toEqual(['declined', 'idle']);
    const open = ['open', 'held'];
    expect(await play('{"as":9007199254740993}')).toEqual(open);
    expect(await play('paid')).toEqual(open);
    expect(await play('{"as":"paid"}', 'and more')).toEqual(open);
    expect(await play(JSON.stringify({ as: 'paid', more: 'x'.repeat(65_536) }))).toEqual(open);
  });

  it('decides whether a lookup counts for what comes after it', async () => {
    const rules = {
      look: { step: false, ok: { found: true } },
      pay: { after: 'look' },
    } as const;
    const makeServer = (): McpServer => {
      const server = new McpServer({ name: 'order', version: '1.0.0' });
      server.registerTool('look', { inputSchema: { found: z.unknown() } }, ({ found }) => ({
        content: [{ type: 'text', text: 'looked' }],
        structuredContent: { found },
      }));
      server.registerTool('pay', {}, () => ({ content: [] }));
      return server;
    };
    const app = await scene({
      workflow: StateMachineGate.fromOrder(rules, { id: 'order' }),
      makeServer,
    });
    const client = await app.client();
    for (const found of [false, 'maybe']) {
      expect((await client.calls('look', { found })).text).toBe('looked');
      await client.isRefused('pay', 'state');
    }
    const { cause } = app.errors.at(-1) as Error;
    expect(String(cause)).toContain('no value to compare at "found"');
    await client.calls('look', { found: true });
    await client.calls('pay');
  });

  it.each<[string, BindingOptions, string]>([
    ['without an event', { ok: { as: 'paid' } }, '"ok" distinguishes success and failure'],
    ['that is no condition', { success: 'PAID', ok: 'paid' as never }, 'ok: expected a condition'],
    ['of an async function', { success: 'PAID', ok: (async () => true) as never }, '"ok" must not'],
    ['for nothing', { success: 'PAID', results: 'text' }, '"results" says what "ok" reads'],
    ['of a function', { success: 'PAID', ok: () => true, results: 'text' }, 'leave one out'],
  ])('is refused at construction %s', (_, pay, words) => {
    expect(() => orderGate(pay)).toThrow(words);
  });

  it('is refused for a lookup whose success no rule names', () => {
    const rules = { look: { step: false, ok: { found: true } } };
    expect(() => StateMachineGate.fromOrder(rules, { id: 'order' })).toThrow(
      '"ok" has no effect, since no rule names the tool\'s success',
    );
  });
});
