import { expect, it } from 'vitest';
import { observationsOf } from '../../src/follow/observer.ts';
import { currentStep, type InterlockEvent, StateMachineGate } from '../../src/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { RawSession } from '../helpers/raw.ts';
import { scene } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';

const OBSERVES = { enforce: false } as const;

/** The refusals that the gate told of, once there are as many. */
async function refusals(events: readonly InterlockEvent[], count: number) {
  const found = () => events.filter((each) => each.type === 'call.refused');
  await expect.poll(() => found().length).toBe(count);
  return found();
}

function listening() {
  const events: InterlockEvent[] = [];
  return { events, onEvent: (event: InterlockEvent) => void events.push(event) };
}

it('follows a run that no call is held back from', async () => {
  const { events, onEvent } = listening();
  const app = await scene({ gate: OBSERVES, session: { onEvent } });
  const user = await app.client();
  await user.sees(['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view']);
  await user.calls('cart.add_item');
  await user.calls('cart.checkout');
  await user.calls('cart.pay');
  await expect.poll(async () => (await app.runs.read(user.run))?.snapshot.state).toBe('confirmed');
  const unrefused = { enforced: [], refused: false, strayed: false };
  expect((await app.runs.read(user.run))?.observed).toEqual(unrefused);
  await user.calls('cart.pay');
  const [told] = await refusals(events, 1);
  expect(told).toMatchObject({ tool: 'cart.pay', reason: 'state', state: 'confirmed' });
  expect(app.errors).toEqual([]);
});

it('lets calls pass unjudged where too long ones wait for a store that stalls', {
  timeout: 60_000,
}, async () => {
  const workflow = checkoutGate();
  const app = await scene({ workflow, gate: OBSERVES, shape: { mode: 'stateless' } });
  const opened = await app.session();
  await opened.call('cart.add_item');
  await expect.poll(() => app.runs.observed?.calls).toBe(1);
  app.store.fail('read', Number.POSITIVE_INFINITY, 'late');
  for (let i = 0; i < 20; i++) await opened.call('cart.add_item', { note: 'x'.repeat(3_900_000) });
  app.store.heal();
  for (const answer of app.store.late.splice(0)) answer();
  const seen = () => app.runs.observed;
  await expect.poll(() => seen()?.calls).toBe(18);
  expect(seen()?.unjudged).toEqual({ crowded: 3 });
});

it('counts a run that came to its end no more among those that are open', async () => {
  const app = await scene({ gate: OBSERVES });
  const user = await app.client();
  await user.calls('cart.add_item');
  const open = async () => (await app.runs.count()).states.map(({ state }) => state);
  await expect.poll(open).toEqual(['has_items']);
  await user.calls('cart.checkout');
  await user.calls('cart.pay');
  await expect.poll(open).toEqual([]);
});

it('lets a run stay whose state does not handle what happened, and says that it has strayed', async () => {
  const { events, onEvent } = listening();
  const workflow = checkoutGate();
  const app = await scene({ workflow, gate: OBSERVES, session: { onEvent } });
  const user = await app.client();
  await user.calls('cart.pay');
  await user.calls('cart.add_item');
  await user.calls('cart.pay');
  await refusals(events, 2);
  await expect.poll(async () => (await app.runs.read(user.run))?.snapshot.state).toBe('has_items');
  expect((await app.runs.read(user.run))?.observed).toEqual({
    ...{ enforced: [], refused: true, strayed: true },
  });
  // What is said of a run that has strayed is counted apart.
  expect(observationsOf(workflow.compile()).report).toMatchObject({
    ...{ runs: 1, refused: 1, calls: 3, strayed: 2 },
    rules: [{ tool: 'cart.pay', reason: 'state', runs: 1, calls: 1 }],
    last: { tool: 'cart.pay', state: 'empty' },
  });
});

it('records the facts of rules, whether or not a call was allowed', async () => {
  const { events, onEvent } = listening();
  const workflow = StateMachineGate.fromOrder(
    {
      pay: {
        after: { tool: 'approve', same: { id: 'id' }, consumes: true },
        limit: { times: 2, within: '1h' },
      },
    },
    { id: 'rules' },
  );
  const app = await scene({
    ...{ workflow, gate: OBSERVES, session: { onEvent } },
    makeServer: toolServer(['approve', 'pay']),
  });
  const user = await app.client();
  await user.calls('pay', { id: 1 });
  await user.calls('approve', { id: 1 });
  await user.calls('pay', { id: 2 });
  await user.calls('pay', { id: 1 });
  const told = await refusals(events, 3);
  expect(told.map(({ reason }) => reason)).toEqual(['state', 'guard', 'limit']);
  expect(told.every(({ enforced }) => enforced === false)).toBe(true);
});

it('asks guards behind the call, and takes what a handler says of its step', async () => {
  const { events, onEvent } = listening();
  const workflow = new StateMachineGate({
    id: 'order',
    initial: 'open',
    states: { open: { on: { PAY: 'paid' } }, paid: {} },
  }).bindTool('pay', 'open', { success: 'PAY', guard: ({ args }) => args.sum === 1 });
  const seen: unknown[] = [];
  const app = await scene({
    ...{ workflow, gate: OBSERVES, session: { onEvent } },
    makeServer: toolServer(['pay'], {
      pay(args, _, extra) {
        const step = currentStep(extra);
        seen.push(step?.tool);
        if (args.lost === true) step?.unknown('the provider did not answer');
        else step?.update(() => ({ paid: Number(args.sum) }));
        return undefined;
      },
    }),
  });
  const user = await app.client();
  await user.calls('pay', { sum: 2 });
  const [told] = await refusals(events, 1);
  expect(told).toMatchObject({ reason: 'guard', tool: 'pay' });
  await expect
    .poll(async () => (await app.runs.read(user.run))?.snapshot)
    .toMatchObject({
      state: 'paid',
      context: { paid: 2 },
    });
  const other = await app.client();
  await other.calls('pay', { sum: 1, lost: true });
  await other.calls('pay', { sum: 1 });
  // Enforced, it would be held, since nobody knows whether it was paid.
  expect((await refusals(events, 2))[1]).toMatchObject({ reason: 'held' });
  expect(seen).toEqual(['pay', 'pay', 'pay']);
});

it('is followed by all processes together', async () => {
  const { events, onEvent } = listening();
  const shape = { mode: 'stateless' } as const;
  const one = await scene({ gate: OBSERVES, session: { onEvent }, shape });
  const other = await scene({ gate: OBSERVES, session: { onEvent }, shape, beside: one });
  const opened = await one.session();
  const there = RawSession.resume(other.url, opened.id);
  await opened.call('cart.add_item');
  await expect.poll(async () => (await one.runs.read(opened.id))?.snapshot.state).toBe('has_items');
  await there.call('cart.checkout');
  await expect.poll(async () => (await one.runs.read(opened.id))?.snapshot.state).toBe('payment');
  await opened.call('cart.pay');
  await there.call('cart.pay');
  const [told] = await refusals(events, 1);
  expect(told).toMatchObject({ tool: 'cart.pay', state: 'confirmed' });
});

it('passes calls while the store is away, and only tells of it', async () => {
  const app = await scene({ gate: OBSERVES });
  const user = await app.client();
  app.store.fail('read');
  app.store.fail('record');
  await user.calls('cart.pay');
  await expect.poll(() => app.errors.length).toBeGreaterThan(0);
});

it.each(['singly', 'in one'] as const)(
  'stands beside a gate that enforces: %s',
  async (mounted) => {
    const { events, onEvent } = listening();
    const view = new StateMachineGate({
      id: 'views',
      initial: 'new',
      states: { new: { on: { SEEN: 'seen' } }, seen: {} },
    }).bindTool('cart.view', 'seen', 'SEEN');
    const app = await scene({
      mounted,
      workflow: [[view, OBSERVES], checkoutGate()],
      session: { onEvent },
    });
    const user = await app.client();
    await user.isRefused('cart.pay', 'state');
    await user.calls('cart.view');
    const told = await refusals(events, 2);
    expect(told.map(({ tool, enforced }) => [tool, enforced])).toEqual([
      ['cart.pay', undefined],
      ['cart.view', false],
    ]);
  },
);
