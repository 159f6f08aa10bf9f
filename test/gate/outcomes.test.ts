import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import * as z from 'zod';
import {
  type BindingOptions,
  type FsmGateOptions,
  fsmGate,
  memoryStore,
  runsOf,
  StateMachineGate,
  sessionStore,
} from '../../src/index.ts';
import { connect, type TestClient } from '../helpers/client.ts';
import { FaultyStore } from '../helpers/faulty-store.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { startUpstream, type Upstream } from '../helpers/upstream.ts';

let store: FaultyStore;
let errors: unknown[];
let upstream: Upstream;
let client: TestClient;
let gate: StateMachineGate<string, string>;
const clock = new ManualClock();

beforeEach(() => {
  store = new FaultyStore(memoryStore({ now: clock.now }));
  errors = [];
});

afterEach(async () => {
  await client.close();
  await upstream.close();
});

/** A server whose `pay` answers as it is told to: `paid`, `declined`, `error` or `broken`. */
async function start(pay: BindingOptions, options: FsmGateOptions = {}): Promise<void> {
  gate = new StateMachineGate<string, string>({
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
  const onError = (error: unknown): void => void errors.push(error);
  upstream = await startUpstream({
    shape: { mode: 'stateless', answers: 'json' },
    middlewares: [
      sessionStore({ store, clock, onError }),
      fsmGate(gate, { clock, onError, ...options }),
    ],
    makeServer: (ledger) => {
      const server = new McpServer({ name: 'order', version: '1.0.0' });
      server.registerTool(
        'pay',
        { inputSchema: { as: z.string(), sum: z.number().optional() } },
        ({ as }) => {
          ledger.calls.push('pay');
          if (as === 'broken') throw new Error('terminal is broken');
          const content = [{ type: 'text' as const, text: as }];
          return { content, structuredContent: { as }, isError: as === 'error' };
        },
      );
      server.registerTool('retry', {}, () => ({ content: [] }));
      return server;
    },
  });
  client = await connect(upstream.url);
  store.take();
}

const state = async () =>
  (await runsOf(gate, { store }).read(String(client.transport.sessionId)))?.snapshot.state;
const trail = () => runsOf(gate, { store }).history(String(client.transport.sessionId));

/** A call that is paid and cannot be saved, for as long as its lease lasts. */
async function loseOutcome(): Promise<void> {
  store.fail('commit');
  const call = client.call('pay', { as: 'paid' });
  let settled = false;
  void call.finally(() => {
    settled = true;
  });
  await expect
    .poll(() => {
      clock.advance(500);
      return settled;
    })
    .toBe(true);
  // Another try to save it fails meanwhile, and the next one is some time away.
  clock.advance(8_000);
  store.heal();
}

describe('a success that is a function', () => {
  const byResult: BindingOptions = {
    success: ({ args, result }) =>
      result.structuredContent?.as === 'paid'
        ? { type: 'PAID', payload: { sum: Number(args.sum) } }
        : 'DECLINED',
  };

  it('says by the arguments and the result where the run goes, and what the trail keeps', async () => {
    await start(byResult);
    await client.call('pay', { as: 'declined' });
    expect(await state()).toBe('declined');
    expect(await client.tools()).toEqual(['retry']);
    await client.call('retry');
    await client.call('pay', { as: 'paid', sum: 3 });
    expect(await trail()).toMatchObject([
      { from: 'open', to: 'declined', event: 'DECLINED', tool: 'pay' },
      { from: 'declined', to: 'open', event: 'RETRY' },
      { from: 'open', to: 'paid', event: 'PAID', payload: { sum: 3 } },
    ]);
    expect(errors).toEqual([]);
  });

  it('costs no round trip more, and a failure moves nothing', async () => {
    await start(byResult);
    await client.call('pay', { as: 'error' });
    expect(store.take()).toEqual(['claim', 'release']);
    await client.call('pay', { as: 'paid' });
    expect(store.take()).toEqual(['claim', 'commit']);
  });

  it('may send nothing: the call is saved, and the run stays', async () => {
    await start({ success: () => undefined });
    expect(await client.call('pay', { as: 'paid' })).toMatchObject({
      isError: false,
      text: 'paid',
    });
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
      await start({ success: success as () => 'PAID' });
      expect(await client.call('pay', { as: 'paid' })).toMatchObject({
        isError: false,
        text: 'paid',
      });
      expect(await trail()).toMatchObject([{ from: 'open', to: 'open', event: null, tool: 'pay' }]);
      expect(String(errors)).toContain(told);
      expect(errors).toHaveLength(1);
    },
  );

  it('of a held run is not guessed: resolve() needs the event', async () => {
    await start(byResult);
    await loseOutcome();
    const runs = runsOf(gate, { store });
    const run = String(client.transport.sessionId);
    await expect(runs.resolve(run, 'succeeded')).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_EVENT',
    });
    expect(
      await runs.resolve(run, 'succeeded', { event: 'PAID', payload: { by: 'phone' } }),
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
      await start({ success: 'PAID', failure: 'BROKE' }, { announce: true });
      const failed = await client.call('pay', { as });
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

  it('is sent alone where a success sends nothing', async () => {
    await start({ failure: 'BROKE' });
    await client.call('pay', { as: 'paid' });
    expect(await state()).toBe('open');
    await client.call('pay', { as: 'error' });
    expect(await state()).toBe('review');
  });

  it('may be a function, which sees the result, and lets the claim go where it sends nothing', async () => {
    const seen: unknown[] = [];
    await start({
      failure: ({ args, result, error }) => {
        seen.push([args, result?.structuredContent, error]);
        return args.sum === 1 ? 'BROKE' : undefined;
      },
    });
    await client.call('pay', { as: 'error' });
    expect(store.take()).toEqual(['claim', 'release']);
    await client.call('pay', { as: 'error', sum: 1 });
    expect(store.take()).toEqual(['claim', 'commit']);
    expect(seen).toEqual([
      [{ as: 'error' }, { as: 'error' }, undefined],
      [{ as: 'error', sum: 1 }, { as: 'error' }, undefined],
    ]);
  });

  it('whose function throws leaves the run as it is, and is told to onError', async () => {
    await start({
      failure: () => {
        throw new Error('oops');
      },
    });
    expect((await client.call('pay', { as: 'error' })).isError).toBe(true);
    expect(await state()).toBe('open');
    expect(String(errors)).toContain('oops');
    expect((await client.call('pay', { as: 'paid' })).isError).toBe(false);
  });

  it('also moves a held run that turns out to have failed', async () => {
    await start({ success: 'PAID', failure: 'BROKE' });
    await loseOutcome();
    const runs = runsOf(gate, { store });
    const run = String(client.transport.sessionId);
    expect(await runs.resolve(run, 'failed', { actor: 'ops' })).toEqual({
      resolved: true,
      state: 'review',
    });
    expect(await trail()).toMatchObject([
      { from: 'open', to: 'review', event: 'BROKE', actor: 'ops' },
    ]);
  });
});
