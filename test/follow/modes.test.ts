import { expect, it } from 'vitest';
import {
  currentStep,
  type FsmGateOptions,
  type InterlockEvent,
  principalKey,
  StateMachineGate,
  sessionKey,
} from '../../src/index.ts';
import { workflowHealth } from '../../src/runs/index.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { RawSession } from '../helpers/raw.ts';
import { pass, scene } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';
import type { Ledger } from '../helpers/upstream.ts';

const BY = { actor: 'ann', note: 'roll-out' };
const ALL = ['cart.add_item', 'cart.checkout', 'cart.pay', 'cart.view'];

function refusedIn(events: readonly InterlockEvent[]) {
  return events.flatMap((each) =>
    each.type === 'call.refused' ? [[each.tool, each.reason, each.enforced !== false]] : [],
  );
}

async function shop(gate: FsmGateOptions = {}, beside?: Parameters<typeof scene>[0]) {
  const events: InterlockEvent[] = [];
  const app = await scene({
    ...{ gate, shape: { mode: 'stateless' } },
    session: { onEvent: (event) => void events.push(event) },
    ...beside,
  });
  return { ...app, events };
}

it('goes back to observing in each process, also for runs that live', async () => {
  const one = await shop();
  const other = await shop({}, { beside: one });
  const opened = await one.session();
  const there = RawSession.resume(other.url, opened.id);
  await opened.call('cart.add_item');
  expect((await there.call('cart.pay')).result.isError).toBe(true);
  expect(await one.runs.observe(BY)).toEqual({ changed: true });
  expect(await one.runs.observe(BY)).toEqual({ changed: false, reason: 'same' });
  expect(await one.runs.mode()).toMatchObject({ enforce: false, ...BY });
  await pass(one.clock, 1_000);
  expect((await there.call('cart.pay')).result.isError).toBeFalsy();
  expect((await opened.call('cart.pay')).result.isError).toBeFalsy();
  expect(await there.tools()).toEqual(ALL);
  await expect.poll(() => refusedIn(other.events).length).toBe(2);
  expect(refusedIn(other.events)).toEqual([
    ['cart.pay', 'state', true],
    ['cart.pay', 'state', false],
  ]);
});

it('enforces again in each process, also where no call is judged any more', async () => {
  const one = await shop();
  const other = await shop({}, { beside: one });
  await (await one.session()).call('cart.view');
  await one.runs.observe(BY);
  await pass(one.clock, 1_000);
  for (const app of [one, other])
    expect((await (await app.session()).call('cart.pay')).result.isError).toBeFalsy();
  await one.runs.enforce(BY);
  await pass(one.clock, 1_000);
  for (const app of [one, other])
    expect((await (await app.session()).call('cart.pay')).result.isError).toBe(true);
});

it('enforces from the next run on, and those that live only where it is asked to', async () => {
  const app = await shop({ enforce: false });
  const before = await app.session();
  await before.call('cart.add_item');
  const strayed = await app.session();
  await strayed.call('cart.pay');
  await expect.poll(async () => (await app.runs.read(before.id))?.snapshot.state).toBe('has_items');
  await expect.poll(() => app.events.filter((each) => each.type === 'call.refused').length).toBe(1);
  await app.runs.enforce(BY);
  await pass(app.clock, 1_000);
  const next = await app.session();
  expect((await next.call('cart.pay')).result.isError).toBe(true);
  expect(await next.tools()).toEqual(['cart.add_item', 'cart.view']);
  expect(await before.tools()).toEqual(ALL);
  await app.runs.enforce({ ...BY, living: true });
  await pass(app.clock, 1_000);
  expect((await before.call('cart.pay')).result.isError).toBe(true);
  expect((await strayed.call('cart.pay')).result.isError).toBeFalsy();
});

it('keeps a run observed that began so, after a deployment that enforces', async () => {
  const observing = await shop({ enforce: false });
  const opened = await observing.session();
  await opened.call('cart.add_item');
  await expect
    .poll(async () => (await observing.runs.read(opened.id))?.snapshot.state)
    .toBe('has_items');
  const enforcing = await shop({}, { beside: observing });
  const there = RawSession.resume(enforcing.url, opened.id);
  expect((await there.call('cart.pay')).result.isError).toBeFalsy();
  expect(await there.tools()).toEqual(ALL);
  const other = await enforcing.session();
  expect((await other.call('cart.pay')).result.isError).toBe(true);
});

it('enforces the runs of principals too, from the next call on, but for those that strayed', async () => {
  const session = { key: [principalKey(), sessionKey()] };
  const observing = await shop({ enforce: false }, { session });
  const [ann, bob] = [{ 'x-user': 'ann' }, { 'x-user': 'bob' }];
  await (await observing.session(ann)).call('cart.add_item');
  await (await observing.session(bob)).call('cart.pay');
  const marks = async () => {
    const { runs } = await observing.runs.stuck({ forMs: 0 });
    return runs.map(({ state, observed }) => [state, observed?.strayed]).sort();
  };
  await expect.poll(marks).toEqual([
    ['empty', true],
    ['has_items', false],
  ]);

  const enforcing = await shop({}, { session, beside: observing });
  const anns = await enforcing.session(ann);
  const refused = await anns.call('cart.pay');
  expect([refused, enforcing.errors]).toMatchObject([{ result: { isError: true } }, []]);
  expect((await anns.call('cart.checkout')).result.isError).toBeFalsy();
  expect((await anns.call('cart.pay')).result.isError).toBeFalsy();
  const bobs = await enforcing.session(bob);
  expect((await bobs.call('cart.pay')).result.isError).toBeFalsy();
  expect(enforcing.warnings).toContainEqual(expect.stringContaining('are still observed'));

  const some = await shop({ enforce: ['cart.checkout'] }, { session, beside: observing });
  const again = await some.session(ann);
  expect((await again.call('cart.pay')).result.isError).toBeFalsy();

  await enforcing.runs.observe(BY);
  await pass(enforcing.clock, 1_000);
  expect((await anns.call('cart.pay')).result.isError).toBeFalsy();
});

it('follows the same rule for prompts and resources', async () => {
  const makeServer = (ledger: Ledger) => {
    const server = toolServer(ALL)(ledger);
    server.registerPrompt('summary', {}, () => ({ messages: [] }));
    server.registerResource('receipt', 'docs://receipt', {}, ({ href: uri }) => ({
      contents: [{ uri, text: 'paid' }],
    }));
    return server;
  };
  const workflow = checkoutGate()
    .bindPrompt('summary', 'payment')
    .bindResource('docs://receipt', ['empty', 'has_items'], { guard: () => false });
  const server = { session: { key: [principalKey(), sessionKey()] }, workflow, makeServer };
  const observing = await shop({ enforce: false }, server);
  const asks = async (app: typeof observing, user: string) => {
    const { client } = (await app.client(user)).raw;
    const isGiven = (asked: Promise<unknown>) => asked.then(...[() => true, () => false]);
    return [
      (await client.listPrompts()).prompts.length,
      await isGiven(client.getPrompt({ name: 'summary' })),
      await isGiven(client.readResource({ uri: 'docs://receipt' })),
    ];
  };
  await (await observing.client('ann')).calls('cart.add_item');
  await (await observing.client('bob')).calls('cart.pay');
  const moved = async () => (await observing.runs.stuck({ forMs: 0 })).runs.length;
  await expect.poll(moved).toBe(2);
  const enforcing = await shop({}, { ...server, beside: observing });
  expect(await asks(enforcing, 'ann')).toEqual([0, false, false]);
  expect(await asks(enforcing, 'bob')).toEqual([1, true, true]);
  // A list names tools alone, also for a run that begins.
  const some = await shop({ enforce: ['cart.pay'] }, { ...server, beside: observing });
  expect(await asks(some, 'ann')).toEqual([1, true, true]);
  expect(await asks(some, 'cleo')).toEqual([1, true, true]);
});

it('counts the runs that are observed still, and warns of them once', async () => {
  const observing = await shop({ enforce: false });
  const [opened, strayed] = [await observing.session(), await observing.session()];
  await opened.call('cart.add_item');
  await strayed.call('cart.pay');
  const moved = async () => (await observing.runs.stuck({ forMs: 0 })).runs.length;
  await expect.poll(moved).toBe(2);
  // While a gate observes, none of its runs is behind.
  expect(await observing.runs.count()).not.toHaveProperty('unenforced');

  const enforcing = await shop({}, { beside: observing });
  const health = workflowHealth({ runs: [enforcing.runs], stuckAfterMs: 1_000, maxAgeMs: 0 });
  const probe = async () => (await health.fetch(new Request('http://test/health'))).json();
  await enforcing.session();
  expect(await enforcing.runs.count()).toMatchObject({ runs: 2, unenforced: 2, strayed: 1 });
  expect(enforcing.warnings).toEqual([
    expect.stringContaining('are still observed: 2 at least, of which 1 strayed.'),
  ]);
  expect(await probe()).toMatchObject({
    ...{ status: 'degraded', degraded: ['strayed'] },
    workflows: [{ unenforced: 2, strayed: 1 }],
  });
  await enforcing.runs.enforce({ ...BY, living: true });
  await pass(enforcing.clock, 60_000);
  expect(await enforcing.runs.count()).toMatchObject({ unenforced: 1, strayed: 1 });
  await enforcing.runs.restart(strayed.id);
  await pass(enforcing.clock, 60_000);
  const counted = await enforcing.runs.count();
  expect(counted.runs).toBe(2);
  expect(counted).not.toHaveProperty('unenforced');
  expect(await probe()).toMatchObject({ status: 'ok' });
});

it('enforces some tools, and records what they depend on before its client goes on', async () => {
  const workflow = StateMachineGate.fromOrder(
    {
      pay: { after: { tool: 'approve', same: { id: 'id' }, consumes: true } },
      ship: { after: 'pay' },
      look: { after: 'find', step: false },
    },
    { id: 'rules' },
  );
  const app = await shop(
    { enforce: ['pay'] },
    { workflow, makeServer: toolServer(['find', 'look', 'approve', 'pay', 'ship']) },
  );
  const user = await app.client();
  await user.sees(['find', 'look', 'approve', 'ship']);
  await user.isRefused('pay', 'state', { id: 1 });
  await user.calls('ship', { id: 1 });
  await user.calls('look');
  await user.calls('approve', { id: 1 });
  await user.calls('pay', { id: 1 });
  await user.isRefused('pay', 'state', { id: 1 });
  await user.calls('ship', { id: 1 });
  await expect.poll(() => refusedIn(app.events).length).toBe(4);
  expect(refusedIn(app.events)).toEqual([
    ['pay', 'state', true],
    ['ship', 'state', false],
    ['look', 'state', false],
    ['pay', 'state', true],
  ]);
});

it('enforces some tools of a machine, whose other tools still move it', async () => {
  const app = await shop({ enforce: ['cart.p*'] });
  const user = await app.client();
  await user.calls('cart.checkout');
  await user.isRefused('cart.pay', 'state');
  await user.calls('cart.add_item');
  await user.calls('cart.checkout');
  await user.calls('cart.pay');
});

it('keeps for each run what was enforced at its first call', async () => {
  const some = await shop({ enforce: ['cart.pay'] });
  const opened = await some.session();
  await opened.call('cart.add_item');
  const more = await shop({ enforce: ['cart.pay', 'cart.checkout'] }, { beside: some });
  const there = RawSession.resume(more.url, opened.id);
  await there.call('cart.checkout');
  expect((await there.call('cart.checkout')).result.isError).toBeFalsy();
  const other = await more.session();
  expect((await other.call('cart.checkout')).result.isError).toBe(true);
});

it('refuses what is frozen, also while it observes', async () => {
  const app = await shop({ enforce: false });
  const user = await app.client();
  await user.calls('cart.pay');
  await app.runs.freezeAll({ ...BY, tool: 'cart.pay' });
  await pass(app.clock, 1_000);
  await user.isRefused('cart.pay', 'frozen');
  await user.calls('cart.checkout');
  await app.runs.unfreezeAll({ ...BY, tool: 'cart.pay' });
  await pass(app.clock, 1_000);
  await user.calls('cart.pay');
});

it('reads no run while it only observes, so that it knows no frozen one', async () => {
  const app = await shop({ enforce: false });
  const user = await app.client();
  await user.calls('cart.add_item');
  await app.runs.freeze(user.run, BY);
  await user.calls('cart.add_item');
  await app.runs.freezeAll({ ...BY, tool: 'cart.pay' });
  await pass(app.clock, 1_000);
  await user.isRefused('cart.pay', 'frozen');
  await user.calls('cart.add_item');
});

it('refuses a call of a frozen run, also of a tool that it only observes', async () => {
  const workflow = checkoutGate().bindTool('cart.view', '*');
  const app = await shop({ enforce: ['cart.pay'] }, { workflow });
  const user = await app.client();
  await user.calls('cart.add_item');
  await user.calls('cart.view');
  await app.runs.freeze(user.run, BY);
  await user.isRefused('cart.view', 'frozen');
  await user.isRefused('cart.add_item', 'frozen');
  await app.runs.unfreeze(user.run, BY);
  await user.calls('cart.view');
});

it('lets calls of a held run pass, and leaves it held', async () => {
  const tools = ['cart.add_item', 'cart.checkout', 'cart.pay'];
  const makeServer = toolServer(tools, {
    'cart.add_item'(args, _, extra) {
      if (args.lost === true) currentStep(extra)?.unknown('the warehouse did not answer');
      return undefined;
    },
  });
  const app = await shop({}, { workflow: checkoutGate('hold'), makeServer });
  const user = await app.client();
  await user.raw.call('cart.add_item', { lost: true });
  await user.isRefused('cart.add_item', 'held');
  await app.runs.observe(BY);
  await pass(app.clock, 1_000);
  await user.calls('cart.add_item');
  await app.run(user.run).isIn('has_items', 'held');
  await expect.poll(() => refusedIn(app.events).at(-1)).toEqual(['cart.add_item', 'held', false]);
});

it('goes by its option where this process never learned what operators have said', async () => {
  const observing = await shop({ enforce: false });
  observing.store.fail('readSwitch');
  const user = await observing.client();
  await user.calls('cart.pay');
  const enforcing = await shop({ enforce: ['cart.add_item'] });
  enforcing.store.fail('readSwitch');
  const other = await enforcing.client();
  await other.isRefused('cart.add_item', 'unavailable');
});

it('names the right tools where one to enforce is misspelt', async () => {
  await expect(shop({ enforce: ['cart.pya'] })).rejects.toThrow(/cart\.pya.*cart\.pay/s);
});
