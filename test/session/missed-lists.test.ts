import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { RequestHandler } from 'express';
import fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import { principalKey } from '../../src/index.ts';
import { MissedLists } from '../../src/session/audiences.ts';
import type { ListKind } from '../../src/wire/json-rpc.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { type RawSession, type RawStream, stream } from '../helpers/raw.ts';
import { pass, type Scene, scene, sceneOfBothEras, settle } from '../helpers/scene.ts';
import { ask, callStateless, stateless } from '../helpers/two-eras.ts';
import { cartServer, type Ledger } from '../helpers/upstream.ts';

/**
 * Longer than `sessionCacheMs`, and than the longest pause before a store is asked again.
 */
const MINUTE = 60_000;
const LIST = { jsonrpc: '2.0', id: 'list', method: 'tools/list' };

const changesOn = ({ messages }: Pick<RawStream, 'messages'>): string[] =>
  messages.map(({ method }) => String(method)).filter((each) => each.includes('list_changed'));

async function listen(session: RawSession): Promise<RawStream> {
  const listening = await session.listen();
  onTestFinished(() => listening.cut());
  return listening;
}

/**
 * A session at `payment` that listens, and that got a list while the store could not be asked.
 */
async function blind(app: Scene): Promise<{ session: RawSession; told: RawStream }> {
  const session = await app.session();
  for (const tool of ['cart.add_item', 'cart.checkout']) await session.call(tool);
  const told = await listen(session);
  app.clock.advance(MINUTE);
  app.store.fail('read');
  expect(await session.tools()).toEqual(['cart.view']);
  return { session, told };
}

describe('a client that got a list while the store could not be asked', () => {
  it.each(['stateful', 'stateless'] as const)(
    'is told once that it changed, as soon as the store is back (%s)',
    async (mode) => {
      const app = await scene({ shape: { mode } });
      const { session, told } = await blind(app);
      await pass(app.clock, MINUTE);
      expect(changesOn(told)).toEqual([]);
      app.store.heal();
      await pass(app.clock, MINUTE);
      await expect.poll(() => changesOn(told)).toEqual(['notifications/tools/list_changed']);
      expect(await session.tools()).toEqual(['cart.pay', 'cart.view']);
      await pass(app.clock, 10 * MINUTE);
      expect(changesOn(told)).toHaveLength(1);
    },
  );

  it('is told again where the store fails again before the client lists', async () => {
    const app = await scene();
    const { session, told } = await blind(app);
    app.store.heal();
    await pass(app.clock, MINUTE);
    await expect.poll(() => changesOn(told)).toHaveLength(1);
    app.clock.advance(MINUTE);
    app.store.fail('read');
    expect(await session.tools()).toEqual(['cart.view']);
    app.store.heal();
    await pass(app.clock, MINUTE);
    await expect.poll(() => changesOn(told)).toHaveLength(2);
  });

  it('is told when its next stream opens, where it has none', async () => {
    let closed = 0;
    const countClosed: RequestHandler = (req, res, next) => {
      if (req.method === 'GET') res.on('close', () => closed++);
      next();
    };
    const app = await scene({ before: [countClosed] });
    const { session, told } = await blind(app);
    told.cut();
    await expect.poll(() => closed).toBe(1);
    app.store.heal();
    await pass(app.clock, MINUTE);
    const next = await listen(session);
    await expect.poll(() => changesOn(next)).toHaveLength(1);
  });

  it('is forgotten with its session', async () => {
    const app = await scene({ shape: { mode: 'stateless' } });
    const { session, told } = await blind(app);
    app.store.take();
    await pass(app.clock, MINUTE);
    expect(app.store.take()).toContain('read');
    expect((await session.end()).status).toBe(200);
    await expect.poll(() => told.ended).toBe(true);
    app.store.take();
    await pass(app.clock, 10 * MINUTE);
    expect(app.store.take()).toEqual([]);
  });

  it('is told of each kind of list that it got', async () => {
    const shop = (ledger: Ledger): McpServer => {
      const server = cartServer(ledger);
      server.registerPrompt('summary', {}, () => ({ messages: [] }));
      server.registerResource('receipt', 'docs://receipt', {}, () => ({ contents: [] }));
      return server;
    };
    const workflow = checkoutGate()
      .bindPrompt('summary', 'payment')
      .bindResource('docs://**', 'payment');
    const app = await scene({ makeServer: shop, workflow });
    const { session, told } = await blind(app);
    expect((await session.ask('prompts/list')).result.prompts).toEqual([]);
    expect((await session.ask('resources/list')).result.resources).toEqual([]);
    app.store.heal();
    await pass(app.clock, MINUTE);
    await expect
      .poll(() => changesOn(told).sort())
      .toEqual([
        'notifications/prompts/list_changed',
        'notifications/resources/list_changed',
        'notifications/tools/list_changed',
      ]);
    expect((await session.ask('prompts/list')).result.prompts).toHaveLength(1);
  });

  it('is told nothing where its list hides nothing', async () => {
    const app = await scene({ gate: { visibility: 'stable' } });
    const session = await app.session();
    const told = await listen(session);
    app.clock.advance(MINUTE);
    app.store.fail('read');
    expect(await session.tools()).toContain('cart.pay');
    app.store.heal();
    await pass(app.clock, MINUTE);
    await session.tools();
    expect(changesOn(told)).toEqual([]);
  });

  it('is told on its subscription, where there are no sessions', async () => {
    const app = await sceneOfBothEras({
      session: { key: principalKey() },
      gate: { visibility: 'hide' },
      serverOptions: { capabilities: { tools: { listChanged: false } } },
    });
    await callStateless(app.url, 'cart.add_item', {}, { user: 'ann' });
    const listening = stateless(
      'subscriptions/listen',
      { notifications: { toolsListChanged: true } },
      { user: 'ann' },
    );
    const told = await stream(app.url, listening);
    onTestFinished(() => told.cut());
    await expect.poll(() => told.messages.length).toBe(1);
    app.store.fail('read');
    const { messages } = await ask(app.url, 'tools/list', {}, { user: 'ann' });
    expect(messages[0]?.result.tools.map(({ name }: { name: string }) => name)).toEqual([
      'cart.view',
    ]);
    app.store.heal();
    await pass(app.clock, MINUTE);
    await expect.poll(() => changesOn(told)).toEqual(['notifications/tools/list_changed']);
  });
});

describe('a store that is away', () => {
  it('is asked seldom, for any number of lists, and no more once all were told', async () => {
    const app = await scene();
    const sessions = await Promise.all(Array.from({ length: 20 }, () => app.session()));
    const streams = await Promise.all(sessions.map(listen));
    app.clock.advance(MINUTE);
    app.store.fail('read');
    await Promise.all(sessions.map((session) => session.post(LIST)));
    app.store.take();
    await pass(app.clock, 10 * MINUTE);
    // In the end every 15 s, once for all of them.
    expect(app.store.take().length).toBeLessThan(50);
    app.store.heal();
    await pass(app.clock, MINUTE);
    await expect
      .poll(() => streams.map((each) => changesOn(each).length))
      .toEqual(streams.map(() => 1));
    app.store.take();
    await pass(app.clock, 10 * MINUTE);
    expect(app.store.take()).toEqual([]);
  });
});

describe('the runs whose lists were missed', () => {
  /** The missed lists of a store that a test breaks and mends. */
  function watch(maxRuns = 10_000) {
    const clock = new ManualClock();
    const told: [string, readonly ListKind[]][] = [];
    const asked: number[] = [];
    const errors: unknown[] = [];
    const state = { away: true, asking: 0 };
    const missed = new MissedLists({
      clock,
      maxRuns,
      ttlOf: () => 1,
      store: {
        read: async () => {
          asked.push(clock.now());
          expect(++state.asking).toBe(1);
          await undefined;
          state.asking--;
          if (state.away) throw new Error('away');
          return undefined;
        },
      },
      notify: (run, lists) => {
        if (run === 'broken') throw new Error('nobody can be told');
        told.push([run, lists]);
      },
      onError: (error) => void errors.push(error),
    });
    return { clock, told, asked, errors, state, missed };
  }

  it('are told once each, of all their lists, by one timer, however the store fails', async () => {
    const kinds = ['tools', 'prompts', 'resources'] as const;
    const events = fc.array(
      fc.oneof(
        fc.record({ run: fc.nat(300), kind: fc.constantFrom(...kinds) }),
        fc.constantFrom('away', 'back'),
        fc.nat(40_000),
      ),
      { maxLength: 60 },
    );
    await fc.assert(
      fc.asyncProperty(events, async (all) => {
        const { clock, told, state, missed } = watch();
        const due = new Map<string, Set<ListKind>>();
        const settled = async (ms: number): Promise<void> => {
          for (let left = ms; left > 0; left -= 100) {
            clock.advance(Math.min(left, 100));
            for (let turn = 0; turn < 6; turn++) await undefined;
            expect(clock.pending).toBeLessThanOrEqual(1);
          }
          for (const [run, lists] of told.splice(0)) {
            expect(new Set(lists)).toEqual(due.get(run));
            due.delete(run);
          }
        };
        for (const event of all) {
          if (typeof event === 'number') await settled(event);
          else if (typeof event === 'string') state.away = event === 'away';
          else {
            await settled(0);
            const run = `run ${event.run}`;
            due.set(run, new Set([...(due.get(run) ?? []), event.kind]));
            missed.add(run, [event.kind]);
          }
        }
        state.away = false;
        await settled(60_000);
        expect([...due]).toEqual([]);
        const { rung } = clock;
        clock.advance(10 * MINUTE);
        expect(clock.rung).toBe(rung);
      }),
      { numRuns: 50 },
    );
  });

  it('are told a hundred at a time, to spare a store that is just back', async () => {
    const { clock, told, asked, state, missed } = watch();
    for (let run = 0; run < 250; run++) missed.add(`run ${run}`, ['tools']);
    state.away = false;
    const seen: number[] = [];
    for (let i = 0; i < 4; i++) {
      clock.advance(i === 0 ? 500 : 100);
      await settle(2);
      seen.push(told.length);
    }
    expect(seen).toEqual([100, 200, 250, 250]);
    expect(asked).toHaveLength(3);
  });

  it('are maxRuns at most, the newest ones', async () => {
    const { clock, told, state, missed } = watch(2);
    for (const run of ['a', 'b', 'c']) missed.add(run, ['tools']);
    state.away = false;
    await pass(clock, 1000);
    expect(told.map(([run]) => run)).toEqual(['b', 'c']);
  });

  it('are all told, also where telling one of them throws', async () => {
    const { clock, told, errors, state, missed } = watch();
    for (const run of ['broken', 'whole']) missed.add(run, ['tools']);
    state.away = false;
    await pass(clock, 1000);
    expect(told.map(([run]) => run)).toEqual(['whole']);
    expect(String(errors)).toContain('nobody can be told');
  });

  it('do not ask a store that comes and goes more and more often', async () => {
    const { clock, asked, state, missed } = watch();
    for (let round = 0; round < 40; round++) {
      state.away = true;
      missed.add('run', ['tools']);
      await pass(clock, 1000);
      state.away = false;
      await pass(clock, 1000);
    }
    expect(asked.length).toBeLessThan(20);
  });

  it('are left alone once the process ends', async () => {
    const { clock, asked, missed } = watch();
    missed.add('run', ['tools']);
    missed.close();
    await pass(clock, MINUTE);
    expect([asked, clock.rung]).toEqual([[], 0]);
  });
});
