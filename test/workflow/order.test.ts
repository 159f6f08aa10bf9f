import fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type ForwardedCall, judge, type RuleSet } from '../../lab/checker/rules.ts';
import { replayTrail } from '../../packages/check/src/index.ts';
import { OrderMoves } from '../../packages/check/src/order-moves.ts';
import { type OrderRequirement, type OrderRules, StateMachineGate } from '../../src/index.ts';
import { whatIf } from '../../src/runs/index.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { availabilityNote } from '../../src/workflow/advice.ts';
import { readerOf } from '../../src/workflow/condition.ts';
import { callWith } from '../../src/workflow/own-call.ts';
import type { Position } from '../../src/workflow/position.ts';
import type { Verdict } from '../../src/workflow/verdict.ts';
import type { Workflow } from '../../src/workflow/workflow.ts';
import { few } from '../helpers/few.ts';
import { begins, pass, scene, settle } from '../helpers/scene.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { NAMES, soundRules } from './orders.ts';

const shop = () =>
  StateMachineGate.fromOrder(
    {
      pay: { after: ['checkout', 'verify_identity'] },
      checkout: {},
      verify_identity: { undoneBy: ['logout'] },
      pay_bill: { after: { any: ['login_pin', 'login_face'] } },
      cancel_order: { after: [{ tool: 'find_order', same: ['order_id'] }] },
      transfer: { after: [{ tool: 'otp', consumes: true }] },
      submit: { after: ['review'], once: true },
    },
    { id: 'shop' },
  );
const TOOLS = [
  'pay',
  'checkout',
  'verify_identity',
  'logout',
  'pay_bill',
  'login_pin',
  'login_face',
  'cancel_order',
  'find_order',
  'transfer',
  'otp',
  'submit',
  'review',
];

/** Rules as in benchmarks of service agents. */
const DOMAINS: Readonly<Record<string, OrderRules>> = {
  bank: {
    apply_credit_card: { after: ['login', 'get_credit_score'] },
    transfer_funds: { after: ['login', { tool: 'authenticate_admin', consumes: true }] },
    pay_bill: { after: ['login', { any: [{ all: ['set_bill', 'check_funds'] }, 'overdraft'] }] },
    cancel_card: { after: [{ tool: 'find_card', same: ['card'] }, 'login'] },
    close_account: {
      after: [{ tool: 'authenticate_admin', same: ['user'], consumes: true }],
      once: true,
    },
    login: { undoneBy: ['logout', 'close_account'] },
  },
  hotel: {
    book_room: { after: { any: ['find_guest', 'register_guest'] } },
    check_in: { after: [{ tool: 'book_room', same: { booking: 'id' }, consumes: true }] },
    room_service: { after: 'check_in' },
    check_in_late: {
      after: { all: ['call_desk', { tool: 'book_room', same: { booking: 'id' } }] },
    },
    check_out: { after: ['check_in', { any: ['pay_card', 'pay_cash'] }], once: true },
  },
  library: {
    borrow: { after: ['login', { any: ['member', { tool: 'pay_deposit', consumes: true }] }] },
    return_book: { after: [{ tool: 'borrow', same: ['book'], consumes: true }] },
    renew: { after: [{ tool: 'borrow', same: ['book'] }] },
    book_hall: {
      after: { all: ['login', { any: [{ tool: 'admin', consumes: true }, 'member'] }] },
    },
    login: { undoneBy: 'logout' },
    member: { after: 'login', once: true, undoneBy: 'leave' },
  },
};

describe('rules of order', () => {
  it.each(Object.entries(DOMAINS))('of a %s allow what its whole history allows', (_, rules) => {
    expectAgreement(fc.constant(rules), ['card', 'user', 'booking', 'id', 'book'], 40);
  });

  it('of any kind allow exactly what the whole history of calls allows', () => {
    expectAgreement(soundRules, ['x', 'y'], 100);
  }, 60_000);

  it('write each set of done tools as a state of its own', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.string({ minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 4 }),
        (names) => {
          const tools = names.filter((each) => !each.includes('*'));
          fc.pre(tools.length > 0);
          const rules = Object.fromEntries(tools.map((each) => [each, { once: true }]));
          const workflow = StateMachineGate.fromOrder(rules).compile();
          const seen = new Map<string, string>();
          for (let set = 0; set < 2 ** tools.length; set++) {
            const done = workflow.toolNames.filter((_, i) => (set >> i) % 2 === 1);
            let position: Position = workflow.start;
            for (const each of [...done].reverse())
              position = workflow.next(position, each).position;
            expect(seen.has(position.state)).toBe(false);
            seen.set(position.state, done.join());
            expect(workflow.model.doneIn?.(position.state)).toEqual(done);
          }
        },
      ),
      { numRuns: 100 },
    );
    const workflow = shop().compile();
    for (const text of [
      '',
      '{',
      '{}}',
      '{pay}',
      '{otp,review}',
      '{otp otp}',
      '{otp, otp}',
      '{"otp"}',
      'otp',
      '{toString}',
    ])
      expect(workflow.model.has(text), text).toBe(false);
    for (const text of ['{}', '{otp}', '{otp, review}', '{review, otp}'])
      expect(workflow.model.has(text), text).toBe(true);
  });

  it('make a step of each tool that has a rule, is used up, or undoes', () => {
    const workflow = shop().compile();
    const kinds = TOOLS.map((tool) => [tool, workflow.callKind(tool)]);
    expect(Object.fromEntries(kinds)).toEqual({
      pay: 'step',
      checkout: 'step',
      verify_identity: 'step',
      logout: 'step',
      pay_bill: 'step',
      login_pin: 'recorded',
      login_face: 'recorded',
      cancel_order: 'step',
      find_order: 'recorded',
      transfer: 'step',
      otp: 'step',
      submit: 'step',
      review: 'recorded',
    });
    // An empty rule makes a step, and only the author can say that a tool with a rule is none.
    const said = StateMachineGate.fromOrder({
      pay: { after: ['checkout', 'quote', 'look'] },
      checkout: {},
      quote: { after: 'look', step: false },
      draft: { after: 'look', step: false },
      send: { step: true },
    }).compile();
    const saidKinds = said.toolNames.map((tool) => `${tool}: ${said.callKind(tool)}`);
    expect(saidKinds.sort()).toEqual([
      'checkout: step',
      'draft: free',
      'look: recorded',
      'pay: step',
      'quote: recorded',
      'send: step',
    ]);
  });

  it('remember the tools that a further binding names', async () => {
    const gate = shop();
    expect(gate.clone().compile().next({ state: '{}' }, 'pay').handled).toBe(false);
    gate
      .bindPrompt('receipt', { all: ['pay', { not: 'submit' }] })
      .bindTool('refund', 'cancel_order');
    await gate.transition('pay');
    await gate.transition('cancel_order', { order_id: 1 });
    expect(gate.currentState).toBe('{pay, cancel_order}');
    expect(gate.isToolAllowed('refund')).toBe(true);
    const [receipt] = gate.compile().reads.ofPrompt('receipt');
    expect(gate.compile().allows(gate.currentState, receipt ?? { states: [] })).toBe(true);
    expect(gate.compile().matchAlways('pay')?.kind).toBe('step');
    expect(() => shop().bindTool('pay', 'otp')).toThrow(
      'tool "pay" is one of the rules of workflow "shop"',
    );
    expect(() => shop().bindTool('refund', 'otpp' as 'otp')).toThrow('did you mean "otp"?');
  });

  it('restore a snapshot by its facts, whatever its text says', async () => {
    const one = StateMachineGate.fromOrder({
      login: {},
      look: {},
      pay: { after: ['login', 'look'] },
    });
    await one.transition('login');
    await one.transition('look');
    const kept = one.snapshot();
    expect(kept.state).toBe('{login, look}');
    const two = StateMachineGate.fromOrder({ pay: { after: 'login' }, sign: { after: 'pay' } });
    two.restore(kept);
    expect([two.currentState, two.isToolAllowed('pay')]).toEqual(['{login}', true]);
    two.restore({ state: '{login, pay}', updatedAt: 1 });
    expect([two.currentState, two.isToolAllowed('pay')]).toEqual(['{}', false]);
  });

  it('take a shield and the other options of gates, and no version', () => {
    const rules = { pay: { after: 'login' }, login: { undoneBy: 'logout' } } as const;
    const shielded = StateMachineGate.fromOrder(rules, {
      loopShield: { max: 2, fallback: { event: 'logout' } },
    }).compile();
    const at = success(shielded, shielded.start, 'login', {}, 0);
    expect(at.state).toBe('{login}');
    expect(shielded.shield?.fallBack(at, 0).position.state).toBe('{}');
    const back = { loopShield: { max: 2, fallback: { state: '{}' } } };
    expect(() => StateMachineGate.fromOrder(rules, back)).toThrow('only a flat machine');
    for (const option of [{ version: 2 }, { migrate: (run: object) => run }])
      expect(() => StateMachineGate.fromOrder(rules, option as never)).toThrow('unknown key');
    const plain = StateMachineGate.fromOrder(rules).compile();
    expect(plain.adopt({ state: '{sign_in}' })).toMatchObject({ state: '{sign_in}' });
    expect(plain.understand({ state: '{sign_in}', updatedAt: 0 }, 0).position.state).toBe('{}');
    expect(() => plain.adopt({ state: 'confirmed' })).toThrow(/ERR_INTERLOCK_SNAPSHOT/);
    expect(() => StateMachineGate.fromOrder(rules, { onAction() {} } as never)).toThrow(
      'fromOrder(): unknown key "onAction"',
    );
    expect(() => StateMachineGate.fromOrder(rules, { id: 'a b' })).toThrow('id: ');
  });

  it.each<[string, unknown, string]>([
    ['no rules', {}, 'expected a table of rules, one or more, got an object'],
    ['a list', [], 'got an empty array'],
    ['a rule that is none', { a: 5 }, 'rule of "a": expected object, got 5'],
    ['a wrong key', { a: { afer: 'b' } }, 'did you mean "after"?'],
    [
      'no requirement',
      { a: { after: [] } },
      'after: expected one requirement or more, got an empty array',
    ],
    ['an empty any', { a: { after: { any: [] } } }, 'after: any: expected one requirement or more'],
    ['an empty name', { a: { after: [''] } }, 'expected the name of a tool, got ""'],
    ['a wrong requirement', { a: { after: { some: ['b'] } } }, 'got { some }'],
    ['two words', { a: { after: { all: ['b'], any: ['b'] } } }, 'got { all, any }'],
    ['a wrong key of a call', { a: { after: { tool: 'b', sam: ['x'] } } }, 'did you mean "same"?'],
    ['no arguments', { a: { after: { tool: 'b', same: [] } } }, 'same: '],
    ['a tool after itself', { a: { after: { any: ['b', 'a'] } } }, 'a tool cannot be after itself'],
    ['a tool that undoes itself', { a: { undoneBy: 'a' } }, 'a tool cannot undo itself'],
    [
      'a circle',
      {
        d: { after: 'a' },
        a: { after: ['x', 'b'] },
        b: { after: { any: ['c', { tool: 'a' }] } },
        c: { after: 'b' },
      },
      '"b" can never be called: "b" after "c" after "b"',
    ],
    [
      'no step that may succeed once',
      { a: { step: false, once: true } },
      'rule of "a": step: false does not go with "once", which only a step can keep',
    ],
    [
      'no step that uses a success up',
      { a: { step: false, after: { any: ['b', { tool: 'c', consumes: true }] } } },
      'step: false does not go with "consumes"',
    ],
    [
      'no step that is undone',
      { a: { step: false, undoneBy: 'b' } },
      'step: false does not go with "undoneBy"',
    ],
    [
      'no step whose success is used up',
      { a: { after: { tool: 'b', consumes: true } }, b: { step: false } },
      'rule of "b": step: false: it must be a step, since "a" consumes its success',
    ],
    [
      'no step that undoes',
      { a: { undoneBy: ['b'] }, b: { step: false } },
      'it must be a step, since it undoes "a"',
    ],
    ['a step that is no boolean', { a: { step: 'no' } }, 'step: '],
    [
      'a time without a zone',
      { a: { once: true, from: '2026-12-01T08:00' } },
      'from: expected a time',
    ],
    ['a time of nothing', { a: { after: 'b', from: '2026-12-01T08:00Z' } }, '"from" is about'],
  ])('are refused: %s', (_, rules, message) => {
    const make = () => StateMachineGate.fromOrder(rules as never, { id: 'shop' });
    expect(make).toThrow(message);
    expect(make).toThrow(/order "shop".*ERR_INTERLOCK_CONFIG/s);
  });

  it('may be thousands in a row, in any order', () => {
    const chain = Array.from({ length: 8_000 }, (_, i) => [
      `tool ${i}`,
      i === 0 ? {} : { after: `tool ${i - 1}` },
    ]);
    for (const rules of [chain, chain.toReversed()]) {
      const workflow = StateMachineGate.fromOrder(Object.fromEntries(rules)).compile();
      expect(workflow.available(workflow.initial)).toEqual(['tool 0']);
    }
  });

  it('may have a circle that another tool opens', () => {
    const gate = StateMachineGate.fromOrder({
      a: { after: { any: ['b', 'start'] } },
      b: { after: 'a' },
    });
    expect(gate.compile().whereabouts('b')?.path).toEqual(['start', 'a']);
  });
});

describe('the way to a tool of rules of order', () => {
  it('has words for models', () => {
    const workflow = shop()
      .bindPrompt('receipt', { all: ['pay', { not: 'submit' }] })
      .compile();
    const note = (tool: string) => {
      const place = workflow.whereabouts(tool);
      return place && availabilityNote(place);
    };
    expect(note('pay')).toBe(
      '[System: Available only after checkout and verify_identity. ' +
        'From the start of a run, checkout, then verify_identity leads there.]',
    );
    expect(note('pay_bill')).toContain('Available only after login_pin or login_face.');
    expect(note('submit')).toContain('Available only after review and not after submit.');
    expect(note('checkout')).toBeUndefined();
  });

  it('is a shortest one, and is denied only where no way exists', () => {
    let found = 0;
    let none = 0;
    fc.assert(
      fc.property(
        soundRules,
        fc.array(fc.constantFrom(...NAMES), { maxLength: 4 }),
        (rules, calls) => {
          const workflow = StateMachineGate.fromOrder(rules).compile();
          let from: Position = workflow.start;
          for (const call of calls) from = { state: usualNext(workflow, from.state, call) };
          for (const tool of Object.keys(rules)) {
            const states = workflow.matchAlways(tool)?.states ?? [];
            const { path, foreseen } = workflow.wayTo(states, from);
            const least = distance(workflow, states, from);
            if (path === undefined) {
              none++;
              if (foreseen) expect(distance(workflow, states, from, 'all')).toBeUndefined();
              else expect(least).toBeUndefined();
            } else {
              found += Math.min(path.length, 1);
              expect(path).toHaveLength(least ?? -1);
              expectWay(workflow, states, from, path);
            }
          }
        },
      ),
      few(75),
    );
    expect(Math.min(found, none)).toBeGreaterThan(0);
  }, 60_000);

  it('is not denied where a success may be left that no call has used up', () => {
    const workflow = StateMachineGate.fromOrder({
      otp: { notAfter: 'close' },
      close: {},
      look: { after: { tool: 'otp', consumes: true } },
      pay: { after: ['look', { tool: 'otp', consumes: true }] },
    }).compile();
    const states = workflow.matchAlways('pay')?.states ?? [];
    let position: Position = workflow.start;
    for (const [at, tool] of ['otp', 'otp', 'close'].entries())
      position = success(workflow, position, tool, {}, at);
    expect(workflow.wayTo(states, position)).toEqual({ path: undefined, foreseen: false });
    position = success(workflow, position, 'look', {}, 3);
    expect(workflow.wayTo(states, position)).toEqual({ path: [], foreseen: true });
    position = success(workflow, position, 'pay', {}, 4);
    expect(workflow.wayTo(states, position)).toEqual({ path: undefined, foreseen: true });
  });

  it('is found through a hundred tools, one after the other or all at once', () => {
    const step = (i: number) => `step_${i}`;
    const chain = Object.fromEntries(
      Array.from({ length: 100 }, (_, i) => [step(i + 1), { after: step(i) }]),
    );
    const line = StateMachineGate.fromOrder(chain).compile();
    expect(line.whereabouts(step(100))?.path).toHaveLength(100);
    const all = Array.from({ length: 100 }, (_, i) => step(i));
    const wide = StateMachineGate.fromOrder({
      end: { after: [...all, { any: ['x', 'y'] }, { tool: 'otp', consumes: true }] },
      x: { after: ['far_1', 'far_2'] },
      last: {
        after: ['end', { tool: 'otp', consumes: true }, { all: all.map((tool) => ({ tool })) }],
      },
      step_7: { undoneBy: ['step_3', 'step_9'] },
    }).compile();
    const states = wide.matchAlways('last')?.states ?? [];
    const { path = [], foreseen } = wide.wayTo(states, wide.start);
    expect(foreseen).toBe(true);
    expect(path).not.toContain('x');
    expectWay(wide, states, wide.start, path);
  });
});

describe('the same arguments', () => {
  const rules = {
    cancel: { after: [{ tool: 'find', same: ['id'] }] },
    ship: { after: [{ tool: 'find', same: { order: 'id' }, consumes: true }] },
  } as const;

  it('are remembered of the newest 1,000 calls', () => {
    const workflow = StateMachineGate.fromOrder(rules).compile();
    let position: Position = workflow.start;
    for (const id of [0, ...Array(1_000).keys(), 0, 1_000])
      position = success(workflow, position, 'find', { id });
    const isOpen = (id: number) => passes(workflow, position, 'cancel', { id });
    expect([0, 1, 2, 999, 1_000].map(isOpen)).toEqual([true, false, true, true, true]);
    expect(JSON.stringify(position).length).toBeLessThan(45_000);
    position = success(workflow, position, 'ship', { order: 3 });
    expect(position.state).toBe('{find, "find unused"}');
    const isLeft = (order: number) => passes(workflow, position, 'ship', { order });
    expect([0, 1, 3, 999].map(isLeft)).toEqual([true, false, false, true]);
    // What is used up still counts where nothing is used up.
    expect(isOpen(3)).toBe(true);
  });

  it('are compared as JSON, and a missing one agrees with none', () => {
    const workflow = StateMachineGate.fromOrder(rules).compile();
    const isSame = (a: unknown, b: unknown) =>
      passes(workflow, success(workflow, workflow.start, 'find', { id: a }), 'cancel', { id: b });
    expect(isSame({ a: 1, b: [2] }, { b: [2], a: 1 })).toBe(true);
    expect(isSame(1, 1.0)).toBe(true);
    expect(isSame(null, null)).toBe(true);
    expect(isSame(7, '7')).toBe(false);
    expect(isSame(undefined, undefined)).toBe(false);
  });

  it('may be those of a call from outside', async () => {
    const { client: connect, runs } = await scene({
      workflow: StateMachineGate.fromOrder(rules, { id: 'parcels' }),
      makeServer: toolServer(['find', 'cancel', 'ship']),
    });
    const client = await connect();
    await client.calls('find', { id: 8 });
    const told = { arguments: { id: 7 }, result: { content: [] } };
    expect(await runs.send(client.run, 'find', told)).toMatchObject({ sent: true });
    await client.calls('cancel', { id: 7 });
    await client.calls('ship', { order: 7 });
    await client.isRefused('ship', 'guard', { order: 7 });
    await client.calls('ship', { order: 8 });
    // A payload is no arguments.
    const sent = await runs.send(client.run, 'find', { payload: { id: 9 } });
    expect(sent).toMatchObject({ sent: true });
    await client.isRefused('cancel', 'guard', { id: 9 });
  });
});

describe('a gate of rules of order, over HTTP', () => {
  const open = (options: Parameters<typeof scene>[0] = {}) =>
    scene({ workflow: shop(), makeServer: toolServer(TOOLS), ...options });

  it('lists what is available, and tells the way to the rest', async () => {
    const { client: connect } = await open({ gate: { announce: true } });
    const client = await connect();
    const free = [
      'checkout',
      'verify_identity',
      'logout',
      'login_pin',
      'login_face',
      'find_order',
      'otp',
      'review',
    ];
    await client.sees(free);
    const refused = await client.isRefused('pay', 'state');
    expect(refused.text).toBe(
      '[System: pay is not available yet. ' +
        'Available now: checkout, verify_identity, logout, login_pin, login_face, ' +
        'find_order, otp, review. Call checkout, then verify_identity, then pay.]',
    );
    expect(refused.meta['mcp-interlock/refusal']).toMatchObject({
      state: '{}',
      path: ['checkout', 'verify_identity'],
    });
    const moved = await client.calls('checkout');
    expect(moved.text).toContain('[System: Done in shop: checkout. Available now: ');
    await client.calls('verify_identity');
    await client.sees(['pay', ...free]);
    await client.calls('pay');
    await client.calls('review');
    await client.calls('submit');
    const again = await client.isRefused('submit', 'state');
    expect(again.text).toContain(
      'submit is not available now: submit may succeed only once. Available now: ',
    );
    expect(again.text).toContain('submit cannot be reached from here by calling tools.');
  });

  it('asks for the same arguments, and keeps their values out of the trail', async () => {
    const { client: connect, runs, data, errors } = await open();
    const client = await connect();
    await client.calls('find_order', { order_id: 'A-1' });
    await client.calls('cancel_order', { order_id: 'A-1' });
    const refused = await client.isRefused('cancel_order', 'guard', { order_id: 'A-2' });
    expect(refused.text).toContain(
      'cancel_order was refused: call find_order with the same order_id first. Available now: ',
    );
    // Some servers would read it as "order_id".
    await client.isRefused('find_order', 'arguments', { Order_ID: 'A-2' });
    await client.isRefused('cancel_order', 'arguments', { order_id: 'A-1', ORDER_ID: 'A-2' });
    const trail = await runs.history(client.run);
    expect(trail.map(({ tool, payload }) => [tool, payload])).toEqual([
      ['find_order', undefined],
      ['cancel_order', undefined],
    ]);
    const stored = (await data.read(client.run, 1_000))?.workflows.shop?.snapshot;
    const digest = /[\w-]{22}/.exec(JSON.stringify(stored?.context))?.[0] ?? '';
    expect(digest).toHaveLength(22);
    expect(JSON.stringify(trail)).not.toContain(digest);
    expect(errors).toEqual([]);
  });

  it('lets only one of two calls use up an earlier success', async () => {
    const { client: connect, ledger } = await open();
    const client = await connect();
    await client.calls('otp');
    const first = await begins({ ledger }, 'transfer', () => client.raw.call('transfer'));
    const second = client.raw.call('transfer');
    await settle();
    first.finish();
    const results = await Promise.all([first.answer, second]);
    expect(results.map(({ isError }) => isError)).toEqual([false, true]);
    expect(results[1]?.text).toContain('Call otp, then transfer.');
    expect(ledger.calls.filter((tool) => tool === 'transfer')).toHaveLength(1);
    // A failure uses nothing up.
    await client.calls('otp');
    await client.raw.call('transfer', { fail: true });
    await client.calls('transfer');
  });

  it('goes on after a restart, and its trail leads where it stands', async () => {
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    const user = { 'x-user': 'ann' };
    const make = () =>
      open({
        data: sqliteStore({ database: file.connect() }),
        session: { principal: (req) => String(req.headers['x-user']), key: undefined },
      });
    const before = await make();
    const client = await before.client(user);
    const session = client.run;
    for (const tool of ['checkout', 'verify_identity', 'logout', 'login_pin', 'otp', 'transfer'])
      await client.calls(tool);
    await client.calls('find_order', { order_id: 5 });
    const gate = shop();
    const trail = await before.runs.history(session);
    const view = await before.runs.read(session);
    expect(view?.state).toBe('{checkout, login_pin, find_order}');
    expect(replayTrail(gate, trail)).toMatchObject({ state: view?.state, faults: [] });
    await before.close();
    const after = await make();
    expect(await after.runs.read(session)).toMatchObject({ state: view?.state });
    const found = await after.runs.stuck({
      forMs: 0,
      state: { all: ['checkout', { not: 'otp' }] },
    });
    expect(found.runs.map(({ run }) => run)).toEqual([session]);
    await after.runs.send(session, 'verify_identity');
    const now = await after.runs.read(session);
    expect(now?.available).toEqual(expect.arrayContaining(['pay', 'cancel_order']));
    expect(now?.snapshot.context).toEqual(view?.snapshot.context);
  });

  it('is shown by the status tool', async () => {
    const { client: connect } = await open({ gate: { statusTool: 'shop_status' } });
    const client = await connect();
    await client.calls('otp');
    const status = await client.calls('shop_status');
    expect(status.text).toContain('Done in shop: otp.');
  });
});

describe('a rule that says more of its tool', () => {
  const rules: OrderRules = {
    look: { step: false, visible: ({ principal }) => principal?.includes('ann') === true },
    cancel: {
      after: { tool: 'find', same: ['id'] },
      guard: ({ args }) => args.sure === true || 'Ask the customer first.',
      uncertain: 'retry',
    },
  };
  const open = () =>
    scene({
      workflow: StateMachineGate.fromOrder(rules, { id: 'more' }),
      makeServer: toolServer(['look', 'find', 'cancel']),
    });

  it('asks its guard once the rule is met, and in its own words', async () => {
    const client = await (await open()).client();
    const early = await client.isRefused('cancel', 'state', { id: '1', sure: true });
    expect(early.text).toContain('find');
    await client.calls('find', { id: '1' });
    const other = await client.isRefused('cancel', 'guard', { id: '2', sure: true });
    expect(other.text).toContain('call find with the same id first');
    const unsure = await client.isRefused('cancel', 'guard', { id: '1' });
    expect(unsure.text).toContain('Ask the customer first.');
    await client.calls('cancel', { id: '1', sure: true });
  });

  it('shows a tool to those alone whom "visible" says', async () => {
    const app = await open();
    const [ann, bob] = [await app.client('ann'), await app.client('bob')];
    await ann.sees(['look', 'find']);
    await bob.sees(['find']);
    await ann.calls('look');
    await bob.isRefused('look', 'state');
  });

  it.each(['failure', 'fallback'] as const)(
    'counts a success that a %s stands for from when it came',
    async (kind) => {
      const isByFailure = kind === 'failure';
      const { clock, client: connect } = await scene({
        workflow: StateMachineGate.fromOrder(
          {
            login: {
              notAfter: { tool: 'lockout', within: '15m' },
              ...(isByFailure && { failure: 'lockout', retries: 2 }),
            },
            look: {},
          },
          isByFailure ? {} : { loopShield: { max: 2, fallback: { event: 'lockout' } } },
        ),
        makeServer: toolServer(['login', 'look']),
      });
      const client = await connect();
      await client.calls('look');
      for (let i = 0; i < 3; i++) await client.raw.call('login', { fail: true });
      await client.isRefused('login', 'state');
      await pass(clock, 14 * 60_000);
      await client.isRefused('login', 'state');
      await pass(clock, 61_000);
      await client.calls('login');
    },
  );

  it('says what follows an unknown outcome, as a binding does', () => {
    const workflow = StateMachineGate.fromOrder(rules, { id: 'more' }).compile();
    expect(workflow.match('cancel', { id: '1' })?.uncertain).toBe('retry');
    expect(workflow.match('look', {})?.uncertain).toBeUndefined();
  });

  it('says what a step alone can keep of no lookup', () => {
    const lookup = { find: { step: false, uncertain: 'retry' as const } };
    expect(() => StateMachineGate.fromOrder(lookup)).toThrow(
      'rule of "find": step: false does not go with "uncertain", which only a step can keep',
    );
  });
});

describe('what if', () => {
  it('tells where the success of a tool with remembered arguments leads', () => {
    const gate = shop();
    const next = whatIf(gate, undefined, { tool: 'find_order', outcome: 'succeeded' });
    expect(next).toMatchObject({ result: 'moved', snapshot: { state: '{find_order}' } });
    const given = whatIf(gate, next, { tool: 'otp', outcome: 'succeeded' });
    const used = whatIf(gate, given, { tool: 'transfer', outcome: 'succeeded' });
    expect([given, used].map(({ snapshot }) => snapshot.state)).toEqual([
      '{find_order, otp}',
      '{find_order}',
    ]);
    const refused = whatIf(gate, undefined, { tool: 'pay', outcome: 'succeeded' });
    expect(refused.says).toContain('Call checkout, then verify_identity, then pay.');
  });
});

/** Random calls: the gate must allow the same ones as the evaluator, and show the same tools. */
function expectAgreement(
  rules: fc.Arbitrary<OrderRules>,
  argumentNames: readonly string[],
  numRuns: number,
) {
  let made = 0;
  let refused = 0;
  let shown = 0;
  const seeds = fc.array(fc.nat(), { minLength: 5, maxLength: 25 });
  fc.assert(
    fc.property(rules, seeds, (table, history) => {
      const workflow = StateMachineGate.fromOrder(table).compile();
      const set = { rules: table } as RuleSet;
      const tools = workflow.toolNames;
      const bare = tools.filter((tool) => !asksForMore(table[tool]?.after));
      const calls: ForwardedCall[] = [];
      let position: Position = workflow.start;
      for (const [at, seed] of history.entries()) {
        const isAllowed = (tool: string, args: ForwardedCall['args']): boolean =>
          judge(set, calls, { tool, args, at }).verdict === 'allowed';
        const listed = workflow.available(position.state);
        for (const tool of bare) expect(listed.includes(tool)).toBe(isAllowed(tool, {}));
        shown += bare.length;
        const tool = tools[seed % tools.length] ?? '';
        const values = argumentNames.flatMap((name, i) => {
          const value = [1, 2, undefined][(seed >> (3 + 2 * i)) % 3];
          return value === undefined ? [] : [[name, value] as const];
        });
        const args = Object.fromEntries(values);
        const isRight = isAllowed(tool, args);
        expect(passes(workflow, position, tool, args, at)).toBe(isRight);
        if (!isRight) refused++;
        else {
          made++;
          expect(listed).toContain(tool);
          calls.push({ tool, args, outcome: 'succeeded', claimedAt: at, decidedAt: at });
          position = success(workflow, position, tool, args, at);
        }
      }
    }),
    few(numRuns),
  );
  expect(Math.min(made, refused, shown)).toBeGreaterThan(numRuns / 10);
}

/** Whether more than one earlier success of each tool decides about a call. */
function asksForMore(after: OrderRules[string]['after']): boolean {
  const consumed: string[] = [];
  const asks = (need: OrderRequirement): boolean => {
    if (typeof need === 'string') return false;
    if ('all' in need) return need.all.some(asks);
    if ('any' in need) return need.any.some(asks);
    if (!('tool' in need)) return true;
    if (need.consumes) consumed.push(need.tool);
    return need.same !== undefined;
  };
  const needs = [after ?? []].flat() as OrderRequirement[];
  return needs.some(asks) || new Set(consumed).size < consumed.length;
}

const SALT = 'a run';

/** What the rules say of a call, by the same functions as in the middleware. */
function judged(
  workflow: Workflow,
  found: Position,
  tool: string,
  args: Record<string, unknown>,
  now: number,
): { isAllowed: boolean; verdict: Verdict | undefined } {
  const binding = workflow.match(tool, args);
  if (binding === undefined) return { isAllowed: true, verdict: undefined };
  const position = workflow.rules.standAt(found, now);
  const call = callWith(readerOf(args), SALT);
  const verdict = workflow.rules.judge(binding, workflow.rules.pastOf(position, now), call);
  const isOpen = workflow.allows(position.state, binding);
  return { isAllowed: isOpen && verdict?.allows !== false, verdict };
}

function passes(...[workflow, found, tool, args, now = 0]: Asked): boolean {
  return judged(workflow, found, tool, args, now).isAllowed;
}

function success(...[workflow, found, tool, args, now = 0]: Asked): Position {
  const { verdict } = judged(workflow, found, tool, args, now);
  const call = workflow.rules.reportedCall(tool, SALT, now, { args: args as never });
  const uses = verdict?.allows === true ? verdict.uses : [];
  const position = workflow.rules.standAt(found, now);
  return workflow.next(position, tool, undefined, call && { ...call, uses }).position;
}

type Asked = [
  workflow: Workflow,
  found: Position,
  tool: string,
  args: Record<string, unknown>,
  now?: number,
];

type States = Parameters<Workflow['wayTo']>[0];

/** Where a success of a tool may lead, the usual case first. */
function statesAfter(workflow: Workflow, state: string, tool: string): readonly string[] {
  if (workflow.order === undefined) return [];
  const moves = new OrderMoves(workflow, workflow.order, []);
  return moves.succeeded(state, tool, true).map(({ to }) => to.state);
}

/** Where a success of a tool leads, if it leaves nothing of what it uses up. */
function usualNext(workflow: Workflow, state: string, tool: string): string {
  return statesAfter(workflow, state, tool)[0] ?? state;
}

/** The fewest calls to the goal, found by trying all of them. */
function distance(
  workflow: Workflow,
  states: States,
  from: Position,
  cases: 'usual' | 'all' = 'usual',
): number | undefined {
  let reached = new Set([from.state]);
  const seen = new Set(reached);
  for (let calls = 0; reached.size > 0; calls++) {
    if ([...reached].some((state) => workflow.allows(state, { states }))) return calls;
    const next = [...reached].flatMap((state) =>
      workflow
        .available(state)
        .flatMap((tool) =>
          cases === 'usual'
            ? [usualNext(workflow, state, tool)]
            : statesAfter(workflow, state, tool),
        ),
    );
    reached = new Set(next.filter((state) => !seen.has(state)));
    for (const state of reached) seen.add(state);
  }
  return undefined;
}

function expectWay(workflow: Workflow, states: States, from: Position, path: readonly string[]) {
  let { state } = from;
  for (const tool of path) {
    expect(workflow.available(state)).toContain(tool);
    state = usualNext(workflow, state, tool);
  }
  expect(workflow.allows(state, { states })).toBe(true);
}
