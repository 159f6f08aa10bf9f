import { describe, expect, it } from 'vitest';
import {
  type Loop,
  type LoopShieldOptions,
  principalKey,
  StateMachineGate,
} from '../../src/index.ts';
import { scene } from '../helpers/scene.ts';

function diagnosisGate(loops: Loop[], loopShield: Partial<LoopShieldOptions> | undefined) {
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

/** A client of a diagnosis with this loop shield. */
async function diagnosis(loopShield: Partial<LoopShieldOptions> | undefined) {
  const loops: Loop[] = [];
  const shape = { mode: 'stateless' } as const;
  const app = await scene({ shape, workflow: diagnosisGate(loops, loopShield) });
  const client = await app.client();
  return {
    ...app,
    loops,
    client,
    key: client.run,
    /** The same client, with a new process of the app. */
    async restart() {
      const workflow = diagnosisGate(loops, loopShield);
      const anew = await scene({ shape, workflow, beside: app });
      return anew.client({ 'mcp-session-id': client.run });
    },
  };
}

describe('the loop shield', () => {
  it('lets `max` calls of a tool through, then refuses, and moves the run', async () => {
    const { client, ledger, loops, runs, key } = await diagnosis({});
    for (let call = 0; call < 3; call++) await client.calls('cart.view');
    const refused = await client.isRefused('cart.view', 'loop');
    expect(refused.text).toBe(
      '[System: cart.view was not run, because it was called again and again without ' +
        'progress. support is now in "escalation". Available now: cart.pay.]',
    );
    expect(refused.meta['mcp-interlock/refusal']).toMatchObject({
      reason: 'loop',
      state: 'escalation',
    });
    expect(ledger.calls).toHaveLength(3);
    expect(loops).toEqual([
      { run: key, workflow: 'support', tool: 'cart.view', state: 'diagnosis', calls: 4, max: 3 },
    ]);
    expect((await runs.history(key)).at(-1)).toMatchObject({
      from: 'diagnosis',
      to: 'escalation',
      event: 'loop',
      tool: 'cart.view',
    });
    await client.sees(['cart.checkout', 'cart.pay']);
  });

  it('counts failed calls, and calls that a guard refuses', async () => {
    const { client } = await diagnosis({ max: 2 });
    await client.raw.call('cart.add_item', { fail: true });
    await client.isRefused('cart.add_item', 'guard', { sku: 'no' });
    await client.isRefused('cart.add_item', 'loop');
  });

  it('counts different tools together only with `consecutive`', async () => {
    const consecutive = await diagnosis({ mode: 'consecutive', max: 1 });
    await consecutive.client.calls('cart.view');
    await consecutive.client.isRefused('cart.add_item', 'loop');
    const repeated = await diagnosis({ max: 1 });
    await repeated.client.calls('cart.view');
    expect((await repeated.client.calls('cart.add_item')).text).toBe('cart.add_item done');
  });

  it('counts calls with other arguments apart with `sameArguments`', async () => {
    const { client } = await diagnosis({ max: 1, sameArguments: true });
    for (const sku of ['a', 'b', 'c']) await client.calls('cart.view', { sku });
    await client.isRefused('cart.view', 'loop', { sku: 'b' });
  });

  it('forgets calls that are older than its window', async () => {
    const { client, clock } = await diagnosis({ max: 1, window: 60_000 });
    await client.calls('cart.view');
    clock.advance(60_000);
    await client.calls('cart.view');
    await client.isRefused('cart.view', 'loop');
  });

  it('counts on after a restart', async () => {
    const { client, restart } = await diagnosis({ max: 2 });
    await client.calls('cart.view');
    await client.calls('cart.view');
    const again = await restart();
    await again.isRefused('cart.view', 'loop');
  });

  it('falls back by an event if it is given one', async () => {
    const { client, runs, key } = await diagnosis({ max: 1, fallback: { event: 'ESCALATE' } });
    await client.calls('cart.view');
    await client.isRefused('cart.view', 'loop');
    expect((await runs.history(key)).at(-1)).toMatchObject({ to: 'escalation', event: 'ESCALATE' });
  });

  it('survives a listener that throws', async () => {
    const { client } = await diagnosis({
      max: 1,
      onLoop: () => {
        throw new Error('no');
      },
    });
    await client.calls('cart.view');
    await client.isRefused('cart.view', 'loop');
  });
});

describe('a tool that is not bound', () => {
  const search = Array.from({ length: 40 }, () => 'cart.checkout');

  /** What 40 calls of it came to. */
  async function loop({ client }: Awaited<ReturnType<typeof diagnosis>>) {
    const results = [];
    for (const tool of search) results.push(await client.raw.call(tool));
    return results.map(({ meta }) => meta['mcp-interlock/refusal']);
  }

  it('is stopped in a loop where the shield counts its calls too', async () => {
    const app = await diagnosis({ unbound: true });
    await app.client.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
    const refusals = await loop(app);
    const loops = refusals.filter((each) => each !== undefined);
    expect(app.ledger.calls).toHaveLength(30);
    expect(loops).toHaveLength(10);
    expect(loops[0]).toMatchObject({ reason: 'loop', tool: 'cart.checkout', state: 'escalation' });
    expect(app.loops[0]).toMatchObject({ tool: 'cart.checkout', calls: 4, state: 'diagnosis' });
    await app.run(app.key).isIn('escalation');
  });

  it('is not counted without the option, nor before a list has shown it', async () => {
    const unlisted = await diagnosis({ unbound: true });
    const without = await diagnosis({});
    await without.client.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
    for (const app of [unlisted, without]) {
      expect((await loop(app)).filter((each) => each !== undefined)).toEqual([]);
      expect(app.ledger.calls).toHaveLength(40);
      expect(await app.runs.history(app.key)).toEqual([]);
    }
  });

  it('is refused for nothing else: it goes on beside what stops bound tools', async () => {
    const app = await diagnosis({ unbound: true, max: 1 });
    await app.client.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
    const by = { actor: 'ann', note: 'stop' };
    await app.runs.freeze(app.key, by);
    await app.client.isRefused('cart.view', 'frozen');
    for (let call = 0; call < 3; call++) await app.client.calls('cart.checkout');
    await app.runs.unfreeze(app.key, by);
    app.store.fail('claim');
    for (let call = 0; call < 3; call++) await app.client.calls('cart.checkout');
    expect(app.loops).toEqual([]);
  });

  it('is not counted in an ended run, and begins none anew', async () => {
    const workflow = diagnosisGate([], { unbound: true, max: 1 });
    const app = await scene({ workflow, session: { key: principalKey() } });
    const client = await app.client('ann');
    await client.sees(['cart.add_item', 'cart.checkout', 'cart.view']);
    await client.calls('cart.add_item');
    for (let call = 0; call < 3; call++) await client.calls('cart.checkout');
    expect(await app.runs.count()).toMatchObject({ runs: 0 });
    await client.calls('cart.view');
    expect(await app.runs.count()).toMatchObject({ runs: 1 });
  });
});

it('counts no calls without the loop shield, and makes no step of a mere read', async () => {
  const { client, runs, key } = await diagnosis(undefined);
  for (let call = 0; call < 6; call++) await client.calls('cart.view');
  expect(await runs.history(key)).toEqual([]);
});
