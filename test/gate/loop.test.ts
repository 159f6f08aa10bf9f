import { afterEach, describe, expect, it } from 'vitest';
import {
  fsmGate,
  type Loop,
  type LoopShieldOptions,
  memoryStore,
  runsOf,
  StateMachineGate,
  sessionStore,
} from '../../src/index.ts';
import { connect, type TestClient } from '../helpers/client.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { startUpstream, type Upstream } from '../helpers/upstream.ts';

const closing: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

let loops: Loop[];

function diagnosis(loopShield: Partial<LoopShieldOptions> | undefined) {
  loops = [];
  const options =
    loopShield === undefined
      ? {}
      : {
          loopShield: {
            max: 3,
            fallback: { state: 'escalation' },
            onLoop: (loop: Loop) => void loops.push(loop),
            ...loopShield,
          },
        };
  return new StateMachineGate(
    {
      id: 'support',
      initial: 'diagnosis',
      states: {
        diagnosis: { on: { SOLVED: 'done', ESCALATE: 'escalation' } },
        escalation: {},
        done: { type: 'final' },
      },
    },
    options,
  )
    .bindTool('cart.view', 'diagnosis')
    .bindTool('cart.add_item', 'diagnosis', {
      success: 'SOLVED',
      guard: ({ args }) => args.sku !== 'no',
    })
    .bindTool('cart.pay', 'escalation');
}

interface Serving {
  readonly client: TestClient;
  readonly upstream: Upstream;
  readonly clock: ManualClock;
  readonly runs: ReturnType<typeof runsOf>;
  readonly run: string;
  restart(): Promise<TestClient>;
}

async function serve(loopShield: Partial<LoopShieldOptions> | undefined): Promise<Serving> {
  const clock = new ManualClock();
  const store = memoryStore({ now: clock.now });
  const start = async () => {
    const gate = diagnosis(loopShield);
    const upstream = await startUpstream({
      shape: { mode: 'stateless' },
      middlewares: [sessionStore({ store, clock }), fsmGate(gate, { clock })],
    });
    closing.push(upstream.close);
    return { gate, upstream };
  };
  const { gate, upstream } = await start();
  const client = await connect(upstream.url);
  closing.push(() => client.close());
  const run = client.transport.sessionId ?? '';
  return {
    client,
    upstream,
    clock,
    run,
    runs: runsOf(gate, { store }) as never,
    restart: async () => {
      const again = await connect((await start()).upstream.url, { 'mcp-session-id': run });
      closing.push(() => again.close());
      return again;
    },
  };
}

describe('the loop shield', () => {
  it('lets so many calls of a tool through, refuses the next one, and takes the run to its fall-back', async () => {
    const { client, upstream, runs, run } = await serve({});
    for (let call = 0; call < 3; call++)
      expect((await client.call('cart.view')).isError).toBe(false);
    const refused = await client.call('cart.view');
    expect(refused.text).toBe(
      '[System: cart.view was not run, because it was called again and again without progress. support is now in "escalation". Available now: cart.pay.]',
    );
    expect(refused.meta['mcp-interlock/refusal']).toMatchObject({
      reason: 'loop',
      state: 'escalation',
    });
    expect(upstream.ledger.calls).toHaveLength(3);
    expect(loops).toEqual([
      { run, workflow: 'support', tool: 'cart.view', state: 'diagnosis', calls: 4, max: 3 },
    ]);
    expect((await runs.history(run)).at(-1)).toMatchObject({
      from: 'diagnosis',
      to: 'escalation',
      event: 'loop',
      tool: 'cart.view',
    });
    expect(await client.tools()).toEqual(['cart.checkout', 'cart.pay']);
  });

  it('counts failed calls, and calls that a guard refuses', async () => {
    const { client } = await serve({ max: 2 });
    await client.call('cart.add_item', { fail: true });
    expect(
      (await client.call('cart.add_item', { sku: 'no' })).meta['mcp-interlock/refusal'],
    ).toMatchObject({
      reason: 'guard',
    });
    expect((await client.call('cart.add_item')).meta['mcp-interlock/refusal']).toMatchObject({
      reason: 'loop',
    });
  });

  it('counts different tools together where it is told to, and apart where it is not', async () => {
    const consecutive = await serve({ mode: 'consecutive', max: 1 });
    await consecutive.client.call('cart.view');
    expect((await consecutive.client.call('cart.add_item')).isError).toBe(true);
    const repeated = await serve({ max: 1 });
    await repeated.client.call('cart.view');
    expect((await repeated.client.call('cart.add_item')).text).toBe('cart.add_item done');
  });

  it('tells calls with other arguments apart where it is told to', async () => {
    const { client } = await serve({ max: 1, sameArguments: true });
    for (const sku of ['a', 'b', 'c'])
      expect((await client.call('cart.view', { sku })).isError).toBe(false);
    expect((await client.call('cart.view', { sku: 'b' })).isError).toBe(true);
  });

  it('forgets calls that are longer ago than its window', async () => {
    const { client, clock } = await serve({ max: 1, window: 60_000 });
    await client.call('cart.view');
    clock.advance(60_000);
    expect((await client.call('cart.view')).isError).toBe(false);
    expect((await client.call('cart.view')).isError).toBe(true);
  });

  it('counts on after a restart', async () => {
    const { client, restart } = await serve({ max: 2 });
    await client.call('cart.view');
    await client.call('cart.view');
    const again = await restart();
    expect((await again.call('cart.view')).meta['mcp-interlock/refusal']).toMatchObject({
      reason: 'loop',
    });
  });

  it('falls back by an event where it is told one', async () => {
    const { client, runs, run } = await serve({ max: 1, fallback: { event: 'ESCALATE' } });
    await client.call('cart.view');
    await client.call('cart.view');
    expect((await runs.history(run)).at(-1)).toMatchObject({ to: 'escalation', event: 'ESCALATE' });
  });

  it('harms nobody by a listener that throws', async () => {
    const { client } = await serve({
      max: 1,
      onLoop: () => {
        throw new Error('no');
      },
    });
    await client.call('cart.view');
    expect((await client.call('cart.view')).meta['mcp-interlock/refusal']).toMatchObject({
      reason: 'loop',
    });
  });
});

it('without it, calls are not counted, and those that move nothing are no steps', async () => {
  const { client, runs, run } = await serve(undefined);
  for (let call = 0; call < 6; call++) expect((await client.call('cart.view')).isError).toBe(false);
  expect(await runs.history(run)).toEqual([]);
});
