import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { type BindingOptions, type FsmGateOptions, StateMachineGate } from '../../src/index.ts';
import { passUntil, scene } from '../helpers/scene.ts';
import type { Ledger } from '../helpers/upstream.ts';

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
    await client.calls('pay', { as: 'paid' });
    expect(store.take()).toEqual(['claim', 'commit']);
  });

  it('may send nothing: the call is saved, and the run stays', async () => {
    const { client, errors, trail } = await order({ success: () => undefined });
    expect((await client.calls('pay', { as: 'paid' })).text).toBe('paid');
    expect(await trail()).toMatchObject([{ from: 'open', to: 'open', event: null }]);
    expect(errors).toEqual([]);
  });

  it.each<[string, () => unknown, string]>([
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
    ['is asynchronous', async () => 'PAID', 'expected the name of an event, got a promise'],
    [
      'returns a payload that is not JSON',
      () => ({ type: 'PAID', payload: new Date(0) }),
      'is a Date',
    ],
  ])(
    'that %s moves nothing and is told to onError, since the tool ran',
    async (_, success, told) => {
      const { client, errors, trail } = await order({ success: success as () => 'PAID' });
      expect((await client.calls('pay', { as: 'paid' })).text).toBe('paid');
      expect(await trail()).toMatchObject([{ from: 'open', to: 'open', event: null, tool: 'pay' }]);
      expect(String(errors)).toContain(told);
      expect(errors).toHaveLength(1);
    },
  );

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

  it('whose function throws leaves the run as it is, and is told to onError', async () => {
    const { client, errors, ...app } = await order({
      failure: () => {
        throw new Error('oops');
      },
    });
    expect((await client.raw.call('pay', { as: 'error' })).isError).toBe(true);
    await app.order.isIn('open');
    expect(String(errors)).toContain('oops');
    await client.calls('pay', { as: 'paid' });
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
