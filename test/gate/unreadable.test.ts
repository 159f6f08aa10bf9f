import { describe, expect, it } from 'vitest';
import { claimed, claimOf, HOUR, step } from '../../packages/testing/src/fixtures.ts';
import {
  type InterlockEvent,
  memoryStore,
  principalKey,
  type SessionStoreOptions,
  StateMachineGate,
  sessionStore,
} from '../../src/index.ts';
import { type HealthReport, type Runs, runsOf, workflowHealth } from '../../src/runs/index.ts';
import type { Json } from '../../src/stores/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { type Scene, scene } from '../helpers/scene.ts';

/** The checkout of the README after a deployment that renamed a state. */
function renamedGate(options: ConstructorParameters<typeof StateMachineGate>[1] = {}) {
  return new StateMachineGate(
    {
      id: 'checkout',
      initial: 'empty',
      states: {
        empty: { on: { ADD_ITEM: 'has_items' } },
        has_items: { on: { CHECKOUT: 'paying', CLEAR: 'empty' } },
        paying: { on: { PAY: 'confirmed', CANCEL: 'has_items' } },
        confirmed: { type: 'final' },
      },
    },
    options,
  )
    .bindTool('cart.add_item', ['empty', 'has_items'], 'ADD_ITEM')
    .bindTool('cart.checkout', ['has_items'], 'CHECKOUT')
    .bindTool('cart.pay', ['paying'], 'PAY')
    .bindPrompt('order.summary', ['has_items', 'paying']);
}

const session: SessionStoreOptions = {
  key: principalKey(),
  principal: (req) => String(req.headers['x-user']),
};

/** A process of the next deployment, which meets a run that the one before left in "payment". */
async function afterDeployment(
  next: StateMachineGate<string, string>,
  before: StateMachineGate<string, string> = checkoutGate(),
  calls: readonly string[] = ['cart.add_item', 'cart.checkout'],
) {
  const old = await scene({ workflow: before, session });
  const client = await old.client('ann');
  for (const tool of calls) await client.calls(tool);
  const told: InterlockEvent[] = [];
  const app = await scene({
    workflow: next,
    beside: old as Pick<Scene, 'clock' | 'data'>,
    session: { ...session, onEvent: (event) => void told.push(event) },
    gate: { statusTool: 'status' },
  });
  return { app, told, run: principalKey().runKey('ann') };
}

describe('a deployment that renamed a state without migrate', () => {
  it('refuses the run as unreadable, in words that do not ask to try again', async () => {
    const { app, told, run } = await afterDeployment(renamedGate());
    const client = await app.client('ann');
    for (const tool of ['cart.pay', 'cart.add_item']) {
      const { text } = await client.isRefused(tool, 'unreadable');
      expect(text).toBe(
        `[System: ${tool} was not run, because this server cannot read where checkout stands. ` +
          'The operator must repair that before checkout goes on. Do not try again until then.]',
      );
    }
    expect(app.ledger.calls).toEqual([]);
    expect(told).toContainEqual(
      expect.objectContaining({ type: 'call.refused', reason: 'unreadable', tool: 'cart.pay' }),
    );
    expect(app.errors[0]).toMatchObject({
      code: 'ERR_INTERLOCK_SNAPSHOT',
      message: expect.stringContaining('give the gate a "migrate"'),
    });
    expect((await app.data.read(run, HOUR))?.workflows.checkout?.snapshot.state).toBe('payment');
  });

  it('says so by the status tool, for a prompt, and in the lists of runs', async () => {
    const { app, run } = await afterDeployment(renamedGate());
    const client = await app.client('ann');
    const status = await client.raw.call('status');
    expect(status.isError).toBe(true);
    expect(status.text).toBe(
      'This server cannot read where checkout stands. The operator must repair that before ' +
        'checkout goes on. Do not try again until then.',
    );
    const prompt = client.raw.client.getPrompt({ name: 'order.summary' });
    await expect(prompt).rejects.toMatchObject({
      message: expect.stringContaining('this server cannot read where checkout stands'),
      data: { 'mcp-interlock/refusal': { reason: 'unreadable' } },
    });
    const { runs } = await app.runs.stuck({ forMs: 0 });
    expect(runs).toMatchObject([
      { run, state: 'payment', fault: expect.stringContaining('"payment", a state that') },
    ]);
    expect(await app.runs.count()).toMatchObject({ runs: 1, unreadable: 1 });
  });

  it('goes on where migrate says, and counts none', async () => {
    const { app } = await afterDeployment(
      renamedGate({
        migrate: ({ state }) => ({ state: state === 'payment' ? 'paying' : state }),
      }),
    );
    await (await app.client('ann')).calls('cart.pay');
    expect(await app.runs.count()).toMatchObject({ unreadable: 0 });
  });
});

it('goes on with a run of rules from which a name was removed', async () => {
  const rules = {
    'cart.checkout': { after: 'cart.add_item' },
    'cart.pay': { after: 'cart.checkout' },
  };
  const before = StateMachineGate.fromOrder(rules, { id: 'checkout' });
  const { 'cart.checkout': _, ...rest } = rules;
  const next = StateMachineGate.fromOrder(
    { ...rest, 'cart.pay': { after: 'cart.add_item' } },
    { id: 'checkout' },
  );
  const { app } = await afterDeployment(next as never, before as never);
  const client = await app.client('ann');
  await client.calls('cart.pay');
  expect(await app.runs.count()).toMatchObject({ unreadable: 0 });
});

/** Runs of the checkout, some of which the gate with the renamed state cannot read. */
async function strandedRuns() {
  const clock = new ManualClock();
  const store = memoryStore({ now: clock.now });
  const onError = () => {};
  const runs = runsOf(renamedGate(), {
    sessions: sessionStore({ store, clock, onError }),
  }) as Runs;
  const make = (run: string, state: string, context?: Json) =>
    step(store, run, { create: {} }, { snapshot: { state, ...(context && { context }) } });
  await make('known', 'paying');
  await make('stranded', 'payment', {
    'mcp-interlock/format': [2, 2],
    data: { card: '4111' },
    loop: [],
  });
  await make('newer', 'paying', {
    'mcp-interlock/format': [3, 3],
    data: { sealed: 'x' },
    'mcp-interlock/later': 1,
  });
  for (const run of ['stranded', 'newer', 'known'])
    await claimed(store, claimOf(run, { leaseMs: 8_000 }));
  clock.advance(9_000);
  return { clock, runs };
}

describe('what an operator sees', () => {
  it('is each held run without its envelope, and why it cannot be read', async () => {
    const { runs } = await strandedRuns();
    const found = await runs.held();
    expect(found.runs).toHaveLength(3);
    const text = JSON.stringify(found);
    for (const inner of ['mcp-interlock/format', 'mcp-interlock/later', 'loop', 'sealed'])
      expect(text).not.toContain(inner);
    const byRun = Object.fromEntries(found.runs.map((each) => [each.run, each]));
    expect(byRun.known).not.toHaveProperty('fault');
    expect(byRun.stranded).toMatchObject({
      status: 'held',
      context: { card: '4111' },
      snapshot: { state: 'payment', context: { card: '4111' } },
      fault: expect.stringContaining('a state that "checkout" does not have'),
    });
    expect(byRun.newer).toMatchObject({
      status: 'held',
      fault: expect.stringContaining('only versions from format 3 on may move it'),
    });
    expect(byRun.newer).not.toHaveProperty('context');
    await expect(runs.resolve('newer', 'failed')).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_SNAPSHOT',
    });
  });

  it('is how many runs are in states that are no more, and an alarm for them', async () => {
    const { runs } = await strandedRuns();
    const ask = async (failOn: readonly 'unreadable'[]) => {
      const health = workflowHealth({ runs: [runs], stuckAfterMs: HOUR, failOn });
      const answer = await health.fetch(new Request('http://x/health'));
      return { status: answer.status, report: (await answer.json()) as HealthReport };
    };
    const seen = await ask([]);
    expect(seen.status).toBe(200);
    expect(seen.report.workflows).toMatchObject([{ unreadable: 2, held: 3 }]);
    expect(await ask(['unreadable'])).toMatchObject({
      status: 503,
      report: { status: 'failing', failing: ['unreadable'] },
    });
  });
});

describe('a run that only another version can read', () => {
  it('is counted, and rings the alarm, whatever the version', async () => {
    const store = memoryStore();
    for (const run of ['one', 'two', 'three']) await step(store, run, { create: {} });
    const next = runsOf(renamedGate({ version: 1 }), { store, onError() {} }) as Runs;
    expect(await next.count()).toMatchObject({ runs: 3, unreadable: 3 });
    const health = workflowHealth({ runs: [next], stuckAfterMs: HOUR, failOn: ['unreadable'] });
    const answer = await health.fetch(new Request('http://localhost/health'));
    expect(answer.status).toBe(503);
    expect((await answer.json()) as HealthReport).toMatchObject({ failing: ['unreadable'] });
  });

  it('is no fault to repair while a deploy replaces this version: a client tries again', async () => {
    const { app } = await afterDeployment(
      renamedGate({ version: 1 }),
      renamedGate({ version: 2 }),
      ['cart.add_item'],
    );
    const { text } = await (await app.client('ann')).isRefused('cart.pay', 'unreadable');
    expect(text).toBe(
      '[System: cart.pay was not run, because this server cannot read where checkout stands. ' +
        'A newer version of this server has saved it, so try again in a minute.]',
    );
  });
});
