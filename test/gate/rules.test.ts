import { describe, expect, it, onTestFinished } from 'vitest';
import { replayTrail } from '../../packages/check/src/index.ts';
import { managedHandle, memoryStore, type OrderRules, StateMachineGate } from '../../src/index.ts';
import { explain, runsOf, whatIf } from '../../src/runs/index.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { callOf, type WireMessage } from '../helpers/raw.ts';
import {
  type Caller,
  type RulesApp,
  refusalOf,
  remember,
  rulesApp,
  timedBy,
} from '../helpers/rules-app.ts';
import { pass, passUntil, sceneOfBothEras } from '../helpers/scene.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';
import { ask } from '../helpers/two-eras.ts';

type AnyGate = StateMachineGate<string, string>;

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

describe('a function in a condition', () => {
  const above = (least: number) => (args: Readonly<Record<string, unknown>>) =>
    Number(args.amount) > least;
  const approved = (least: number, as?: string) =>
    ({ tool: 'approve', args: above(least), ...(as !== undefined && { as }) }) as const;
  const gateOf = (small?: string, large?: string) =>
    StateMachineGate.fromOrder(
      { gift: { after: approved(10, small) }, transfer: { after: approved(10_000, large) } },
      { id: 'w' },
    );

  it('has the column of its name, whatever its source says', async () => {
    const app = await rulesApp(gateOf('above-10', 'above-10000'), { data: memoryStore() });
    const caller = await app.begin();
    await caller.may('approve', { amount: 50 });
    await caller.may('gift');
    await caller.mayNot('transfer', 'state');
    await caller.may('approve', { amount: 50_000 });
    await caller.may('transfer');
  });

  it('shares its name with no other one on a tool', () => {
    expect(() => gateOf('above', 'above')).toThrow(/"above" names two functions/);
    expect(() => gateOf()).toThrow(/several functions are asked of its calls/);
    expect(() => gateOf('above')).toThrow(/several functions are asked of its calls/);
    const one = above(10);
    const asked = { tool: 'approve', args: one, as: 'above-10' };
    const twice = { gift: { after: asked }, transfer: { after: asked } };
    expect(StateMachineGate.fromOrder(twice, { id: 'w' })).toBeDefined();
    const limits = [1, 2].map((n) => ({ times: n, when: above(n) }));
    expect(() => StateMachineGate.fromOrder({ pay: { limit: limits } }, { id: 'w' })).toThrow(
      /several functions are asked of its calls/,
    );
  });

  it('needs its name on any store but memory', async () => {
    const gate = () => StateMachineGate.fromOrder({ gift: { after: approved(10) } }, { id: 'w' });
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    const store = sqliteStore({ database: file.connect() });
    expect(() => runsOf(gate(), { store })).toThrow(/a function without a name/);
    expect(() => runsOf(gate(), { store: memoryStore() })).not.toThrow();
  });

  it('is what its name is for', () => {
    const after = { tool: 'approve', args: { amount: { gt: 1 } }, as: 'above' };
    expect(() => StateMachineGate.fromOrder({ gift: { after } }, { id: 'w' })).toThrow(
      /it names the function in "args" or "result"/,
    );
  });
});

describe('requirements that use earlier calls up', () => {
  const role = (tool: string, of?: string) =>
    ({ tool, consumes: true, ...(of !== undefined && { args: { role: of } }) }) as const;
  const deploys = (...after: OrderRules['x']['after'][]) =>
    StateMachineGate.fromOrder({ deploy: { after: after as never } }, { id: 'w' });

  it.each([[['manager', 'clerk']], [['clerk', 'manager']], [['manager', 'manager']]])(
    'share %s out among them, in any order',
    async (roles) => {
      const app = await rulesApp(deploys(role('approve'), role('approve', 'manager')));
      const caller = await app.begin();
      for (const each of roles) await caller.may('approve', { role: each });
      await caller.may('deploy');
      await caller.mayNot('deploy', 'state');
    },
  );

  it('take the alternative that leaves enough for the others', async () => {
    const app = await rulesApp(
      deploys(
        { any: [role('approve', 'manager'), role('approve', 'clerk')] },
        role('approve', 'manager'),
      ),
    );
    const caller = await app.begin();
    for (const each of ['manager', 'clerk']) await caller.may('approve', { role: each });
    await caller.may('deploy');
    await caller.mayNot('deploy', 'state');
  });

  it('say how many calls they need together, and how many there are', async () => {
    const app = await rulesApp(deploys(role('approve'), role('approve', 'manager')));
    const caller = await app.begin();
    await caller.may('approve', { role: 'manager' });
    const refusal = refusalOf(await caller.call('deploy'));
    expect(refusal.text).toContain(
      'call approve once more: 2 calls of it are needed, and 1 is there',
    );
    await caller.may('approve', { role: 'clerk' });
    await caller.may('deploy');
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

describe('steps and records', () => {
  const gates = {
    'with a limit': { t: { limit: { times: 5 } } },
    'with `after`': { t: { after: 'x' } },
    'named in `notAfter`': { x: { notAfter: 't' } },
    'named in `undoneBy`': { x: { once: true, undoneBy: 't' } },
    'that is consumed': { x: { after: { tool: 't', consumes: true } } },
    'of which a rule asks for failures': { x: { after: { tool: 't', outcome: 'failed' } } },
    'of which a rule asks for any outcome': { x: { after: { tool: 't', outcome: 'any' } } },
  } as const;

  it.each(Object.entries(gates))('a tool %s is a step', async (_, rules) => {
    const app = await rulesApp(StateMachineGate.fromOrder(rules as OrderRules, { id: 'w' }));
    const caller = await app.begin();
    if ('t' in rules && 'after' in rules.t) await caller.may('x');
    const t = await caller.begins('t');
    await app.run(caller.run).is('running');
    t.finish();
    await t.answer;
  });

  const records = {
    'only named in `after`': { x: { after: { tool: 't', within: '1m', same: ['id'] } } },
    'with `step: false`': { t: { after: 'y', step: false }, x: { after: 't' } },
  } as const;

  it.each(Object.entries(records))('a tool %s runs without a claim', async (_, rules) => {
    const app = await rulesApp(StateMachineGate.fromOrder(rules as OrderRules, { id: 'w' }));
    const caller = await app.begin();
    if ('t' in rules) await caller.may('y');
    const t = await caller.begins('t', { id: 1 });
    await app.run(caller.run).is('idle');
    t.finish();
    await t.answer;
    await caller.may('x', { id: 1 });
  });

  const faults: [OrderRules, RegExp][] = [
    [
      { t: { limit: { times: 1 }, step: false } },
      /"t": step: false does not go with "limit", which/,
    ],
    [{ t: { once: true, step: false } }, /step: false does not go with "once"/],
    [{ t: { undoneBy: 'x', step: false } }, /step: false does not go with "undoneBy"/],
    [{ t: { after: { tool: 'x', consumes: true }, step: false } }, /not go with "consumes"/],
    [{ t: { after: { tool: 'x', outcome: 'any' }, step: false } }, /not go with "outcome"/],
    [{ t: { notAfter: { tool: 'x', outcome: 'failed' }, step: false } }, /not go with "outcome"/],
    [{ t: { after: 'x', failure: 'y', step: false } }, /step: false does not go with "failure"/],
    [{ t: { uncertain: 'retry', step: false } }, /step: false does not go with "uncertain"/],
    [{ t: { step: false }, x: { notAfter: 't' } }, /a step, since "x" must not come after it/],
    [{ t: { step: false }, x: { undoneBy: 't' } }, /it must be a step, since it undoes "x"/],
    [
      { t: { step: false }, x: { after: { tool: 't', consumes: true } } },
      /it must be a step, since "x" consumes its success/,
    ],
    [
      { t: { step: false }, x: { after: { tool: 't', outcome: 'failed' } } },
      /it must be a step, since "x" asks for its outcome/,
    ],
    [{ t: { step: false, ok: { a: 1 } } }, /"ok" has no effect, since no rule names/],
  ];

  it.each(faults)('%j is refused at construction', (rules, message) => {
    expect(() => StateMachineGate.fromOrder(rules, { id: 'w' })).toThrow(message);
  });

  it('a binding of a machine with a limit is a step, so `whileHeld` beside it is refused', () => {
    const machine = { id: 'm', initial: 'a', states: { a: {} } } as const;
    const bind = () =>
      new StateMachineGate(machine).bindTool('t', 'a', {
        limit: { times: 1 },
        whileHeld: true,
        readOnly: true,
      });
    expect(bind).toThrow(/"limit" makes each call a step, and "whileHeld" lets reads through/);
  });
});

describe('times', () => {
  it('`within` lets a call through just before its edge, and refuses it at the edge', async () => {
    const gate = StateMachineGate.fromOrder(
      { pay: { after: { tool: 'look', within: '2m' }, limit: { times: 1, within: '5m' } } },
      { id: 'w' },
    );
    const app = await rulesApp(gate);
    const caller = await app.begin();
    await caller.may('look');
    app.clock.advance(2 * MINUTE - 1);
    await caller.may('pay');
    app.clock.advance(1);
    await caller.mayNot('pay', 'state');
    await caller.may('look');
    app.clock.advance(5 * MINUTE - 2);
    await caller.may('look');
    await caller.mayNot('pay', 'limit');
    app.clock.advance(1);
    await caller.may('pay');
  });

  it('`after` counts from the decision, `limit` and `notAfter` from the later time', async () => {
    const gate = StateMachineGate.fromOrder(
      {
        check: { after: { tool: 'slow', within: '1m' } },
        slow: { limit: { times: 1, within: '1m' } },
        calm: { notAfter: { tool: 'slow', within: '1m' } },
      },
      { id: 'w' },
    );
    const app = await rulesApp(gate);
    const caller = await app.begin();
    const slow = await caller.begins('slow');
    await pass(app.clock, 50_000, 10_000);
    slow.finish();
    await slow.answer;
    app.clock.advance(MINUTE - 1);
    await caller.may('check');
    await caller.mayNot('slow', 'limit');
    await caller.mayNot('calm', 'state');
    app.clock.advance(1);
    await caller.mayNot('check', 'state');
    await caller.may('calm');
    await caller.may('slow');
  });

  it('a window that closes while a call waits for its turn refuses it', async () => {
    const gate = StateMachineGate.fromOrder(
      { pay: { after: { tool: 'look', within: '5s' } }, other: { limit: { times: 9 } } },
      { id: 'w' },
    );
    const app = await rulesApp(gate);
    const caller = await app.begin();
    await caller.may('look');
    const other = await caller.begins('other');
    const paying = caller.call('pay');
    await app.isServing(2);
    await pass(app.clock, 5_000);
    other.finish();
    await other.answer;
    expect(refusalOf(await paying).reason).toBe('state');
    expect(app.ran('pay')).toBe(0);
  });

  it('a limit that another call reaches while a call waits refuses it', async () => {
    const app = await rulesApp(once());
    const caller = await app.begin();
    const first = await caller.begins('pay');
    const second = caller.call('pay');
    await app.isServing(2);
    first.finish();
    expect((await first.answer).result.isError).not.toBe(true);
    expect(refusalOf(await second).reason).toBe('limit');
  });

  it('where the clock is set back, a later fact is stale for `after`, and counts for the others', async () => {
    const gate = StateMachineGate.fromOrder(
      {
        check: { after: { tool: 'look', within: '1h' } },
        pay: { limit: { times: 1, within: '1m' } },
        calm: { notAfter: { tool: 'pay', within: '1m' } },
      },
      { id: 'w' },
    );
    const clock = new ManualClock();
    const data = timedBy(memoryStore({ now: clock.now }), clock.now);
    const app = await rulesApp(gate, { ...LONG, beside: { clock, data } });
    const caller = await app.begin();
    await caller.may('look');
    await caller.may('pay');
    clock.jump(-HOUR);
    await caller.mayNot('check', 'state');
    await caller.mayNot('pay', 'limit');
    await caller.mayNot('calm', 'state');
  });
});

describe('sums', () => {
  const limited = (limit: object) =>
    StateMachineGate.fromOrder({ pay: { limit: limit as never } }, { id: 'w' });

  it('0.1 and 0.2 are 0.3, and no more', async () => {
    const app = await rulesApp(limited({ sum: 'amount', max: 0.3 }));
    const caller = await app.begin();
    await caller.may('pay', { amount: 0.1 });
    await caller.may('pay', { amount: 0.2 });
    await caller.may('pay', { amount: 0 });
    const { parts, text } = await caller.mayNot('pay', 'limit', { amount: 1e-16 });
    expect(parts?.[0]?.says).toBe('amount may add up to at most 0.3, and 0 is left');
    expect(text).toContain('it is at its limit: amount may add up to at most 0.3, and 0 is left.');
  });

  it('`below` stops just before its bound', async () => {
    const app = await rulesApp(limited({ sum: '/order/total', below: 100 }));
    const caller = await app.begin();
    await caller.may('pay', { order: { total: 99.99 } });
    await caller.mayNot('pay', 'limit', { order: { total: 0.01 } });
    await caller.may('pay', { order: { total: 0.0099 } });
  });

  it('with `text` amounts may be texts, in the same sum as numbers', async () => {
    const app = await rulesApp(limited({ sum: { path: 'amount', text: true }, max: 20 }));
    const caller = await app.begin();
    await caller.may('pay', { amount: '12.50' });
    await caller.may('pay', { amount: 7 });
    await caller.mayNot('pay', 'limit', { amount: '0.51' });
    await caller.may('pay', { amount: '0.50' });
    for (const amount of ['1e3', ' 1', '-1', '01', '1,5', ''])
      await caller.mayNot('pay', 'arguments', { amount });
  });

  it('an amount that is missing, negative, no number or too large is refused', async () => {
    const app = await rulesApp(limited({ sum: 'amount', max: 20 }));
    const caller = await app.begin();
    for (const amount of [undefined, null, -1, '5', [5], { a: 5 }, true, 2 ** 53 + 2, 1e300]) {
      const { parts, text } = await caller.mayNot('pay', 'arguments', { amount });
      expect(parts).toEqual([
        {
          part: 'arguments',
          paths: ['amount'],
          says: 'its argument "amount" must be a number that is not negative, and not too long',
        },
      ]);
      expect(text).toContain('Correct them, then try again.');
    }
    const digits = `0.${'1'.repeat(40)}`;
    const message = callOf('d', 'pay', { amount: 1 });
    const body = JSON.stringify(message).replace('"amount":1', `"amount":${digits}`);
    const { messages } = await caller.session.post(body);
    expect(messages[0]?.result.isError).not.toBe(true);
    await caller.may('pay', { amount: 19 });
  });

  it('only the calls that the limit judges need an amount', async () => {
    const app = await rulesApp(limited({ sum: 'amount', max: 10, when: { currency: 'EUR' } }));
    const caller = await app.begin();
    await caller.may('pay', { currency: 'USD' });
    await caller.may('pay', { currency: 'USD', amount: 1_000 });
    await caller.may('pay', { currency: 'EUR', amount: 10 });
    await caller.mayNot('pay', 'limit', { currency: 'EUR', amount: 1 });
    await caller.mayNot('pay', 'arguments', { currency: 'EUR' });
    await caller.mayNot('pay', 'arguments', { amount: 1 });
    await caller.mayNot('pay', 'arguments', { currency: 7, amount: 1 });
  });
});

describe('bounded memory', () => {
  it('`after` forgets the oldest of more than 1,000 facts, and refuses', async () => {
    const gate = StateMachineGate.fromOrder(
      { cancel: { after: { tool: 'find', same: ['id'] } } },
      { id: 'w' },
    );
    const app = await rulesApp(gate);
    const caller = await app.begin();
    await remember(app, gate, caller.run, 'find', 1_000, (i) => ({ id: i }));
    await caller.may('cancel', { id: 0 });
    await caller.may('find', { id: 'new' });
    await caller.mayNot('cancel', 'guard', { id: 0 });
    await caller.may('cancel', { id: 1 });
    await caller.may('cancel', { id: 'new' });
  });

  it('merged calls of a limit are never counted too low', async () => {
    const gate = StateMachineGate.fromOrder(
      {
        pay: {
          limit: [
            { times: 1_000 },
            { sum: 'amount', max: 1_101 },
            { sum: 'amount', max: 100, within: '1h' },
          ],
        },
      },
      { id: 'w' },
    );
    const app = await rulesApp(gate, LONG);
    const caller = await app.begin();
    await remember(app, gate, caller.run, 'pay', 999, () => ({ amount: 1 }));
    app.clock.advance(2 * HOUR);
    await caller.may('pay', { amount: 100 });
    const { parts } = await caller.mayNot('pay', 'limit', { amount: 2.5 });
    expect(parts?.map(({ says }) => says)).toEqual([
      'at most 1000',
      'amount may add up to at most 1101, and 2 is left',
      'amount may add up to at most 100 in 1 hour, and 0 is left: again in 1 h',
    ]);
  });

  it('a limit for each value refuses each call with more than 1,000 facts in its window', async () => {
    const gate = StateMachineGate.fromOrder(
      { pay: { limit: { times: 3, within: '1h', same: ['to'] } } },
      { id: 'w' },
    );
    const app = await rulesApp(gate, LONG);
    const caller = await app.begin();
    await remember(app, gate, caller.run, 'pay', 999, (i) => ({ to: `${i}` }));
    await caller.may('pay', { to: 'new' });
    const { text } = await caller.mayNot('pay', 'limit', { to: 'newer' });
    expect(text).toContain('too many of its calls in 1 hour are to be compared with one more');
    expect(await caller.tools()).not.toContain('pay');
    app.clock.advance(HOUR);
    expect(await caller.tools()).toContain('pay');
    await caller.may('pay', { to: 'newer' });
  });

  it('so it does with more than 10,000 members of lists', async () => {
    const gate = StateMachineGate.fromOrder(
      { mail: { limit: { times: 1, within: '1h', same: ['to'] } } },
      { id: 'w' },
    );
    const app = await rulesApp(gate, LONG);
    const caller = await app.begin();
    const to = (at: number): string[] => Array.from({ length: 256 }, (_, i) => `${at} ${i}`);
    await remember(app, gate, caller.run, 'mail', 40, (at) => ({ to: to(at) }));
    await caller.mayNot('mail', 'limit', { to: 'one' });
    expect(await caller.tools()).not.toContain('mail');
    app.clock.advance(HOUR);
    await caller.may('mail', { to: to(0) });
    await caller.mayNot('mail', 'limit', { to: ['new', '0 255'] });
  });

  it('`notAfter` with values refuses its tool with more than 1,000 facts in its window', async () => {
    const gate = StateMachineGate.fromOrder(
      { pay: { notAfter: { tool: 'reject', same: ['id'], within: '1h' } } },
      { id: 'w' },
    );
    const app = await rulesApp(gate, LONG);
    const caller = await app.begin();
    await remember(app, gate, caller.run, 'reject', 1_000, (i) => ({ id: `${i}` }));
    await caller.may('pay', { id: 'new' });
    await caller.mayNot('pay', 'guard', { id: '7' });
    await caller.may('reject', { id: 'more' });
    await caller.mayNot('pay', 'guard', { id: 'new' });
    app.clock.advance(HOUR);
    await caller.may('pay', { id: 'new' });
  });

  it('`times` of more than 1,000 is refused at construction', () => {
    for (const rule of [
      { limit: { times: 1_001 } },
      { after: { tool: 'x', times: 1_001 } },
      { notAfter: { tool: 'x', times: 1_001 } },
    ])
      expect(() => StateMachineGate.fromOrder({ pay: rule }, { id: 'w' })).toThrow(/1000/);
  });

  it('a list of more than 256 members is not compared', async () => {
    const gate = StateMachineGate.fromOrder(
      {
        mail: { after: { tool: 'find', same: { to: { result: 'ids' } } } },
        post: { notAfter: { tool: 'ban', same: { to: 'ids' } } },
      },
      { id: 'w' },
    );
    const app = await rulesApp(gate);
    const caller = await app.begin();
    const ids = Array.from({ length: 257 }, (_, i) => i);
    await caller.may('find', { ids });
    await caller.mayNot('mail', 'guard', { to: [1, 2] });
    await caller.may('find', { ids: ids.slice(0, 256) });
    await caller.may('mail', { to: [1, 2] });
    await caller.may('mail', { to: 3 });
    await caller.mayNot('mail', 'guard', { to: [1, 256] });
    await caller.mayNot('mail', 'arguments', { to: ids });
    await caller.mayNot('mail', 'arguments', { to: [] });
    await caller.may('post', { to: 1 });
    await caller.mayNot('post', 'arguments', {});
    await caller.may('ban', { ids });
    await caller.mayNot('post', 'guard', { to: 'any' });
  });
});
describe('one meaning everywhere', () => {
  /** What a list, the status tool, `runs.read()`, `explain()` and a call say of a tool. */
  async function saidOf(app: RulesApp, caller: Caller, gate: AnyGate, tool: string) {
    const view = await app.runs.read(caller.run);
    const explained = explain(gate, view).tools.find((each) => each.tool === tool);
    const { structuredContent } = await caller.may('where');
    const [status] = structuredContent.workflows as { says: string; next: { tool: string }[] }[];
    const list = (await caller.tools()).includes(tool);
    // Last, since it counts.
    const call = refusalOf(await caller.call(tool, {}));
    const isOpen = {
      list,
      status: status?.next.some((each) => each.tool === tool),
      view: view?.available.includes(tool),
      explained: explained?.shown,
      call: call.reason === undefined,
    };
    return { isOpen, call, explained, status };
  }

  const EACH = ['list', 'status', 'view', 'explained', 'call'] as const;
  const all = (is: boolean) => Object.fromEntries(EACH.map((each) => [each, is]));

  const forms = {
    'a window of `after`': [
      { pay: { after: { tool: 'look', within: '2m' } } },
      async (app, caller) => {
        await caller.may('look');
        return () => void app.clock.advance(2 * MINUTE);
      },
      'state',
      'pay is not available yet: call look again: its answer is older than 2 minutes.',
    ],
    'a limit that is reached': [
      { pay: { limit: { times: 2, within: '5m' } } },
      async (app, caller) => {
        await caller.may('pay');
        app.clock.advance(110_000);
        return () => {};
      },
      'limit',
      'pay was not run, because it is at its limit: at most 2 in 5 minutes: again in 3 min 10 s.',
    ],
    'a call that bars it': [
      { pay: { notAfter: { tool: 'reject', within: '5m' } } },
      async (_, caller) => async () => void (await caller.may('reject')),
      'state',
      'pay is not available now: reject succeeded less than 5 minutes ago: again in 5 min.',
    ],
    'one earlier call where two requirements use one up each': [
      {
        pay: {
          after: [
            { tool: 'approve', consumes: true },
            { tool: 'approve', args: { role: 'manager' }, consumes: true },
          ],
        },
      },
      async (_, caller) => {
        for (const role of ['clerk', 'manager']) await caller.may('approve', { role });
        return async () => void (await caller.may('approve', { role: 'manager' }));
      },
      'guard',
      'call approve once more: 2 calls of it are needed, and 1 is there',
    ],
    'one success that is enough': [
      { pay: { once: true } },
      async () => () => {},
      'state',
      'pay is not available now: pay may succeed only once.',
    ],
  } as const satisfies Record<
    string,
    readonly [
      OrderRules,
      (app: RulesApp, caller: Caller) => Promise<() => void | Promise<void>>,
      string,
      string,
    ]
  >;

  it.each(Object.entries(forms))('%s closes a tool for all of them at once', async (_, form) => {
    const [rules, prepare, reason, words] = form;
    const gate = StateMachineGate.fromOrder(rules as OrderRules, { id: 'w' });
    const app = await rulesApp(gate, { ...LONG, gate: { statusTool: 'where' } });
    const caller = await app.begin();
    const close = await prepare(app, caller);
    const open = await saidOf(app, caller, gate, 'pay');
    expect(open.isOpen).toEqual(all(true));
    expect(open.explained).not.toHaveProperty('refusal');
    await close();
    const shut = await saidOf(app, caller, gate, 'pay');
    expect(shut.isOpen).toEqual(all(false));
    expect(shut.call.reason).toBe(reason);
    expect(shut.call.text).toContain(words);
    if (shut.call.retryAfterMs !== undefined)
      expect(shut.call.text).not.toContain('cannot be reached');
    expect(shut.explained?.says).toBe(shut.call.text);
    const { text: _text, ...told } = shut.call;
    expect(shut.explained?.refusal).toEqual(told);
  });

  it('a window that is over opens the tool for all of them at once', async () => {
    const gate = StateMachineGate.fromOrder(
      { pay: { limit: { times: 1, within: '5m' } } },
      { id: 'w' },
    );
    const app = await rulesApp(gate, { gate: { statusTool: 'where' } });
    const caller = await app.begin();
    await caller.may('pay');
    app.clock.advance(5 * MINUTE - 1);
    expect((await saidOf(app, caller, gate, 'pay')).isOpen).toEqual(all(false));
    app.clock.advance(1);
    expect((await saidOf(app, caller, gate, 'pay')).isOpen).toEqual(all(true));
  });

  it('`whatIf()` makes its calls at the time of the run, and they count', async () => {
    const gate = StateMachineGate.fromOrder(
      {
        pay: { after: { tool: 'look', within: '2m' }, limit: { times: 1 } },
        send: { after: { tool: 'look', consumes: true } },
      },
      { id: 'w' },
    );
    const app = await rulesApp(gate);
    const caller = await app.begin();
    await caller.may('look');
    app.clock.advance(2 * MINUTE);
    const view = await app.runs.read(caller.run);
    const shown = (at: Parameters<typeof explain>[1]) =>
      explain(gate, at).tools.flatMap(({ tool, shown: isShown }) => (isShown ? [tool] : []));
    expect(shown(view)).toEqual(['look', 'send']);
    const looked = whatIf(gate, view, { tool: 'look', outcome: 'succeeded' });
    expect(shown(looked)).toEqual(['look', 'pay', 'send']);
    const paid = whatIf(gate, looked, { tool: 'pay', outcome: 'succeeded' });
    expect(shown(paid)).toEqual(['look', 'send']);
    expect(whatIf(gate, paid, { tool: 'pay', outcome: 'succeeded' })).toMatchObject({
      result: 'refused',
      refusal: { reason: 'limit', parts: [{ part: 'limit', says: 'at most 1' }] },
    });
    const sent = [1, 2].reduce(
      (at) => whatIf(gate, at, { tool: 'send', outcome: 'succeeded' }),
      paid,
    );
    expect(shown(sent)).toEqual(['look']);
  });

  it('no refusal names a tool at its limit as available, or sends a model through it', async () => {
    const gate = StateMachineGate.fromOrder(
      {
        look: { limit: { times: 1, within: '1h' } },
        pay: { after: { tool: 'look', consumes: true } },
      },
      { id: 'w' },
    );
    const app = await rulesApp(gate);
    const caller = await app.begin();
    const before = await caller.mayNot('pay', 'state');
    expect(before).toMatchObject({ available: ['look'], path: ['look'] });
    await caller.may('look');
    await caller.may('pay');
    const { available, path, text } = await caller.mayNot('pay', 'state');
    expect([available, path]).toEqual([[], undefined]);
    expect(text).not.toContain('cannot be reached');
  });

  it('the status tool says when a tool at its limit may be called again', async () => {
    const gate = StateMachineGate.fromOrder(
      { pay: { limit: { times: 1, within: '5m' } } },
      { id: 'w' },
    );
    const app = await rulesApp(gate, { gate: { statusTool: 'where' } });
    const caller = await app.begin();
    await caller.may('pay');
    app.clock.advance(MINUTE);
    const { status } = await saidOf(app, caller, gate, 'pay');
    expect(status?.says).toContain('pay is at its limit: at most 1 in 5 minutes: again in 4 min.');
    expect(status?.says).not.toContain('Nothing leads on');
  });

  it('a trail of rules replays, whatever windows closed and calls were counted', async () => {
    const gate = StateMachineGate.fromOrder(
      {
        pay: {
          after: [
            { tool: 'look', within: '2m' },
            { tool: 'approve', times: 2, distinct: 'by', consumes: true },
            { tool: 'find', result: { status: 'open' } },
          ],
          notAfter: { tool: 'reject', within: '1m' },
        },
      },
      { id: 'w' },
    );
    const app = await rulesApp(gate);
    const caller = await app.begin();
    for (let round = 0; round < 2; round++) {
      await caller.may('find', { status: 'shut' });
      await caller.may('find', { status: 'open' });
      await caller.may('reject');
      await caller.may('approve', { by: 'a' });
      await caller.may('approve', { by: 'b' });
      app.clock.advance(MINUTE);
      await caller.may('look');
      app.clock.advance(MINUTE);
      await caller.may('pay');
      app.clock.advance(2 * MINUTE);
    }
    const trail = await app.runs.history(caller.run);
    expect(trail).toHaveLength(14);
    expect(replayTrail(gate, trail)).toMatchObject({ faults: [] });
    // What nothing but a call's success could do is still a fault.
    const forged = trail.map((each) =>
      each.tool === 'reject' ? { ...each, to: `${each.to?.slice(0, -1)}, pay}` } : each,
    );
    expect(replayTrail(gate, forged).faults).not.toEqual([]);
  });
});

describe('words and `_meta`', () => {
  const bank = () =>
    StateMachineGate.fromOrder(
      {
        transfer: {
          after: [
            { tool: 'get_balance', within: '2m', same: { to_account: { result: 'accountId' } } },
            { tool: 'approve', when: { amount: { gt: 10_000 } }, consumes: true },
          ],
          limit: [
            { times: 5, within: '5m' },
            { sum: 'amount', below: 60_000, within: '24h' },
          ],
        },
      },
      { id: 'bank' },
    );

  it('a limit says how many, in which window, and when again', async () => {
    const app = await rulesApp(bank());
    const caller = await app.begin();
    for (let i = 0; i < 5; i++) {
      await caller.may('get_balance', { accountId: 'A' });
      await caller.may('transfer', { to_account: 'A', amount: 1 });
      app.clock.advance(i === 0 ? 10_000 : 25_000);
    }
    await caller.may('get_balance', { accountId: 'A' });
    const refused = await caller.mayNot('transfer', 'limit', { to_account: 'A', amount: 1 });
    expect(refused.text).toContain('at most 5 in 5 minutes: again in 3 min 10 s');
    expect(refused).toMatchObject({
      parts: [{ part: 'limit', tool: 'transfer', withinMs: 300_000, retryAfterMs: 190_000 }],
      retryAfterMs: 190_000,
    });
  });

  it('what two requirements ask is said once', async () => {
    const sent = { tool: 'approve', args: { level: 2 } };
    const gate = StateMachineGate.fromOrder({ pay: { after: [sent, sent] } }, { id: 'twice' });
    const caller = await (await rulesApp(gate)).begin();
    const { parts, text } = await caller.mayNot('pay', 'state');
    expect(parts).toHaveLength(1);
    expect(text.match(/approve first/g) ?? []).toHaveLength(1);
  });

  it('a list that is too long says how many members it may have', async () => {
    const gate = StateMachineGate.fromOrder(
      { mail: { limit: { times: 1, same: ['to'] } } },
      { id: 'w' },
    );
    const caller = await (await rulesApp(gate)).begin();
    const to = Array.from({ length: 257 }, (_, i) => i);
    const { text } = await caller.mayNot('mail', 'arguments', { to });
    expect(text).toContain('a list must have 1 to 256 members');
  });

  it('an answer stays too old, with other calls in between', async () => {
    const app = await rulesApp(bank());
    const caller = await app.begin();
    await caller.may('get_balance', { accountId: 'A' });
    app.clock.advance(2 * MINUTE);
    await caller.may('approve');
    const { text } = await caller.mayNot('transfer', 'state', { to_account: 'A', amount: 1 });
    expect(text).toContain('call get_balance again: its answer is older than 2 minutes');
  });

  it('an answer that is too old is to be asked for again', async () => {
    const app = await rulesApp(bank());
    const caller = await app.begin();
    await caller.may('get_balance', { accountId: 'A' });
    app.clock.advance(2 * MINUTE);
    const refused = await caller.mayNot('transfer', 'state', { to_account: 'A', amount: 1 });
    expect(refused.text).toContain('call get_balance again: its answer is older than 2 minutes');
    expect(refused.parts).toEqual([
      {
        part: 'after',
        tool: 'get_balance',
        withinMs: 120_000,
        says: 'call get_balance again: its answer is older than 2 minutes',
      },
    ]);
    expect(refused).not.toHaveProperty('retryAfterMs');
  });

  it('a value must be one that the earlier call returned', async () => {
    const app = await rulesApp(bank());
    const caller = await app.begin();
    await caller.may('get_balance', { accountId: 'A' });
    const refused = await caller.mayNot('transfer', 'guard', { to_account: 'B', amount: 1 });
    expect(refused.text).toContain('to_account must be an accountId that get_balance returned');
    await caller.mayNot('transfer', 'guard', { amount: 1 });
  });

  it('a condition that the arguments leave open says which argument, and what it needs', async () => {
    const app = await rulesApp(bank());
    const caller = await app.begin();
    await caller.may('get_balance', { accountId: 'A' });
    const refused = await caller.mayNot('transfer', 'arguments', {
      to_account: 'A',
      amount: '15000',
    });
    expect(refused.parts?.[0]).toMatchObject({ part: 'arguments', paths: ['amount'] });
    expect(refused.text).toContain(
      'its argument "amount" must be there, and of the type that a rule compares',
    );
    const approval = await caller.mayNot('transfer', 'guard', { to_account: 'A', amount: 15_000 });
    expect(approval.text).toContain('call approve first');
    await caller.may('approve');
    await caller.may('transfer', { to_account: 'A', amount: 15_000 });
    await caller.may('transfer', { to_account: 'A', amount: 10_000 });
  });

  it('an amount says what is left, and waits no longer than it must', async () => {
    const app = await rulesApp(bank(), LONG);
    const caller = await app.begin();
    const pay = async (amount: number) => {
      await caller.may('get_balance', { accountId: 'A' });
      await caller.may('approve');
      return ['transfer', { to_account: 'A', amount }] as const;
    };
    await caller.may(...(await pay(20_000)));
    app.clock.advance(HOUR);
    await caller.may(...(await pay(30_000)));
    const [tool, args] = await pay(10_000);
    const refused = await caller.mayNot(tool, 'limit', args);
    expect(refused.text).toContain(
      'amount may add up to less than 60000 in 1 day, and less than 10000 is left: again in 23 h',
    );
    expect(refused.retryAfterMs).toBe(23 * HOUR);
    // No wait helps where the call alone is too much.
    const [, most] = await pay(60_000);
    expect(await caller.mayNot(tool, 'limit', most)).not.toHaveProperty('retryAfterMs');
  });
});

describe('lists', () => {
  const rules = {
    pay: { after: { tool: 'look', within: '2m' } },
    send: { limit: { times: 1, within: '5m' } },
    wipe: { limit: { times: 0 } },
    drop: { notAfter: { tool: 'keep', within: '1h' } },
    cut: { limit: { times: 1, when: { hard: true } } },
  } as const;

  it('have no tool whose window closed or that is at its limit', async () => {
    const app = await rulesApp(StateMachineGate.fromOrder(rules, { id: 'w' }));
    const caller = await app.begin();
    const listed = async () => (await caller.tools()).filter((each) => Object.hasOwn(rules, each));
    expect(await listed()).toEqual(['send', 'drop', 'cut']);
    await caller.may('look');
    await caller.may('send');
    await caller.may('keep');
    await caller.may('cut', { hard: true });
    // Some call of it may go on.
    expect(await listed()).toEqual(['pay', 'cut']);
    app.clock.advance(2 * MINUTE);
    expect(await listed()).toEqual(['cut']);
    app.clock.advance(3 * MINUTE);
    expect(await listed()).toEqual(['send', 'cut']);
    app.clock.advance(HOUR);
    expect(await listed()).toEqual(['send', 'drop', 'cut']);
  });

  it('that are stable say the window in a note', async () => {
    const app = await rulesApp(StateMachineGate.fromOrder(rules, { id: 'w' }), {
      gate: { visibility: 'stable' },
    });
    const caller = await app.begin();
    const { result } = await caller.session.ask('tools/list');
    const notes = Object.fromEntries(
      (result.tools as { name: string; description?: string }[]).map((each) => [
        each.name,
        each.description,
      ]),
    );
    expect(notes.pay).toContain('Available only after look within 2 minutes.');
    expect(notes.send).toBe('[System: At most 1 in 5 minutes.]');
    expect(notes.drop).toContain('keep in the last 1 hour');
    expect(notes.look).toBeUndefined();
  });

  it('ask for the handle of the run wherever a rule has a say in a call', async () => {
    const gate = StateMachineGate.fromOrder(
      {
        'cart.pay': { limit: { times: 1 } },
        'cart.checkout': { notAfter: { tool: 'cart.view', same: ['sku'] } },
      },
      { id: 'w' },
    );
    const { url } = await sceneOfBothEras({
      session: { key: managedHandle({ start: 'cart.begin', argument: 'cart_id' }) },
      workflow: gate as unknown as AnyGate,
    });
    const { messages } = await ask(url, 'tools/list');
    const tools = messages[0]?.result.tools as WireMessage[];
    const asking = tools.filter(({ inputSchema }) => inputSchema.properties?.cart_id);
    expect(asking.map(({ name }) => name)).toEqual(['cart.checkout', 'cart.pay', 'cart.view']);
  });
});

describe('privacy', () => {
  it('neither the store nor the trail has a value of a call in clear, but amounts', async () => {
    const gate = StateMachineGate.fromOrder(
      {
        pay: {
          after: [
            { tool: 'look', same: { to: { result: 'secret-of-result' } } },
            { tool: 'approve', same: ['to'], args: { by: { ne: 'nobody' } }, consumes: true },
          ],
          notAfter: { tool: 'reject', same: ['to', 'ids'], times: 2, distinct: 'by' },
          limit: { sum: 'amount', max: 100_000, same: ['to'] },
        },
      },
      { id: 'w' },
    );
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    const database = file.connect();
    const app = await rulesApp(gate, { data: sqliteStore({ database }) });
    const caller = await app.begin();
    const to = 'secret-account';
    await caller.may('look', { 'secret-of-result': to });
    await caller.may('approve', { to, by: 'secret-approver' });
    await caller.may('reject', { to, ids: ['secret-id'], by: 'secret-rejecter' });
    const stored = () => {
      const tables = database.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").all();
      return (tables as { name: string }[])
        .map(({ name }) => JSON.stringify(database.prepare(`SELECT * FROM "${name}"`).all()))
        .join('\n');
    };
    const pay = await caller.begins('pay', { to, ids: ['secret-id'], amount: 54_321 });
    const running = stored();
    pay.finish();
    expect((await pay.answer).result.isError).not.toBe(true);
    const ended = stored();
    const trail = JSON.stringify(await app.runs.history(caller.run));
    for (const text of [running, ended, trail]) {
      expect(text).toContain('pay');
      expect(text).not.toMatch(/secret-(account|approver|id|rejecter)/);
    }
    expect(running).toContain('54321');
    expect(ended).toContain('54321');
    expect(trail).not.toContain('54321');
  });

  it('two runs have different digests of one value', async () => {
    const gate = StateMachineGate.fromOrder(
      { pay: { after: { tool: 'look', same: ['id'] } } },
      { id: 'w' },
    );
    const app = await rulesApp(gate);
    const contexts: string[] = [];
    for (let i = 0; i < 2; i++) {
      const caller = await app.begin();
      await caller.may('look', { id: 7 });
      const record = await app.data.read(caller.run, HOUR);
      const context = JSON.stringify(record?.workflows.w?.snapshot.context);
      contexts.push(/"n[\w+/-]{20}"/.exec(context)?.[0] ?? context);
    }
    expect(new Set(contexts).size).toBe(2);
  });
});

describe('a value that is written otherwise', () => {
  const written = async (caller: Caller, tool: string, args: string): Promise<WireMessage> => {
    const body = JSON.stringify(callOf('w', tool)).replace('"arguments":{}', `"arguments":${args}`);
    const { messages } = await caller.session.post(body);
    return messages[0] as WireMessage;
  };

  it.each([
    ['7', '7.00000000000000000001'],
    ['7.00000000000000000001', '7'],
    ['7.00000000000000000001', '7.00000000000000000002'],
    ['9007199254740992', '9007199254740993'],
    ['1e400', '1e401'],
    ['0', '1e-400'],
    ['0.1', '0.1000000000000000055511151231257827'],
    ['{"a":7}', '{"a":7.00000000000000000001}'],
    ['[[7]]', '[[7.00000000000000000001]]'],
    ['"7"', '7'],
  ])('is within a limit for each value no other one: %s, and %s', async (one, other) => {
    const gate = StateMachineGate.fromOrder(
      {
        pay: { limit: { times: 1, same: ['id'] } },
        lift: { notAfter: { tool: 'ban', same: ['id'] } },
        ban: {},
      },
      { id: 'w' },
    );
    const caller = await (await rulesApp(gate)).begin();
    expect((await written(caller, 'pay', `{"id":${one}}`)).result.isError).not.toBe(true);
    expect(refusalOf(await written(caller, 'pay', `{"id":${other}}`)).reason).toBe('limit');
    expect((await written(caller, 'ban', `{"id":${one}}`)).result.isError).not.toBe(true);
    expect(refusalOf(await written(caller, 'lift', `{"id":${other}}`)).reason).toBe('guard');
    // Of another JSON type it may be another spelling.
    const isRefused = !/^[\d]/.test(one);
    expect((await written(caller, 'pay', '{"id":8}')).result.isError === true).toBe(isRefused);
  });

  it('is no second approver, where JavaScript reads both alike', async () => {
    const gate = StateMachineGate.fromOrder(
      { sign: {}, deploy: { after: { tool: 'sign', times: 2, distinct: 'by' } } },
      { id: 'w' },
    );
    const caller = await (await rulesApp(gate)).begin();
    await written(caller, 'sign', '{"by":7}');
    await written(caller, 'sign', '{"by":7.00000000000000000001}');
    await caller.mayNot('deploy', 'state');
    await written(caller, 'sign', '{"by":8}');
    await caller.may('deploy');
  });

  it('`null` leaves a condition on arguments open: many servers take it for a default', async () => {
    const gate = StateMachineGate.fromOrder(
      {
        buy: { after: { tool: 'approve', when: { kind: 'big' } } },
        gift: { limit: { times: 1, when: { kind: { in: ['gift'] } } } },
        seen: { after: { tool: 'find', result: { status: { ne: 'gone' } } } },
      },
      { id: 'w' },
    );
    const caller = await (await rulesApp(gate)).begin();
    await caller.mayNot('buy', 'arguments', { kind: null });
    await caller.mayNot('gift', 'arguments', { kind: null });
    await caller.may('find', { status: null });
    await caller.may('seen');
  });
});

describe('a key that stands twice', () => {
  it.each([
    ['in the arguments', '{"amount":1,"amount":1}'],
    ['deep in them', '{"a":[{"b":{"c":1,"\\u0063":2}}],"amount":1}'],
  ])('%s refuses the whole request', async (_, args) => {
    const app = await rulesApp(once());
    const caller = await app.begin();
    const body = JSON.stringify(callOf('d', 'pay')).replace(
      '"arguments":{}',
      `"arguments":${args}`,
    );
    const { status, messages } = await caller.session.post(body);
    expect([status, messages[0]?.error.message]).toEqual([
      400,
      expect.stringContaining('stands twice'),
    ]);
    expect(app.ran('pay')).toBe(0);
    await caller.may('pay');
  });

  it('in another letter case refuses the call that a rule reads it of', async () => {
    const gate = StateMachineGate.fromOrder(
      { pay: { limit: { sum: 'order.amount', max: 10 } } },
      { id: 'w' },
    );
    const app = await rulesApp(gate);
    const caller = await app.begin();
    await caller.mayNot('pay', 'arguments', { order: { amount: 1, Amount: 1_000 } });
    await caller.mayNot('pay', 'arguments', { order: { amount: 1 }, Order: { amount: 1_000 } });
    await caller.may('pay', { order: { amount: 1 }, other: 1, Other: 2 });
  });
});
