import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis as Upstash } from '@upstash/redis';
import { Cluster, Redis } from 'ioredis';
import { afterAll, describe, expect, it } from 'vitest';
import {
  claimOf,
  commitOf,
  HOUR,
  recordingOf,
  step,
} from '../../../packages/testing/src/fixtures.ts';
import { freezeOf } from '../../../packages/testing/src/freezes.ts';
import { LAYOUT } from '../../../src/stores/document/run-text.ts';
import { redisStore } from '../../../src/stores/redis.ts';
import type { RunsPage } from '../../../src/stores/store.ts';
import { upstashStore } from '../../../src/stores/upstash.ts';
import { RedisKeys } from '../../helpers/redis-keys.ts';
import { startRedis } from '../../services/redis.ts';
import { startRedisCluster } from '../../services/redis-cluster.ts';
import { sharedRedis } from '../../services/shared.ts';
import { startUpstashRest } from '../../services/upstash-rest.ts';

const redis = new Redis(await sharedRedis());
const rest = await startUpstashRest(await sharedRedis());
const cluster = await startRedisCluster({ masters: 3 });
const nodes = new Cluster([...cluster.urls]);
afterAll(async () => {
  redis.disconnect();
  nodes.disconnect();
  await rest.stop();
  await cluster.stop();
});

const HELD = { leaseMs: 0, create: {} };
const checkout = { workflow: 'checkout', limit: 100 };

function openStore() {
  const prefix = `test-${randomUUID()}`;
  const keys = new RedisKeys(prefix);
  return { prefix, keys, store: redisStore({ client: redis, prefix }) };
}

function keysOn({ runs }: RunsPage): string[] {
  return runs.map(({ run }) => run).sort();
}

const SERVERS = {
  'a single server': () => ({ ...openStore(), client: redis }),
  'a cluster': () => {
    const prefix = `test-${randomUUID()}`;
    const store = redisStore({ client: nodes, prefix });
    return { prefix, keys: new RedisKeys(prefix), store, client: nodes };
  },
  Upstash: () => {
    const opened = openStore();
    const client = new Upstash({ url: rest.url, token: rest.token });
    return {
      ...opened,
      client: redis,
      store: upstashStore({ redis: client, prefix: opened.prefix }),
    };
  },
};

describe.each(Object.entries(SERVERS))('the index on %s', (_name, open) => {
  it('finds runs that are stuck in any of 9,000 states', async () => {
    const { store } = open();
    await step(store, 'run', { create: {} });
    const states = Array.from({ length: 9_000 }, (_, at) => `state ${at}`);
    const query = { ...checkout, forMs: 0 };
    expect(keysOn(await store.stuck({ ...query, states }))).toEqual([]);
    const found = await store.stuck({ ...query, states: [...states, 'has_items'] });
    expect(keysOn(found)).toEqual(['run']);
  });

  it('gives each of many held runs once, by their leases, on pages of any size', async () => {
    const { store } = open();
    const runs = Array.from({ length: 150 }, (_, index) => `run ${index}`);
    for (const run of runs) await store.claim(claimOf(run, HELD));
    for (const limit of [1, 7, 64, 149, 150, 1000]) {
      const found: string[] = [];
      const ends: (number | undefined)[] = [];
      let after: string | undefined;
      do {
        const page = await store.held({ workflow: 'checkout', limit, after });
        for (const { run, claim } of page.runs) {
          found.push(run);
          ends.push(claim?.until);
        }
        after = page.next;
      } while (after !== undefined);
      expect(found.sort()).toEqual([...runs].sort());
      expect(ends).toEqual([...ends].sort((a = 0, b = 0) => a - b));
    }
  });

  it('is the same as before when it is made anew after a deletion', async () => {
    const { store, keys, client } = open();
    for (let i = 0; i < 40; i += 1) {
      const run = i % 2 ? `run-${i}` : `a run with a digest, ${i}`;
      await step(store, run, { create: { principal: i % 3 ? 'alice' : 'bob' } }, { ended: i > 30 });
      await step(store, run, { workflow: 'approval' });
      const uncertain = i % 4 ? ('hold' as const) : ('retry' as const);
      const leaseMs = i % 5 ? 0 : HOUR;
      if (i < 20) await store.claim(claimOf(run, { leaseMs, step: { uncertain } }));
    }
    await store.claim(claimOf('over', { ...HELD, ttlMs: 0 }));
    await store.freeze(freezeOf('frozen', { create: { principal: 'bob' }, ttlMs: 0 }));
    await store.swapSwitch('checkout', undefined, { value: 'on', revision: 'first' });
    const contents = async () => {
      // A bucket without runs has its mark only after a rebuild.
      const sizes = await Promise.all(keys.indexes.map(([index]) => client.zcard(index)));
      const all = sizes.map((size) => Math.max(size, 1));
      const { now: _, ...count } = await store.count({ workflow: 'checkout', forMs: 0 });
      const owned = (await store.list({ principal: 'bob', limit: 100 })).runs.toSorted();
      const standing = [];
      for await (const run of store.runs({ workflow: 'approval', state: 'has_items' }))
        standing.push(run);
      return { all, count, owned, standing, held: keysOn(await store.held(checkout)) };
    };
    const before = await contents();
    expect(before.held).toHaveLength(13);
    expect(before.owned).toContain('frozen');
    for (const all of keys.indexes) await client.unlink(...all);
    expect(await store.rebuildIndex()).toBe(42);
    expect(await contents()).toEqual(before);
  });
});

describe('an index that lost keys', () => {
  it.each([
    ['its order', 0],
    ['its note', 1],
  ] as const)('of %s rejects until it is made anew, and steps go on', async (_what, which) => {
    const { store, keys } = openStore();
    const { run } = claimOf('run-1');
    await store.claim(claimOf(run, HELD));
    await redis.del(keys.index(keys.bucket(run))[which]);
    const operations = [
      () => store.held(checkout),
      () => store.count({ workflow: 'checkout', forMs: 0 }),
      () => store.list({ principal: 'alice', limit: 1 }),
    ];
    for (const operation of operations) await expect(operation()).rejects.toThrow(/rebuildIndex/);
    for (let i = 0; i < 200; i += 1) await step(store, `run-${i + 2}`, { create: {} });
    await expect(store.held(checkout)).rejects.toThrow(/rebuildIndex/);
    await store.rebuildIndex();
    expect(keysOn(await store.held(checkout))).toEqual([run]);
  });

  it('cannot be told from a whole one if the server evicts any key: no list is given', async () => {
    const evicting = await startRedis({
      settings: { maxmemory: '50mb', 'maxmemory-policy': 'allkeys-lru' },
    });
    const client = new Redis(evicting.url);
    const store = redisStore({ client });
    expect(await step(store, 'run', { create: {} })).toBe(1);
    await expect(store.held(checkout)).rejects.toThrow(/maxmemory-policy allkeys-lru/);
    await client.config('SET', 'maxmemory-policy', 'volatile-lru');
    expect((await store.held(checkout)).runs).toEqual([]);
    client.disconnect();
    await evicting.stop();
  });
});

describe('a run that was evicted', () => {
  it('leaves the index when a list meets it', async () => {
    const { store, keys } = openStore();
    await store.claim(claimOf('gone', HELD));
    await store.claim(claimOf('there', HELD));
    await redis.del(keys.run('gone'));
    expect(keysOn(await store.held(checkout))).toEqual(['there']);
    expect(await store.count({ workflow: 'checkout', forMs: 0 })).toMatchObject({ held: 1 });
    expect(
      (await redis.zrange(keys.index(keys.bucket('gone'))[0], '0', '-1')).join(),
    ).not.toContain('gone');
  });

  it('leaves it when a run of its name is made, even for another principal', async () => {
    const { store, keys } = openStore();
    await store.claim(claimOf('run', { ...HELD, create: { principal: 'alice' } }));
    await redis.del(keys.run('run'));
    await store.open('run', { principal: 'bob' }, HOUR);
    expect((await store.held(checkout)).runs).toEqual([]);
    expect((await store.list({ principal: 'alice', limit: 10 })).runs).toEqual([]);
    expect((await store.list({ principal: 'bob', limit: 10 })).runs).toEqual(['run']);
  });
});

describe('runs that expired', () => {
  it('leave the index as new runs come into their bucket, so that it stays small', async () => {
    const { store, keys } = openStore();
    const few = Array.from({ length: 50_000 }, (_, index) => `run-${index}`)
      .filter((run) => keys.bucket(run) === 0)
      .slice(0, 300);
    // Without a time to live, each run is gone at once, and leaves two members behind.
    for (const run of few) await store.open(run, { principal: 'alice' }, 0);
    expect(await redis.zcard(keys.index(0)[0])).toBeLessThan(300);
  });

  it('leave it with a count, even if they are many', async () => {
    const { store, keys } = openStore();
    await store.claim(claimOf('there', HELD));
    await store.open('some', {}, HOUR);
    const [index, members] = keys.index(3);
    const gone = Array.from({ length: 1_700 }, (_, i) => `expired-${i}`);
    const entry = (run: string) => `gone:000000000000001:${run}`;
    await redis.zadd(index, ...gone.flatMap((run) => ['0', entry(run)]));
    await redis.hset(members, ...gone.flatMap((run) => [run, '', `${run} gone`, entry(run)]));
    expect(await store.count({ workflow: 'checkout', forMs: 0 })).toMatchObject({ held: 1 });
    expect(await redis.zrange(index, '0', '-1')).not.toContain(entry('expired-0'));
    expect(await redis.hlen(members)).toBeLessThan(100);
  });
});

describe('what is left of runs that are gone', () => {
  it('leaves the index with a purge, of one principal or of all, and held runs stay', async () => {
    const { store, keys } = openStore();
    const size = async () =>
      (await Promise.all(keys.indexes.map(([index]) => redis.zcard(index)))).reduce(
        (a, b) => a + b,
      );
    for (let i = 0; i < 30; i += 1) {
      const create = { principal: i % 3 ? 'alice' : 'bob' };
      await store.claim(
        claimOf(`run-${i}`, { create, leaseMs: 0, ttlMs: 20, step: { uncertain: 'retry' } }),
      );
    }
    await store.claim(claimOf('held', { ...HELD, ttlMs: 0, create: { principal: 'alice' } }));
    await sleep(40);
    const before = await size();
    const ofBob = await store.purge({ principal: 'bob' });
    const ofAll = await store.purge();
    // A run that was made meanwhile may have taken some along.
    expect(ofBob).toBeGreaterThan(0);
    expect(ofBob).toBeLessThanOrEqual(10);
    expect(ofBob + ofAll).toBeLessThanOrEqual(30);
    expect(await store.purge()).toBe(0);
    const after = await size();
    // When it goes, whose it is, its state, and of its claim the lease, the beginning and that its
    // outcome may be unknown.
    expect(after).toBe(before - 6 * (ofBob + ofAll));
    expect((await store.list({ principal: 'alice', limit: 100 })).runs).toEqual(['held']);
    expect(keysOn(await store.held(checkout))).toEqual(['held']);
  });
});

/** All of a key, in an order that does not depend on how the server lays it out. */
async function contentOf(client: typeof redis | Cluster, key: string): Promise<string[]> {
  if ((await client.type(key)) === 'zset') return client.zrange(key, 0, '-1');
  return Object.entries(await client.hgetall(key))
    .flat()
    .sort();
}

describe('another format', () => {
  const operationsOn = (store: ReturnType<typeof openStore>['store']) => {
    const claim = claimOf('run', HELD);
    const draft = { from: 'empty', to: 'empty', event: null };
    return {
      open: () => store.open('run', {}, HOUR),
      read: () => store.read('run', HOUR),
      claim: () => store.claim(claim),
      commit: () => store.commit(commitOf(claim)),
      record: () =>
        store.record({ ...commitOf(claim), from: 0, initial: claim.initial, create: {} }),
      freeze: () => store.freeze(freezeOf('run', { create: {} })),
      renew: () => store.renew(claim, claim.token, HOUR),
      release: () => store.release(claim, claim.token),
      append: () => store.append(claim, draft),
      end: () => store.end('run'),
      delete: () => store.delete('run'),
      anonymize: () => store.anonymize('run'),
      history: () => store.history(claim),
      held: () => store.held(checkout),
      stuck: () => store.stuck({ ...checkout, forMs: 0 }),
      runs: () =>
        store.runs({ workflow: 'checkout', state: 'empty' })[Symbol.asyncIterator]().next(),
    };
  };
  const refusedWith = (format: string) => ({
    code: 'ERR_INTERLOCK_STORE',
    message: expect.stringMatching(new RegExp(`format ${format}, .*knows format ${LAYOUT} alone`)),
  });

  it.each(['0', '2', String(LAYOUT + 1)])(
    '%s of a run is refused, and the run does not change',
    async (format) => {
      const { store, keys } = openStore();
      await store.claim(claimOf('run', HELD));
      const all = [keys.run('run'), ...keys.index(keys.bucket('run'))];
      await redis.hset(keys.run('run'), { layout: format });
      const dump = () => Promise.all(all.map((key) => contentOf(redis, key)));
      const before = await dump();
      for (const [name, operation] of Object.entries(operationsOn(store)))
        await expect(operation(), name).rejects.toMatchObject(refusedWith(format));
      await expect(store.rebuildIndex(), 'rebuildIndex').rejects.toMatchObject(refusedWith(format));
      expect(await dump()).toEqual(before);
      expect(await redis.pttl(keys.run('run'))).toBe(-1);
    },
  );

  it('of a run that has none of our fields is refused, and the run stays in the index', async () => {
    const { store, keys } = openStore();
    await store.claim(claimOf('run', HELD));
    const run = keys.run('run');
    const [index] = keys.index(keys.bucket('run'));
    await redis.del(run);
    await redis.hset(run, { format: '1' });
    const before = await redis.dump(index);
    for (const [name, operation] of Object.entries(operationsOn(store)))
      await expect(operation(), name).rejects.toMatchObject(refusedWith('1'));
    expect(await redis.dump(index)).toEqual(before);
  });

  it('in one bucket is that of all, so that no process makes runs of two formats', async () => {
    for (const open of Object.values(SERVERS)) {
      const { store, keys, client } = open();
      const [, members] = keys.index(63);
      await client.hset(members, { '#format': '1' });
      const runs = Array.from({ length: 10 }, (_, at) => `run ${at}`);
      for (const run of runs) {
        await expect(store.open(run, {}, HOUR)).rejects.toMatchObject(refusedWith('1'));
        await expect(store.claim(claimOf(run, HELD))).rejects.toMatchObject(refusedWith('1'));
        const recording = recordingOf(run, 0, 'seen', { create: {} });
        await expect(store.record(recording)).rejects.toMatchObject(refusedWith('1'));
      }
      const made = [...keys.indexes.flat(), ...runs.map((run) => keys.run(run))];
      const kept = await Promise.all(made.map((key) => client.exists(key)));
      expect(made.filter((_, at) => kept[at] === 1)).toEqual([members]);
    }
  });

  it.each(['0', '2', String(LAYOUT + 1)])(
    '%s of an index is refused, and nothing changes',
    async (format) => {
      for (const open of Object.values(SERVERS)) {
        const { store, keys, client } = open();
        await store.claim(claimOf('run', HELD));
        await step(store, 'another', { create: {} });
        await client.hset(keys.index(keys.bucket('run'))[1], { '#format': format });
        const all = [...keys.indexes.flat(), keys.run('run'), keys.run('another')];
        const dump = () => Promise.all(all.map((key) => contentOf(client, key)));
        const before = await dump();
        const operations = {
          ...operationsOn(store),
          count: () => store.count({ workflow: 'checkout', forMs: 0 }),
          list: () => store.list({ principal: 'alice', limit: 1 }),
          purge: () => store.purge(),
          rebuildIndex: () => store.rebuildIndex(),
        };
        for (const [name, operation] of Object.entries(operations))
          await expect(operation(), name).rejects.toMatchObject(refusedWith(format));
        expect(await dump()).toEqual(before);
      }
    },
  );
});
