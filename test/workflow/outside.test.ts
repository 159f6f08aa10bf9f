import { describe, expect, it, onTestFinished } from 'vitest';
import { type TestGate, type TestGateOptions, testGate } from '../../packages/testing/src/index.ts';
import { type OrderOptions, principalKey, StateMachineGate } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { memoryStore } from '../../src/stores/memory.ts';
import { Page } from '../helpers/markdown.ts';

const page = new Page('docs/build/rules-more.md');
const MINUTE = 60_000;
const OF_ANN = { principal: 'ann', session: { key: principalKey() } } as const;

const outside = { approve: { who: 'a person' } } as const;
const fromOutside = (after: object, options: object = {}) =>
  StateMachineGate.fromOrder(
    { pay: { after: { outside: 'approve', ...after } } } as never,
    { id: 'bank', outside, ...options } as OrderOptions,
  );

function opened(gate: StateMachineGate, options: TestGateOptions = {}): TestGate {
  const opened = testGate(gate as never, { ...OF_ANN, ...options } as never) as TestGate;
  onTestFinished(() => opened.close());
  return opened;
}

const may = async (t: TestGate, tool: string, args = {}): Promise<void> => {
  const { outcome, text } = await t.call(tool, args);
  expect(outcome, text).toBe('ok');
};
const mayNot = async (t: TestGate, tool: string, args = {}): Promise<string> => {
  const { ran, text } = await t.call(tool, args);
  expect(ran, `${tool} ran`).toBe(false);
  return text;
};

/** A gate of the page, by its name there. */
function gateOf(name: string): StateMachineGate {
  const block = page.blocks('ts').find((each) => each.includes(`export const ${name} `)) ?? '';
  const code = block.replace(/^import .*$/gm, '').replace('export ', '');
  return new Function('StateMachineGate', `${code}; return ${name}`)(StateMachineGate);
}
const wordsOf = (part: string): string =>
  page
    .blocks('')
    .find((each) => each.includes(part))
    ?.trim() ?? '';

describe('the page of more rules', () => {
  it('has a refund wait for an approval of that order, which expires and is used up', async () => {
    const t = opened(gateOf('refunds'));
    expect(await mayNot(t, 'refund', { order_id: 7 })).toBe(wordsOf('refund is not'));
    await may(t, 'find_order', { order_id: 7 });
    await t.send('approve_refund', { arguments: { order_id: 7 }, by: 'dora' });
    expect(await mayNot(t, 'refund', { order_id: 8 })).toContain('with the same order_id');
    t.clock.advance(30 * MINUTE);
    expect(await mayNot(t, 'refund', { order_id: 7 })).toContain(
      'again: what came is older than 30 minutes',
    );
    await t.send('approve_refund', { arguments: { order_id: 7 }, by: 'dora' });
    await may(t, 'refund', { order_id: 7 });
    expect(await mayNot(t, 'refund', { order_id: 7 })).toContain('again: each counts once');
  });

  it('has two others approve a payment', async () => {
    const t = opened(gateOf('payments'));
    const send = (by: string | undefined) =>
      t.send('approve_payment', { arguments: { invoice: 1 }, ...(by && { by }) });
    expect(await mayNot(t, 'pay', { invoice: 1 })).toBe(wordsOf('pay is not available'));
    for (const by of ['ann', 'bob', 'bob', undefined, '["https://idp","bob"]']) await send(by);
    expect(await mayNot(t, 'pay', { invoice: 1 })).toContain('by different people');
    await send('cid');
    await may(t, 'pay', { invoice: 1 });
    expect(await mayNot(t, 'pay', { invoice: 1 })).toContain('approve_payment');
  });
});

describe('what comes from outside', () => {
  it('is no call, whatever the server has and a glob binds', async () => {
    const gate = fromOutside({}).bindTool('app*', '*');
    const t = opened(gate, {
      tools: ['approve', 'apply', 'Approve', 'outside:approve', 'approve '],
    });
    expect(await t.list()).not.toContain('approve');
    const { ran, refusal, text } = await t.call('approve', { by: 'dora' });
    expect([ran, refusal?.reason, refusal?.available]).toEqual([false, 'unbound', []]);
    expect(text).toContain('it must come from outside, by a person');
    for (const spelt of ['Approve', 'outside:approve', 'approve '])
      await t.call(spelt, { by: 'dora' });
    await mayNot(t, 'pay');
  });

  it('is listed for no client, and its call passes where the gate only observes', async () => {
    const stable = opened(fromOutside({}), {
      tools: ['approve'],
      gate: { visibility: 'stable' },
    });
    expect(await stable.list()).toEqual(['pay']);
    const watched = opened(fromOutside({}), { tools: ['approve'], gate: { enforce: false } });
    expect((await watched.call('approve')).ran).toBe(true);
    expect(await watched.state()).toBe('{}');
  });

  it('is sent by somebody else than the caller, who is a principal', async () => {
    const t = opened(fromOutside({ differs: ['caller'] }));
    expect(await t.send('approve')).toMatchObject({ sent: true, lacks: ['by'] });
    await t.send('approve', { by: 'ann' });
    // Of the caller it is not known whether it is this person.
    await t.send('approve', { by: { issuer: 'https://idp', subject: 'dora' } });
    await t.send('approve', { arguments: { by: 'dora' } });
    expect(await mayNot(t, 'pay', { by: 'dora' })).toContain('and not the caller');
    await t.send('approve', { by: 'dora' });
    await may(t, 'pay');
    const nobody = opened(fromOutside({ differs: ['caller'] }), {
      principal: undefined,
      session: {},
    });
    await nobody.send('approve', { by: 'dora' });
    await mayNot(nobody, 'pay');
  });

  it('is not sent without what a `same` compares, and by nobody where it is a call', async () => {
    const t = opened(fromOutside({ same: ['id'] }));
    await expect(t.send('approve', { arguments: { no: 1 } })).rejects.toThrow(
      'rules of workflow "bank" compare arguments.id of "approve"',
    );
    await expect(t.send('pay', { by: 'dora' })).rejects.toThrow(
      'the gate\'s "outside" has no "pay"',
    );
  });

  it('is added beside a step that runs, and begins a run of a principal', async () => {
    const store = memoryStore();
    const gate = fromOutside({ consumes: true });
    const t = opened(gate, { session: { key: principalKey(), store } });
    const runs = runsOf(gate, { store });
    const run = principalKey().runKey('ann');
    expect(await runs.send(run, 'approve', { by: 'dora' })).toMatchObject({ sent: true });
    const during = t.call('pay', {}, async () => {
      expect(await runs.send(run, 'approve', { by: 'dora' })).toMatchObject({ sent: true });
      return {};
    });
    expect((await during).outcome).toBe('ok');
    await may(t, 'pay');
    await mayNot(t, 'pay');
    await runs.freeze(run, { actor: 'me', note: 'stop' });
    expect(await runs.send(run, 'approve', { by: 'dora' })).toEqual({
      sent: false,
      reason: 'frozen',
    });
    expect(await runs.send('no such session', 'approve')).toEqual({
      sent: false,
      reason: 'unknown-run',
    });
  });

  it('is never made by a call of another build, in which it was a tool, nor the other way', async () => {
    const store = memoryStore();
    const session = { key: principalKey(), store };
    const asTool = StateMachineGate.fromOrder(
      { pay: { after: 'approve' }, approve: {} },
      { id: 'bank' },
    );
    const before = opened(asTool as never, { session });
    await may(before, 'approve');
    const now = opened(fromOutside({}), { session });
    await mayNot(now, 'pay');
    await now.send('approve', { by: 'dora' });
    await may(now, 'pay');
    // After the roll-back, the call is still known.
    await may(opened(asTool as never, { session }), 'pay');
    const other = { key: principalKey(), store: memoryStore() };
    await opened(fromOutside({}), { session: other }).send('approve', { by: 'dora' });
    await mayNot(opened(asTool as never, { session: other }), 'pay');
    await may(opened(fromOutside({}), { session: other }), 'pay');
  });

  it('is what a run may begin with, in tests too', async () => {
    const t = opened(fromOutside({ differs: ['caller'] }), {
      facts: [{ outside: 'approve', by: 'dora' }],
    });
    await may(t, 'pay');
    expect(() => opened(fromOutside({}), { facts: [{ tool: 'approve' }] })).not.toThrow();
    await expect(
      opened(fromOutside({}), { facts: [{ tool: 'approve' }] }).call('pay'),
    ).rejects.toThrow('nothing from outside');
  });

  it('says in errors what is wrong with rules', () => {
    const of =
      (rules: object, more: object = { outside }) =>
      () =>
        StateMachineGate.fromOrder(rules as never, more as never);
    const approve = { outside: 'approve' };
    expect(of({ pay: { after: { outside: 'aprove' } } })).toThrow('has no "aprove"');
    expect(of({ pay: { after: 'approve' } })).toThrow('say { outside: "approve" }');
    expect(of({ pay: { after: approve }, approve: {} })).toThrow('so it is no tool');
    expect(of({ pay: { undoneBy: 'approve' } })).toThrow('so it is no tool');
    expect(of({ pay: { after: { ...approve, outcome: 'any' } } })).toThrow('outcome');
    expect(of({ pay: { notAfter: { ...approve, differs: ['caller'] } } })).toThrow('differs');
    expect(of({ pay: { after: { tool: 'x', differs: ['caller'] } } })).toThrow('differs');
    expect(of({ 'outside:approve': {} })).toThrow('no name begins with');
    expect(of({ pay: {} }, { outside: { approve: {} } })).toThrow('who');
    expect(() => fromOutside({}).bindTool('approve', '*')).toThrow('one of the rules');
  });
});

describe('what is claimed of a caller', () => {
  const claimed = (role: unknown) => ({
    claims: () => (role === undefined ? undefined : { role }),
  });

  it('lets roles of one conversation see and do what the page says', async () => {
    const store = memoryStore();
    const as = (role: unknown) =>
      opened(gateOf('desk'), { session: { key: principalKey(), store, ...claimed(role) } });
    const [clerk, lead, admin] = [as('clerk'), as('lead'), as('admin')];
    expect(await clerk.list()).toEqual(['open_case']);
    expect(await mayNot(clerk, 'erase')).toBe(wordsOf('erase is not'));
    expect(await lead.list()).toEqual(['open_case', 'review']);
    await may(admin, 'erase');
    // Who looks a case up counts, and not who reads it.
    await may(lead, 'open_case');
    await mayNot(clerk, 'read_case');
    await may(clerk, 'open_case');
    await may(lead, 'read_case');
    await may(admin, 'review', { case: 1 });
    await mayNot(clerk, 'refund', { case: 1 });
    await may(lead, 'review', { case: 1 });
    await may(clerk, 'refund', { case: 1 });
    expect(await mayNot(clerk, 'refund', { case: 1 })).toContain('at most 1');
    await may(lead, 'refund', { case: 1 });
  });

  it('is asked at each request, and where it is not known, refuses', async () => {
    let role: unknown = 'admin';
    const t = opened(gateOf('desk'), {
      session: { key: principalKey(), claims: () => (role === undefined ? undefined : { role }) },
    });
    await may(t, 'erase');
    for (role of ['clerk', undefined, ['admin'], null, 1]) {
      await mayNot(t, 'erase');
      expect(await t.list()).not.toContain('erase');
    }
    const nothing = opened(gateOf('desk'), {});
    await mayNot(nothing, 'erase', { role: 'admin', caller: { role: 'admin' } });
    role = undefined;
    const limited = StateMachineGate.fromOrder(
      { pay: { limit: { times: 1, whenCaller: { role: { ne: 'admin' } } } } },
      { id: 'bank' },
    );
    const open = opened(limited as never, {
      session: { key: principalKey(), ...claimed(undefined) },
    });
    expect(await mayNot(open, 'pay')).toContain("the caller's claims must be there");
  });

  it('must be an object, and at once', async () => {
    for (const claims of [() => 'admin', async () => ({ role: 'admin' }), () => null]) {
      const t = opened(gateOf('desk'), { session: { key: principalKey(), claims } as never });
      await expect(t.call('erase')).rejects.toThrow();
    }
    const of = (rule: object) => () =>
      StateMachineGate.fromOrder({ pay: rule } as never, { outside } as never);
    expect(of({ caller: () => true })).toThrow('expected a condition');
    expect(of({ after: { outside: 'approve', byCaller: { role: 'x' } } })).toThrow('byCaller');
  });
});
