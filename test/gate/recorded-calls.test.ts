import { describe, expect, it } from 'vitest';
import { replayTrail } from '../../packages/check/src/index.ts';
import {
  currentStep,
  type InterlockEvent,
  memoryStore,
  type OrderRules,
  StateMachineGate,
  UnrecordedSuccess,
} from '../../src/index.ts';
import { FaultyStore } from '../helpers/faulty-store.ts';
import { latch } from '../helpers/latch.ts';
import { RawSession } from '../helpers/raw.ts';
import { begins, pass, passUntil, type SceneOptions, scene, settle } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';

const KEY = 'mcp-interlock/idempotencyKey';
const RULES = {
  pay: { after: ['checkout', 'quote'] },
  pay_bill: { after: { any: ['login_pin', 'login_face'] } },
  cancel_order: { after: [{ tool: 'find_order', same: ['order_id'] }] },
  ship: { after: [{ tool: 'find_order', same: ['order_id'], consumes: false }, 'track'] },
  transfer: { after: [{ tool: 'otp', consumes: true }] },
} as const satisfies OrderRules;
const TOOLS = [
  ...Object.keys(RULES),
  'checkout',
  'quote',
  'login_pin',
  'login_face',
  'find_order',
  'track',
  'otp',
];
const shop = () => StateMachineGate.fromOrder(RULES, { id: 'shop' });

type Handlers = Parameters<typeof toolServer>[1];

async function open(options: SceneOptions & { handlers?: Handlers } = {}) {
  const events: InterlockEvent[] = [];
  const keys: [string, unknown][] = [];
  const note = Object.fromEntries(
    TOOLS.map((tool): [string, NonNullable<Handlers>[string]] => [
      tool,
      (args, meta, extra) => {
        keys.push([tool, meta[KEY]]);
        return options.handlers?.[tool]?.(args, meta, extra);
      },
    ]),
  );
  const app = await scene({
    workflow: shop(),
    makeServer: toolServer(TOOLS, note),
    ...options,
    session: { onEvent: (event) => void events.push(event), ...options.session },
  });
  const client = await app.client();
  const run = app.run(client.run);
  return { ...app, client, shopRun: run, events, keys };
}

describe('a tool with a rule is a step', () => {
  const cases = [
    ['pay', ['checkout', 'quote']],
    ['pay_bill', ['login_face']],
    ['cancel_order', ['find_order']],
  ] as const;

  it.each(cases)('%s has a claim, a key and a trail', async (tool, before) => {
    const app = await open();
    const args = { order_id: 7 };
    for (const each of before) await app.client.calls(each, args);
    const call = await begins(app, tool, () => app.client.raw.call(tool, args));
    await app.shopRun.is('running');
    expect(app.keys.at(-1)).toEqual([tool, expect.stringMatching(/^[\w-]{20,}$/)]);
    call.finish();
    expect(await call.answer).toMatchObject({ isError: false });
    const trail = await app.runs.history(app.client.run);
    expect(trail.at(-1)).toMatchObject({ tool, outcome: 'succeeded' });
    expect(replayTrail(shop(), trail)).toMatchObject({ faults: [] });
  });

  it.each(cases)('%s is held where its outcome is unknown', async (tool, before) => {
    const app = await open({ gate: { maxStepMs: 10_000 } });
    const args = { order_id: 7 };
    for (const each of before) await app.client.calls(each, args);
    const call = await begins(app, tool, () => app.client.raw.call(tool, args));
    const answer = await passUntil(app.clock, call.answer);
    expect(answer.text).toContain('may have run: its outcome is unknown');
    await pass(app.clock, 10_000);
    await app.shopRun.is('held');
    await app.client.isRefused(tool, 'held', args);
    call.finish();
  });

  it.each(cases)('of two calls of %s at once, one runs', async (tool, before) => {
    const app = await open();
    const args = { order_id: 7 };
    for (const each of before) await app.client.calls(each, args);
    const first = await begins(app, tool, () => app.client.raw.call(tool, args));
    const second = app.client.raw.call(tool, args);
    await settle();
    expect(app.ledger.calls.filter((each) => each === tool)).toHaveLength(1);
    first.finish();
    expect(await Promise.all([first.answer, second])).toMatchObject([
      { isError: false },
      { isError: false },
    ]);
    expect(app.errors).toEqual([]);
  });

  it('unless its author says `step: false`, whatever its annotations say', async () => {
    const rules = {
      buy: { after: 'quote' },
      quote: { after: 'look', step: false },
      read: { after: 'look' },
    } as const;
    const tools = ['buy', 'quote', 'read', 'look'];
    const annotations = { read: { readOnlyHint: true }, look: { destructiveHint: true } };
    const app = await scene({
      workflow: StateMachineGate.fromOrder(rules, { id: 'shop' }),
      makeServer: toolServer(tools, {}, annotations),
    });
    const client = await app.client();
    await client.isRefused('quote', 'state');
    await client.calls('look');
    app.store.take();
    await client.calls('quote');
    expect(app.store.times('claim')).toBe(0);
    expect(app.store.times('record')).toBe(1);
    app.store.take();
    await client.calls('read');
    await client.calls('buy');
    expect(app.store.times('claim')).toBe(2);
    expect(await app.run(client.run).moves()).toEqual(['look', 'quote', 'read', 'buy']);
  });
});

describe('a tool that is only named in `after`', () => {
  it('runs beside others: three lookups run at once, and all are recorded', async () => {
    const app = await open();
    app.store.take();
    const slow = latch();
    app.ledger.gates.set('find_order', slow.opened);
    const calls = [1, 2, 3].map((order_id) => app.client.raw.call('find_order', { order_id }));
    await expect.poll(() => app.ledger.calls).toHaveLength(3);
    await app.shopRun.is('idle');
    slow.open();
    const answers = await Promise.all(calls);
    expect(answers.map(({ isError }) => isError)).toEqual([false, false, false]);
    expect(app.store.times('claim')).toBe(0);
    // It has no key, and is no step.
    expect(app.keys).toEqual([1, 2, 3].map(() => ['find_order', undefined]));
    const trail = await app.runs.history(app.client.run);
    expect(trail).toHaveLength(3);
    for (const entry of trail)
      expect(entry).toMatchObject({
        tool: 'find_order',
        event: 'find_order',
        outcome: 'succeeded',
        digest: expect.any(String),
      });
    expect(replayTrail(shop(), trail)).toMatchObject({ faults: [] });
    for (const order_id of [1, 2, 3]) await app.client.calls('cancel_order', { order_id });
    await app.client.isRefused('cancel_order', 'guard', { order_id: 4 });
    expect(app.events.filter(({ type }) => type === 'run.begun')).toHaveLength(1);
    expect(app.errors).toEqual([]);
  });

  it('runs beside a step, and the lookup that is recorded while `pay` runs survives', async () => {
    const app = await open();
    for (const each of ['checkout', 'quote', 'otp']) await app.client.calls(each);
    const pay = await begins(app, 'pay', () => app.client.raw.call('pay'));
    await app.client.calls('find_order', { order_id: 1 });
    await app.client.calls('track');
    await app.shopRun.is('running');
    pay.finish();
    expect(await pay.answer).toMatchObject({ isError: false });
    const done = '{checkout, quote, find_order, track, otp}';
    await app.shopRun.isIn(done, 'idle');
    // A step that uses a success up makes its change where the run stands by then.
    const transfer = await begins(app, 'transfer', () => app.client.raw.call('transfer'));
    await app.client.calls('find_order', { order_id: 2 });
    await app.client.calls('login_pin');
    transfer.finish();
    await transfer.answer;
    await app.shopRun.isIn('{checkout, quote, login_pin, find_order, track}', 'idle');
    await app.client.isRefused('transfer', 'state');
    for (const order_id of [1, 2]) await app.client.calls('cancel_order', { order_id });
    const trail = await app.runs.history(app.client.run);
    expect(replayTrail(shop(), trail)).toMatchObject({ faults: [] });
    expect(app.errors).toEqual([]);
  });

  it('survives beside what a handler changes with update()', async () => {
    const gate = latch();
    const app = await open({
      handlers: {
        pay: (_args, _meta, extra) => {
          currentStep(extra)?.update((data) => ({ ...(data as object), paid: 42 }));
          return undefined;
        },
      },
    });
    for (const each of ['checkout', 'quote']) await app.client.calls(each);
    app.ledger.gates.set('pay', gate.opened);
    const pay = app.client.raw.call('pay');
    await expect.poll(() => app.ledger.calls).toContain('pay');
    await app.client.calls('track');
    gate.open();
    expect(await pay).toMatchObject({ isError: false });
    await app.shopRun.isIn('{checkout, quote, track}', 'idle');
    expect((await app.runs.read(app.client.run))?.context).toEqual({ paid: 42 });
    // A failure saves the data too.
    const failing = await begins(app, 'pay', () => app.client.raw.call('pay', { fail: true }));
    await app.client.calls('login_face');
    failing.finish();
    expect(await failing.answer).toMatchObject({ isError: true });
    await app.shopRun.isIn('{checkout, quote, login_face, track}', 'idle');
  });

  it('survives beside commitIn()', async () => {
    const store = new FaultyStore(memoryStore());
    const answers: string[] = [];
    const commits: Promise<unknown>[] = [];
    const commit = latch();
    Object.assign(store, {
      async commitIn(_client: unknown, request: Parameters<FaultyStore['commit']>[0]) {
        const result = await store.commit(request);
        answers.push(result.status);
        return result;
      },
    });
    const app = await open({
      session: { store },
      handlers: {
        transfer: (_args, _meta, extra) => {
          const step = currentStep(extra);
          commits.push(commit.opened.then(() => step?.commitIn({})));
          return undefined;
        },
      },
    });
    await app.client.calls('otp');
    const transfer = await begins(app, 'transfer', () => app.client.raw.call('transfer'));
    await app.client.calls('track');
    commit.open();
    await Promise.all(commits);
    expect(answers).toEqual(['moved', 'committed']);
    await app.client.calls('quote');
    transfer.finish();
    expect(await transfer.answer).toMatchObject({ isError: false });
    await app.shopRun.isIn('{quote, track}', 'idle');
    const trail = await app.runs.history(app.client.run);
    expect(trail.map(({ tool }) => tool)).toEqual(['otp', 'track', 'transfer', 'quote']);
    expect(replayTrail(shop(), trail)).toMatchObject({ faults: [] });
    expect(app.errors).toEqual([]);
  });

  it('runs beside a held step, and survives its resolution', async () => {
    const app = await open({ gate: { maxStepMs: 10_000 } });
    await app.client.calls('otp');
    const transfer = await begins(app, 'transfer', () => app.client.raw.call('transfer'));
    await passUntil(app.clock, transfer.answer);
    await pass(app.clock, 10_000);
    await app.shopRun.is('held');
    await app.client.calls('track');
    await app.shopRun.is('held');
    // Another lookup is recorded between the operator's read and commit.
    const { read } = app.store;
    let isOnce = true;
    app.store.read = async (...args) => {
      const record = await read(...args);
      if (isOnce) {
        isOnce = false;
        await app.client.calls('login_pin');
      }
      return record;
    };
    const resolved = await app.runs.resolve(app.client.run, 'succeeded');
    expect(resolved).toMatchObject({ resolved: true });
    await app.shopRun.isIn('{login_pin, track}', 'idle');
    transfer.finish();
  });

  it('survives beside runs.send() and runs.update()', async () => {
    const app = await open();
    const { claim } = app.store;
    const beside: string[] = ['track', 'login_pin'];
    app.store.claim = async (...args) => {
      const claimed = await claim(...args);
      const tool = beside.shift();
      if (tool !== undefined) await app.client.calls(tool);
      return claimed;
    };
    expect(await app.runs.send(app.client.run, 'otp')).toMatchObject({ sent: true });
    await app.shopRun.isIn('{track, otp}', 'idle');
    expect(await app.runs.update(app.client.run, () => ({ a: 1 }))).toMatchObject({
      updated: true,
    });
    await app.shopRun.isIn('{login_pin, track, otp}', 'idle');
    expect((await app.runs.read(app.client.run))?.context).toEqual({ a: 1 });
  });

  it('is recorded before the client sees it', async () => {
    const app = await open();
    app.store.fail('record', 1, 'late');
    const call = app.client.raw.call('track');
    let isSeen = false;
    void call.then(() => {
      isSeen = true;
    });
    await expect.poll(() => app.store.late.length).toBe(1);
    await settle();
    expect([app.ledger.calls, isSeen]).toEqual([['track'], false]);
    for (const answer of app.store.late) answer();
    expect(await call).toMatchObject({ isError: false });
    await app.shopRun.isIn('{track}', 'idle');
  });

  it('is recorded once where the answer of the store was lost', async () => {
    const app = await open();
    app.store.fail('record', 1, 'done');
    expect(await passUntil(app.clock, app.client.raw.call('track'))).toMatchObject({
      isError: false,
    });
    expect(await app.shopRun.moves()).toEqual(['track']);
    expect(app.events.filter(({ type }) => type === 'run.moved')).toHaveLength(1);
  });

  it('does not count where it fails, or where its outcome is unknown', async () => {
    const app = await open({
      behind: [
        (req, res, next) => {
          const { params } = (req.body ?? {}) as { params?: { arguments?: { cut?: unknown } } };
          if (params?.arguments?.cut === true) res.destroy();
          else next();
        },
      ],
      shape: { parser: true, answers: 'json' },
    });
    await app.client.raw.call('track', { fail: true });
    await app.client.raw.call('track', { cut: true }).catch(() => {});
    expect(app.store.times('record')).toBe(0);
    await app.shopRun.isIn('{}', 'idle');
    expect(await app.runs.history(app.client.run)).toEqual([]);
  });

  it('tells the client that it ran and does not count where the store fails', async () => {
    const app = await open();
    await app.client.calls('checkout');
    app.store.fail('record');
    const answer = await passUntil(app.clock, app.client.raw.call('quote'));
    expect(answer).toMatchObject({ isError: true });
    expect(answer.text).toBe(
      '[System: quote ran, but its success could not be recorded, so it does not count yet. ' +
        'Call it again before the tools that need it.]',
    );
    expect(answer.text).not.toContain('done');
    expect(answer.meta['mcp-interlock/outcome']).toEqual({
      workflow: 'shop',
      tool: 'quote',
      outcome: 'unrecorded',
      ran: true,
    });
    const [error] = app.errors.filter((each) => each instanceof UnrecordedSuccess);
    expect(error).toMatchObject({ tool: 'quote', workflow: 'shop', run: app.client.run });
    const told = app.events.filter(({ type }) => type === 'call.unrecorded');
    expect(told).toMatchObject([{ tool: 'quote', state: '{checkout}' }]);
    app.store.heal();
    await app.client.isRefused('pay', 'state');
    await app.client.calls('quote');
    await app.client.calls('pay');
  });

  it('is still a success for another gate of the route, where the store fails', async () => {
    const machine = new StateMachineGate({
      id: 'packing',
      initial: 'open',
      states: { open: { on: { TRACKED: 'tracked' } }, tracked: {} },
    }).bindTool('track', 'open', 'TRACKED');
    const app = await open({ workflow: [shop(), machine] });
    app.store.fail('record');
    const answer = await passUntil(app.clock, app.client.raw.call('track'));
    // A step of the other gate: called again, it would run twice.
    expect(answer.text).toContain('track ran, but its outcome could not be recorded. Do not call');
    const record = await app.data.read(app.client.run, 60_000);
    expect(record?.workflows.packing?.snapshot.state).toBe('tracked');
  });

  it('is not recorded where another gate of the route refuses the call', async () => {
    const machine = new StateMachineGate({
      id: 'packing',
      initial: 'shut',
      states: { shut: {}, open: {} },
    }).bindTool('track', 'open');
    const app = await open({ workflow: [shop(), machine] });
    await app.client.isRefused('track', 'state');
    expect(app.store.times('record')).toBe(0);
    expect(app.ledger.calls).toEqual([]);
  });

  it('tells the client the same where the run is gone meanwhile', async () => {
    const app = await open();
    await app.client.calls('checkout');
    const quote = await begins(app, 'quote', () => app.client.raw.call('quote'));
    await app.data.delete(app.client.run);
    quote.finish();
    expect((await quote.answer).text).toContain('so it does not count yet');
    expect(app.errors.filter((each) => each instanceof UnrecordedSuccess)).toHaveLength(1);
    expect(await app.data.read(app.client.run, 1000)).toBeUndefined();
  });

  it('is recorded by any process of the app', async () => {
    const shape = { mode: 'stateless', answers: 'json' } as const;
    const app = await open({ shape });
    const served = { workflow: shop(), makeServer: toolServer(TOOLS), shape };
    const other = await scene({ ...served, beside: app });
    const there = RawSession.resume(other.url, app.client.run);
    const slow = latch();
    for (const { ledger } of [app, other]) ledger.gates.set('find_order', slow.opened);
    const calls = [
      app.client.raw.call('find_order', { order_id: 1 }),
      there.call('find_order', { order_id: 2 }),
    ];
    await expect.poll(() => app.ledger.calls.length + other.ledger.calls.length).toBe(2);
    slow.open();
    await Promise.all(calls);
    for (const order_id of [1, 2]) await app.client.calls('cancel_order', { order_id });
  });

  it('is recorded before close() ends', async () => {
    const app = await open({ shape: { mode: 'stateless', answers: 'json' } });
    const track = await begins(app, 'track', () => app.client.raw.call('track'));
    let isClosed = false;
    const closing = app.sessions.close({ drainMs: 60_000 }).then(() => {
      isClosed = true;
    });
    await settle();
    expect(isClosed).toBe(false);
    track.finish();
    expect(await track.answer).toMatchObject({ isError: false });
    await closing;
    await app.shopRun.isIn('{track}', 'idle');
  });

  it('is given the data that the run begins with', async () => {
    const app = await open({ gate: { begin: ({ run }) => ({ of: run.length }) } });
    await app.client.calls('track');
    const view = await app.runs.read(app.client.run);
    expect(view).toMatchObject({ state: '{track}', context: { of: app.client.run.length } });
  });

  it('is claimed where a loop shield counts its calls', async () => {
    const loopShield = { max: 2, fallback: { event: 'otp' } };
    const gate = StateMachineGate.fromOrder(RULES, { id: 'shop', loopShield });
    const app = await open({ workflow: gate });
    await app.client.calls('track', { a: 1 });
    expect(app.store.times('claim')).toBe(1);
    expect(app.store.times('record')).toBe(0);
    await app.shopRun.isIn('{track}', 'idle');
  });
});
