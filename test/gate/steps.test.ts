import { describe, expect, it } from 'vitest';
import {
  currentStep,
  type FsmGateOptions,
  StateMachineGate,
  type StepSource,
  UnknownOutcome,
} from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { callOf, RawSession } from '../helpers/raw.ts';
import { begins, pass, passUntil, scene } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';

/** The idempotency keys that handlers got. */
interface Seen {
  readonly tool: string;
  readonly key: unknown;
  readonly step: ReturnType<typeof currentStep>;
}

const LEASE = 8_000;
const HOUR = 3_600_000;
const TOOLS = ['pay', 'quote', 'hinted', 'ship', 'look'];

function orderGate() {
  return new StateMachineGate<string, string>({
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
}

/** A client of an order, whose upstream answers each request on a stream. */
async function order(gate: FsmGateOptions = {}) {
  const workflow = orderGate();
  const moves: unknown[] = [];
  workflow.onTransition(({ event }) => void moves.push(event));
  const seen: Seen[] = [];
  const note = (tool: string) => (_: unknown, meta: Record<string, unknown>, extra: StepSource) => {
    seen.push({ tool, key: meta['mcp-interlock/idempotencyKey'], step: currentStep(extra) });
    return undefined;
  };
  const handlers = Object.fromEntries(TOOLS.map((name) => [name, note(name)]));
  let hangsUp = false;
  const app = await scene({
    workflow,
    gate,
    shape: { mode: 'stateless' },
    behind: [
      (req, res, next) => {
        if (hangsUp && req.method === 'POST') {
          hangsUp = false;
          res.write = () => true;
          res.end = (() => res.destroy()) as typeof res.end;
        }
        next();
      },
    ],
    makeServer: toolServer(TOOLS, handlers, { hinted: { idempotentHint: true } }),
  });
  const client = await app.client();
  const post = (tool: string, headers?: Record<string, string>) =>
    RawSession.resume(app.url, client.run).post(callOf('raw', tool, { sum: 1 }), headers);
  app.store.take();
  return {
    ...app,
    workflow,
    /** The events of the moves that `onTransition()` was told of. */
    moves,
    seen,
    client,
    anotherClient: app.client,
    post,
    order: app.run(client.run),
    /** A call whose handler runs, and whose connection breaks before any answer. */
    async loseOutcome(tool: string): Promise<void> {
      hangsUp = true;
      // Not with the SDK's client: it waits for ever if a stream ends without a result.
      await expect(post(tool)).rejects.toThrow();
    },
  };
}

describe('store round trips', () => {
  it('are 2 for a step, 1 for tools/list and initialize, 0 for an ungated call', async () => {
    const { client, store, ...app } = await order();
    await client.calls('look');
    expect(store.take()).toEqual([]);
    await client.raw.tools();
    expect(store.take()).toEqual(['read']);
    await client.calls('pay');
    expect(store.take()).toEqual(['claim', 'commit']);
    await client.isRefused('pay', 'state');
    expect(store.take()).toEqual(['claim']);
    await app.anotherClient();
    expect(store.take()).toEqual(['open']);
  });

  it('are 1 more if the session was not confirmed in the last five seconds', async () => {
    const { client, clock, store } = await order();
    clock.advance(5_000);
    await client.calls('look');
    expect(store.take()).toEqual(['read']);
    clock.advance(5_000);
    await client.raw.tools();
    expect(store.take()).toEqual(['read']);
    clock.advance(5_000);
    await client.calls('pay');
    expect(store.take()).toEqual(['read', 'claim', 'commit']);
  });

  it('are 1 for a call that is refused by what this request has read', async () => {
    const { session: begin, clock, store, seen } = await order();
    const session = await begin();
    clock.advance(5_000);
    store.take();
    const { result } = await session.call('ship');
    expect(result._meta['mcp-interlock/refusal']).toMatchObject({ reason: 'state', path: ['pay'] });
    expect(store.take()).toEqual(['read']);
    expect(seen).toEqual([]);
  });

  it('are not spared if another call is about to move the run', async () => {
    const { client, clock, store, ...app } = await order();
    const paying = await begins(app, 'pay', () => client.calls('pay'));
    clock.advance(5_000);
    const shipping = client.calls('ship');
    await expect.poll(() => store.asked).toContain('read');
    paying.finish();
    await Promise.all([paying.answer, shipping]);
  });
});

describe('a handler', () => {
  it('gets its run and its idempotency key, and never a key of the client’s', async () => {
    const { client, seen } = await order();
    await client.raw.client.callTool({
      name: 'pay',
      arguments: {},
      _meta: { 'mcp-interlock/idempotencyKey': 'forged', other: 1 },
    });
    const [{ key, step } = { key: undefined, step: undefined }] = seen;
    expect(key).toEqual(expect.stringMatching(/^[\w-]{16,}$/));
    expect(step).toMatchObject({
      run: client.run,
      workflow: 'order',
      tool: 'pay',
      state: 'open',
      idempotencyKey: key,
    });
  });

  it('of an ungated call is in no step, and gets no key that a client made up', async () => {
    const { client, seen } = await order();
    await client.raw.client.callTool({
      name: 'look',
      _meta: { 'mcp-interlock/idempotencyKey': 'forged' },
    });
    expect(seen).toEqual([{ tool: 'look', key: undefined, step: undefined }]);
  });
});

describe('a commit that fails', () => {
  it('is tried again while the lease lasts, so the client’s success is saved', async () => {
    const { client, clock, store, ledger } = await order();
    store.fail('commit', 2);
    const call = client.calls('pay');
    await expect.poll(() => store.times('commit')).toBe(1);
    clock.advance(50);
    await expect.poll(() => store.times('commit')).toBe(2);
    clock.advance(100);
    expect((await call).text).toBe('pay done');
    await client.sees(['ship', 'look']);
    expect(ledger.calls).toEqual(['pay']);
  });

  it("counts once and is told once if only the store's answer was lost", async () => {
    const { client, clock, store, runs, moves } = await order();
    await client.raw.streaming;
    store.fail('commit', 1, 'done');
    const call = client.calls('pay');
    await expect.poll(() => store.times('commit')).toBe(1);
    clock.advance(50);
    await call;
    const trail = await runs.history(client.run);
    expect(trail.map(({ version, from, to }) => [version, from, to])).toEqual([
      [1, 'open', 'paid'],
    ]);
    expect(moves).toEqual(['PAY']);
    expect(client.told).toBe(1);
  });

  it("is told if the driver asked twice, and the answer is the second one's", async () => {
    const { client, store, moves } = await order();
    const { commit } = store;
    store.commit = async (request) => {
      await commit(request);
      return commit(request);
    };
    await client.calls('pay');
    expect(moves).toEqual(['PAY']);
  });

  it('is tried once more after a freeze that outlasted the lease', async () => {
    const { client, clock, store } = await order();
    store.fail('commit', 1, 'late');
    const call = client.calls('pay');
    await expect.poll(() => store.late.length).toBe(1);
    clock.advance(2 * LEASE);
    store.late.shift()?.();
    expect((await passUntil(clock, call)).text).toBe('pay done');
    expect(store.times('commit')).toBe(2);
  });

  it('to the end holds the run, and the client is told that the tool ran', async () => {
    const { client, clock, store, errors, ledger, ...app } = await order();
    store.fail('commit');
    const told = await passUntil(clock, client.raw.call('pay'));
    expect(told.isError).toBe(true);
    expect(told.text).toBe(
      '[System: pay ran, but its outcome could not be recorded. Do not call it again; the ' +
        'operator must check what happened.]',
    );
    expect(JSON.stringify(told)).not.toContain('hunter2');
    expect(errors.find((error) => error instanceof UnknownOutcome)).toMatchObject({
      tool: 'pay',
      run: client.run,
    });

    clock.advance(LEASE);
    const { text } = await client.isRefused('pay', 'held');
    expect(text).toContain('ended with an unknown outcome');
    await app.order.is('held');
    expect(ledger.calls).toEqual(['pay']);
  });
});

describe('an unknown outcome', () => {
  it('holds the run, unless the step may be repeated, until an operator resolves it', async () => {
    const { client, clock, store, ledger, workflow, loseOutcome } = await order();
    await loseOutcome('pay');
    const runs = runsOf(workflow, { store });
    expect(await runs.resolve(client.run, 'failed')).toEqual({
      resolved: false,
      reason: 'running',
    });
    clock.advance(LEASE);
    expect(await runs.read(client.run)).toMatchObject({ status: 'held', claim: { tool: 'pay' } });
    await client.isRefused('quote', 'held');
    await client.calls('look');

    expect(await runs.resolve(client.run, 'succeeded', { actor: 'ops' })).toEqual({
      resolved: true,
      state: 'paid',
    });
    await client.sees(['ship', 'look']);
    expect(await runs.history(client.run)).toMatchObject([
      { from: 'open', to: 'paid', event: 'PAY', tool: 'pay', actor: 'ops' },
    ]);
    expect(await runs.resolve(client.run, 'succeeded')).toEqual({
      resolved: false,
      reason: 'not-held',
    });
    expect(ledger.calls.filter((each) => each === 'pay')).toEqual(['pay']);
  });

  it('that an operator resolved is not changed by a late result: the run moves once', async () => {
    const { client, clock, store, workflow, moves, ...app } = await order();
    store.fail('renew');
    const paying = await begins(app, 'pay', () => client.raw.call('pay'));
    clock.advance(LEASE);
    const runs = runsOf(workflow, { store });
    expect(await runs.resolve(client.run, 'succeeded')).toEqual({ resolved: true, state: 'paid' });
    paying.finish();
    expect(await paying.answer).toMatchObject({
      isError: true,
      text: expect.stringContaining('its outcome could not be recorded'),
    });
    expect(moves).toEqual(['PAY']);
    expect(await app.order.moves()).toEqual(['pay']);
  });

  it('that was a failure leaves the run where it was; the next call has a new key', async () => {
    const { client, clock, store, workflow, seen, loseOutcome } = await order();
    await loseOutcome('pay');
    clock.advance(LEASE);
    const runs = runsOf(workflow, { store });
    expect(await runs.resolve(client.run, 'failed')).toEqual({ resolved: true, state: 'open' });
    await client.calls('pay', { sum: 1 });
    expect(new Set(seen.map(({ key }) => key)).size).toBe(2);
  });

  it.each(['quote', 'hinted'])(
    'of a step that may be repeated is tried again with the same key for the same arguments (%s)',
    async (tool) => {
      const { client, clock, seen, loseOutcome } = await order();
      await client.raw.tools();
      await loseOutcome(tool);
      clock.advance(LEASE);
      for (const sum of [2, 1, 1]) await client.calls(tool, { sum });
      const [lost, other, again, later] = seen.map(({ key }) => key);
      expect(again).toBe(lost);
      expect(new Set([lost, other, later]).size).toBe(3);
    },
  );
});

describe('a lease', () => {
  it('is renewed while the call is in flight, and no longer', async () => {
    const { client, clock, store, ...app } = await order();
    await client.raw.streaming;
    const paying = await begins(app, 'pay', () => client.calls('pay'));
    await pass(clock, 15 * LEASE, LEASE / 2);
    expect(store.times('renew')).toBeGreaterThan(20);
    await app.order.is('running');
    paying.finish();
    await paying.answer;
    store.take();
    await pass(clock, HOUR, LEASE);
    expect(store.take()).toEqual([]);
    await client.calls('ship');
  });

  it('is not renewed past the longest step: then the outcome is unknown', async () => {
    const { client, clock, ...app } = await order({ maxStepMs: 60_000 });
    const paying = await begins(app, 'pay', () => client.raw.call('pay'));
    clock.advance(60_000);
    expect((await paying.answer).text).toContain('pay may have run: its outcome is unknown.');
    clock.advance(LEASE);
    await app.order.is('held');
    paying.finish();
  });
});

describe('a claim that the store granted although it could not say so', () => {
  it('is let go again, so that the run is not held for a call that never ran', async () => {
    const { client, store, ledger } = await order();
    store.fail('claim', 1, 'done');
    await client.isRefused('pay', 'unavailable');
    await expect.poll(() => store.asked).toContain('release');
    await client.calls('pay');
    expect(ledger.calls).toEqual(['pay']);
  });
});

describe('a claim that reaches the store after its deadline, of a call that was refused', () => {
  it('holds the run for nothing, even where it is the first of its run', async () => {
    const { client, clock, store, ledger } = await order();
    store.fail('claim', 1, 'late');
    const refused = client.isRefused('pay', 'unavailable');
    await expect.poll(() => store.late.length).toBe(1);
    clock.advance(2_000);
    await refused;
    await expect.poll(() => store.times('release')).toBe(1);
    // The token is spent by now, so the claim that arrives only now is not granted.
    store.late.shift()?.();
    clock.advance(LEASE);
    await client.calls('pay');
    expect(ledger.calls).toEqual(['pay']);
  });
});

describe('an upstream that rejects the request', () => {
  it('did nothing: the claim is let go at once', async () => {
    const { client, store, post } = await order();
    expect((await post('pay', { accept: 'text/html' })).status).toBe(406);
    expect(store.take()).toEqual(['claim', 'release']);
    await client.calls('pay');
  });
});
