import { describe, expect, it } from 'vitest';
import type { Json } from '../../src/stores/store.ts';
import type { GateOptions } from '../../src/workflow/definition.ts';
import type { Envelope } from '../../src/workflow/envelope.ts';
import { StateMachineGate } from '../../src/workflow/gate.ts';
import { countFailure, withRecorded } from '../../src/workflow/stored.ts';
import { sealed } from '../helpers/envelope.ts';
import { orderMachine } from './charts.ts';
import { checkoutConfig, checkoutGate } from './machines.ts';

const FORMAT = 'mcp-interlock/format';
const workflow = (options: GateOptions) => new StateMachineGate(checkoutConfig, options).compile();
const refused = (text: string) =>
  expect.objectContaining({
    code: 'ERR_INTERLOCK_SNAPSHOT',
    message: expect.stringContaining(text),
  });

describe('a gate without a version', () => {
  it('writes its format alone, and takes what it has saved as it is', () => {
    const plain = checkoutGate().compile();
    const stored = { state: 'payment', context: sealed() };
    expect(plain.start).toEqual({ state: 'empty', context: { [FORMAT]: [2, 2] } });
    expect(plain.adopt(stored)).toBe(stored);
    expect(plain.next(stored, 'PAY').position).toEqual({
      state: 'confirmed',
      context: { [FORMAT]: [2, 2] },
    });
    expect(plain.claimable({ states: ['payment'] })).toEqual(['payment']);
  });

  it('keeps data that another program put there', () => {
    const plain = checkoutGate().compile();
    const stored = { state: 'payment', context: { slot: 42, version: 7, data: 'x' } };
    expect(plain.next(plain.adopt(stored), 'PAY').position).toEqual({
      state: 'confirmed',
      context: sealed({ data: stored.context }),
    });
    expect(plain.dataOf(stored)).toEqual(stored.context);
  });

  it('refuses what a gate with a version has saved', () => {
    const stored = workflow({ version: 3 }).start;
    expect(() => checkoutGate().compile().adopt(stored)).toThrow(
      refused('was saved by version 3, and this one is without'),
    );
  });
});

describe('a run that another version of the package saved', () => {
  const inFormat = (format: unknown) => ({
    state: 'payment',
    context: { data: { slot: 42 }, more: 1, [FORMAT]: format } as Json,
  });

  it.each([
    [[3, 3], 'from format 3 on'],
    [[9, 3], 'from format 3 on'],
    [2, 'of a format unknown here'],
    ['2', 'of a format unknown here'],
    [[1], 'of a format unknown here'],
    [null, 'of a format unknown here'],
  ])('in format %j is refused where it forbids that, and never read as data', (format, words) => {
    for (const options of [{}, { version: 3, migrate: () => ({ state: 'empty' }) }]) {
      const gate = workflow(options);
      const told = refused(`only versions ${words} may move it`);
      expect(() => gate.adopt(inFormat(format))).toThrow(told);
      expect(() => gate.understand({ ...inFormat(format), updatedAt: 0 }, 0)).toThrow(told);
      expect(() => gate.parseSnapshot({ ...inFormat(format), updatedAt: 0 })).toThrow(told);
    }
  });

  it('in an older format is refused, and left as it is', () => {
    const told = refused('was saved by an older version of mcp-interlock, in format 1');
    for (const options of [{}, { version: 3, migrate: () => ({ state: 'empty' }) }])
      expect(() => workflow(options).adopt(inFormat([1, 1]))).toThrow(told);
  });

  it('goes on with members that only that version knows', () => {
    const gate = workflow({});
    const adopted = gate.adopt(inFormat([3, 2]));
    expect(adopted.context).toEqual({ data: { slot: 42 }, more: 1, [FORMAT]: [2, 2] });
    expect(gate.dataOf(adopted)).toEqual({ slot: 42 });
    const changed = gate.withData(gate.next(adopted, 'PAY').position, { slot: 43 });
    expect(changed.context).toEqual({ data: { slot: 43 }, more: 1, [FORMAT]: [2, 2] });
  });

  it('keeps what that version recorded beside a step', () => {
    const own = { state: 'payment', context: sealed({ data: 1, loop: [] }) };
    const newer = { state: 'payment', context: { data: 2, more: 1, [FORMAT]: [3, 2] } };
    expect(withRecorded(own, newer).context).toEqual({
      data: 1,
      loop: [],
      more: 1,
      [FORMAT]: [2, 2],
    });
  });

  it('goes on so in a statechart, and through migrate', () => {
    const chart = new StateMachineGate(orderMachine, { onAction: () => {} }).compile();
    const stored = { state: 'cart', context: { data: { total: 0, paid: 0 }, more: 1 } };
    const { context } = inFormat([3, 2]);
    const added = chart.next(
      chart.adopt({ ...stored, context: { ...stored.context, [FORMAT]: [3, 2] } }),
      'ADD',
      { price: 5 },
    );
    expect(added.position.context).toMatchObject({ data: { total: 5 }, more: 1 });
    const two = workflow({ version: 2, migrate: () => ({ state: 'empty' }) });
    expect(two.adopt({ state: 'payment', context }).context).toEqual({
      more: 1,
      version: 2,
      [FORMAT]: [2, 2],
    });
  });
});

describe('a gate with a version', () => {
  it('writes its version into every position', () => {
    const versioned = workflow({ version: 3 });
    expect(versioned.start).toEqual({ state: 'empty', context: sealed({ version: 3 }) });
    const { position } = versioned.next(versioned.start, 'ADD_ITEM');
    expect(position).toEqual({ state: 'has_items', context: sealed({ version: 3 }) });
    expect(versioned.adopt(position)).toBe(position);
    expect(versioned.claimable({ states: ['payment'] })).toBeUndefined();
  });

  it('refuses runs of older and newer versions, and says what to do', () => {
    const two = workflow({ version: 2 });
    expect(() => two.adopt({ state: 'payment' })).toThrow(
      refused('by version 0; give the gate a "migrate" that takes it to 2'),
    );
    expect(() => two.adopt({ state: 'payment', context: sealed({ version: 3 }) })).toThrow(
      refused('was saved by version 3, and this one is 2'),
    );
    const migrating = workflow({ version: 2, migrate: ({ state }) => ({ state }) });
    expect(() => migrating.adopt({ state: 'payment', context: sealed({ version: 3 }) })).toThrow(
      refused('version 3'),
    );
  });

  it.each([0, -1, 1.5, '2', Number.NaN])('cannot have the version %j', (version) => {
    expect(() => workflow({ version: version as number })).toThrow(
      expect.objectContaining({ code: 'ERR_INTERLOCK_CONFIG' }),
    );
  });
});

describe('migrate', () => {
  it("is given the stored run, and its answer is the run's position", () => {
    const seen: unknown[] = [];
    const two = workflow({
      version: 2,
      migrate(stored) {
        seen.push(stored);
        return { state: 'payment', context: { slot: 43 } };
      },
    });
    const adopted = two.adopt({
      state: 'paying',
      context: sealed({ data: { slot: 42 }, version: 1, loop: { n: 1 } }),
    });
    expect(seen).toEqual([{ state: 'paying', context: { slot: 42 }, version: 1 }]);
    expect(adopted).toEqual({
      state: 'payment',
      context: sealed({ data: { slot: 43 }, loop: { n: 1 }, version: 2 }),
    });
    expect(two.adopt(adopted)).toBe(adopted);
    expect(seen).toHaveLength(1);
  });

  it('is also asked about a removed state, without any version', () => {
    const gate = workflow({ migrate: () => ({ state: 'payment' }) });
    expect(gate.adopt({ state: 'paying' })).toEqual({ state: 'payment', context: sealed() });
    expect(gate.adopt({ state: 'empty' })).toEqual({ state: 'empty', context: sealed() });
  });

  it('rewrites the context and the state of a statechart', () => {
    const gate = new StateMachineGate(orderMachine, {
      onAction: () => {},
      version: 2,
      migrate: ({ context }) => ({
        state: 'placed.(billing.due|packing.packed)',
        context: { ...(context as object), total: 9 },
      }),
    }).compile();
    const adopted = gate.adopt({ state: 'sent', context: sealed({ data: { total: 1, paid: 4 } }) });
    expect(gate.next(adopted, 'PAID', { amount: 5 }).position.state).toBe('shipped');
  });

  it.each<[string, () => unknown, string]>([
    [
      'throws',
      () => {
        throw new Error('oops');
      },
      '"migrate" threw',
    ],
    [
      'names no state',
      () => ({ state: 'paymnt' }),
      '"migrate" took it to "paymnt", which is no state of it, did you mean "payment"?',
    ],
    ['returns nothing', () => undefined, 'state: expected string, got undefined'],
    ['is asynchronous', async () => ({ state: 'payment' }), 'got an instance of Promise'],
    [
      'returns more than a position',
      () => ({ state: 'payment', updatedAt: 1 }),
      'unknown key "updatedAt"',
    ],
    [
      'returns what is not JSON',
      () => ({ state: 'payment', context: new Date(0) }),
      'cannot be saved',
    ],
  ])('that %s has the run refused and left as it is', (_, migrate, text) => {
    const gate = workflow({ version: 2, migrate: migrate as () => { state: string } });
    expect(() => gate.adopt({ state: 'paying' })).toThrow(refused(text));
  });
});

describe('restore', () => {
  it('migrates a kept snapshot as well', () => {
    const gate = new StateMachineGate(checkoutConfig, {
      version: 2,
      migrate: () => ({ state: 'payment' }),
    });
    gate.restore({ state: 'paying', updatedAt: 5 });
    expect(gate.snapshot()).toEqual({
      state: 'payment',
      updatedAt: 5,
      context: sealed({ version: 2 }),
    });
  });
});

it('takes from migrate what it was given', () => {
  const run = { state: 'payment', context: sealed({ data: { slot: 1 }, version: 1 }) };
  const gate = workflow({ version: 2, migrate: (stored) => stored });
  expect(gate.adopt(run)).toEqual({
    state: 'payment',
    context: sealed({ data: { slot: 1 }, version: 2 }),
  });
});

describe('failures that are counted', () => {
  it('are counted up to the limit, beside all else that the run carries', () => {
    const context = { data: { slot: 42 }, loop: { n: 1 } };
    const start = { state: 'payment', context: sealed(context) };
    const one = countFailure(start, 'cart.pay', 2);
    expect(one?.context).toEqual(sealed({ ...context, failures: { 'cart.pay': 1 } }));
    const other = one && countFailure(one, '__proto__', 1);
    const two = other && countFailure(other, 'cart.pay', 2);
    expect(JSON.stringify(two?.context)).toContain('{"cart.pay":2,"__proto__":1}');
    expect(two && countFailure(two, 'cart.pay', 2)).toBeUndefined();
    expect(countFailure(start, 'cart.pay', 0)).toBeUndefined();
  });

  it.each([null, 7, 'x', [], [['cart.pay', 1]], { 'cart.pay': 'many' }, { 'cart.pay': -5 }])(
    'count for nothing where they are none: %j',
    (failures) => {
      const stored = { state: 'payment', context: sealed({ failures } as Envelope) };
      expect(countFailure(stored, 'cart.pay', 1)?.context).toMatchObject({
        failures: { 'cart.pay': 1 },
      });
    },
  );

  it('are kept within the state, and dropped with it', () => {
    const plain = checkoutGate().compile();
    const stored = { state: 'payment', context: sealed({ data: 1, failures: { 'cart.pay': 1 } }) };
    expect(plain.next(stored, 'PAY').position.context).toEqual(sealed({ data: 1 }));
    expect(plain.next(stored, 'ADD_ITEM').position).toBe(stored);
    expect(plain.dataOf(stored)).toBe(1);
  });
});

it('begins the time and the failures of a state anew where it is entered again, and no loop', () => {
  const gate = new StateMachineGate({
    initial: 'open',
    on: { BACK: 'open' },
    states: {
      open: {
        on: { STAY: 'open', AGAIN: { target: 'open', reenter: true } },
        after: { 1000: 'late' },
      },
      late: {},
    },
  });
  const workflow = gate.compile();
  const counts = { entered: 5, failures: { pay: 1 }, loop: [['pay', [1, 2]]] };
  const at = (state: string, envelope: object) => ({ state, context: sealed(envelope) });
  const position = at('open', { data: { sum: 1 }, ...counts });
  expect(workflow.next(position, 'STAY').position).toEqual(position);
  for (const event of ['AGAIN', 'BACK'])
    expect(workflow.next(position, event)).toMatchObject({
      position: at('open', { data: { sum: 1 }, loop: counts.loop }),
      changed: false,
      handled: true,
    });
  expect(workflow.next(at('late', counts), 'BACK').position).toEqual(at('open', {}));
});

it('begins a time anew in a gate that is no template, too', async () => {
  let now = 100;
  const gate = new StateMachineGate(
    {
      initial: 'open',
      states: {
        open: {
          on: { STAY: 'open', AGAIN: { target: 'open', reenter: true } },
          after: { 1000: 'open' },
        },
      },
    },
    { now: () => now },
  );
  const kept = { state: 'open', updatedAt: 90, context: sealed({ entered: 5 }) };
  gate.restore(kept);
  now = 200;
  await gate.transition('STAY');
  expect(gate.snapshot()).toEqual(kept);
  expect((await gate.transition('AGAIN')).changed).toBe(false);
  expect(gate.snapshot()).toEqual({ state: 'open', updatedAt: 200 });
});
