import { describe, expect, it } from 'vitest';
import { createMachine, setup } from 'xstate';
import { type GateOptions, initFsmEngine, StateMachineGate } from '../../src/index.ts';
import { latch } from '../helpers/latch.ts';
import { reasonOf } from '../helpers/raw.ts';
import { begins, pass, passUntil, scene, settle } from '../helpers/scene.ts';

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

describe('a call that is refused after its claim, while the store fails', () => {
  it('does not pass for a step that ran if its count is not saved', async () => {
    const app = await scene({ workflow: shop(() => 'no', SHIELD) });
    const session = await app.session();
    app.store.fail('commit');
    expect(reasonOf(await passUntil(app.clock, session.call('cart.pay')))).toBe('guard');
    app.store.heal();
    await pass(app.clock, 20_000);
    expect(reasonOf(await session.call('cart.pay'))).toBe('guard');
    expect(app.ledger.calls).toEqual([]);
  });

  it('does not pass for a step that ran if the fallback is not saved', async () => {
    const app = await scene({ workflow: shop(() => 'no', SHIELD) });
    const session = await app.session();
    await session.call('cart.pay');
    await session.call('cart.pay');
    app.store.fail('commit');
    expect(reasonOf(await passUntil(app.clock, session.call('cart.pay')))).toBe('unavailable');
    app.store.heal();
    await pass(app.clock, 20_000);
    expect(reasonOf(await session.call('cart.pay'))).toBe('loop');
  });

  it("does not pass for a step that ran if its state's deadline is not saved", async () => {
    const workflow = shop(() => true);
    const app = await scene({ workflow, session: { idleMs: 600 * MINUTE } });
    const session = await app.session();
    await app.runs.update(session.id, () => ({ a: 1 }));
    app.clock.advance(61 * MINUTE);
    app.store.fail('commit');
    expect(reasonOf(await passUntil(app.clock, session.call('cart.pay')))).toBe('unavailable');
    expect(app.store.asked).toContain('commit');
    app.store.heal();
    await pass(app.clock, 20_000);
    expect(reasonOf(await session.call('cart.pay'))).toBe('state');
    await app.run(session.id).is('idle');
  });
});

describe('the loop shield and deadlines', () => {
  it('give the state that a run falls back to its whole time', async () => {
    const app = await scene({
      workflow: shop(() => true, SHIELD),
      session: { idleMs: 600 * MINUTE },
    });
    const session = await app.session();
    await session.call('cart.view');
    await session.call('cart.view');
    app.clock.advance(20 * MINUTE);
    expect(reasonOf(await session.call('cart.view'))).toBe('loop');
    app.clock.advance(5 * MINUTE);
    expect((await session.call('cart.add_item')).result.content[0].text).toBe('cart.add_item done');
  });
});

describe('a step that takes long before it is forwarded', () => {
  it('is given up when its guard takes longer than a step may', async () => {
    const asked = latch();
    const guard = latch();
    const app = await scene({
      workflow: shop(async () => {
        asked.open();
        await guard.opened;
        return true;
      }),
      gate: { maxStepMs: 3_000 },
    });
    const never = latch();
    app.ledger.gates.set('cart.pay', never.opened);
    const session = await app.session();
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
  it('during a fallback refuses the call, and lets the run go', async () => {
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
    const app = await scene({ workflow });
    const session = await app.session();
    await session.call('cart.view');
    const refused = await session.call('cart.view');
    expect(JSON.stringify(refused)).not.toContain('hunter2');
    expect(reasonOf(refused)).toBe('unavailable');
    await app.run(session.id).is('idle');
  });
});

describe('the actions of the first states', () => {
  it('run with the first commit, even if that only counts a refused call', async () => {
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
    const app = await scene({ workflow });
    const session = await app.session();
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
    const app = await scene({ session: { onError }, gate: { onError } });
    const session = await app.session();
    const adding = await begins(app, 'cart.add_item', () => session.call('cart.add_item'));
    app.store.fail('renew');
    await pass(app.clock, 4_000);
    app.store.heal();
    adding.finish();
    await adding.answer;
    await settle();
    expect(thrown).toEqual([]);
  } finally {
    process.off('unhandledRejection', note);
  }
});
