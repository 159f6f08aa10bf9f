import { describe, expect, it, onTestFinished } from 'vitest';
import { NO_ANSWER, testGate } from '../../packages/testing/src/index.ts';
import { type LoopShieldOptions, StateMachineGate } from '../../src/index.ts';
import { explain } from '../../src/runs/index.ts';

const READ = { readOnly: true, whileHeld: true } as const;

/** A payment that a lookup must not wait for. */
function payGate(loopShield?: LoopShieldOptions) {
  return new StateMachineGate(
    {
      id: 'pay',
      initial: 'open',
      states: {
        open: { on: { PAY: 'paid', NOTE: 'open' } },
        paid: { on: { NOTE: 'paid' } },
        help: {},
      },
    },
    { loopShield },
  )
    .bindTool('pay', 'open', { success: 'PAY', uncertain: 'hold' })
    .bindTool('look', ['open', 'paid'])
    .bindTool('watch', ['open', 'paid'], READ)
    .bindTool('late', 'paid', READ)
    .bindTool('basket', ['open'], { success: 'NOTE', when: ({ action }) => action === 'note' })
    .bindTool('basket', ['open'], { ...READ, when: ({ action }) => action !== 'note' })
    .bindTool('receipt', 'open', READ)
    .bindTool('receipt', 'paid', 'NOTE');
}

/** A run whose payment has an unknown outcome. */
async function held(loopShield?: LoopShieldOptions) {
  const t = testGate(payGate(loopShield));
  onTestFinished(() => t.close());
  await t.call('pay', {}, NO_ANSWER);
  const told = async (tool: string, args: Record<string, unknown> = {}) => {
    const { outcome, refusal } = await t.call(tool, args);
    return refusal?.reason ?? outcome;
  };
  return { t, told };
}

const SHIELD: LoopShieldOptions = { max: 2, fallback: { state: 'help' } };

describe('a held run', () => {
  it('lets a binding without an event through by itself, where no claim is needed', async () => {
    const { t, told } = await held();
    expect(await told('look')).toBe('ok');
    expect(await told('watch')).toBe('ok');
    expect(await told('late')).toBe('state');
    expect(await told('pay')).toBe('held');
    expect(await t.list()).toEqual(['look', 'watch', 'basket', 'receipt']);
  });

  it('lets reads through that say so, where the tool also sends an event', async () => {
    const { told } = await held();
    // Each call of a tool takes the claim of its strictest binding about it.
    expect(await told('receipt')).toBe('ok');
    expect(await told('basket', { action: 'show' })).toBe('ok');
    expect(await told('basket', { action: 'note' })).toBe('held');
  });

  it('lets reads through that say so under a loop shield, and counts none of them', async () => {
    const { t, told } = await held(SHIELD);
    expect(await told('look')).toBe('held');
    for (let times = 0; times < 4; times++) expect(await told('watch')).toBe('ok');
    expect(await told('late')).toBe('held');
    expect(await told('pay')).toBe('held');
    expect(await t.list()).toEqual(['watch', 'basket', 'receipt']);
    expect(await t.resolve('failed')).toMatchObject({ resolved: true });
    // A run that goes on counts them again.
    expect([await told('watch'), await told('watch'), await told('watch')]).toEqual([
      ...['ok', 'ok', 'loop'],
    ]);
  });

  it('says so in its view and its explanation', async () => {
    const { t } = await held(SHIELD);
    const view = await t.runs().read(await t.run());
    if (view === undefined) throw new Error('there is no run');
    expect(view).toMatchObject({ status: 'held', available: ['watch', 'basket', 'receipt'] });
    const tools = explain(payGate(SHIELD), view).tools;
    expect(tools.map(({ tool, shown, refusal }) => [tool, shown, refusal?.reason])).toEqual([
      ['pay', false, 'held'],
      ['look', false, 'held'],
      ['watch', true, undefined],
      ['late', false, 'held'],
      ['basket', true, undefined],
      ['receipt', true, undefined],
    ]);
  });

  it('asks the guard of such a read, with the data of the run', async () => {
    const seen: unknown[] = [];
    const gate = payGate(SHIELD).bindTool('peek', '*', {
      ...READ,
      guard: ({ args, state }) => seen.push(state) > 0 && args.all !== true,
    });
    const t = testGate(gate);
    onTestFinished(() => t.close());
    await t.call('pay', {}, NO_ANSWER);
    expect((await t.call('peek')).outcome).toBe('ok');
    expect((await t.call('peek', { all: true })).refusal?.reason).toBe('guard');
    expect(seen).toEqual(['open', 'open']);
  });

  it('refuses them while an operator has stopped it', async () => {
    const { t, told } = await held(SHIELD);
    await t.resolve('failed');
    await t.runs().freeze(await t.run(), { actor: 'ann', note: 'charges twice' });
    expect(await told('watch')).toBe('frozen');
  });
});

describe('whileHeld', () => {
  const bind = (options: object) => () => payGate().bindTool('x', 'open', options);

  it.each([
    [{ whileHeld: true }, '"whileHeld" has no effect without "readOnly": true'],
    [{ readOnly: true }, '"readOnly" has no effect without "whileHeld": true'],
    [{ ...READ, success: 'PAY' }, '"whileHeld" lets reads through, and "success" moves the run'],
    [{ ...READ, failure: 'PAY' }, '"whileHeld" lets reads through, and "failure" moves the run'],
    [{ readOnly: true, whileHeld: 'yes' }, 'whileHeld: expected boolean, got "yes"'],
  ])('is refused where it makes no sense: %j', (options, message) => {
    expect(bind(options)).toThrow(
      expect.objectContaining({
        code: 'ERR_INTERLOCK_CONFIG',
        message: expect.stringContaining(`binding of tool "x": ${message}`),
      }),
    );
  });
});
