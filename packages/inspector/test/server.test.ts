import { randomUUID } from 'node:crypto';
import {
  type FsmSnapshot,
  InterlockError,
  memoryStore,
  principalKey,
  runDigest,
  type StateMachineGate,
} from 'mcp-interlock';
import { runsOf } from 'mcp-interlock/runs';
import type { AtomicStateStore } from 'mcp-interlock/stores';
import { postgresStore } from 'mcp-interlock/stores/postgres';
import { redisStore } from 'mcp-interlock/stores/redis';
import { sqliteStore } from 'mcp-interlock/stores/sqlite';
import { createClient } from 'redis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { makePostgresSchema } from '../../../test/helpers/postgres-schema.ts';
import { makeSqliteFile } from '../../../test/helpers/sqlite-file.ts';
import { sharedRedis } from '../../../test/services/shared.ts';
import type {
  Overview,
  RunDetail,
  RunPage,
  SearchPage,
  TrailPage,
  WhatIf,
  WorkflowDetail,
} from '../src/api.ts';
import { inspector } from '../src/index.ts';
import { CHECKOUT, checkoutGate, codeOf, hold, put, startSite } from './site.ts';

const STORES: readonly (readonly [name: string, make: () => Promise<AtomicStateStore>])[] = [
  ['memory', async () => memoryStore()],
  [
    'SQLite',
    async () => {
      const file = makeSqliteFile();
      onTestFinished(() => file.remove());
      return sqliteStore({ database: file.connect() });
    },
  ],
  [
    'Redis',
    async () => {
      const client = createClient({ url: await sharedRedis() });
      await client.connect();
      onTestFinished(() => client.destroy());
      return redisStore({ client, prefix: `inspector-${randomUUID()}:` });
    },
  ],
  [
    'PostgreSQL',
    async () => {
      const database = await makePostgresSchema();
      onTestFinished(() => database.drop());
      const store = postgresStore({ pool: database.connect(), schema: database.schema });
      await store.migrate();
      return store;
    },
  ],
];

describe.each(STORES)('on %s', (_, makeStore) => {
  it('shows where runs stand, lists those that need a person, and resolves one', async () => {
    const store = await makeStore();
    const site = await startSite({}, { store });
    await put(store, 'run-held', 'payment');
    await put(store, 'run-idle', 'has_items');
    await hold(store, 'run-held');
    const { body: overview } = await site.get<Overview>('api/workflows');
    expect(overview.workflows).toEqual([
      expect.objectContaining({ key: CHECKOUT, id: 'checkout', store: 'ok' }),
    ]);
    expect(overview.workflows[0]?.counts).toMatchObject({
      runs: 2,
      held: 1,
      running: 0,
      states: [
        { state: 'has_items', active: ['has_items'], runs: 1, stuck: 0 },
        { state: 'payment', active: ['payment'], runs: 1, stuck: 0 },
      ],
    });
    const [held, ...none] = (await site.list('?list=held')).body.runs;
    expect(none).toEqual([]);
    expect(held).toMatchObject({ key: 'run-held', digest: runDigest('run-held'), status: 'held' });
    expect(held?.step).toMatchObject({ tool: 'cart_pay', actor: 'ann', requestId: 7 });
    const open = (await site.list('?state=has_items')).body.runs;
    expect(open.map(({ key }) => key)).toEqual(['run-idle']);
    // What a log names the run by, and a part of the key, find it too.
    for (const text of ['run-held', runDigest('run-held'), 'held'])
      expect((await site.post<SearchPage>(site.of('search'), { text })).body.runs).toEqual([
        expect.objectContaining({ id: held?.id }),
      ]);
    const seen = (await site.get<RunDetail>(site.of(`runs/${held?.id}`))).body;
    expect(seen.step?.resolutions).toEqual([
      { outcome: 'succeeded', event: 'PAY', leadsTo: 'confirmed' },
      { outcome: 'failed', event: 'DECLINED', leadsTo: 'has_items' },
    ]);
    const done = await site.post(site.of(`runs/${held?.id}/resolve`), {
      outcome: 'succeeded',
      step: held?.step?.id,
      note: 'Paid, as the provider says.',
    });
    expect(done).toMatchObject({ status: 200, body: { done: true, state: 'confirmed' } });
    const after = (await site.get<RunDetail>(site.of(`runs/${held?.id}`))).body;
    expect(after).toMatchObject({ ended: true, status: 'idle', state: 'confirmed' });
    expect(after.trail.entries[0]).toMatchObject({
      actor: 'olga',
      calledBy: 'ann',
      note: 'Paid, as the provider says.',
      kind: 'resolved',
      to: 'confirmed',
      toActive: ['confirmed'],
    });
  });

  it('goes through many runs in pages, and gives each of them once', async () => {
    const store = await makeStore();
    const site = await startSite({}, { store });
    for (let i = 0; i < 25; i++) await put(store, `run-${i}`, 'has_items');
    const keys: (string | undefined)[] = [];
    let next: string | undefined;
    do {
      const query = `?limit=10${next === undefined ? '' : `&after=${next}`}`;
      const { body }: { body: RunPage } = await site.list(query);
      expect(JSON.stringify(body.next ?? '')).not.toContain('run-');
      keys.push(...body.runs.map(({ key }) => key));
      next = body.next;
    } while (next !== undefined);
    expect(new Set(keys).size).toBe(25);
    expect(keys).toHaveLength(25);
  });
});

describe('a run', () => {
  it('is told with the tools that its gate does not bind, once a list has shown them', async () => {
    const site = await startSite();
    const session = await site.session();
    await session.call('cart_add_item');
    // Not known is not none.
    expect(await site.look(session.id)).not.toHaveProperty('unbound');
    expect(await session.tools()).toContain('help');
    const seen = await site.look(session.id);
    expect(seen.unbound).toEqual({ count: 1, names: ['help'] });
    const shown = seen.tools.filter((tool) => tool.shown).map(({ tool }) => tool);
    expect([...shown, 'help'].sort()).toEqual((await session.tools()).sort());
    const { body } = await site.post<WhatIf>(site.of('what-if'), {});
    expect(body.unbound).toEqual({ count: 1, names: ['help'] });
  });

  it('is told with what its model sees, and why it does not see the rest', async () => {
    const site = await startSite();
    const session = await site.session();
    await session.call('cart_add_item');
    const seen = await site.look(session.id);
    expect(seen).toMatchObject({ state: 'has_items', active: ['has_items'], version: 1 });
    const pay = seen.tools.find(({ tool }) => tool === 'cart_pay');
    const { result } = await session.call('cart_pay');
    expect(pay).toMatchObject({ shown: false, refusal: { says: result.content[0].text } });
    expect(seen.tools.filter(({ shown }) => shown).map(({ tool }) => tool)).toEqual(
      (await session.tools()).filter((tool) => tool !== 'help'),
    );
  });

  it('says of an ended run that the next call begins it anew, and what its model sees then', async () => {
    const store = memoryStore();
    const run = principalKey().runKey({ issuer: 'https://issuer.example', subject: 'ann' });
    await put(store, run, 'confirmed');
    const seen = await (await startSite({}, { store })).look(run);
    expect(seen).toMatchObject({ state: 'confirmed', ended: true, beginsAnew: true });
    const shown = seen.tools.filter((tool) => tool.shown).map(({ tool }) => tool);
    expect(shown).toEqual(['cart_add_item']);
  });

  it('shows its data as far as the app shares them, and a failing share shows nothing', async () => {
    const store = memoryStore();
    await put(store, 'run', 'payment');
    expect((await (await startSite({}, { store })).look('run')).data).toBeUndefined();
    const share = ({ digest, context }: { digest?: string | undefined; context: unknown }) => ({
      digest: digest ?? null,
      has: Object.keys(context as object),
    });
    const shared = await startSite({ share }, { store });
    expect((await shared.look('run')).data).toEqual({ digest: runDigest('run'), has: ['card'] });
    const failing = await startSite(
      {
        share: () => {
          throw new Error('4111');
        },
      },
      { store },
    );
    const seen = await failing.look('run');
    expect(seen).not.toHaveProperty('data');
    expect(JSON.stringify(seen)).not.toContain('4111');
  });

  it('has its trail in pages, the newest first', async () => {
    const site = await startSite();
    const session = await site.session();
    for (let i = 0; i < 12; i++) await session.call('cart_add_item');
    const id = await site.idOf(session.id);
    const page = (query: string) => site.get<TrailPage>(site.of(`runs/${id}/trail${query}`));
    const seqs: number[] = [];
    let before: number | undefined;
    do {
      const query: string = before === undefined ? '?limit=5' : `?limit=5&before=${before}`;
      const { body }: { body: TrailPage } = await page(query);
      seqs.push(...body.entries.map(({ seq }) => seq));
      before = body.before;
    } while (before !== undefined);
    expect(seqs).toEqual([12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
  });

  it('is moved by an event, restarted and deleted, each where it is as it was seen', async () => {
    const site = await startSite();
    const session = await site.session();
    await session.call('cart_add_item');
    const id = await site.idOf(session.id);
    const act = (deed: string, body: unknown) => site.post(site.of(`runs/${id}/${deed}`), body);
    const stale = await act('send', { event: 'CLEAR', version: 0 });
    expect([stale.status, codeOf(stale)]).toEqual([409, 'conflict']);
    expect(codeOf(await act('send', { event: 'PAY', version: 1 }))).toBe('conflict');
    expect((await act('send', { event: 'CLEAR', version: 1 })).body).toEqual({
      done: true,
      state: 'empty',
    });
    await session.call('cart_add_item');
    expect((await act('restart', { version: 3 })).body).toEqual({ done: true, state: 'empty' });
    const { entries } = (await site.look(session.id)).trail;
    expect(entries.map(({ actor }) => actor)).toEqual(['olga', undefined, 'olga', undefined]);
    expect(codeOf(await act('delete', { digest: 'of another run' }))).toBe('bad-request');
    expect((await act('delete', { digest: runDigest(session.id) })).body).toEqual({ done: true });
    expect(codeOf(await site.get(site.of(`runs/${id}`)))).toBe('unknown');
    expect(codeOf(await act('delete', { digest: runDigest(session.id) }))).toBeUndefined();
  });

  it('is not deleted while it is held, and says when its session ended', async () => {
    const store = memoryStore();
    const site = await startSite({}, { store });
    await put(store, 'run', 'payment');
    await hold(store, 'run');
    await store.end('run');
    const { id, step, sessionEnded } = await site.look('run');
    expect(sessionEnded).toBe(true);
    const remove = () => site.post(site.of(`runs/${id}/delete`), { digest: runDigest('run') });
    const refused = await remove();
    expect([refused.status, codeOf(refused)]).toEqual([409, 'conflict']);
    expect((await site.look('run')).status).toBe('held');
    await site.post(site.of(`runs/${id}/resolve`), { outcome: 'failed', step: step?.id });
    expect((await remove()).body).toEqual({ done: true });
    expect(codeOf(await site.get(site.of(`runs/${id}`)))).toBe('unknown');
  });

  it('shows nothing of the chain that its trail has', async () => {
    const site = await startSite({}, { store: memoryStore({ chainTrail: true }) });
    const session = await site.session();
    await session.call('cart_add_item');
    const [entry] = (await site.look(session.id)).trail.entries;
    expect(Object.keys(entry ?? {})).not.toEqual(
      expect.arrayContaining([expect.stringMatching(/hash|previous|digest/)]),
    );
  });

  it('is not resolved for a call that came after the one that was looked at', async () => {
    const store = memoryStore();
    const site = await startSite({}, { store });
    await put(store, 'run', 'payment');
    await hold(store, 'run');
    const first = await site.look('run');
    const resolve = (body: object) => site.post(site.of(`runs/${first.id}/resolve`), body);
    const answer = { outcome: 'failed', step: first.step?.id };
    expect((await resolve(answer)).body).toEqual({ done: true, state: 'has_items' });
    await hold(store, 'run', 'cart_checkout');
    const late = await resolve(answer);
    expect([late.status, codeOf(late)]).toEqual([409, 'conflict']);
    expect((await site.look('run')).status).toBe('held');
    const typo = {
      outcome: 'succeeded',
      step: (await site.look('run')).step?.id,
      event: 'CHEKOUT',
    };
    expect(codeOf(await resolve(typo))).toBe('bad-request');
    expect((await site.look('run')).status).toBe('held');
  });

  it('asks for the event of a held call where only the call could tell it', async () => {
    const store = memoryStore();
    const gate = checkoutGate().bindTool('cart_choose', 'payment', {
      success: () => 'PAY',
    }) as StateMachineGate;
    const site = await startSite({}, { store, gate });
    await put(store, 'run', 'payment');
    await hold(store, 'run', 'cart_choose');
    const { id, step } = await site.look('run');
    expect(step?.resolutions?.[0]).toEqual({ outcome: 'succeeded' });
    const path = site.of(`runs/${id}/resolve`);
    const answer = { outcome: 'succeeded', step: step?.id };
    expect(codeOf(await site.post(path, answer))).toBe('choose-event');
    const chosen = await site.post(path, { ...answer, event: 'CANCEL' });
    expect(chosen.body).toEqual({ done: true, state: 'has_items' });
  });
});

describe('a what-if', () => {
  it('goes through the machine, call by call, and touches no run', async () => {
    const site = await startSite({ share: ({ context }) => context });
    const session = await site.session();
    await session.call('cart_add_item');
    const id = await site.idOf(session.id);
    const ask = async (body: unknown) => (await site.post<WhatIf>(site.of('what-if'), body)).body;
    const stood = await ask({ from: { run: id } });
    expect(stood).toMatchObject({ result: 'stayed', state: 'has_items', active: ['has_items'] });
    const move = { tool: 'cart_checkout', outcome: 'succeeded' };
    const moved = await ask({ from: { at: stood.at }, move });
    expect(moved).toMatchObject({ result: 'moved', event: 'CHECKOUT', state: 'payment' });
    const refused = await ask({ from: { at: moved.at }, move });
    expect(refused).toMatchObject({ result: 'refused', state: 'payment' });
    expect(refused.refusal?.says).toMatch(/^\[System: cart_checkout is not available/);
    const failed = { tool: 'cart_pay', outcome: 'failed' };
    expect((await ask({ from: { at: moved.at }, move: failed })).state).toBe('has_items');
    expect((await ask({ move: { event: 'PAY' } })).result).toBe('unhandled');
    expect((await ask({ move: { deadline: true } })).result).toBe('unhandled');
    expect(await site.look(session.id)).toMatchObject({ state: 'has_items', version: 1 });
  });

  it('takes no position that this server did not give', async () => {
    const site = await startSite();
    const other = await startSite();
    const { at } = (await other.post<WhatIf>(other.of('what-if'), {})).body;
    const run = await site.idOf((await site.session()).id);
    for (const forged of [at, run, 'x', JSON.stringify({ state: 'payment' })])
      expect(codeOf(await site.post(site.of('what-if'), { from: { at: forged } }))).toBe(
        'bad-request',
      );
    const unknown = { move: { tool: 'cart_steal', outcome: 'succeeded' } };
    expect(codeOf(await site.post(site.of('what-if'), unknown))).toBe('bad-request');
  });
});

describe('a workflow', () => {
  it('is given as it is drawn, with where every run begins', async () => {
    const site = await startSite();
    const { body } = await site.get<WorkflowDetail>(`api/workflows/${CHECKOUT}`);
    expect(body.graph).toMatchObject({ id: 'checkout', kind: 'flat', initial: ['empty'] });
    expect(body.tools).toEqual(['cart_add_item', 'cart_checkout', 'cart_pay']);
    expect(body.start.tools.filter(({ shown }) => shown)).toHaveLength(1);
    expect(body.start.events).toEqual(['ADD_ITEM']);
  });

  it('says that its store keeps no index, and still shows a run whose key is known', async () => {
    const saved = new Map<string, FsmSnapshot>();
    const store = {
      load: async (key: string) => saved.get(key),
      save: async (key: string, snapshot: FsmSnapshot) => void saved.set(key, snapshot),
    };
    const site = await startSite({}, { store });
    const session = await site.session();
    await session.call('cart_add_item');
    const { body } = await site.get<Overview>('api/workflows');
    expect(body.workflows[0]).toEqual({
      key: CHECKOUT,
      id: 'checkout',
      store: 'no-index',
      stopped: [],
    });
    const list = await site.list();
    expect([list.status, codeOf(list)]).toEqual([501, 'no-index']);
    expect((await site.look(session.id)).state).toBe('has_items');
  });

  it('says that its store is away, and not what the store said', async () => {
    const file = makeSqliteFile();
    const database = file.connect();
    onTestFinished(() => file.remove());
    const store = sqliteStore({ database });
    const site = await startSite({}, { store });
    await put(store, 'run', 'payment');
    const id = await site.idOf('run');
    for (const table of ['workflow_documents', 'workflow_index'])
      database.exec(`ALTER TABLE ${table} RENAME TO hidden_${table}`);
    const answers = [
      await site.get(site.of(`runs/${id}`)),
      await site.list(),
      await site.list('?list=held'),
      await site.get(site.of(`runs/${id}/trail`)),
      await site.post(site.of(`runs/${id}/send`), { event: 'PAY', version: 1 }),
    ];
    expect(answers.map((each) => [each.status, codeOf(each)])).toEqual(
      answers.map(() => [503, 'unavailable']),
    );
    const { text } = await site.get('api/workflows');
    expect([...answers.map((each) => each.text), text].join()).not.toMatch(
      /no such|workflow_|SQL/i,
    );
    expect(JSON.parse(text).workflows[0].store).toBe('unavailable');
    expect(site.errors.map(String).join()).toContain('the store failed to');
  });
});

describe('options', () => {
  const runs = [runsOf(checkoutGate(), { store: memoryStore() })];
  it.each<[options: unknown, message: string]>([
    [undefined, 'inspector(): expected an object'],
    [{}, 'runs: expected a list of what runsOf() returned, once at least, got undefined'],
    [{ runs: [checkoutGate()] }, 'runs: expected a list of what runsOf() returned'],
    [{ runs: [...runs, ...runs] }, 'two gates have the id "checkout"'],
    [{ runs, authorise: () => false }, 'unknown key "authorise", known are runs, authorize'],
    [{ runs, authorize: true }, 'authorize: expected a function, got boolean'],
    [{ runs, secret: 'short' }, 'secret: expected at least 32 characters or bytes, got string'],
    [{ runs, basePath: 'inspector/' }, 'basePath: expected a path such as "/inspector"'],
    [{ runs, stuckAfterMs: 0 }, 'stuckAfterMs: expected a number of milliseconds above 0'],
  ])('are refused where they are wrong: %o', (options, message) => {
    const make = () => inspector(options as Parameters<typeof inspector>[0]);
    expect(make).toThrow(InterlockError);
    expect(make).toThrow(message);
    expect(make).not.toThrow('short');
  });
});
