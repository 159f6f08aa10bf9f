import { describe, expect, it } from 'vitest';
import { createMachine, setup } from 'xstate';
import { type GateOptions, initFsmEngine, runsOf, StateMachineGate } from '../../src/index.ts';
import { pass, settle, startCheckout } from '../helpers/checkout-app.ts';
import { latch } from '../helpers/latch.ts';
import { reasonOf } from '../helpers/raw.ts';

const MINUTE = 60_000;
const SHIELD = { loopShield: { max: 2, fallback: { state: 'help' } } };

type Guard = () => boolean | string | Promise<boolean | string>;

function shop(guard: Guard, options: GateOptions = {}) {
  return new StateMachineGate(
    {
      id: 'shop',
      initial: 'open',
      states: {
        open: { on: { PAY: 'paid', STAY: 'open' }, after: { 3600000: 'help' } },
        help: { on: { BACK: 'open' }, after: { 600000: 'closed' } },
        paid: {},
        closed: {},
      },
    },
    options,
  )
    .bindTool('cart.pay', 'open', { success: 'PAY', guard, uncertain: 'hold' })
    .bindTool('cart.view', 'open')
    .bindTool('cart.add_item', 'help', 'BACK');
}

describe('a call that is refused once it has the claim, by a store that then fails', () => {
  it('is not taken for a step that ran, where its count could not be saved', async () => {
    const app = await startCheckout({ workflow: shop(() => 'no', SHIELD) });
    const session = await app.begin();
    app.store.fail('commit');
    const answer = session.call('cart.pay');
    await settle();
    await pass(app.clock, 20_000);
    expect(reasonOf(await answer)).toBe('guard');
    app.store.heal();
    await pass(app.clock, 20_000);
    expect(reasonOf(await session.call('cart.pay'))).toBe('guard');
    expect(app.ledger.calls).toEqual([]);
  });

  it('is not taken for a step that ran, where the run should have fallen back', async () => {
    const app = await startCheckout({ workflow: shop(() => 'no', SHIELD) });
    const session = await app.begin();
    await session.call('cart.pay');
    await session.call('cart.pay');
    app.store.fail('commit');
    const answer = session.call('cart.pay');
    await settle();
    await pass(app.clock, 20_000);
    expect(reasonOf(await answer)).toBe('unavailable');
    app.store.heal();
    await pass(app.clock, 20_000);
    expect(reasonOf(await session.call('cart.pay'))).toBe('loop');
  });

  it('is not taken for a step that ran, where the time of its state was over', async () => {
    const workflow = shop(() => true);
    const app = await startCheckout({ workflow, session: { idleMs: 600 * MINUTE } });
    const session = await app.begin();
    const runs = runsOf(workflow, { store: app.data, idleMs: 600 * MINUTE });
    await runs.update(session.id, () => ({ a: 1 }));
    app.clock.advance(61 * MINUTE);
    app.store.fail('commit');
    const answer = session.call('cart.pay');
    await expect.poll(() => app.store.asked).toContain('commit');
    await pass(app.clock, 20_000);
    expect(reasonOf(await answer)).toBe('unavailable');
    app.store.heal();
    await pass(app.clock, 20_000);
    expect(reasonOf(await session.call('cart.pay'))).toBe('state');
    expect((await runs.read(session.id))?.status).toBe('idle');
  });
});

describe('the loop shield and deadlines', () => {
  it('let the state that a run falls back to have its whole time', async () => {
    const app = await startCheckout({
      workflow: shop(() => true, SHIELD),
      session: { idleMs: 600 * MINUTE },
    });
    const session = await app.begin();
    await session.call('cart.view');
    await session.call('cart.view');
    app.clock.advance(20 * MINUTE);
    expect(reasonOf(await session.call('cart.view'))).toBe('loop');
    app.clock.advance(5 * MINUTE);
    expect((await session.call('cart.add_item')).result.content[0].text).toBe('cart.add_item done');
  });
});

describe('a step that takes long before it is forwarded', () => {
  it('is given up on although its guard took longer than a step may', async () => {
    const asked = latch();
    const guard = latch();
    const app = await startCheckout({
      workflow: shop(async () => {
        asked.open();
        await guard.opened;
        return true;
      }),
      gate: { maxStepMs: 3_000 },
    });
    const never = latch();
    app.ledger.gates.set('cart.pay', never.opened);
    const session = await app.begin();
    const answer = session.call('cart.pay');
    await asked.opened;
    await pass(app.clock, 4_000);
    guard.open();
    await settle();
    await pass(app.clock, 10_000);
    const result = await Promise.race([answer, settle(200).then(() => 'nothing came')]);
    never.open();
    expect(result).toMatchObject({ result: { isError: true } });
    expect(app.ledger.calls).toEqual([]);
  });
});

describe('a statechart whose own code throws', () => {
  it('where a run should fall back refuses the call, and lets the run go', async () => {
    await initFsmEngine();
    const machine = setup({
      guards: {
        broken: () => {
          throw new Error('hunter2');
        },
      },
    }).createMachine({
      id: 'chart',
      initial: 'open',
      states: { open: { on: { HELP: { target: 'help', guard: 'broken' } } }, help: {} },
    });
    const workflow = new StateMachineGate(
      machine as never,
      {
        loopShield: { max: 1, fallback: { event: 'HELP' } },
      } as GateOptions,
    ).bindTool('cart.view', 'open' as never);
    const app = await startCheckout({ workflow: workflow as never });
    const session = await app.begin();
    await session.call('cart.view');
    const refused = await session.call('cart.view');
    expect(JSON.stringify(refused)).not.toContain('hunter2');
    expect(reasonOf(refused)).toBe('unavailable');
    const runs = runsOf(workflow as never, { store: app.data });
    expect((await runs.read(session.id))?.status).toBe('idle');
  });
});

describe('what entering the first states asks to be done', () => {
  it('is done with the first commit, though that only counts a refused call', async () => {
    await initFsmEngine();
    const done: string[] = [];
    const machine = createMachine({
      id: 'chart',
      initial: 'open',
      states: { open: { entry: 'greet', on: { PAY: 'paid', HELP: 'paid' } }, paid: {} },
    });
    let answer: boolean = false;
    const workflow = new StateMachineGate(
      machine as never,
      {
        loopShield: { max: 3, fallback: { event: 'HELP' } },
        onAction: ({ type }: { type: string }) => void done.push(type),
      } as GateOptions,
    ).bindTool('cart.pay', 'open' as never, {
      success: 'PAY' as never,
      guard: () => answer,
    });
    const app = await startCheckout({ workflow: workflow as never });
    const session = await app.begin();
    await session.call('cart.pay');
    answer = true;
    await session.call('cart.pay');
    expect(done).toEqual(['greet']);
  });
});

it('an observer that throws does not end the process', async () => {
  const thrown: unknown[] = [];
  const note = (error: unknown): void => void thrown.push(error);
  process.on('unhandledRejection', note);
  const onError = (): void => {
    throw new Error('the logger is broken');
  };
  try {
    const app = await startCheckout({ session: { onError }, gate: { onError } });
    const session = await app.begin();
    const never = latch();
    app.ledger.gates.set('cart.add_item', never.opened);
    const answer = session.call('cart.add_item');
    await expect.poll(() => app.ledger.calls).toEqual(['cart.add_item']);
    app.store.fail('renew');
    await pass(app.clock, 4_000);
    app.store.heal();
    never.open();
    await answer;
    await settle();
    expect(thrown).toEqual([]);
  } finally {
    process.off('unhandledRejection', note);
  }
});
