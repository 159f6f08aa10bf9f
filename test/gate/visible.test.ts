import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  currentStep,
  type FsmConfig,
  handleKey,
  principalKey,
  StateMachineGate,
  type ViewedRun,
  type VisibleTest,
} from '../../src/index.ts';
import type { Json } from '../../src/stores/index.ts';
import { few } from '../helpers/few.ts';
import { reasonOf, type WireMessage } from '../helpers/raw.ts';
import { begins, type SceneOptions, scene, sceneOfBothEras } from '../helpers/scene.ts';
import { toolServer } from '../helpers/tool-server.ts';
import { ask, callStateless } from '../helpers/two-eras.ts';

const CONFIG: FsmConfig = {
  id: 'desk',
  initial: 'open',
  states: {
    open: { on: { REVIEW: 'review', JUMP: 'closed' } },
    review: { on: { CLOSE: 'closed', REOPEN: 'open' } },
    closed: { on: { REOPEN: 'open' } },
  },
};
const TOOLS = ['ask', 'audit', 'approve', 'reopen', 'free'];
const STATELESS = { mode: 'stateless', answers: 'json' } as const;

const isAdmin: VisibleTest = ({ principal }) => principal?.includes('admin') === true;
const isVip: VisibleTest = ({ context }) =>
  (context as { vip?: boolean } | undefined)?.vip === true;

/** `audit` is for administrators, `approve` for runs that have reached `review`. */
function desk(audit: VisibleTest = isAdmin): StateMachineGate<string, string> {
  return new StateMachineGate(CONFIG)
    .bindTool('ask', 'open', 'REVIEW')
    .bindTool('audit', ['open', 'review'], { success: 'JUMP', visible: audit })
    .bindTool('approve', 'review', 'CLOSE')
    .bindTool('reopen', ['review', 'closed'], 'REOPEN');
}

/** What a handler may do to the run's data: it makes its client a VIP, or not. */
const handlers: Parameters<typeof toolServer>[1] = {
  ask: (args, _, extra) => {
    if (typeof args.vip === 'boolean')
      currentStep(extra)?.update(() => ({ vip: args.vip === true }));
    return undefined;
  },
};

function openDesk(options: SceneOptions = {}) {
  return scene({
    workflow: desk(),
    makeServer: toolServer(TOOLS, handlers),
    ...options,
  });
}

const factsOf = (result: { meta: Record<string, unknown> }) =>
  result.meta['mcp-interlock/refusal'] as { available: string[]; path?: string[]; reason: string };

describe('a tool that a caller must not see', () => {
  it('is listed for others, and refused as if out of order, without a way to it', async () => {
    const app = await openDesk({ shape: STATELESS });
    const [admin, clerk] = [await app.client('admin'), await app.client('clerk')];
    await admin.sees(['ask', 'audit', 'free']);
    await clerk.sees(['ask', 'free']);
    const refused = await clerk.isRefused('audit', 'state');
    expect(refused.text).toBe(
      '[System: audit is not available while desk is in "open". Available now: ask.]',
    );
    expect(factsOf(refused)).toEqual({
      workflow: 'desk',
      state: 'open',
      tool: 'audit',
      reason: 'state',
      available: ['ask'],
    });
    expect(app.ledger.calls).toEqual([]);
    await app.run(clerk.run).isIn('open', 'idle');
    await admin.calls('audit');
    await app.run(admin.run).isIn('closed');
    expect(app.errors).toEqual([]);
  });

  it('is on no way that a refusal names: it names a longer one', async () => {
    const app = await openDesk({ shape: STATELESS, workflow: desk().bindTool('free', 'closed') });
    const [admin, clerk] = [await app.client('admin'), await app.client('clerk')];
    expect(factsOf(await admin.isRefused('free', 'state')).path).toEqual(['audit']);
    const told = await clerk.isRefused('free', 'state');
    expect(factsOf(told).path).toEqual(['ask', 'approve']);
    expect(told.text).not.toContain('audit');
  });

  it('is not called out of reach if only its client must not see it', async () => {
    const workflow = desk().bindTool('free', 'closed', { visible: isAdmin });
    const app = await openDesk({ shape: STATELESS, workflow });
    const clerk = await app.client('clerk');
    const refused = await clerk.isRefused('free', 'state');
    expect(refused.text).toBe(
      '[System: free is not available while desk is in "open". Available now: ask.]',
    );
    expect(factsOf(refused)).not.toHaveProperty('path');
  });

  it('is named neither when a move is announced nor by the status tool nor by read()', async () => {
    const gate = { announce: true, statusTool: 'where' };
    const app = await openDesk({ shape: STATELESS, gate });
    for (const [user, available] of [
      ['admin', ['audit', 'approve', 'reopen']],
      ['clerk', ['approve', 'reopen']],
    ] as const) {
      const client = await app.client(user);
      const { text } = await client.calls('ask');
      expect(text).toContain(`Available now: ${available.join(', ')}.`);
      expect(text.includes('audit')).toBe(user === 'admin');
      const status = await client.calls('where');
      expect(status.text.includes('audit')).toBe(user === 'admin');
      expect((await app.runs.read(client.run))?.available).toEqual(available);
    }
    const { runs } = await app.runs.stuck({ forMs: 0 });
    expect(runs.map(({ available }) => available)).toEqual([
      ['approve', 'reopen'],
      ['approve', 'reopen'],
    ]);
  });

  it('is nothing that the status tool waits for', async () => {
    const config: FsmConfig = { initial: 'a', states: { a: { on: { GO: 'b' } }, b: {} } };
    const gate = (visible: VisibleTest) =>
      new StateMachineGate(config).bindTool('audit', 'a', { success: 'GO', visible });
    for (const [visible, waits] of [
      [() => true, undefined],
      [() => false, { what: 'event', events: ['GO'] }],
    ] as const) {
      const app = await openDesk({
        shape: STATELESS,
        workflow: gate(visible),
        gate: { statusTool: 'where' },
      });
      const session = await app.session();
      const { result } = await session.call('where');
      expect(result.structuredContent.workflows[0].waitsFor).toEqual(waits);
    }
  });

  it('is not named as the last call, nor as what holds the run', async () => {
    let isShown = true;
    const options = {
      gate: { statusTool: 'where', maxStepMs: 60_000 },
      shape: { answers: 'json' },
    } as const;
    const workflow = desk(() => isShown).bindTool('free', 'closed', 'REOPEN');
    const app = await openDesk({ ...options, workflow });
    const client = await app.client();
    await client.calls('audit');
    await client.calls('free');
    const held = await begins(app, 'audit', () => client.raw.call('audit'));
    const status = async () => (await client.calls('where')).text;
    expect(await status()).toMatch(/A call of audit is running.*audit succeeded/s);
    isShown = false;
    expect(await status()).toContain('A call of another tool is running.');
    expect(await status()).not.toContain('audit');
    app.clock.advance(60_001);
    await held.answer.catch(() => {});
    app.clock.advance(9_000);
    const { text } = await client.isRefused('ask', 'held');
    expect(text).toContain('an earlier call of another tool ended with an unknown outcome');
    expect(await status()).not.toContain('audit');
    isShown = true;
    expect((await client.isRefused('ask', 'held')).text).toContain(
      'an earlier call of audit ended',
    );
    held.finish();
  });

  it('looks like a tool that does not exist if refusals do not explain', async () => {
    const app = await openDesk({ gate: { refusal: 'unknown-tool' } });
    const clerk = await app.session({ 'x-user': 'clerk' });
    const answer = async (tool: string) => {
      const { id: _, ...told } = await clerk.call(tool);
      return JSON.parse(JSON.stringify(told).replaceAll(tool, 'NAME')) as WireMessage;
    };
    expect(await answer('audit')).toEqual(await answer('nonet'));
    expect(app.ledger.calls).toEqual([]);
    const admin = await app.session({ 'x-user': 'admin' });
    expect((await admin.call('audit')).result.isError).toBeUndefined();
  });

  it('looks so too if it becomes hidden while its call waits', async () => {
    const workflow = desk(isVip);
    const app = await openDesk({ workflow, gate: { refusal: 'unknown-tool' } });
    const session = await app.session();
    await app.runs.update(session.id, () => ({ vip: true }));
    const first = await begins(app, 'ask', () => session.call('ask', { vip: false }));
    const second = session.call('audit');
    await app.isServing(2);
    first.finish();
    await first.answer;
    expect(JSON.stringify(await second)).not.toContain('System');
    expect(app.ledger.calls).toEqual(['ask']);
  });

  it('does not begin an ended run anew', async () => {
    const config: FsmConfig = {
      id: 'desk',
      initial: 'open',
      states: { open: { on: { GO: 'done' } }, done: { type: 'final' } },
    };
    const workflow = new StateMachineGate(config)
      .bindTool('ask', 'open', 'GO')
      .bindTool('audit', 'open', { success: 'GO', visible: isAdmin });
    const session = { key: principalKey() };
    const app = await openDesk({ shape: STATELESS, workflow, session });
    const clerk = await app.client('clerk');
    await clerk.calls('ask');
    await clerk.sees(TOOLS.filter((tool) => tool !== 'audit'));
    app.store.take();
    await clerk.isRefused('audit', 'state');
    expect(app.store.take()).not.toContain('commit');
    expect(app.ledger.calls).toEqual(['ask']);
    await clerk.calls('ask');
  });
});

describe('what `visible` is told', () => {
  it('is the run, its state, its data and its caller', async () => {
    const told: ViewedRun[] = [];
    const workflow = desk((run) => told.push(run) > 0 && run.matches('open'));
    const app = await openDesk({ shape: STATELESS, workflow });
    const client = await app.client('clerk');
    await app.runs.update(client.run, () => ({ sum: 1 }));
    told.length = 0;
    await client.sees(['ask', 'audit', 'free']);
    expect(told).toEqual([
      {
        run: client.run,
        principal: expect.stringContaining('clerk'),
        state: 'open',
        context: { sum: 1 },
        matches: expect.any(Function),
      },
    ]);
    await client.calls('ask');
    await client.sees(['approve', 'reopen', 'free']);
  });

  it.each<[string, () => unknown, string]>([
    [
      'throws',
      () => {
        throw new Error('no roles today');
      },
      'no roles today',
    ],
    ['promises', async () => true, 'returned an object, no boolean'],
    ['promises in vain', () => Promise.reject(new Error('late')), 'no boolean'],
    ['says nothing', () => undefined, 'returned undefined, no boolean'],
    ['says something true', () => 1, 'returned 1, no boolean'],
  ])('hides the tool where it %s, and onError is told', async (_, visible, told) => {
    const app = await openDesk({ shape: STATELESS, workflow: desk(visible as VisibleTest) });
    const client = await app.client();
    await client.sees(['ask', 'free']);
    await client.isRefused('audit', 'state');
    expect(app.errors.map(String).join()).toContain(told);
    expect(app.ledger.calls).toEqual([]);
  });

  it('must be a function', () => {
    const bind = () => desk().bindTool('x', 'open', { visible: true as never });
    expect(bind).toThrow(expect.objectContaining({ code: 'ERR_INTERLOCK_CONFIG' }));
  });
});

describe('several bindings of a tool', () => {
  it('are seen where one of them is available and says yes', async () => {
    const workflow = new StateMachineGate(CONFIG)
      .bindTool('ask', 'open', 'REVIEW')
      .bindTool('audit', 'open')
      .bindTool('audit', 'review', { visible: isAdmin });
    const app = await openDesk({ shape: STATELESS, workflow });
    for (const [user, sees] of [
      ['admin', true],
      ['clerk', false],
    ] as const) {
      const client = await app.client(user);
      await client.calls('audit');
      await client.calls('ask');
      expect((await client.raw.tools()).includes('audit')).toBe(sees);
      if (sees) await client.calls('audit');
      else await client.isRefused('audit', 'state');
    }
  });

  it('of some calls each leave the tool shown, and refuse what its caller may not do', async () => {
    const workflow = new StateMachineGate(CONFIG)
      .bindTool('audit', 'open', { when: ({ act }) => act === 'wipe', visible: isAdmin })
      .bindTool('audit', 'open', { when: ({ act }) => act === 'look' });
    const app = await openDesk({ shape: STATELESS, workflow });
    const clerk = await app.client('clerk');
    expect(await clerk.raw.tools()).toContain('audit');
    await clerk.calls('audit', { act: 'look' });
    await clerk.calls('audit', { act: 'other' });
    await clerk.isRefused('audit', 'state', { act: 'wipe' });
    const admin = await app.client('admin');
    await admin.calls('audit', { act: 'wipe' });
  });
});

describe('a change of the data alone', () => {
  it('from outside tells the clients that their list changed', async () => {
    const app = await openDesk({ workflow: desk(isVip) });
    const client = await app.client();
    await client.raw.streaming;
    await client.sees(['ask', 'free']);
    await app.runs.update(client.run, () => ({ vip: true }));
    await client.isTold(1);
    await client.sees(['ask', 'audit', 'free']);
    await app.runs.update(client.run, () => ({ vip: true }));
    await app.runs.update(client.run, () => ({ vip: false }));
    await client.isTold(2);
    await client.sees(['ask', 'free']);
  });

  it.each(['succeeded', 'failed'] as const)(
    'by a handler whose call %s tells so too',
    async (outcome) => {
      const workflow = new StateMachineGate(CONFIG)
        .bindTool('ask', 'open', { success: () => undefined })
        .bindTool('audit', 'open', { visible: isVip });
      const app = await openDesk({ workflow });
      const session = await app.session();
      const { messages } = await session.post({
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: { name: 'ask', arguments: { vip: true, fail: outcome === 'failed' } },
      });
      expect(messages.map(({ method, id }) => method ?? id)).toEqual([
        'notifications/tools/list_changed',
        1,
      ]);
      expect(await session.tools()).toContain('audit');
    },
  );

  it('tells no client if all clients see everything, or if the data stay the same', async () => {
    for (const workflow of [
      desk(isVip),
      new StateMachineGate(CONFIG).bindTool('ask', 'open', { success: () => undefined }),
    ]) {
      const app = await openDesk({ workflow });
      const client = await app.client();
      await client.raw.streaming;
      await app.runs.update(client.run, (data) => data);
      await client.raw.tools();
      expect(client.told).toBe(0);
    }
  });
});

describe('lists that are kept', () => {
  it('show no caller what only another one sees, even in the same state', async () => {
    const listCache = { shared: true };
    const app = await openDesk({ shape: STATELESS, gate: { listCache } });
    const [admin, clerk] = [await app.client('admin'), await app.client('clerk')];
    for (let round = 0; round < 3; round++) {
      await admin.sees(['ask', 'audit', 'free']);
      await clerk.sees(['ask', 'free']);
    }
  });

  it('are kept for their own caller alone, even if they are the same in all states', async () => {
    const app = await openDesk({ shape: STATELESS, gate: { visibility: 'stable' } });
    const [admin, clerk] = [await app.client('admin'), await app.client('clerk')];
    for (let round = 0; round < 3; round++) {
      await admin.sees(['ask', 'audit', 'approve', 'reopen', 'free']);
      await clerk.sees(['ask', 'approve', 'reopen', 'free']);
    }
    await clerk.isRefused('audit', 'state');
    await clerk.calls('ask');
    await clerk.sees(['ask', 'approve', 'reopen', 'free']);
  });
});

describe('a list that is the same in all states', () => {
  it('is about a new run that has no key, also where calls name their runs', async () => {
    const told: ViewedRun[] = [];
    const workflow = new StateMachineGate(CONFIG).bindTool('cart.pay', 'review', {
      visible: (run) => told.push(run) > 0 && run.principal?.includes('admin') === true,
    });
    const key = handleKey('desk', { createdBy: 'cart.view' });
    const app = await sceneOfBothEras({ workflow, session: { key } });
    for (const user of ['admin', 'clerk']) {
      const { messages } = await ask(app.url, 'tools/list', {}, { user });
      const names = ((messages[0]?.result?.tools ?? []) as WireMessage[]).map(({ name }) => name);
      expect(names.includes('cart.pay')).toBe(user === 'admin');
    }
    expect(new Set(told.map(({ state }) => state))).toEqual(new Set(['open']));
    expect(told.every((run) => !('run' in run))).toBe(true);
  });

  it('names no tool on its ways that some caller must not see', async () => {
    const workflow = new StateMachineGate(CONFIG)
      .bindTool('audit', 'open', { success: 'JUMP', visible: isAdmin })
      .bindTool('reopen', 'closed', 'REOPEN');
    const app = await openDesk({ shape: STATELESS, workflow, gate: { visibility: 'stable' } });
    const session = await app.session({ 'x-user': 'clerk' });
    const { result } = await session.ask('tools/list');
    expect(JSON.stringify(result)).not.toContain('audit');
    const reopen = (result.tools as WireMessage[]).find(({ name }) => name === 'reopen');
    expect(reopen?.description).toBe('[System: Available only while desk is in "closed".]');
  });

  it('is private in the stateless era', async () => {
    const workflow = new StateMachineGate(CONFIG)
      .bindTool('cart.add_item', 'open', 'REVIEW')
      .bindTool('cart.pay', 'open', { visible: isAdmin });
    const app = await sceneOfBothEras({ workflow, session: { key: principalKey() } });
    const listOf = async (user: string) => {
      const { messages } = await ask(app.url, 'tools/list', {}, { user });
      const { tools, cacheScope } = messages[0]?.result ?? {};
      return [((tools ?? []) as WireMessage[]).some(({ name }) => name === 'cart.pay'), cacheScope];
    };
    expect(await listOf('admin')).toEqual([true, 'private']);
    expect(await listOf('clerk')).toEqual([false, 'private']);
    const { isError } = await callStateless(app.url, 'cart.pay', {}, { user: 'clerk' });
    expect(isError).toBe(true);
    expect(app.calls).toEqual([]);
  });
});

describe('a race for what is shown', () => {
  it('is decided by the data that the call before has left', async () => {
    const app = await openDesk({ workflow: desk(isVip), shape: { answers: 'json' } });
    const session = await app.session();
    await app.runs.update(session.id, () => ({ vip: true }));
    const first = await begins(app, 'ask', () => session.call('ask', { vip: false }));
    const second = session.call('audit');
    await app.isServing(2);
    first.finish();
    await first.answer;
    expect(reasonOf(await second)).toBe('state');
    expect(app.ledger.calls).toEqual(['ask']);
  });
});

describe('for any caller and any run', () => {
  const users = ['admin', 'clerk'] as const;
  const tests: Readonly<Record<string, VisibleTest>> = {
    none: () => true,
    nobody: () => false,
    admin: isAdmin,
    vip: isVip,
    review: ({ matches }) => matches('review'),
    odd: ({ run = '', state }) => (run.length + state.length) % 2 === 0,
    throws: ({ context }) => {
      if (context === undefined) throw new Error('no data');
      return true;
    },
  };
  const bindings = fc.array(
    fc.record({
      tool: fc.constantFrom('ask', 'audit', 'approve', 'reopen'),
      states: fc.subarray(['open', 'review', 'closed'], { minLength: 1 }),
      event: fc.constantFrom('REVIEW', 'CLOSE', 'REOPEN', 'JUMP', undefined),
      visible: fc.constantFrom(...Object.keys(tests), undefined),
    }),
    { minLength: 1, maxLength: 6 },
  );

  it('the list and all advice have exactly the tools whose calls are let through', async () => {
    await fc.assert(
      fc.asyncProperty(
        bindings,
        fc.array(fc.constantFrom('ask', 'audit', 'approve', 'reopen', 'vip', 'poor'), {
          maxLength: 5,
        }),
        fc.constantFrom(...users),
        async (bound, acts, user) => {
          const workflow = new StateMachineGate(CONFIG);
          for (const { tool, states, event, visible } of bound) {
            const test = visible === undefined ? undefined : tests[visible];
            workflow.bindTool(tool, states, { success: event, visible: test });
          }
          const app = await openDesk({ shape: STATELESS, workflow });
          const session = await app.session({ 'x-user': user });
          for (const act of acts) {
            const data: Record<string, Json> = { vip: { vip: true }, poor: {} };
            if (data[act] === undefined) await session.call(act);
            else await app.runs.update(session.id, () => data[act]);
          }
          const gated: string[] = [...new Set(bound.map(({ tool }) => tool))];
          const listed = (await session.tools()).filter((tool) => gated.includes(tool));
          const view = await app.runs.read(session.id);
          expect([...(view?.available ?? [])].sort()).toEqual([...listed].sort());
          for (const tool of gated) {
            const { result } = await session.call(tool);
            const facts = result._meta?.['mcp-interlock/refusal'];
            expect(facts === undefined, tool).toBe(listed.includes(tool));
            if (facts !== undefined) {
              expect([...facts.available].sort()).toEqual([...listed].sort());
              continue;
            }
            // The call may have moved the run to where other tools are shown.
            const now = (await session.tools()).filter((each) => gated.includes(each));
            if (now.join() !== listed.join()) break;
          }
          await app.close();
        },
      ),
      few(12),
    );
  });
});

describe('a gate without any `visible`', () => {
  it('asks nothing of the caller', () => {
    const workflow = new StateMachineGate(CONFIG).bindTool('ask', 'open').compile();
    const viewer = { run: undefined, principal: undefined, onError: () => {} };
    expect([workflow.hides, workflow.sight(workflow.start, viewer)]).toEqual([false, undefined]);
  });

  it('on its own asks about no run', () => {
    const gate = desk(({ run, state }) => run === undefined && state === 'open');
    expect(gate.getVisibleToolNames(TOOLS)).toEqual(['ask', 'audit', 'free']);
    expect(gate.isToolAllowed('audit')).toBe(true);
    expect(desk().isToolAllowed('audit')).toBe(false);
  });
});
