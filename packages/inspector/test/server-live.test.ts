import { randomUUID } from 'node:crypto';
import { memoryStore, runDigest } from 'mcp-interlock';
import { postgresStore } from 'mcp-interlock/stores/postgres';
import { redisStore } from 'mcp-interlock/stores/redis';
import { createClient } from 'redis';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { makePostgresSchema } from '../../../test/helpers/postgres-schema.ts';
import { send } from '../../../test/helpers/raw.ts';
import { sharedRedis } from '../../../test/services/shared.ts';
import type { StateCount } from '../src/api.ts';
import { CHECKOUT, codeOf, HOUR, hold, put, type Site, startSite, type Watch } from './site.ts';

const FAST = { pollMs: 50, secret: 'the same secret for all instances' };

/** Two instances of one app on one store, each with connections of its own. */
const PAIRS: readonly (readonly [name: string, make: () => Promise<readonly [Site, Site]>])[] = [
  [
    'Redis',
    async () => {
      const prefix = `inspector-${randomUUID()}:`;
      const make = async () => {
        const client = createClient({ url: await sharedRedis() });
        await client.connect();
        onTestFinished(() => client.destroy());
        return startSite(FAST, { store: redisStore({ client, prefix }) });
      };
      return [await make(), await make()];
    },
  ],
  [
    'PostgreSQL',
    async () => {
      const database = await makePostgresSchema();
      onTestFinished(() => database.drop());
      const make = async () => {
        const store = postgresStore({ pool: database.connect(), schema: database.schema });
        await store.migrate();
        return startSite(FAST, { store });
      };
      return [await make(), await make()];
    },
  ],
];

const lastStates = (watch: Watch): readonly StateCount[] =>
  watch.all('workflow').at(-1)?.workflow.counts?.states ?? [];

describe.each(PAIRS)('two instances on %s', (_, makePair) => {
  it('tell who watches one what happens on the other', async () => {
    const [here, there] = await makePair();
    const session = await there.session();
    await session.call('cart_add_item');
    const id = await there.idOf(session.id);
    const watch = await here.watch(`?workflow=${CHECKOUT}&run=${id}`);
    await expect.poll(() => lastStates(watch)).toMatchObject([{ state: 'has_items', runs: 1 }]);
    const before = watch.all('run').length;
    await session.call('cart_checkout');
    await expect.poll(() => lastStates(watch)).toMatchObject([{ state: 'payment', runs: 1 }]);
    await expect
      .poll(() => watch.all('run').slice(before))
      .toContainEqual({
        workflow: CHECKOUT,
        id,
        digest: runDigest(session.id),
        what: 'changed',
      });
    expect(watch.raw.text).not.toContain(session.id);
    const seen = await here.get(here.of(`runs/${id}`));
    expect(seen.body).toMatchObject({ state: 'payment', version: 2 });
  });
});

describe('a stream', () => {
  it('opens for a page whose run another secret has named, and tells it of the workflow', async () => {
    const site = await startSite();
    const watch = await site.watch(`?workflow=${CHECKOUT}&run=of-the-process-before`);
    await expect.poll(() => watch.all('hello')).toMatchObject([{ resumed: false }]);
    await expect
      .poll(() => watch.all('workflow'))
      .toMatchObject([{ workflow: { id: 'checkout' } }]);
  });

  it('begins with a greeting, and says when to come again, and where it was', async () => {
    const site = await startSite(FAST);
    const watch = await site.watch();
    expect(watch.raw.headers).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store, no-transform',
    });
    await expect.poll(() => watch.all('hello')).toEqual([{ resumed: false, delayMs: 50 }]);
    expect(watch.raw.text).toMatch(/^retry: 2000\n\nid: [\w-]{8}-\d+\nevent: hello\n/);
  });

  it('tells of what happens in its own process at once, each run by its sealed name', async () => {
    const site = await startSite({ ...FAST, pollMs: HOUR });
    const watch = await site.watch();
    await expect.poll(() => watch.all('workflow')).toHaveLength(1);
    const session = await site.session();
    await session.call('cart_add_item');
    const id = await site.idOf(session.id);
    const digest = runDigest(session.id);
    await expect
      .poll(() => watch.all('run'))
      .toContainEqual({
        workflow: CHECKOUT,
        id,
        digest,
        what: 'moved',
        state: 'has_items',
        active: ['has_items'],
        tool: 'cart_add_item',
      });
    await session.call('cart_pay');
    await expect.poll(() => watch.all('run').map(({ what }) => what)).toContain('refused');
    expect(watch.raw.text).not.toContain(session.id);
  });

  it('goes on where it was cut off, unless too much has happened', async () => {
    const site = await startSite(FAST);
    const session = await site.session();
    const other = await site.watch();
    const first = await site.watch();
    await expect.poll(() => first.all('workflow')).toHaveLength(1);
    const seen = first.raw.lastEventId ?? '';
    first.raw.cut();
    await session.call('cart_add_item');
    await expect.poll(() => lastStates(other)).toMatchObject([{ state: 'has_items' }]);
    const again = await site.watch('', { 'last-event-id': seen });
    await expect.poll(() => again.all('hello')).toEqual([{ resumed: true, delayMs: 50 }]);
    expect(again.all('run').length).toBeGreaterThan(0);
    for (const id of ['x', `${seen}9`, seen.replace(/^./, '!'), '']) {
      const anew = await site.watch('', { 'last-event-id': id });
      await expect.poll(() => anew.all('hello')).toMatchObject([{ resumed: false }]);
    }
  });

  it('ends with the server, and says so', async () => {
    const site = await startSite(FAST);
    const watch = await site.watch();
    await expect.poll(() => watch.all('hello')).toHaveLength(1);
    site.page.close();
    await expect.poll(() => watch.raw.ended).toBe(true);
    expect(watch.all('bye')).toEqual([{ why: 'closing' }]);
    expect(codeOf(await site.get('api/events'))).toBe('unavailable');
  });

  it('ends for a person who may not look any more', async () => {
    vi.useFakeTimers({ toFake: ['setInterval'] });
    onTestFinished(() => void vi.useRealTimers());
    let isAllowed = true;
    const authorize = () => isAllowed && ({ read: true } as const);
    const site = await startSite({ ...FAST, authorize });
    const watch = await site.watch();
    await expect.poll(() => watch.all('hello')).toHaveLength(1);
    vi.advanceTimersByTime(15_000);
    await expect.poll(() => watch.raw.text).toContain('\n:\n\n');
    isAllowed = false;
    vi.advanceTimersByTime(15_000);
    await expect.poll(() => watch.raw.ended).toBe(true);
    expect(watch.all('bye')).toEqual([{ why: 'unauthorized' }]);
  });

  it('asks nothing of a store while it has no visitor', async () => {
    const store = memoryStore();
    const asked: string[] = [];
    const { count } = store;
    store.count = (query) => {
      asked.push('count');
      return (count as NonNullable<typeof count>).call(store, query);
    };
    const site = await startSite(FAST, { store });
    const watches = await Promise.all([site.watch(), site.watch(), site.watch()]);
    await expect.poll(() => asked.length).toBeGreaterThan(1);
    for (const watch of watches) watch.raw.cut();
    // Four times as long as it would take to be asked again.
    const counts: number[] = [];
    await expect
      .poll(() => counts.push(asked.length) && counts.at(-1) === counts.at(-2), { interval: 1_000 })
      .toBe(true);
  });

  it('tells of a run that becomes held, though nothing is saved of it', async () => {
    const store = memoryStore();
    const site = await startSite(FAST, { store });
    await put(store, 'run', 'payment');
    const id = await site.idOf('run');
    const watch = await site.watch(`?workflow=${CHECKOUT}&run=${id}`);
    await expect.poll(() => watch.all('workflow')).toHaveLength(1);
    await hold(store, 'run');
    await expect.poll(() => watch.all('workflow').at(-1)?.workflow.counts?.held).toBe(1);
    await expect.poll(() => watch.all('run').map((each) => each.id)).toContain(id);
  });

  it('is opened for no more than a hundred at once', async () => {
    const site = await startSite({ ...FAST, pollMs: 60_000 });
    await Promise.all(Array.from({ length: 100 }, () => site.watch()));
    const answer = await site.get('api/events');
    expect([answer.status, codeOf(answer)]).toEqual([503, 'unavailable']);
  });

  it('is opened for no workflow that there is not', async () => {
    const site = await startSite(FAST);
    for (const query of ['?workflow=x', '?run=x'])
      expect(codeOf(await site.get(`api/events${query}`)), query).toBe('unknown');
  });

  it('keeps no run alive by looking at it', async () => {
    let now = 1_700_000_000_000;
    const store = memoryStore({ now: () => now });
    const site = await startSite(FAST, { store });
    await put(store, 'run', 'payment');
    const id = await site.idOf('run');
    const watch = await site.watch(`?workflow=${CHECKOUT}&run=${id}`);
    await expect.poll(() => watch.all('workflow')).toHaveLength(1);
    now += 24 * HOUR - 1;
    await put(store, 'another', 'payment');
    await expect.poll(() => watch.all('workflow').at(-1)?.workflow.counts?.runs).toBe(2);
    now += 1;
    expect((await send(site.at(site.of(`runs/${id}`)), { method: 'GET' })).status).toBe(404);
  });
});

describe('ten thousand runs', () => {
  it('are counted by the index and listed in pages, and no answer has them all', async () => {
    const store = memoryStore({ maxRuns: 20_000 });
    for (let i = 0; i < 10_000; i++)
      await put(store, `run-${i}`, i % 4 === 0 ? 'payment' : 'has_items');
    const site = await startSite(FAST, { store });
    const overview = await site.get('api/workflows');
    expect(overview.body).toMatchObject({
      workflows: [{ counts: { runs: 10_000, states: [{ runs: 7_500 }, { runs: 2_500 }] } }],
    });
    const page = await site.list('?state=payment&limit=200');
    expect(page.body.runs).toHaveLength(200);
    expect(page.body.next).toBeDefined();
    for (const { text } of [overview, page, await site.get(`api/workflows/${CHECKOUT}`)])
      expect(text.length).toBeLessThan(100_000);
  });
});
