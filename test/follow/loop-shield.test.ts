import { expect, it } from 'vitest';
import { replayCalls } from '../../packages/check/src/index.ts';
import { HOUR } from '../../packages/testing/src/fixtures.ts';
import {
  currentStep,
  type InterlockEvent,
  recordCalls,
  StateMachineGate,
  type StepSource,
} from '../../src/index.ts';
import { refusalOf, rulesApp } from '../helpers/rules-app.ts';

const shieldedGate = () =>
  StateMachineGate.fromOrder(
    { pay: { after: { tool: 'look', same: { to: { result: 'accountId' } } } } },
    { id: 'bank', loopShield: { max: 2, fallback: { event: 'look' } } },
  );

/** Who is paid, call after call: the account A, which was looked at, or another one. */
const RUNS = [
  { payees: ['A', 'A', 'B'], reasons: [undefined, undefined, 'loop'] },
  { payees: ['B', 'B', 'B'], reasons: ['guard', 'guard', 'loop'] },
  { payees: ['B', 'A', 'A'], reasons: ['guard', undefined, 'loop'] },
];
/** A call that fails is no move, whether or not a gate lets it through. */
const pay = (to: string) => ['pay', { to, fail: true }] as const;

it('refuses the same calls for the same reasons, whether it enforces, observes or replays', async () => {
  const enforcing = await rulesApp(shieldedGate());
  let text = '';
  const recorder = recordCalls({
    write: (lines) => {
      text += lines;
    },
    key: 'a key of sixteen bytes',
    clear: () => true,
  });
  const told: InterlockEvent[] = [];
  const onEvent = (event: InterlockEvent) => {
    recorder(event);
    told.push(event);
  };
  const observing = await rulesApp(shieldedGate(), {
    gate: { enforce: false },
    session: { onEvent },
  });
  for (const { payees, reasons } of RUNS) {
    const [caller, watched] = [await enforcing.begin(), await observing.begin()];
    await caller.may('look', { accountId: 'A' });
    await watched.may('look', { accountId: 'A' });
    const said: unknown[] = [];
    for (const payee of payees) {
      said.push(refusalOf(await caller.call(...pay(payee))).reason);
      await watched.call(...pay(payee));
    }
    expect(said).toEqual(reasons);
  }
  const refused = RUNS.flatMap(({ reasons }) => reasons.filter((each) => each !== undefined));
  const reasons = () => told.flatMap((each) => (each.type === 'call.refused' ? [each.reason] : []));
  await expect.poll(() => reasons().length).toBe(refused.length);
  expect(reasons()).toEqual(refused);
  await recorder.flush();
  const { refusals } = await replayCalls(shieldedGate(), { lines: () => text.split('\n') });
  expect(refusals.map(({ reason, runs }) => [reason, runs]).sort()).toEqual([
    ['guard', 2],
    ['loop', 1],
  ]);
});

const payGate = () =>
  new StateMachineGate(
    {
      id: 'pay',
      initial: 'open',
      states: { open: { on: { PAY: 'paid' } }, paid: {}, help: {} },
    },
    { loopShield: { max: 1, fallback: { state: 'help' } } },
  )
    .bindTool('pay', 'open', { success: 'PAY', uncertain: 'hold' })
    .bindTool('list', 'open', { uncertain: 'hold' })
    .bindTool('track', ['open', 'paid'])
    .bindTool('look', ['open', 'paid'], { readOnly: true, whileHeld: true });

/** Why calls of these tools are refused where the first one's outcome is always unknown. */
async function refusals(enforce: boolean, lost: string, ...tools: readonly string[]) {
  const told: string[] = [];
  const onEvent = (event: InterlockEvent) => {
    if (event.type === 'call.refused') told.push(`${event.tool}: ${event.reason}`);
  };
  const answers = {
    [lost]: (_: unknown, extra: StepSource) => currentStep(extra)?.unknown('lost'),
  };
  const app = await rulesApp(payGate(), { answers, gate: { enforce }, session: { onEvent } });
  const caller = await app.begin();
  for (const tool of [lost, ...tools]) {
    await caller.call(tool);
    app.clock.advance(HOUR);
  }
  return told;
}

for (const enforce of [true, false]) {
  const who = enforce ? 'an enforcing gate' : 'an observing gate';

  it(`${who} holds a run after any call that may not be repeated, and counts no read then`, async () => {
    for (const lost of ['pay', 'list']) {
      const told = await refusals(enforce, lost, 'look', 'look', 'look', 'pay');
      await expect.poll(() => told).toEqual(['pay: held']);
    }
  });

  it(`${who} neither holds a run after a call that only counts, nor counts it before it is answered`, async () => {
    const told = await refusals(enforce, 'track', 'track', 'track', 'list', 'list');
    await expect.poll(() => told).toEqual(['list: loop']);
  });
}
