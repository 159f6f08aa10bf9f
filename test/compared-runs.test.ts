import { describe, expect, it } from 'vitest';
import { testGate } from '../packages/testing/src/index.ts';
import { type InterlockEvent, type OrderRules, runDigest, StateMachineGate } from '../src/index.ts';
import { type CheckedRuns, runsOf } from '../src/runs/index.ts';
import { notedGates } from '../src/step/noted-gates.ts';
import type { AtomicStateStore } from '../src/stores/index.ts';
import { memoryStore } from '../src/stores/memory.ts';
import { gateOfNote, noteOf } from '../src/workflow/gate-note.ts';
import { FaultyStore } from './helpers/faulty-store.ts';
import { FOUR_STORES } from './helpers/four-stores.ts';

type Rules = OrderRules<string, string>;

const gateOf = (rules: Rules) =>
  StateMachineGate.fromOrder(rules, { id: 'bank' }) as StateMachineGate<string, string>;

/** Calls tools in a new run, and returns its digest. */
async function play(
  store: AtomicStateStore,
  gate: StateMachineGate<string, string>,
  ...calls: readonly (readonly [tool: string, args?: Record<string, unknown>])[]
): Promise<string> {
  await using app = testGate(gate, { session: { store } });
  for (const [tool, args] of calls)
    expect((await app.call(tool, args)).refusal, tool).toBe(undefined);
  return runDigest(await app.run());
}

const checked = (
  store: AtomicStateStore,
  gate: StateMachineGate<string, string>,
  old?: StateMachineGate<string, string>,
): Promise<CheckedRuns> => runsOf(gate, { store }).check(old && { old });

/** Waits until the store has noted so many gates. */
async function noted(store: AtomicStateStore, count: number) {
  await expect.poll(async () => (await notedGates(store, 'bank')).length).toBe(count);
  return notedGates(store, 'bank');
}

describe.each(Object.entries(FOUR_STORES))('the note of a gate on %s', (_, make) => {
  it('is written at the first claim of a process, and again where another gate was newer', async () => {
    const store = (await make())();
    const [one, two] = [gateOf({ pay: {} }), gateOf({ pay: { once: true } })];
    expect(await notedGates(store, 'bank')).toEqual([]);
    await play(store, one, ['pay']);
    const [first] = await noted(store, 1);
    expect(first).toMatchObject({ tools: ['pay'], windowMs: 0, made: { rules: { pay: {} } } });
    await play(store, one, ['pay']);
    await play(store, two, ['pay']);
    const both = await noted(store, 2);
    expect(both.map(({ made }) => made)).toEqual([
      { bindings: [], rules: { pay: { once: true } } },
      { bindings: [], rules: { pay: {} } },
    ]);
    await play(store, gateOf({ pay: {} }), ['pay']);
    const newest = async () => (await notedGates(store, 'bank'))[0];
    await expect.poll(async () => (await newest())?.digest).toBe(first?.digest);
    expect(await newest()).toMatchObject({ first: first?.first });
    expect(await noted(store, 2)).toHaveLength(2);
  });

  it('is what a deployment is compared with', async () => {
    const store = (await make())();
    const run = await play(store, gateOf({ pay: {} }), ['pay']);
    await noted(store, 1);
    const { compared } = await checked(store, gateOf({ risk: {}, pay: { after: 'risk' } }));
    expect(compared).toMatchObject({
      with: 'noted',
      noted: [{ isSame: false }],
      tools: [
        { tool: 'pay', boundBy: 'both', before: 1, after: 0, closed: { runs: 1, such: [run] } },
        { tool: 'risk', boundBy: 'after', before: 1, after: 1 },
      ],
    });
    expect(await noted(store, 1)).toHaveLength(1);
  });
});

describe('the note of a gate', () => {
  it('keeps the four newest gates', async () => {
    const store = memoryStore();
    const limits = [1, 2, 3, 4, 5, 6].map((times) => ({ pay: { limit: { times } } }));
    for (const rules of limits) {
      await play(store, gateOf(rules), ['pay']);
      await expect
        .poll(async () => (await notedGates(store, 'bank'))[0]?.made)
        .toEqual({
          rules,
          bindings: [],
        });
    }
    const made = (await notedGates(store, 'bank')).map((each) => each.made);
    expect(made).toEqual(
      limits
        .toReversed()
        .slice(0, 4)
        .map((rules) => ({ rules, bindings: [] })),
    );
  });

  it('fails no call where the store cannot write it, and tells that the store failed', async () => {
    const readOnly = memoryStore();
    readOnly.swapSwitch = () => Promise.reject(new Error('read only'));
    const store = new FaultyStore(readOnly);
    const told: unknown[] = [];
    const session = { store, onEvent: (event: InterlockEvent) => void told.push(event) };
    await using app = testGate(gateOf({ pay: {} }), { session });
    for (let calls = 0; calls < 2; calls++) expect((await app.call('pay')).refusal).toBe(undefined);
    expect(await notedGates(store, 'bank')).toEqual([]);
    const failed = { type: 'store.failed', operation: 'swapSwitch' };
    expect(told).toContainEqual(expect.objectContaining(failed));
  });

  it('says of a gate too long for it only that it was there', async () => {
    const store = memoryStore();
    const rules = Object.fromEntries(
      Array.from({ length: 2_000 }, (_, i) => [`tool-${i}`, { limit: { times: 9 } }]),
    );
    const gate = gateOf(rules);
    await play(store, gate, ['tool-1']);
    const [note] = await noted(store, 1);
    expect(JSON.stringify(note).length).toBeLessThan(33_000);
    expect(note).not.toHaveProperty('made');
    expect((await checked(store, gate)).compared).toMatchObject({ with: 'noted' });
    const next = gateOf({ pay: {} });
    expect((await checked(store, next)).compared).toMatchObject({ with: 'unmade', tools: [] });
    const { compared } = await checked(store, next, gate);
    expect(compared.with).toBe('given');
    expect(compared.tools).toHaveLength(2_001);
  });

  it('has functions by their names, and a machine with its bindings', async () => {
    const isLarge = (): boolean => true;
    const machine = {
      id: 'bank',
      initial: 'open',
      states: { open: { on: { PAY: 'paid' } }, paid: { type: 'final' as const } },
    };
    const gate = new StateMachineGate<string, string>(machine, { version: 3 })
      .bindTool('pay', 'open', { success: 'PAY', guard: isLarge, limit: { times: 2 } })
      .bindTool('look', 'paid');
    const note = noteOf(gate.compile());
    expect(note).toEqual({
      digest: expect.stringMatching(/^[\w-]{16}$/),
      version: 3,
      tools: ['pay', 'look'],
      windowMs: 0,
      made: {
        machine,
        bindings: [
          [
            'pay',
            ['open'],
            {
              success: 'PAY',
              guard: { 'mcp-interlock/function': 'isLarge' },
              limit: { times: 2 },
            },
          ],
          ['look', ['paid'], {}],
        ],
      },
    });
    const again = gateOfNote('bank', note);
    expect(again && noteOf(again.compile())).toEqual(note);
  });

  it('makes the same gate again of each kind of rule', () => {
    const rules: Rules = {
      find: { step: false, ok: { status: 'open' } },
      approve: { notAfter: { tool: 'reject', within: '5m' } },
      pay: {
        after: [
          { tool: 'find', same: ['id'], within: '2m', result: { status: 'open' } },
          { need: 'approved', when: { amount: { gt: 100 } } },
        ],
        limit: [
          { times: 5, within: '5m' },
          { sum: 'amount', below: 60_000, within: '24h' },
        ],
        failure: 'reject',
        retries: 2,
      },
      __proto__x: { once: true, undoneBy: 'reject' },
    };
    const needs = { approved: { any: ['approve', 'find'] } } as const;
    const gate = StateMachineGate.fromOrder(rules, { id: 'bank', needs, results: 'text' } as never);
    const note = noteOf(gate.compile());
    const again = gateOfNote('bank', JSON.parse(JSON.stringify(note)));
    expect(again && noteOf(again.compile())).toEqual(note);
    expect(gateOfNote('bank', { ...note, made: { rules: { pay: 7 }, bindings: [] } })).toBe(
      undefined,
    );
  });
});

/** A deployment, tried on two runs of the one before: one called `played`, one called nothing. */
interface Deployment {
  readonly of: string;
  readonly before: Rules;
  readonly played: readonly (readonly [tool: string, args?: Record<string, unknown>])[];
  readonly after: Rules;
  /** By tool: the runs before, after, closed and opened. */
  readonly tools: Readonly<Record<string, readonly [number, number, number, number]>>;
  readonly limits?: readonly (readonly [tool: string, change: string])[];
}

const day = (max: number) => ({ limit: { sum: 'amount', max, within: '24h' } }) as const;
const PAID = [['pay', { amount: 60 }]] as const;

describe.each(Object.entries(FOUR_STORES))('a deployment, compared on %s', (_, make) => {
  it.each<Deployment>([
    {
      of: 'nothing new',
      before: { pay: day(100) },
      played: PAID,
      after: { pay: day(100) },
      tools: {},
    },
    {
      of: 'a tool before another one',
      before: { pay: {} },
      played: [['pay']],
      after: { risk: {}, pay: { after: 'risk' } },
      tools: { pay: [2, 0, 2, 0], risk: [2, 2, 0, 0] },
    },
    {
      of: 'a limit that is lowered',
      before: { pay: { limit: { times: 3 } } },
      played: [['pay'], ['pay']],
      after: { pay: { limit: { times: 2 } } },
      tools: { pay: [2, 1, 1, 0] },
    },
    {
      of: 'a limit that is raised',
      before: { pay: { limit: { times: 1 } } },
      played: [['pay']],
      after: { pay: { limit: { times: 2 } } },
      tools: { pay: [1, 2, 0, 1] },
    },
    {
      of: 'a sum that is lowered below what was paid',
      before: { pay: day(100) },
      played: PAID,
      after: { pay: day(50) },
      tools: { pay: [2, 1, 1, 0] },
    },
    {
      of: 'a shorter window',
      before: { pay: day(100) },
      played: PAID,
      after: { pay: { limit: { sum: 'amount', max: 100, within: '1ms' } } },
      tools: {},
      limits: [['pay', 'anew']],
    },
    {
      of: 'a limit that is taken away',
      before: { pay: day(100) },
      played: PAID,
      after: { pay: {} },
      tools: {},
      limits: [['pay', 'gone']],
    },
    {
      of: 'a sum in place of a number of calls',
      before: { pay: { limit: { times: 5 } } },
      played: PAID,
      after: { pay: { limit: { sum: 'amount', max: 100 } } },
      tools: { pay: [2, 1, 1, 0] },
      limits: [
        ['pay', 'gone'],
        ['pay', 'closed'],
      ],
    },
    {
      of: 'a tool that is taken out',
      before: { pay: day(100), look: {} },
      played: PAID,
      after: { look: {} },
      tools: { pay: [2, 2, 0, 0] },
      limits: [['pay', 'gone']],
    },
    {
      of: 'a tool with another name',
      before: { pay: day(100) },
      played: PAID,
      after: { charge: day(100) },
      tools: { pay: [2, 2, 0, 0], charge: [2, 2, 0, 0] },
      limits: [['pay', 'gone']],
    },
    {
      of: 'a tool that is renamed in its rule',
      before: { pay: day(100) },
      played: PAID,
      after: { charge: { ...day(100), renamed: ['pay'] } },
      tools: {},
    },
    {
      of: 'a tool that is renamed, with a sum below what was paid',
      before: { pay: day(100) },
      played: PAID,
      after: { charge: { ...day(50), renamed: ['pay'] } },
      tools: { pay: [2, 1, 1, 0] },
    },
    {
      of: 'two rules that become one',
      before: { pay: day(100), charge: day(100) },
      played: [...PAID, ['charge', { amount: 30 }]],
      after: { settle: { ...day(100), renamed: ['pay', 'charge'] } },
      tools: {},
      limits: [['charge', 'moved']],
    },
    {
      of: 'a tool with an older name than the gate before knew',
      before: { pay: day(100) },
      played: PAID,
      after: { settle: { ...day(100), renamed: ['charge', 'pay'] } },
      tools: {},
      limits: [['pay', 'moved']],
    },
  ])('says what changes: $of', async ({ before, played, after, tools, limits = [] }) => {
    const store = (await make())();
    const old = gateOf({ ...before, begin: {} });
    await play(store, old, ['begin']);
    const run = await play(store, old, ['begin'], ...played);
    await noted(store, 1);
    const next = gateOf({ ...after, begin: {} });
    const found = async (given?: typeof old) => {
      const { compared } = await checked(store, next, given);
      const rows = compared.tools.map(({ tool, before, after, closed, opened }) => [
        tool,
        [before, after, closed.runs, opened.runs],
      ]);
      return { tools: Object.fromEntries(rows), limits: compared.limits };
    };
    // The shortest window is over within a moment.
    await expect.poll(async () => (await found()).limits.length).toBe(limits.length);
    const compared = await found();
    expect(compared.tools).toEqual(tools);
    expect(compared.limits.map(({ tool, change }) => [tool, change])).toEqual(limits);
    for (const { runs } of compared.limits) expect(runs).toEqual({ runs: 1, such: [run] });
    // The gate itself says what its note says.
    expect(await found(old)).toEqual(compared);
  });
});

describe('a deployment, compared with the one before', () => {
  it('names three runs of many, and counts them all', async () => {
    const store = memoryStore();
    const runs: string[] = [];
    for (let i = 0; i < 7; i++) runs.push(await play(store, gateOf({ pay: {} }), ['pay']));
    await noted(store, 1);
    const { compared } = await checked(store, gateOf({ pay: { after: 'risk' } }));
    const [row] = compared.tools;
    expect(row?.closed).toEqual({ runs: 7, such: runs.slice(0, 3) });
  });

  it('says where a function has a say that had none', async () => {
    const store = memoryStore();
    const isLarge = (): boolean => true;
    const old = { pay: { guard: isLarge }, look: {} };
    await play(store, gateOf(old), ['pay']);
    await noted(store, 1);
    const same = await checked(store, gateOf({ pay: { guard: isLarge }, look: {} }));
    expect(same.compared.tools).toEqual([]);
    const guard = (): boolean => true;
    const { compared } = await checked(
      store,
      gateOf({ pay: { guard }, look: { visible: isLarge } }),
    );
    expect(compared.tools.map(({ tool, perhaps }) => [tool, perhaps])).toEqual([
      ['pay', ['guard isLarge', 'guard']],
      ['look', ['visible isLarge']],
    ]);
  });

  it('compares no run that only one of the gates can read', async () => {
    const store = memoryStore();
    const machine = (state: string) =>
      new StateMachineGate<string, string>({
        id: 'bank',
        initial: 'open',
        states: { open: { on: { PAY: state } }, [state]: {} },
      }).bindTool('pay', 'open', 'PAY');
    await play(store, machine('paid'), ['pay']);
    await noted(store, 1);
    const { unreadable, compared } = await checked(store, machine('settled'));
    expect([unreadable, compared.tools, compared.unread]).toEqual([1, [], 0]);
    const back = await checked(store, machine('paid'), machine('settled'));
    expect([back.unreadable, back.compared.tools, back.compared.unread]).toEqual([0, [], 1]);
  });

  it('compares with a gate of the same id alone', async () => {
    const other = StateMachineGate.fromOrder({ pay: {} }, { id: 'shop' });
    const asked = runsOf(gateOf({ pay: {} }), { store: memoryStore() }).check({ old: other });
    await expect(asked).rejects.toThrow(
      'check(): old: expected a gate of "bank", got one of "shop"',
    );
    await expect(asked).rejects.toHaveProperty('code', 'ERR_INTERLOCK_CONFIG');
  });
});
