import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { RequestHandler } from 'express';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type BindingOptions,
  type CurrentStep,
  currentStep,
  fsmGate,
  type InterlockEvent,
  memoryStore,
  StateMachineGate,
  type StepSource,
  sessionStore,
  UnknownOutcome,
} from '../../src/index.ts';
import { runsOf } from '../../src/runs/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { callOf, RawSession } from '../helpers/raw.ts';
import { begins, pass, type SceneOptions, scene, settle } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { startUpstream } from '../helpers/upstream.ts';

const shape = { mode: 'stateless', answers: 'json' } as const;
const HELD = 'Do not call it again; the operator must check what happened.]';
const AGAIN = 'To find out, call it again with exactly the same arguments, and no others.]';

const till = (pay: BindingOptions = {}, id = 'till') =>
  new StateMachineGate<string, string>({
    id,
    initial: 'open',
    states: { open: { on: { PAID: 'paid', BROKE: 'broken', NOTE: 'open' } }, paid: {}, broken: {} },
  })
    .bindTool('pay', 'open', { success: 'PAID', ...pay })
    .bindTool('note', 'open', 'NOTE');

/** An app whose `pay` does with its step what the test says, and notes its idempotency key. */
async function open(
  pay: BindingOptions,
  act: (step: CurrentStep | undefined, args: Record<string, unknown>) => void,
  options: SceneOptions = {},
) {
  const keys: unknown[] = [];
  const told: InterlockEvent[] = [];
  const handlers = {
    pay(args: Record<string, unknown>, _: unknown, extra: StepSource) {
      const step = currentStep(extra);
      keys.push(step?.idempotencyKey);
      act(step, args);
      return undefined;
    },
  };
  const app = await scene({
    shape,
    workflow: till(pay),
    makeServer: toolServer(['pay', 'note'], handlers),
    ...options,
    session: { ...options.session, onEvent: (event) => void told.push(event) },
  });
  const client = await app.client();
  const unknown = () => told.filter(({ type }) => type.startsWith('step.un'));
  return { ...app, told, client, keys, till: app.run(client.run), unknown };
}

const timesOut = (step: CurrentStep | undefined): void =>
  step?.unknown('the bank did not answer in time');

describe('unknown() of a handler’s step', () => {
  it('holds the run under `hold`, whatever the handler answers', async () => {
    for (const args of [{}, { fail: true }]) {
      const { client, errors, keys, runs, unknown, ...app } = await open({}, timesOut);
      const { texts, isError, meta } = await client.raw.call('pay', args);
      const fact = 'pay may have run: its outcome is unknown (the bank did not answer in time).';
      expect([isError, texts]).toEqual([true, [`[System: ${fact} ${HELD}`]]);
      expect(meta['mcp-interlock/outcome']).toMatchObject({ outcome: 'unknown' });
      expect(meta['mcp-interlock/outcome']).not.toHaveProperty('ran');
      await app.till.isIn('open', 'held');
      expect((await runs.read(client.run))?.claim?.kind).toBe('unknown');
      await client.isRefused('pay', 'held', args);
      expect(keys).toHaveLength(1);
      expect(errors).toEqual([expect.any(UnknownOutcome)]);
      expect(unknown()).toMatchObject([
        { type: 'step.unknown', why: 'the bank did not answer in time', isHeld: true },
      ]);
      expect(await runs.resolve(client.run, 'succeeded')).toMatchObject({ state: 'paid' });
    }
  });

  it('gives the next try the same key under `retry`, at once', async () => {
    let tries = 0;
    const { client, keys, unknown, ...app } = await open({ uncertain: 'retry' }, (step) => {
      if (++tries < 3) step?.unknown();
    });
    for (let times = 0; times < 2; times++) {
      const { texts } = await client.raw.call('pay', { sum: 5 });
      expect(texts).toEqual([`[System: pay may have run: its outcome is unknown. ${AGAIN}`]);
      await app.till.isIn('open', 'idle');
    }
    await client.calls('pay', { sum: 5 });
    expect(keys).toHaveLength(3);
    expect(new Set(keys).size).toBe(1);
    await app.till.isIn('paid', 'idle');
    expect(unknown()).toMatchObject([{ isHeld: false }, { isHeld: false }]);
  });

  it('keeps the lease while the handler goes on, and ends it with the answer', async () => {
    const app = await open({ uncertain: 'retry' }, timesOut);
    const paying = await begins(app, 'pay', () => app.client.raw.call('pay'));
    await pass(app.clock, 20_000);
    await app.till.is('running');
    paying.finish();
    await paying.answer;
    await app.till.is('idle');
  });

  it('counts also where the answer comes late, or none comes', async () => {
    const app = await open({}, timesOut, { gate: { cancelGraceMs: 1_000 } });
    const session = await app.session();
    const paying = await begins(app, 'pay', () => session.post(callOf('p', 'pay')));
    await session.post({
      jsonrpc: '2.0',
      method: 'notifications/cancelled',
      params: { requestId: 'p' },
    });
    await settle();
    app.clock.advance(1_000);
    await expect.poll(() => app.unknown().length).toBe(1);
    paying.finish();
    await paying.answer;
    await app.run(session.id).becomes('held');
    expect((await app.runs.read(session.id))?.claim?.kind).toBe('unknown');
    expect(app.unknown()).toHaveLength(1);
    expect(app.errors).toHaveLength(1);
  });

  it('counts where the route answers with a status that says that nothing ran', async () => {
    const behind: RequestHandler = (req, res, next) => {
      if (req.body?.params?.name !== 'pay') return next();
      currentStep(req)?.unknown();
      res.status(400).json({ jsonrpc: '2.0', id: null, error: { code: -32_000, message: 'Bad' } });
    };
    const app = await open({}, () => {}, { shape: { ...shape, parser: true }, behind: [behind] });
    const session = await app.session();
    await session.post(callOf(1, 'pay'));
    await app.run(session.id).becomes('held');
  });

  it('is said once: its change of the data is lost, and nothing is committed after it', async () => {
    const seen: unknown[] = [];
    let later: CurrentStep | undefined;
    const { client, errors, ...app } = await open({}, (step) => {
      later = step;
      step?.update(() => ({ sum: 1 }));
      step?.unknown('first');
      step?.unknown('second');
      expect(() => step?.update(() => ({ sum: 2 }))).toThrow('after unknown()');
      step?.commitIn({}).catch((error: Error) => seen.push(error.message));
    });
    const { texts } = await client.raw.call('pay');
    expect(texts[0]).toContain('(first)');
    expect(seen).toEqual(['commitIn() came after unknown(); roll back']);
    expect(() => later?.unknown()).toThrow('the step is over');
    await app.till.is('held');
    expect((await app.runs.read(client.run))?.context).toBeUndefined();
    expect(errors).toHaveLength(1);
  });

  it('is said to each gate that claimed the call', async () => {
    const second = till({ uncertain: 'retry' }, 'second');
    const app = await open({}, timesOut, { workflow: [till(), second] });
    await app.client.raw.call('pay');
    const claims = (await app.data.read(app.client.run, 1_000))?.workflows ?? {};
    expect(claims).toMatchObject({
      till: { claim: { kind: 'unknown', live: false, uncertain: 'hold' } },
      second: { claim: { live: false, uncertain: 'retry' } },
    });
  });
});

describe('a transaction of the handler', () => {
  /** A store whose `commitIn` waits for the test. */
  function slowStore(now: () => number) {
    const inner = memoryStore({ now });
    const waiting: (() => void)[] = [];
    const commitIn = async (_: unknown, request: Parameters<AtomicStateStore['commit']>[0]) => {
      await new Promise<void>((resolve) => waiting.push(resolve));
      return inner.commit(request);
    };
    return { data: Object.assign(inner, { commitIn }), waiting };
  }

  it('refuses update() and unknown() from its commitIn() on, before it is done', async () => {
    const { data, waiting } = slowStore(Date.now);
    const steps: CurrentStep[] = [];
    const makeServer = () => {
      const server = new McpServer({ name: 'till', version: '1.0.0' });
      server.registerTool('pay', {}, async (extra) => {
        const step = currentStep(extra);
        if (step === undefined) throw new Error('no step');
        steps.push(step);
        step.update(() => ({ sum: 1 }));
        const saving = step.commitIn({});
        expect(() => step.update(() => ({ sum: 2 }))).toThrow('update() came after commitIn()');
        expect(() => step.unknown()).toThrow('unknown() came after commitIn()');
        expect(step.context).toEqual({ sum: 1 });
        waiting.shift()?.();
        await saving;
        expect(() => step.update(() => ({ sum: 3 }))).toThrow('update() came after commitIn()');
        expect(() => step.unknown()).toThrow('unknown() came after commitIn()');
        return { content: [] };
      });
      return server;
    };
    const gate = till();
    const upstream = await startUpstream({
      shape,
      makeServer,
      middlewares: [sessionStore({ store: data }), fsmGate(gate)],
    });
    onTestFinished(() => upstream.close());
    const session = await RawSession.begin(upstream.url);
    const answer = await session.call('pay');
    expect(answer.result.isError).toBeUndefined();
    const run = await data.read(session.id, 1_000);
    expect(run?.workflows.till?.snapshot).toMatchObject({ state: 'paid', version: 1 });
    const view = await runsOf(gate, { store: data }).read(session.id);
    expect(view?.context).toEqual({ sum: 1 });
  });
});

describe('a binding’s `errors`', () => {
  const nothing = (): void => {};

  it('is `failed` by default: the run is free, and the next try has another key', async () => {
    const says = (): 'failed' => 'failed';
    for (const errors of [undefined, 'failed', says] as const) {
      const { client, keys, ...app } = await open({ errors }, nothing);
      await client.raw.call('pay', { fail: true });
      await app.till.isIn('open', 'idle');
      await client.raw.call('pay', { fail: true });
      expect(new Set(keys).size).toBe(2);
    }
  });

  it('makes an error an unknown outcome: held, and resolved by a person', async () => {
    const { client, keys, runs, ...app } = await open(
      { errors: 'unknown', failure: 'BROKE' },
      nothing,
    );
    const { texts } = await client.raw.call('pay', { fail: true });
    expect(texts).toEqual([`[System: pay may have run: its outcome is unknown. ${HELD}`]);
    await app.till.isIn('open', 'held');
    await client.isRefused('pay', 'held');
    expect(keys).toHaveLength(1);
    expect(await runs.resolve(client.run, 'failed')).toMatchObject({ state: 'broken' });
  });

  it('gives the next try the same key under `retry`, and a success counts', async () => {
    const { client, keys, ...app } = await open({ errors: 'unknown', uncertain: 'retry' }, nothing);
    for (let times = 0; times < 3; times++)
      expect((await client.raw.call('pay', { fail: true })).texts[0]).toContain(AGAIN);
    expect(keys).toHaveLength(3);
    expect(new Set(keys).size).toBe(1);
    await client.calls('pay');
    await app.till.isIn('paid', 'idle');
  });

  it('may be a function of the result', async () => {
    const { client, ...app } = await open(
      {
        uncertain: 'retry',
        failure: 'BROKE',
        errors: (result) =>
          JSON.stringify(result?.structuredContent).includes('timeout') ? 'unknown' : 'failed',
      },
      nothing,
      {
        makeServer: toolServer(['pay', 'note'], {
          pay: ({ why }) => ({ why }),
        }),
      },
    );
    expect((await client.raw.call('pay', { fail: true, why: 'timeout' })).texts[0]).toContain(
      AGAIN,
    );
    await app.till.isIn('open', 'idle');
    const { texts } = await client.raw.call('pay', { fail: true, why: 'no funds' });
    expect(texts).toEqual(['pay done']);
    await app.till.isIn('broken', 'idle');
  });

  it('that fails, or answers anything else, leaves the call undecided', async () => {
    for (const errors of [
      () => {
        throw new Error('oops');
      },
      () => 'maybe',
      () => Promise.resolve('failed'),
    ]) {
      const { client, runs } = await open({ uncertain: 'retry', errors: errors as never }, nothing);
      const { texts } = await client.raw.call('pay', { fail: true });
      expect(texts[0]).toContain('pay ran, but its outcome could not be recorded');
      expect((await runs.read(client.run))?.claim?.kind).toBe('undecided');
    }
  });

  it('holds for a rule of order too', async () => {
    const workflow = StateMachineGate.fromOrder(
      { pay: { once: true, errors: 'unknown' } },
      { id: 'till' },
    );
    const { client, ...app } = await open({}, nothing, { workflow });
    await client.raw.call('pay', { fail: true });
    await app.till.is('held');
    const wrong = () => StateMachineGate.fromOrder({ pay: { errors: 'retry' as 'failed' } });
    expect(wrong).toThrow(expect.objectContaining({ code: 'ERR_INTERLOCK_CONFIG' }));
    const never = () =>
      StateMachineGate.fromOrder({ pay: { errors: (async () => 'failed') as never } });
    expect(never).toThrow(expect.objectContaining({ code: 'ERR_INTERLOCK_BINDING' }));
  });
});

describe('two gates on one route', () => {
  it('each decide for themselves: the second one saves what the first one cannot decide', async () => {
    const workflow = [till({ success: () => 'NOWHERE' }), till({}, 'second')];
    const app = await open({}, () => {}, { workflow });
    await app.client.raw.call('pay');
    app.clock.advance(60_000);
    const { workflows = {} } = (await app.data.read(app.client.run, 1_000)) ?? {};
    expect(workflows).toMatchObject({
      till: { snapshot: { state: 'open' }, claim: { kind: 'undecided' } },
      second: { snapshot: { state: 'paid' } },
    });
  });
});

describe('an outcome that is not recorded', () => {
  it('has an event of its own, apart from one that may be repeated', async () => {
    const app = await open({ uncertain: 'retry' }, () => {});
    const paying = await begins(app, 'pay', () => app.client.raw.call('pay', { sum: 1 }));
    // A person resolved the run meanwhile, in another process.
    await app.data.release({ run: app.client.run, workflow: 'till' }, await tokenOf(app));
    paying.finish();
    expect((await paying.answer).texts[0]).toContain('pay ran, but its outcome could not');
    expect(app.unknown()).toMatchObject([{ type: 'step.unrecorded', isHeld: false, why: 'lost' }]);
    expect(String(app.errors[0])).toContain('a call of "pay" ran, and its outcome is not recorded');
  });

  it('says whether the run is held, as where a success is undecided', async () => {
    const app = await open({ success: () => 'NOWHERE', uncertain: 'retry' }, () => {});
    await app.client.raw.call('pay');
    expect(app.unknown()).toMatchObject([{ type: 'step.unrecorded', isHeld: true }]);
  });

  it.each([
    ['undecided', 'a call of "pay" ran', 'its binding did not say where that leads'],
    ['unknown', 'the outcome of a call of "pay" is unknown', 'its handler or its binding said so'],
  ])('of another process is met with its kind: %s', async (kind, fact, why) => {
    const { client, data, told, errors } = await open({}, () => {});
    const key = { run: client.run, workflow: 'till' };
    await data.claim({
      ...key,
      token: kind,
      step: { tool: 'pay', digest: '', uncertain: 'retry' },
      states: undefined,
      initial: { state: 'open', updatedAt: 0 },
      leaseMs: 8_000,
      ttlMs: 60_000,
    });
    await data.renew(key, kind, 0, { hold: kind });
    await client.isRefused('pay', 'held');
    await client.raw.tools();
    const met = told.filter(({ type }) => type === 'step.held');
    expect(met).toMatchObject([{ kind, tool: 'pay' }]);
    expect(errors.map(String).join()).toContain(fact);
    expect(errors.map(String).join()).toContain(why);
  });

  async function tokenOf({ data, client }: Awaited<ReturnType<typeof open>>): Promise<string> {
    return (await data.read(client.run, 1_000))?.workflows.till?.claim?.token ?? '';
  }
});
