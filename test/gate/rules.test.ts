import { describe, expect, it, onTestFinished } from 'vitest';
import { explain, StateMachineGate } from '../../src/index.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { type RulesAppOptions, refusalOf, rulesApp } from '../helpers/rules-app.ts';
import { passUntil } from '../helpers/scene.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const LONG = { session: { idleMs: 100 * HOUR } };

const once = () => StateMachineGate.fromOrder({ pay: { limit: { times: 1 } } }, { id: 'w' });
const approved = () =>
  StateMachineGate.fromOrder({ pay: { after: { tool: 'approve', consumes: true } } }, { id: 'w' });

describe('no store evaluates a rule', () => {
  it('a refused call lets its claim go: the trail has no attempt, and another call goes on', async () => {
    const app = await rulesApp(once(), { tools: ['look'] });
    const caller = await app.begin();
    await caller.may('pay');
    app.store.take();
    await caller.mayNot('pay', 'limit');
    expect(app.store.take()).toEqual(expect.arrayContaining(['claim', 'release']));
    await app.run(caller.run).is('idle');
    expect(await app.runs.history(caller.run)).toHaveLength(1);
    expect(app.errors).toEqual([]);
  });

  it.each([
    ['a limit of one', once, []],
    ['one approval that is consumed', approved, ['approve']],
  ] as const)('of 50 calls at once, %s lets one run', async (_, gate, first) => {
    const app = await rulesApp(gate());
    const caller = await app.begin();
    for (const tool of first) await caller.may(tool);
    const answers = await Promise.all(Array.from({ length: 50 }, () => caller.call('pay')));
    expect(app.ran('pay')).toBe(1);
    expect(answers.filter(({ result }) => result.isError !== true)).toHaveLength(1);
    expect(app.errors).toEqual([]);
  });

  it.each([
    ['a limit of one', once, []],
    ['one approval that is consumed', approved, ['approve']],
  ] as const)('of 50 calls at once on two instances, %s lets one run', async (_, gate, first) => {
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    const shape = { mode: 'stateless', answers: 'json' } as const;
    const storeOf = async () => {
      const store = sqliteStore({ database: file.connect() });
      return store;
    };
    const one = await rulesApp(gate(), { shape, data: await storeOf() });
    const other = await rulesApp(gate(), { shape, data: await storeOf() });
    const here = await one.begin();
    const there = other.resume(here.run);
    for (const tool of first) await here.may(tool);
    const calls = Array.from({ length: 50 }, (_, i) => (i % 2 ? here : there).call('pay'));
    const clocks = [one.clock, other.clock];
    const both = { advance: (ms: number) => clocks.map((each) => each.advance(ms)) };
    const answers = await passUntil(both as never, Promise.all(calls));
    expect(one.ran('pay') + other.ran('pay')).toBe(1);
    expect(answers.filter(({ result }) => result.isError !== true)).toHaveLength(1);
  });
});

describe('facts are added by an operation', () => {
  it('what is recorded between claim and commit of a step survives, and so does the step', async () => {
    const gate = StateMachineGate.fromOrder(
      {
        pay: { after: { tool: 'find', same: ['id'] }, limit: { times: 2 } },
        refund: { after: { tool: 'pay', same: ['id'] } },
      },
      { id: 'w' },
    );
    const app = await rulesApp(gate);
    const caller = await app.begin();
    await caller.may('find', { id: 1 });
    const pay = await caller.begins('pay', { id: 1 });
    await caller.may('find', { id: 2 });
    await caller.may('find', { id: 3 });
    pay.finish();
    await pay.answer;
    await caller.may('refund', { id: 1 });
    await caller.mayNot('refund', 'guard', { id: 2 });
    await caller.may('pay', { id: 3 });
    await caller.mayNot('pay', 'limit', { id: 2 });
    expect(await caller.moves()).toEqual(['find', 'find', 'find', 'pay', 'refund', 'pay']);
  });
});
