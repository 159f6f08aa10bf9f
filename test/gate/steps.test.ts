import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import * as z from 'zod';
import {
  currentStep,
  type FsmGateOptions,
  fsmGate,
  memoryStore,
  runsOf,
  StateMachineGate,
  sessionStore,
  UnknownOutcome,
} from '../../src/index.ts';
import { connect, type TestClient } from '../helpers/client.ts';
import { FaultyStore } from '../helpers/faulty-store.ts';
import { latch } from '../helpers/latch.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { RawSession } from '../helpers/raw.ts';
import { startUpstream, type Upstream, type UpstreamShape } from '../helpers/upstream.ts';

/** What a handler was given to be idempotent by. */
interface Seen {
  readonly tool: string;
  readonly key: unknown;
  readonly step: ReturnType<typeof currentStep>;
}

let clock: ManualClock;
let store: FaultyStore;
let errors: unknown[];
let seen: Seen[];
let upstream: Upstream;
let client: TestClient;
let gate: StateMachineGate<string, string>;
/** Destroys the connection of the next call, after its handler ran. */
let hangUp: boolean;
/** Awaited by the next handler. */
let handler: Promise<void> | undefined;

const LEASE = 8_000;

beforeEach(() => {
  clock = new ManualClock();
  store = new FaultyStore(memoryStore({ now: clock.now }));
  errors = [];
  seen = [];
  hangUp = false;
  handler = undefined;
  gate = new StateMachineGate<string, string>({
    id: 'order',
    initial: 'open',
    states: {
      open: { on: { PAY: 'paid', NOTE: 'open' } },
      paid: { on: { SHIP: 'shipped' } },
      shipped: {},
    },
  })
    .bindTool('pay', 'open', 'PAY')
    .bindTool('quote', 'open', { success: 'NOTE', uncertain: 'retry' })
    .bindTool('hinted', 'open', 'NOTE')
    .bindTool('ship', 'paid', 'SHIP');
});

afterEach(async () => {
  await client.close();
  await upstream.close();
});

async function start(
  options: FsmGateOptions = {},
  shape: Partial<UpstreamShape> = {},
): Promise<void> {
  const onError = (error: unknown): void => void errors.push(error);
  upstream = await startUpstream({
    shape: { mode: 'stateless', ...shape },
    middlewares: [
      sessionStore({ store, clock, onError }),
      fsmGate(gate, { clock, onError, ...options }),
    ],
    behind: [
      (req, res, next) => {
        if (hangUp && req.method === 'POST') {
          hangUp = false;
          res.write = () => true;
          res.end = (() => res.destroy()) as typeof res.end;
        }
        next();
      },
    ],
    makeServer: (ledger) => {
      const server = new McpServer({ name: 'order', version: '1.0.0' });
      for (const name of ['pay', 'quote', 'hinted', 'ship', 'look']) {
        const annotations = name === 'hinted' ? { idempotentHint: true } : {};
        server.registerTool(
          name,
          { inputSchema: { sum: z.number().optional() }, annotations },
          async (_args, extra) => {
            ledger.calls.push(name);
            seen.push({
              tool: name,
              key: extra._meta?.['mcp-interlock/idempotencyKey'],
              step: currentStep(),
            });
            await handler;
            return { content: [{ type: 'text', text: `${name} done` }] };
          },
        );
      }
      return server;
    },
  });
  client = await connect(upstream.url);
  store.take();
}

const run = (): string => String(client.transport.sessionId);

function post(tool: string, accept: string): Promise<Response> {
  return fetch(upstream.url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept, 'mcp-session-id': run() },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: 'raw',
      method: 'tools/call',
      params: { name: tool, arguments: { sum: 1 } },
    }),
  });
}

describe('store round trips', () => {
  it('are 2 for a step, 1 for tools/list and for initialize, 0 for an ungated call of a known session', async () => {
    await start();
    await client.call('look');
    expect(store.take()).toEqual([]);
    await client.tools();
    expect(store.take()).toEqual(['read']);
    await client.call('pay');
    expect(store.take()).toEqual(['claim', 'commit']);
    await client.call('pay');
    expect(store.take()).toEqual(['claim']);
    const another = await connect(upstream.url);
    expect(store.take()).toEqual(['open']);
    await another.close();
  });

  it('are 1 more where the process has not asked for the session in the last five seconds, but not for a list', async () => {
    await start();
    clock.advance(5_000);
    await client.call('look');
    expect(store.take()).toEqual(['read']);
    clock.advance(5_000);
    await client.tools();
    expect(store.take()).toEqual(['read']);
    clock.advance(5_000);
    await client.call('pay');
    expect(store.take()).toEqual(['read', 'claim', 'commit']);
  });

  it('are 1 for a call that is refused by what was read for this very request', async () => {
    await start();
    const session = await RawSession.begin(upstream.url);
    clock.advance(5_000);
    store.take();
    const { result } = await session.ask('tools/call', { name: 'ship', arguments: {} });
    expect(result._meta['mcp-interlock/refusal']).toMatchObject({ reason: 'state', path: ['pay'] });
    expect(store.take()).toEqual(['read']);
    expect(seen).toEqual([]);
  });

  it('are not saved by what was read while another call is about to move the run', async () => {
    await start();
    const atWork = latch();
    handler = atWork.opened;
    const paying = client.call('pay');
    await expect.poll(() => seen.length).toBe(1);
    clock.advance(5_000);
    const shipping = client.call('ship');
    await expect.poll(() => store.asked).toContain('read');
    atWork.open();
    expect((await Promise.all([paying, shipping])).map(({ isError }) => isError)).toEqual([
      false,
      false,
    ]);
  });
});

describe('a handler', () => {
  it('is given its run and its idempotency key, both ways alike, whatever the client sent as one', async () => {
    await start();
    await client.client.callTool({
      name: 'pay',
      arguments: {},
      _meta: { 'mcp-interlock/idempotencyKey': 'forged', other: 1 },
    });
    const [{ key, step } = { key: undefined, step: undefined }] = seen;
    expect(key).toEqual(expect.stringMatching(/^[\w-]{16,}$/));
    expect(step).toMatchObject({
      run: run(),
      workflow: 'order',
      tool: 'pay',
      state: 'open',
      idempotencyKey: key,
    });
  });

  it('of an ungated call is in no step, and is given no key that a client made up', async () => {
    await start();
    await client.client.callTool({
      name: 'look',
      _meta: { 'mcp-interlock/idempotencyKey': 'forged' },
    });
    expect(seen).toEqual([{ tool: 'look', key: undefined, step: undefined }]);
  });
});

describe('a commit that fails', () => {
  it('is tried again while the lease lasts, and the client sees a success that is saved', async () => {
    await start();
    store.fail('commit', 2);
    const call = client.call('pay');
    await expect.poll(() => store.asked.filter((each) => each === 'commit').length).toBe(1);
    clock.advance(50);
    await expect.poll(() => store.asked.filter((each) => each === 'commit').length).toBe(2);
    clock.advance(100);
    expect(await call).toMatchObject({ isError: false, text: 'pay done' });
    expect(await client.tools()).toEqual(['ship', 'look']);
    expect(upstream.ledger.calls).toEqual(['pay']);
  });

  it('counts once and is told once where the store did it and only its answer was lost', async () => {
    await start();
    await client.streaming;
    const moves: unknown[] = [];
    gate.onTransition(({ event }) => void moves.push(event));
    store.fail('commit', 1, 'done');
    const call = client.call('pay');
    await expect.poll(() => store.asked.filter((each) => each === 'commit').length).toBe(1);
    clock.advance(50);
    expect((await call).isError).toBe(false);
    const trail = await runsOf(gate, { store }).history(run());
    expect(trail.map(({ version, from, to }) => [version, from, to])).toEqual([
      [1, 'open', 'paid'],
    ]);
    expect(moves).toEqual(['PAY']);
    expect(client.log.filter((each) => each === 'list_changed')).toHaveLength(1);
  });

  it('is told where the driver asked twice by itself, and the answer is that of the second time', async () => {
    await start();
    const moves: unknown[] = [];
    gate.onTransition(({ event }) => void moves.push(event));
    const { commit } = store;
    store.commit = async (request) => {
      await commit(request);
      return commit(request);
    };
    expect((await client.call('pay')).isError).toBe(false);
    expect(moves).toEqual(['PAY']);
  });

  it('is asked for once more after a freeze that outlasted the lease, since it may have been done', async () => {
    await start();
    store.fail('commit', 1, 'late');
    const call = client.call('pay');
    await expect.poll(() => store.late.length).toBe(1);
    clock.advance(2 * LEASE);
    store.late.shift()?.();
    await expect
      .poll(() => {
        clock.advance(50);
        return store.asked.filter((each) => each === 'commit').length;
      })
      .toBe(2);
    expect(await call).toMatchObject({ isError: false, text: 'pay done' });
  });

  it('to the end is told: the tool ran, its outcome is not recorded, do not call it again; and the run is held', async () => {
    await start();
    store.fail('commit');
    const call = client.call('pay');
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
    const told = await call;
    expect(told.isError).toBe(true);
    expect(told.text).toBe(
      '[System: pay ran, but its outcome could not be recorded. Do not call it again; the operator must check what happened.]',
    );
    expect(JSON.stringify(told)).not.toContain('hunter2');
    expect(errors.find((error) => error instanceof UnknownOutcome)).toMatchObject({
      tool: 'pay',
      run: run(),
    });

    clock.advance(LEASE);
    expect((await client.call('pay')).text).toContain('ended with an unknown outcome');
    expect(upstream.ledger.calls).toEqual(['pay']);
  });
});

describe('an unknown outcome', () => {
  async function loseOutcome(tool: string): Promise<void> {
    hangUp = true;
    // Not with the SDK's client: it waits for ever where a stream breaks off without a result.
    await expect(
      post(tool, 'application/json, text/event-stream').then((response) => response.text()),
    ).rejects.toThrow();
  }

  it('holds the run of a step that must not be repeated, until an operator says how it came out', async () => {
    await start();
    await loseOutcome('pay');
    const runs = runsOf(gate, { store });
    expect(await runs.resolve(run(), 'failed')).toEqual({ resolved: false, reason: 'running' });
    clock.advance(LEASE);
    expect(await runs.read(run())).toMatchObject({ status: 'held', claim: { tool: 'pay' } });
    expect((await client.call('quote')).meta).toMatchObject({
      'mcp-interlock/refusal': { reason: 'held' },
    });
    expect((await client.call('look')).isError).toBe(false);

    expect(await runs.resolve(run(), 'succeeded', { actor: 'ops' })).toEqual({
      resolved: true,
      state: 'paid',
    });
    expect(await client.tools()).toEqual(['ship', 'look']);
    expect(await runs.history(run())).toMatchObject([
      { from: 'open', to: 'paid', event: 'PAY', tool: 'pay', actor: 'ops' },
    ]);
    expect(await runs.resolve(run(), 'succeeded')).toEqual({ resolved: false, reason: 'not-held' });
    expect(upstream.ledger.calls.filter((each) => each === 'pay')).toEqual(['pay']);
  });

  it('that somebody resolved is not what a late result says, and moves the run once', async () => {
    await start();
    const held = latch();
    handler = held.opened;
    store.fail('renew');
    const late = client.call('pay');
    await expect.poll(() => upstream.ledger.calls).toEqual(['pay']);
    clock.advance(LEASE);
    const moves: unknown[] = [];
    gate.onTransition(({ event }) => void moves.push(event));
    const runs = runsOf(gate, { store });
    expect(await runs.resolve(run(), 'succeeded')).toEqual({ resolved: true, state: 'paid' });
    held.open();
    expect(await late).toMatchObject({
      isError: true,
      text: expect.stringContaining('its outcome could not be recorded'),
    });
    expect(moves).toEqual(['PAY']);
    expect(await runs.history(run())).toHaveLength(1);
  });

  it('that turns out to have failed leaves the run where it was, and the tool may be called again with a new key', async () => {
    await start();
    await loseOutcome('pay');
    clock.advance(LEASE);
    expect(await runsOf(gate, { store }).resolve(run(), 'failed')).toEqual({
      resolved: true,
      state: 'open',
    });
    expect((await client.call('pay', { sum: 1 })).isError).toBe(false);
    expect(new Set(seen.map(({ key }) => key)).size).toBe(2);
  });

  it.each(['quote', 'hinted'])(
    'of a step that may be repeated is tried again with the same key for the same arguments (%s)',
    async (tool) => {
      await start();
      await client.tools();
      await loseOutcome(tool);
      clock.advance(LEASE);
      expect((await client.call(tool, { sum: 2 })).isError).toBe(false);
      expect((await client.call(tool, { sum: 1 })).isError).toBe(false);
      expect((await client.call(tool, { sum: 1 })).isError).toBe(false);
      const [lost, other, again, later] = seen.map(({ key }) => key);
      expect(again).toBe(lost);
      expect(new Set([lost, other, later]).size).toBe(3);
    },
  );
});

describe('a lease', () => {
  it('is renewed while the call is in flight, however long it takes', async () => {
    await start();
    const running = latch();
    handler = running.opened;
    // The client's own GET stream is kept alive by one timer.
    await expect.poll(() => clock.pending).toBe(1);
    const call = client.call('pay');
    await expect.poll(() => upstream.ledger.calls).toEqual(['pay']);
    for (let i = 0; i < 30; i++) {
      clock.advance(LEASE / 2);
      await new Promise(setImmediate);
    }
    expect(store.asked.filter((each) => each === 'renew').length).toBeGreaterThan(20);
    running.open();
    expect((await call).isError).toBe(false);
    expect(clock.pending).toBe(1);
  });

  it('is not renewed past the longest time that a step may take: the client is told that nobody knows', async () => {
    await start({ maxStepMs: 60_000 });
    const running = latch();
    handler = running.opened;
    const call = client.call('pay');
    await expect.poll(() => upstream.ledger.calls).toEqual(['pay']);
    clock.advance(60_000);
    const told = await call;
    expect(told.text).toContain('pay may have run: its outcome is unknown.');
    clock.advance(LEASE);
    expect(await runsOf(gate, { store }).read(run())).toMatchObject({ status: 'held' });
    running.open();
  });
});

describe('a claim that the store granted although it could not say so', () => {
  it('is let go again, so that the run is not held for a call that never ran', async () => {
    await start();
    store.fail('claim', 1, 'done');
    expect((await client.call('pay')).meta).toMatchObject({
      'mcp-interlock/refusal': { reason: 'unavailable' },
    });
    await expect.poll(() => store.asked).toContain('release');
    expect((await client.call('pay')).isError).toBe(false);
    expect(upstream.ledger.calls).toEqual(['pay']);
  });
});

describe('a claim that the store grants after its deadline, to a call that was refused', () => {
  it('is let go again, even where it is the first of its run', async () => {
    await start();
    store.fail('claim', 1, 'late');
    const refused = client.call('pay');
    await expect.poll(() => store.late.length).toBe(1);
    clock.advance(2_000);
    expect((await refused).meta).toMatchObject({
      'mcp-interlock/refusal': { reason: 'unavailable' },
    });
    // The first release comes too early: there is nothing to let go yet.
    await expect.poll(() => store.asked.filter((each) => each === 'release').length).toBe(1);
    store.late.shift()?.();
    await expect.poll(() => store.asked.filter((each) => each === 'release').length).toBe(2);
    clock.advance(LEASE);
    expect((await client.call('pay')).isError).toBe(false);
    expect(upstream.ledger.calls).toEqual(['pay']);
  });
});

describe('an upstream that turns the request away', () => {
  it('did nothing: the claim is let go at once', async () => {
    await start();
    const response = await post('pay', 'text/html');
    expect(response.status).toBe(406);
    expect(store.take()).toEqual(['claim', 'release']);
    expect((await client.call('pay')).isError).toBe(false);
  });
});
