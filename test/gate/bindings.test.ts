import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { setup } from 'xstate';
import { replayTrail } from '../../packages/check/src/index.ts';
import {
  type BindingOptions,
  currentStep,
  type FailedCall,
  type FsmConfig,
  type GuardedCall,
  StateMachineGate,
  type SucceededCall,
  type ToolResult,
} from '../../src/index.ts';
import type { Json } from '../../src/stores/index.ts';
import { RawSession, reasonOf } from '../helpers/raw.ts';
import { begins, type SceneOptions, scene } from '../helpers/scene.ts';
import { createTask, startTasks } from '../helpers/task-server.ts';
import { toolServer } from '../helpers/tool-server.ts';

const STATELESS = { mode: 'stateless', answers: 'json' } as const;
const TOOLS = ['pay', 'look', 'back'];

/** A till whose state `open` has this binding of `pay`. */
function till(pay: BindingOptions): StateMachineGate<string, string> {
  const config: FsmConfig = {
    id: 'till',
    initial: 'open',
    states: {
      open: { on: { PAID: 'paid', BROKE: 'broken' } },
      paid: { on: { BACK: 'open' } },
      broken: { on: { BACK: 'open' } },
    },
  };
  return new StateMachineGate(config)
    .bindTool('pay', 'open', pay)
    .bindTool('back', ['paid', 'broken'], 'BACK');
}

async function openTill(pay: BindingOptions, options: SceneOptions = {}) {
  const workflow = till(pay);
  const app = await scene({
    shape: STATELESS,
    makeServer: toolServer(TOOLS),
    workflow,
    ...options,
  });
  return { ...app, workflow };
}

describe('the functions of a binding', () => {
  it('are told of the call, the tool, the state, the data and the caller', async () => {
    const told: (SucceededCall | FailedCall)[] = [];
    const note = (call: SucceededCall | FailedCall) => {
      told.push(call);
      expect([call.matches('open'), call.matches('paid')]).toEqual([true, false]);
      return undefined;
    };
    const app = await openTill({ success: note, failure: note });
    const alice = await app.client('alice');
    await app.runs.update(alice.run, () => ({ limit: 5 }));
    await alice.calls('pay', { sum: 1 });
    await alice.raw.call('pay', { sum: 2, fail: true });
    const { principal } = told[0] ?? {};
    expect(principal).toContain('alice');
    const facts = { tool: 'pay', state: 'open', context: { limit: 5 }, principal };
    expect(told).toEqual([
      expect.objectContaining({ ...facts, args: { sum: 1 } }),
      expect.objectContaining({ ...facts, args: { sum: 2, fail: true } }),
    ]);
    expect(app.errors).toEqual([]);
  });

  it('see the data as the handler left them, and decide by them', async () => {
    const handlers: Parameters<typeof toolServer>[1] = {
      pay(args, _, extra) {
        currentStep(extra)?.update(() => ({ rest: Number(args.rest) }));
        return undefined;
      },
    };
    const app = await openTill(
      { success: ({ context }) => ((context as { rest: number }).rest > 0 ? undefined : 'PAID') },
      { makeServer: toolServer(TOOLS, handlers) },
    );
    const client = await app.client();
    await client.calls('pay', { rest: 3 });
    await app.run(client.run).isIn('open');
    await client.calls('pay', { rest: 0 });
    await app.run(client.run).isIn('paid');
  });

  it('are tried before the call, so that an unclear argument is refused', async () => {
    const app = await openTill({
      success: ({ args, context, principal, tool, matches }) => {
        const isOpen = matches('open') && (context as { open: boolean }).open;
        return isOpen && principal !== undefined && tool === 'pay' && args.close === true
          ? 'PAID'
          : 'BROKE';
      },
    });
    const session = await app.session({ 'x-user': 'alice' });
    await app.runs.update(session.id, () => ({ open: true }));
    expect(reasonOf(await session.call('pay', { Close: true }))).toBe('arguments');
    expect(app.ledger.calls).toEqual([]);
    await app.run(session.id).isIn('open', 'idle');
    await session.call('pay', { close: true });
    await app.run(session.id).isIn('paid');
    expect(app.errors).toEqual([]);
  });

  it("refuse nothing for an argument that no function reads in the run's state", async () => {
    const app = await openTill({ success: ({ args }) => (args.close === true ? 'PAID' : 'BROKE') });
    const session = await app.session();
    await session.call('pay', { close: true });
    expect(reasonOf(await session.call('pay', { Close: true }))).toBe('state');
  });

  it('get a statechart’s context after a task that ended in another process', async () => {
    const told: Json[] = [];
    const machine = setup({ types: { context: {} as { paid: number } } }).createMachine({
      id: 'checkout',
      context: { paid: 7 },
      initial: 'open',
      states: { open: { on: { PAID: 'done' } }, done: {} },
    });
    const workflow = () =>
      new StateMachineGate(machine).bindTool('cart.add_item', 'open', {
        success: ({ context, tool, principal }) => {
          told.push({ paid: context.paid, tool, isKnown: principal !== undefined });
          return 'PAID';
        },
      });
    const tasks = startTasks();
    const { makeServer } = tasks;
    const app = await scene({ makeServer, shape: { mode: 'stateless' }, workflow: workflow() });
    const session = await app.session({ 'x-user': 'alice' });
    const taskId = await createTask(session, 'cart.add_item');
    const beside = await scene({
      makeServer,
      shape: { mode: 'stateless' },
      workflow: workflow(),
      beside: app,
    });
    await tasks.finish(taskId, 'added');
    await beside
      .client({ 'x-user': 'alice', 'mcp-session-id': session.id })
      .then(({ raw }) => raw.client.experimental.tasks.getTask(taskId));
    await app.run(session.id).isIn('done', 'idle');
    expect(told).toEqual([{ paid: 7, tool: 'cart.add_item', isKnown: true }]);
  });
});

describe('matches() of a guard', () => {
  const machine = setup({ types: { tags: {} as 'money' } }).createMachine({
    id: 'order',
    type: 'parallel',
    states: {
      billing: { initial: 'due', states: { due: { tags: 'money' }, paid: {} } },
      packing: { initial: 'waiting', states: { waiting: {}, packed: {} } },
    },
  });

  it('finds states, parent states and tags', async () => {
    const said: unknown[] = [];
    const workflow = new StateMachineGate(machine).bindTool('pay', 'billing', {
      guard: ({ matches }) => {
        said.push(
          matches('billing'),
          matches('billing.due'),
          matches({ tag: 'money' }),
          matches('billing.paid'),
        );
        return matches('packing.waiting') && !matches('packing.packed');
      },
    });
    const app = await scene({ shape: STATELESS, makeServer: toolServer(TOOLS), workflow });
    const client = await app.client();
    await client.calls('pay');
    expect(said).toEqual([true, true, true, false]);
  });

  it.each([
    ['a state', 'paidd', 'matches(): got "paidd", which is no state of workflow "till"'],
    ['a tag', { tag: 'money' }, 'matches(): got "money", which is no tag of workflow "till"'],
    ['nothing', undefined, 'matches(): expected one state or more, got undefined'],
  ])('refuses the call where %s is asked for that there is not', async (_, asked, fault) => {
    const app = await openTill({ guard: ({ matches }) => !matches(asked as string) });
    const client = await app.client();
    await client.isRefused('pay', 'guard');
    expect(app.errors.map(String).join()).toContain(fault);
    expect(app.ledger.calls).toEqual([]);
    await app.run(client.run).isIn('open', 'idle');
  });

  it('works in guards of prompts and resources too', async () => {
    const asked: GuardedCall[] = [];
    const workflow = till({}).bindPrompt('order.summary', ['open', 'paid'], {
      guard: (call) => asked.push(call) > 0 && call.matches('open'),
    });
    const app = await scene({ workflow });
    const client = await app.client();
    await client.raw.client.getPrompt({ name: 'order.summary' }).catch(() => {});
    expect(asked.map(({ matches, tool }) => [tool, matches('open')])).toEqual([
      ['order.summary', true],
    ]);
  });
});

describe('retries', () => {
  const fails = { fail: true };

  it.each([
    ['0', 0],
    ['a part', 1.5],
    ['no number', 'three'],
  ])('must be a whole number of at least 1, and are not %s', (_, retries) => {
    expect(() => till({ failure: 'BROKE', retries: retries as number })).toThrow(
      expect.objectContaining({
        code: 'ERR_INTERLOCK_CONFIG',
        message: expect.stringContaining('retries'),
      }),
    );
  });

  it('need a failure event', () => {
    expect(() => till({ success: 'PAID', retries: 2 })).toThrow(
      expect.objectContaining({ message: expect.stringContaining('give "failure" too') }),
    );
  });

  it('keep the run in its state, with an entry each, until the next failure moves it', async () => {
    const app = await openTill({ success: 'PAID', failure: 'BROKE', retries: 2 });
    const client = await app.client();
    for (const state of ['open', 'open', 'broken']) {
      const { isError } = await client.raw.call('pay', fails);
      expect(isError).toBe(true);
      await app.run(client.run).isIn(state, 'idle');
    }
    const trail = await app.runs.history(client.run);
    expect(
      trail.map(({ from, to, event, outcome, kind }) => [from, to, event, outcome, kind]),
    ).toEqual([
      ['open', 'open', null, 'failed', 'tool_error'],
      ['open', 'open', null, 'failed', 'tool_error'],
      ['open', 'broken', 'BROKE', 'failed', 'tool_error'],
    ]);
    expect(replayTrail(app.workflow, trail)).toMatchObject({
      state: 'broken',
      moves: 3,
      faults: [],
    });
  });

  it('are forgotten with the state, and leave no trace in what is saved', async () => {
    const app = await openTill({ success: 'PAID', failure: 'BROKE', retries: 1 });
    const client = await app.client();
    for (let round = 0; round < 3; round++) {
      await client.raw.call('pay', fails);
      await app.run(client.run).isIn('open');
      await client.calls('pay');
      await app.run(client.run).isIn('paid');
      expect((await app.runs.read(client.run))?.snapshot).not.toHaveProperty('context');
      await client.calls('back');
    }
  });

  it('are counted for each tool, apart from the run’s data, and in every process', async () => {
    const gate = () =>
      till({ failure: 'BROKE', retries: 1 }).bindTool('look', 'open', {
        failure: 'BROKE',
        retries: 1,
      });
    const app = await scene({ shape: STATELESS, makeServer: toolServer(TOOLS), workflow: gate() });
    const client = await app.client();
    await client.raw.call('pay', fails);
    await app.runs.update(client.run, () => ({ sum: 3 }));
    const beside = await scene({
      shape: STATELESS,
      makeServer: toolServer(TOOLS),
      workflow: gate(),
      beside: app,
    });
    const there = await beside.client({ 'mcp-session-id': client.run });
    await there.raw.call('look', fails);
    await app.run(client.run).isIn('open');
    expect((await app.runs.read(client.run))?.context).toEqual({ sum: 3 });
    await there.raw.call('pay', fails);
    await app.run(client.run).isIn('broken');
  });

  it('save what the handler of a failed call has changed', async () => {
    const handlers: Parameters<typeof toolServer>[1] = {
      pay(_args, _meta, extra) {
        currentStep(extra)?.update((data) => ({
          tries: Number((data as { tries?: number })?.tries ?? 0) + 1,
        }));
        return undefined;
      },
    };
    const app = await openTill(
      { failure: 'BROKE', retries: 2 },
      { makeServer: toolServer(TOOLS, handlers) },
    );
    const client = await app.client();
    for (const tries of [1, 2, 3]) {
      await client.raw.call('pay', fails);
      expect((await app.runs.read(client.run))?.context).toEqual({ tries });
    }
    await app.run(client.run).isIn('broken');
  });

  it('do not ask the function of the failure before it is sent', async () => {
    const asked: ToolResult[] = [];
    const app = await openTill({
      failure: ({ result = {} }) => {
        asked.push(result);
        return 'BROKE';
      },
      retries: 1,
    });
    const client = await app.client();
    await client.raw.call('pay', fails);
    expect(asked).toEqual([]);
    await client.raw.call('pay', fails);
    expect(asked).toHaveLength(1);
    await app.run(client.run).isIn('broken');
  });

  it('count the failures of tasks, wherever their end is seen', async () => {
    const gate = () =>
      new StateMachineGate({
        id: 'checkout',
        initial: 'open',
        states: { open: { on: { BROKE: 'broken' } }, broken: {} },
      }).bindTool('cart.add_item', 'open', { failure: 'BROKE', retries: 1 });
    const tasks = startTasks();
    const { makeServer } = tasks;
    const app = await scene({ makeServer, shape: { mode: 'stateless' }, workflow: gate() });
    const session = await app.session();
    const ends = async (
      status: 'failed' | 'cancelled',
      seenBy: Pick<RawSession, 'ask'> = session,
    ) => {
      const taskId = await createTask(session, 'cart.add_item');
      if (status === 'cancelled') return session.ask('tasks/cancel', { taskId });
      await tasks.finish(taskId, 'sold out', status);
      return seenBy.ask('tasks/get', { taskId });
    };
    await ends('failed');
    await ends('cancelled');
    await app.run(session.id).isIn('open', 'idle');
    const beside = await scene({
      makeServer,
      shape: { mode: 'stateless' },
      workflow: gate(),
      beside: app,
    });
    await ends('failed', RawSession.resume(beside.url, session.id));
    await app.run(session.id).isIn('broken', 'idle');
  });

  it('do not count an unknown outcome, unless an operator says that it failed', async () => {
    const app = await openTill({ failure: 'BROKE', retries: 1 }, { shape: { answers: 'json' } });
    const client = await app.client();
    for (const state of ['open', 'broken']) {
      const held = await begins(app, 'pay', () => client.raw.call('pay'));
      app.clock.advance(10 * 60_000 + 1);
      await held.answer.catch(() => {});
      app.clock.advance(9_000);
      await app.run(client.run).isIn('open', 'held');
      const resolved = await app.runs.resolve(client.run, 'failed');
      expect(resolved).toEqual({ resolved: true, state });
      held.finish();
    }
    expect(replayTrail(app.workflow, await app.runs.history(client.run)).faults).toEqual([]);
  });

  it('are never exceeded, even by many calls at once', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 3 }),
        fc.array(fc.constantFrom('fails', 'pays', 'backs', 'fails twice'), { maxLength: 12 }),
        async (retries, acts) => {
          const app = await openTill({
            success: ({ args }) => (args.stay === true ? undefined : 'PAID'),
            failure: 'BROKE',
            retries,
          });
          const client = await app.client();
          for (const act of acts) {
            const call = (args: Record<string, unknown>) => client.raw.call('pay', args);
            if (act === 'fails') await call(fails);
            else if (act === 'fails twice')
              await Promise.all([call(fails), call(fails), call({ stay: true })]);
            else if (act === 'pays') await call({});
            else await client.raw.call('back');
          }
          const trail = await app.runs.history(client.run, 100);
          expect(replayTrail(app.workflow, trail).faults).toEqual([]);
          let failures = 0;
          for (const { from, to, outcome, event } of trail) {
            if (outcome === 'failed') failures++;
            expect(failures).toBeLessThanOrEqual(retries + 1);
            if (event === 'BROKE') expect(failures).toBe(retries + 1);
            if (to !== undefined && to !== from) failures = 0;
          }
          await app.close();
        },
      ),
      { numRuns: 12 },
    );
  });
});
