/** What a deployment does to runs of rules: side by side, forwards and back. */
import { describe, expect, it } from 'vitest';
import { type TestGate, testGate } from '../../packages/testing/src/test-gate.ts';
import { digestOf } from '../../src/basics/digest.ts';
import { memoryStore, principalKey, StateMachineGate } from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import { Renamings } from '../../src/workflow/renamings.ts';
import { FOUR_STORES, type OpenStore } from '../helpers/four-stores.ts';

type Rules = Parameters<typeof StateMachineGate.fromOrder>[0];

const HOUR = 3_600_000;

/** One build of the app, beside others that share its store. */
function build(
  open: OpenStore,
  rules: object,
  tools: readonly string[] = [],
  options: object = {},
) {
  const store = open();
  const gate = StateMachineGate.fromOrder(rules as Rules, { id: 'bank', ...options });
  const app: TestGate = testGate(gate as never, {
    tools,
    principal: 'alice',
    session: { store, key: principalKey() },
  }) as never;
  const runs = runsOf(gate, { store, onWarning: () => {}, onError: () => {} });
  /** The reason of a refusal, or how it went. */
  const call = async (tool: string, args: object = {}): Promise<string> => {
    const { outcome, refusal } = await app.call(tool, args as never);
    return refusal?.reason ?? outcome;
  };
  const pay = (amount: number): Promise<string> => call('pay', { amount });
  const fails = async (tool: string, args: object = {}): Promise<string> => {
    const answer = { isError: true, content: [] };
    return (await app.call(tool, args as never, answer as never)).outcome;
  };
  return { app, runs, call, pay, fails };
}

const SUM = { limit: { sum: 'amount', max: 100, within: '24h' } } as const;

describe.each(Object.entries(FOUR_STORES))('a run of rules on %s', (_, make) => {
  it('finds its budget after a roll-back from a build without the rule', async () => {
    const open = await make();
    const [one, two] = [{ pay: SUM, look: {} }, { look: {} }].map((rules) =>
      build(open, rules, ['pay', 'look']),
    ) as [ReturnType<typeof build>, ReturnType<typeof build>];
    expect(await one.pay(100)).toBe('ok');
    expect(await two.call('look')).toBe('ok');
    expect(await one.pay(1)).toBe('limit');
  });

  it('stays readable where a tool that it called is taken out of the rules', async () => {
    const open = await make();
    const one = build(open, {
      login: {},
      checkout: { after: 'login' },
      pay: { after: 'checkout' },
    });
    for (const tool of ['login', 'checkout', 'pay']) expect(await one.call(tool)).toBe('ok');
    const two = build(open, { login: {}, pay: { after: 'login' } });
    expect(await two.call('pay')).toBe('ok');
    expect(await two.app.state()).toBe('{login}');
    // Rolled back, it knows the tool again.
    expect(await one.call('pay')).toBe('ok');
    expect(await one.app.state()).toBe('{login, checkout}');
  });

  it('is closed by a limit that is new where its tool was called before, and by once', async () => {
    const open = await make();
    const one = build(open, { pay: {} });
    expect(await one.pay(1)).toBe('ok');
    const two = build(open, { pay: { limit: { sum: 'amount', max: 100 } } });
    const closed = await two.app.call('pay', { amount: 1 });
    expect(closed.refusal?.reason).toBe('limit');
    expect(closed.text).toContain('an earlier amount is not known');
    expect(await build(open, { pay: { once: true } }).pay(1)).toBe('state');
    expect(await build(open, { pay: { limit: { times: 1 } } }).pay(1)).toBe('limit');
    expect(await build(open, { pay: { limit: { times: 2 } } }).pay(1)).toBe('ok');
    expect(await build(open, { pay: { limit: { times: 2 } } }).pay(1)).toBe('limit');
    // A build that does not count them keeps the first and the last, which stands for the others.
    const plain = StateMachineGate.fromOrder({ look: {} }).compile();
    const looks = [1, 2, 3, 4].map((at) => ({ tool: 'look', at }));
    const calls = plain.rules.givenFacts(looks, 'run', 0);
    const begun = plain.begunWith(plain.start, { calls });
    const counting = StateMachineGate.fromOrder({ look: { limit: { times: 9 } } }).compile();
    const kept = counting.rules.ledger?.read(begun).of('look').facts ?? [];
    expect(kept.map(({ count, decidedAt }) => [count, decidedAt])).toEqual([
      [1, 1],
      [3, 4],
    ]);
  });

  it('is opened by the time from which a new rule counts', async () => {
    const open = await make();
    const pays = (rule: object) => build(open, { pay: rule, login: {} }).pay(1);
    const run = await build(open, { pay: {} }).app.run();
    const paid = { tool: 'pay', arguments: { amount: 100 }, at: Date.now() - HOUR };
    await build(open, { pay: {} }).runs.begin(run, { facts: [paid] });
    const from = new Date(Date.now() - HOUR / 2).toISOString();
    const sum = { sum: 'amount', max: 1 } as const;
    expect(await pays({ limit: sum })).toBe('limit');
    expect(await pays({ once: true })).toBe('state');
    expect(await pays({ notAfter: 'pay' })).toBe('state');
    expect(await pays({ notAfter: 'pay', once: true, limit: sum, from })).toBe('ok');
    expect(await pays({ limit: sum, from })).toBe('limit');
    expect(await pays({ once: true, from })).toBe('state');
    expect(await pays({ notAfter: 'pay', from })).toBe('state');
  });

  it('is moved by a requirement that is met anew, and by neither a time nor a deployment', async () => {
    const open = await make();
    const shield = { loopShield: { max: 2, fallback: { event: 'reset' } } };
    const rules = { look: {}, pay: { after: 'look' }, reset: {}, x: { notAfter: 'reset' } };
    const [one, two] = [
      build(open, rules, [], shield),
      build(open, { ...rules, pay: { after: { tool: 'look', within: '1h' } } }, [], shield),
    ];
    expect(await one.call('look')).toBe('ok');
    // Each is the same call again: what it renews was met before, and a build is no move.
    expect([await two.call('look'), await one.call('look')]).toEqual(['ok', 'ok']);
    expect(await two.call('look')).toBe('loop');
  });

  it('finds what a build with a shorter window has no use for', async () => {
    const open = await make();
    const one = build(open, { pay: SUM });
    const at = Date.now() - HOUR;
    const paid = (amount: number) => ({ tool: 'pay', arguments: { amount }, at });
    const run = await one.app.run();
    expect(await one.runs.begin(run, { facts: [paid(60), paid(40)] })).toMatchObject({
      begun: true,
    });
    expect(await one.pay(1)).toBe('limit');
    const two = build(open, { pay: { limit: { sum: 'amount', max: 100, within: '500ms' } } });
    expect(await two.pay(0)).toBe('ok');
    expect([await one.pay(60), await one.pay(40), await one.pay(1)]).toEqual(
      Array(3).fill('limit'),
    );
  });

  it('goes on with amounts that a build in between had no use for', async () => {
    const open = await make();
    const [one, two] = [
      build(open, { pay: SUM }),
      build(open, { pay: { limit: { times: 5, within: '24h' } } }),
    ];
    expect([await one.pay(10), await two.pay(5), await one.pay(1)]).toEqual(['ok', 'ok', 'ok']);
    expect([await two.pay(80), await one.pay(5), await one.pay(4)]).toEqual(['ok', 'limit', 'ok']);
  });

  it('keeps failures that another build asks for', async () => {
    const open = await make();
    const guess = { limit: { times: 2, within: '1h', outcome: 'failed' } } as const;
    const [one, two] = [build(open, { pin: guess }), build(open, { pin: {} })];
    expect([await one.fails('pin'), await two.fails('pin')]).toEqual(['tool_error', 'tool_error']);
    expect(await two.call('pin')).toBe('ok');
    expect(await one.call('pin')).toBe('limit');
  });
});

it('names a held tool as it is called today, and settles its call', async () => {
  const shared = memoryStore();
  const doubt = { errors: 'unknown', uncertain: 'hold' } as const;
  const old = build(() => shared, { pay: { ...SUM, ...doubt }, ship: {} });
  const settle = { ...SUM, ...doubt, renamed: ['pay'] };
  const now = build(() => shared, { settle, ship: {} });
  expect(await old.fails('pay', { amount: 70 })).toBe('unknown');
  const held = await now.app.call('ship');
  expect(held.refusal?.reason).toBe('held');
  expect(held.text).toContain('an earlier call of settle ended with an unknown outcome');
  await now.app.resolve('succeeded', { actor: 'support' });
  expect([await now.call('settle', { amount: 31 }), await old.pay(30)]).toEqual(['limit', 'ok']);
});

it('lets a run live as long as the longest window that a build noted in it', async () => {
  let now = 1_764_108_000_000;
  const shared = memoryStore({ now: () => now });
  const week = { limit: { sum: 'amount', max: 100, within: '7d' } } as const;
  const [one, two] = [build(() => shared, { pay: week }), build(() => shared, { look: {} })];
  expect(await one.pay(100)).toBe('ok');
  expect(await two.call('look')).toBe('ok');
  now += 72 * HOUR;
  expect(await one.pay(1)).toBe('limit');
});

it('keeps five tools with a hundred facts each in 24 kB, whichever build has noted what', () => {
  const tools = ['a', 'b', 'c', 'd', 'e'];
  const rulesOf = (limit: object) =>
    StateMachineGate.fromOrder(
      Object.fromEntries(tools.map((tool) => [tool, { limit }])) as Rules,
    ).compile();
  const one = rulesOf({ times: 200, within: '1h', same: ['id'] });
  const two = rulesOf({ times: 300, within: '1m', same: ['id'] });
  let { start: position } = one;
  for (let i = 0; i < 100; i++)
    for (const tool of tools) {
      const facts = [{ tool, arguments: { id: `order-${i}` }, at: 1_764_108_000_000 + 1_000 * i }];
      const workflow = i % 2 === 0 ? one : two;
      position = workflow.begunWith(position, {
        calls: workflow.rules.givenFacts(facts, 'run', 0),
      });
    }
  expect(one.rules.ledger?.read(position).of('a').facts).toHaveLength(100);
  expect(JSON.stringify(position).length).toBeLessThan(24_000);
});

describe.each(Object.entries(FOUR_STORES))('a tool with a new name on %s', (_, make) => {
  const SETTLE = {
    settle: {
      renamed: ['pay', 'charge'],
      args: { total: 'amount' },
      limit: { sum: 'total', max: 100, within: '24h' },
    },
  } as const;

  it('goes on with the budget of its old ones, side by side and back', async () => {
    const open = await make();
    const old = build(open, { pay: SUM });
    const now = build(open, SETTLE, ['settle', 'pay', 'charge']);
    expect(await old.pay(60)).toBe('ok');
    expect(await now.call('settle', { total: 41 })).toBe('limit');
    expect(await now.call('settle', { total: 30 })).toBe('ok');
    expect([await old.pay(11), await old.pay(5)]).toEqual(['limit', 'ok']);
    // Each of the names is judged by the rule, and a call by an old one has the old arguments.
    expect(await now.call('pay', { amount: 6 })).toBe('limit');
    expect(await now.call('charge', { amount: 3 })).toBe('ok');
    expect([await now.call('settle', { total: 3 }), await old.pay(3)]).toEqual(['limit', 'limit']);
    expect([await now.call('settle', { total: 2 }), await old.pay(1)]).toEqual(['ok', 'limit']);
  });

  it('is known to others by what was done under its old ones', async () => {
    const open = await make();
    const rules = (tool: string, own: object, path: string) => ({
      [tool]: own,
      ship: { after: { tool, same: { id: path }, args: { [path]: { gt: 5 } }, consumes: true } },
    });
    const old = build(open, rules('pay', {}, 'order'));
    const now = build(open, rules('settle', { renamed: ['pay'], args: { id: 'order' } }, 'id'));
    expect(await old.call('pay', { order: 7 })).toBe('ok');
    expect(await now.call('ship', { id: 7 })).toBe('ok');
    expect(await old.call('ship', { id: 7 })).toBe('state');
    expect(await now.call('settle', { id: 8 })).toBe('ok');
    expect([await now.call('ship', { id: 9 }), await old.call('ship', { id: 8 })]).toEqual([
      'guard',
      'ok',
    ]);
  });

  it('keeps its idempotency key where a call of it lost its answer', async () => {
    const open = await make();
    const retry = { uncertain: 'retry', errors: 'unknown' } as const;
    const old = build(open, { pay: { ...SUM, ...retry } });
    const now = build(open, { settle: { ...SETTLE.settle, ...retry } });
    const keys: unknown[] = [];
    const noting = (answer: unknown) => (_args: unknown, step?: { idempotencyKey: string }) => {
      keys.push(step?.idempotencyKey);
      return answer as never;
    };
    await old.app.call(
      'pay',
      { amount: 90 } as never,
      noting({ isError: true, content: [] }) as never,
    );
    expect(await now.call('settle', { total: 20 })).toBe('limit');
    const again = await now.app.call('settle', { total: 90 } as never, noting({ content: [] }));
    expect(again.outcome).toBe('ok');
    expect(new Set(keys).size).toBe(1);
    expect([await old.pay(11), await old.pay(10)]).toEqual(['limit', 'ok']);
  });

  it('keeps that key where the argument is a member of a list, or of an object in one', async () => {
    const open = await make();
    const retry = { uncertain: 'retry', errors: 'unknown' } as const;
    const sumOf = (path: string) => ({ sum: path, max: 100, within: '24h' });
    const old = build(open, { pay: { limit: sumOf('lines.0.amount'), ...retry } });
    const args = { 'items.0.total': 'lines.0.amount', 'items.1': 'lines.1', 'to.name': 'lines.2' };
    const settle = { renamed: ['pay'], args, limit: sumOf('items.0.total'), ...retry };
    const now = build(open, { settle });
    expect(await old.fails('pay', { lines: [{ amount: 90 }, 7, 'ann'] })).toBe('unknown');
    const again = { items: [{ total: 90 }, 7], to: { name: 'ann' } };
    expect(await now.call('settle', { ...again, items: [{ total: 90 }, 8] })).toBe('limit');
    expect(await now.call('settle', again)).toBe('ok');
    expect(await now.call('settle', again)).toBe('limit');
  });

  it('counts on with its retries, and its limit, in a machine', async () => {
    const open = await make();
    const machine = (tool: string, renamed?: object) => {
      const gate = new StateMachineGate({
        id: 'bank',
        initial: 'open',
        states: { open: { on: { GIVE_UP: 'closed' } }, closed: {} },
      }).bindTool(tool, ['open'], {
        failure: 'GIVE_UP',
        retries: 1,
        limit: { times: 2 },
        ...renamed,
      });
      const session = { store: open(), key: principalKey() };
      return testGate(gate, { principal: 'alice', session });
    };
    const [old, now] = [machine('pay'), machine('settle', { renamed: ['pay'] })];
    const failure = { isError: true, content: [] };
    expect((await old.call('pay')).outcome).toBe('ok');
    expect((await old.call('pay', {}, failure)).outcome).toBe('tool_error');
    expect(await now.state()).toBe('open');
    expect((await now.call('settle')).outcome).toBe('ok');
    expect((await old.call('pay')).refusal?.reason).toBe('limit');
    expect((await now.call('settle')).refusal?.reason).toBe('limit');
  });

  it('has what two old tools did, once they are one', async () => {
    const open = await make();
    const old = build(open, { pay: SUM, charge: SUM });
    const now = build(open, SETTLE);
    expect([await old.pay(40), await old.call('charge', { amount: 50 })]).toEqual(['ok', 'ok']);
    expect(await now.call('settle', { total: 11 })).toBe('limit');
    expect(await now.call('settle', { total: 10 })).toBe('ok');
    expect(await old.pay(1)).toBe('limit');
    // The second tool has a new budget after a roll-back.
    expect(await old.call('charge', { amount: 100 })).toBe('ok');
  });
});

it.each<[string, object, string]>([
  ['its own one', { a: { renamed: ['a'] } }, 'a tool cannot have its own name as an old one'],
  ['one that has a rule', { a: { renamed: ['b'] }, b: {} }, '"b" is a name of today too'],
  ['one that a rule names', { a: { renamed: ['b'] }, c: { after: 'b' } }, '"b" is a name of today'],
  ['one in a circle', { a: { renamed: ['b'] }, b: { renamed: ['a'] } }, '"b" is a name of today'],
  ['one of two tools', { a: { renamed: ['x'] }, b: { renamed: ['x'] } }, 'an old name of "a" too'],
  ['none', { a: { renamed: [] } }, 'renamed: '],
])('refuses an old name that is %s', (_, rules, message) => {
  expect(() => StateMachineGate.fromOrder(rules as Rules)).toThrow(message);
});

it.each<[string, Record<string, string>, object, object]>([
  ['an object that had nothing else', { 'to.id': 'id' }, { to: { id: 7 } }, { id: 7 }],
  ['an object with more', { 'to.id': 'id' }, { to: { id: 7, n: 1 } }, { to: { n: 1 }, id: 7 }],
  ['each other', { a: 'b', b: 'a' }, { a: 1, b: 2 }, { a: 2, b: 1 }],
  ['one list', { 'x.0.n': 'x.0.m' }, { x: [{ n: 1 }, 5] }, { x: [{ m: 1 }, 5] }],
  ['the middle of a list', { 'x.1': 'y' }, { x: [1, 2, 3] }, { x: [1, 3], y: 2 }],
  ['a place that is taken', { id: 'key' }, { id: 7, key: 8 }, { id: 7, key: 8 }],
  ['a place in a text', { id: 'key.id' }, { id: 7, key: 'x' }, { id: 7, key: 'x' }],
])('digests arguments as their oldest paths have them: %s', (_, args, now, before) => {
  const renamings = Renamings.of('test', [['settle', { args }]]);
  const digest = renamings.digestOf('settle', { sentArguments: now, digest: digestOf(now) });
  expect(digest).toBe(digestOf(before));
});

it.each(['memory', 'SQLite'])('agrees on all arguments under other paths, on %s', async (name) => {
  const open = await (FOUR_STORES[name] ?? (() => memoryStore))();
  const twice = { limit: { times: 1, same: 'all' } } as const;
  const old = build(open, { pay: twice });
  const now = build(open, {
    settle: { ...twice, renamed: ['pay'], args: { total: '/sum/total' } },
  });
  expect(await old.call('pay', { sum: { total: 5 }, id: 1 })).toBe('ok');
  expect(await now.call('settle', { total: 5, id: 1 })).toBe('limit');
  expect(await now.call('settle', { total: 6, id: 1 })).toBe('ok');
  expect(await now.call('settle', { id: 1 })).toBe('ok');
  expect(await old.call('pay', { sum: { total: 6 }, id: 1 })).toBe('limit');
  expect(await old.call('pay', { id: 1 })).toBe('limit');
  expect(await old.call('pay', { sum: { total: 7 }, id: 1 })).toBe('ok');
  expect(await now.call('settle', { total: 7, id: 1 })).toBe('limit');
});

it('is asked for by an old name also where no app mounts the gate', async () => {
  const settle = { renamed: ['pay', 'charge'], after: 'look' };
  const gate = StateMachineGate.fromOrder({ settle, look: {}, ship: { after: 'settle' } });
  expect(gate.getVisibleToolNames(['settle', 'pay', 'charge', 'ship'])).toEqual([]);
  await gate.transition('look');
  expect(gate.isToolAllowed('charge')).toBe(true);
  expect(gate.getTransitionEvent('pay')).toBe('settle');
});
