import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { runKeys, scriptedStore } from '../../../src/stores/redis/scripted-store.ts';
import { redisStore } from '../../../src/stores/redis.ts';
import type { ClaimResult } from '../../../src/stores/store.ts';
import { claimOf, commitOf, HOUR, repeated, step } from '../../../src/testing/fixtures.ts';
import { everyOperation } from '../../helpers/operations.ts';
import { sharedRedis } from '../../services/shared.ts';

const prefix = `test-${randomUUID()}`;
const redis = new Redis(await sharedRedis());
const store = redisStore({ client: redis, prefix });
afterAll(() => redis.disconnect());
afterEach(() => vi.restoreAllMocks());

describe('what the store keeps in Redis', () => {
  it('is two keys for a run, and both expire when the run does', async () => {
    const run = randomUUID();
    await step(store, run, { create: {} }, { ttlMs: 30_000 });
    const keys = await redis.keys(`*${run}*`);
    expect(keys.sort()).toEqual(runKeys(prefix, run));
    const [main, trail] = await Promise.all(keys.map((key) => redis.pttl(key)));
    expect(main).toBeGreaterThan(29_000);
    expect(main).toBeLessThanOrEqual(30_000);
    expect(Math.abs(Number(main) - Number(trail))).toBeLessThan(100);
  });

  it('never lacks an expiry, whichever operation came last', async () => {
    const run = randomUUID();
    for (const [name, operation] of Object.entries(everyOperation(store, run))) {
      await operation();
      for (const key of await redis.keys(`*${run}*`))
        expect(await redis.pttl(key), name).toBeGreaterThan(0);
    }
  });

  it('is nothing at all once the run was deleted', async () => {
    const run = randomUUID();
    for (const operation of Object.values(everyOperation(store, run))) await operation();
    expect(await redis.keys(`*${run}*`)).toEqual([]);
  });

  it('has nothing of an older trail once the run is opened or made anew after it was evicted', async () => {
    const run = randomUUID();
    const [key, trail] = runKeys(prefix, run);
    await step(store, run, { create: {} });
    await redis.del(key);
    await store.open(run, {}, HOUR);
    expect(await redis.keys(`*${run}*`)).toEqual([key]);
    await step(store, run);
    await redis.del(key);
    expect((await store.claim(claimOf(run))).status).toBe('unknown');
    await store.claim(claimOf(run, { create: {} }));
    expect(await redis.exists(trail)).toBe(0);
  });

  it('reads and goes on with a run that an older version wrote', async () => {
    const run = randomUUID();
    const [key, trail] = runKeys(prefix, run);
    const time = Date.now();
    const fields = {
      state: '"paid"',
      context: '',
      version: '1',
      updated: `${time}`,
      spent: '1 "old"',
    };
    const named = Object.entries(fields).map(([name, value]) => [`${name}:"checkout"`, value]);
    await redis.hset(key, { session: '{"principal":"alice"}', ...Object.fromEntries(named) });
    await redis.hset(trail, '1:"checkout"', `${time} {"from":"empty","to":"paid","event":"PAY"}`);
    await Promise.all([key, trail].map((each) => redis.pexpire(each, HOUR)));
    const record = await store.read(run, HOUR, 'checkout');
    expect(record).toMatchObject({
      session: { principal: 'alice' },
      workflows: { checkout: { snapshot: { state: 'paid', version: 1 } } },
    });
    expect(record?.workflows.checkout).not.toHaveProperty('ended');
    expect(await store.open(run, { principal: 'alice' }, HOUR)).toEqual({ status: 'taken' });
    expect(await store.commit(commitOf({ ...claimOf(run), token: 'old' }))).toEqual(repeated(1));
    expect(await step(store, run, {}, { ended: true })).toBe(2);
    expect((await store.read(run, HOUR))?.workflows.checkout?.ended).toBe(true);
    expect(await store.history({ run, workflow: 'checkout' })).toHaveLength(2);
  });

  it.each([1e15, Number.MAX_SAFE_INTEGER, Number.POSITIVE_INFINITY, 1000.5])(
    'takes a time to live of %d ms',
    async (ttlMs) => {
      const run = randomUUID();
      expect(await step(store, run, { create: {}, ttlMs }, { ttlMs })).toBe(1);
      expect(await redis.pttl(runKeys(prefix, run)[0])).toBeGreaterThan(
        Math.min(ttlMs, 1e15) - 1000,
      );
      await store.delete(run);
    },
  );

  it('is nothing for a run that is not there', async () => {
    const run = randomUUID();
    const claim = claimOf(run);
    await store.claim(claim);
    await store.commit(commitOf(claim));
    await store.renew(claim, claim.token, 1000);
    await store.release(claim, claim.token);
    expect(await redis.keys(`*${run}*`)).toEqual([]);
  });

  it('is the context as the text that came, not what Lua would make of it', async () => {
    const run = randomUUID();
    const context = { items: [], id: 9007199254740991, price: 1.1 };
    await step(store, run, { create: {} }, { snapshot: { state: 'has_items', context } });
    const [key] = runKeys(prefix, run);
    expect(await redis.hget(key, 'context:"checkout"')).toBe(
      '{"items":[],"id":9007199254740991,"price":1.1}',
    );
  });

  it('is a trail of as many entries as the option says', async () => {
    const short = redisStore({ client: redis, prefix, trailLimit: 50 });
    const run = randomUUID();
    await short.open(run, {}, HOUR);
    for (let version = 1; version <= 60; version += 1) await step(short, run);
    const [, trail] = runKeys(prefix, run);
    expect(await redis.hlen(trail)).toBe(50);
    const entries = await short.history({ run, workflow: 'checkout' }, 1000);
    expect(entries.map(({ version }) => version)).toEqual(
      Array.from({ length: 50 }, (_, index) => index + 11),
    );
  });

  it('stays bounded in settled tokens and unfinished steps, however many come', async () => {
    const run = randomUUID();
    const [key] = runKeys(prefix, run);
    await store.open(run, {}, HOUR);
    for (let round = 0; round < 40; round += 1) {
      await step(store, run);
      await store.claim(
        claimOf(run, { leaseMs: 0, step: { uncertain: 'retry', digest: `d-${round}` } }),
      );
    }
    for (const list of ['spent', 'unfinished']) {
      const items = await redis.hget(key, `${list}:"checkout"`);
      expect(items?.split('\t'), list).toHaveLength(16);
    }
  });
});

describe('a token', () => {
  it('that asks for its claim again has a whole lease again', async () => {
    const claim = claimOf(randomUUID(), { create: {}, leaseMs: 0 });
    await store.claim(claim);
    expect((await store.read(claim.run, HOUR))?.workflows.checkout?.claim?.live).toBe(false);
    expect((await store.claim({ ...claim, leaseMs: 60_000 })).status).toBe('claimed');
    expect((await store.claim(claimOf(claim.run))).status).toBe('busy');
  });

  it('that committed is still answered so after it was released as well', async () => {
    const claim = claimOf(randomUUID(), { create: {} });
    await store.claim(claim);
    await store.commit(commitOf(claim));
    await store.release(claim, claim.token);
    expect(await store.commit(commitOf(claim))).toEqual(repeated(1));
  });

  it('that was released before the workflow was ever claimed takes no lease either', async () => {
    const claim = claimOf(randomUUID());
    await store.open(claim.run, {}, HOUR);
    await store.release(claim, claim.token);
    expect(await store.read(claim.run, HOUR)).toEqual({
      session: {},
      workflows: {},
      now: expect.any(Number),
    });
    expect(await store.claim(claim)).toMatchObject({
      status: 'state',
      snapshot: { state: 'empty' },
    });
  });
});

describe('the clock', () => {
  it("is the server's: a process that is a day ahead does not end the lease of another", async () => {
    const run = randomUUID();
    await store.claim(claimOf(run, { create: {} }));
    const now = Date.now();
    vi.spyOn(Date, 'now').mockImplementation(() => now + 86_400_000);
    expect((await store.claim(claimOf(run))).status).toBe('busy');
    expect((await store.read(run, HOUR))?.workflows.checkout?.claim?.live).toBe(true);
  });

  it('tells a process that is a day ahead how old a snapshot is', async () => {
    const run = randomUUID();
    const now = Date.now();
    vi.spyOn(Date, 'now').mockImplementation(() => now + 86_400_000);
    const initial = { state: 'empty', updatedAt: Date.now() };
    const claim = claimOf(run, { create: {}, initial });
    expect(ageIn(await store.claim(claim))).toBeLessThan(HOUR);
    expect(ageIn(await store.claim(claimOf(run)))).toBeLessThan(HOUR);
    const record = await store.read(run, HOUR);
    expect(Number(record?.now)).toBeLessThan(Date.now() - HOUR);
    await store.commit(commitOf(claim));
    expect(ageIn(await store.claim(claimOf(run, { states: [] })))).toBeLessThan(HOUR);
  });

  function ageIn(result: ClaimResult): number {
    if (result.status === 'unknown') throw new Error('no such run');
    return Math.abs((result.now ?? Number.NaN) - result.snapshot.updatedAt);
  }
});

describe('what is not an answer of the script', () => {
  const unanswered = (reply: unknown) =>
    scriptedStore(async () => reply, { prefix, trailLimit: 1000 });

  it.each([
    ['nothing', null],
    ['a number', 1],
    ['an object', { result: 'ok' }],
    ['another text', 'Aborted'],
    ['an empty text', ''],
    ['the name of a property of every object', 'constructor'],
  ])('is refused by every operation: %s', async (_name, reply) => {
    for (const [name, operation] of Object.entries(everyOperation(unanswered(reply), 'run'))) {
      await expect(operation(), name).rejects.toThrow(/script/);
    }
  });

  it('is an error of the server, which reaches the caller as it is', async () => {
    const run = randomUUID();
    await redis.set(runKeys(prefix, run)[0], 'a string, where a hash belongs', 'PX', 60_000);
    await expect(store.read(run, HOUR)).rejects.toThrow(/WRONGTYPE/);
    await expect(store.claim(claimOf(run))).rejects.toThrow(/WRONGTYPE/);
  });
});
