import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { claimOf, commitOf, HOUR, repeated, step } from '../../../packages/testing/src/fixtures.ts';
import { freezeOf, thawOf } from '../../../packages/testing/src/freezes.ts';
import { LAYOUT } from '../../../src/stores/document/run-text.ts';
import { scriptedStore } from '../../../src/stores/redis/scripted-store.ts';
import { redisStore } from '../../../src/stores/redis.ts';
import type { ClaimResult } from '../../../src/stores/store.ts';
import { verifyTrail } from '../../../src/stores/trail.ts';
import { everyOperation } from '../../helpers/operations.ts';
import { RedisKeys } from '../../helpers/redis-keys.ts';
import { sharedRedis } from '../../services/shared.ts';

const prefix = `test-${randomUUID()}`;
const redis = new Redis(await sharedRedis());
const store = redisStore({ client: redis, prefix });
const keys = new RedisKeys(prefix);
const keyOf = (run: string): string => keys.run(run);
/** A part of a run, as the page about stores shows it. */
const partOf = async (run: string, part: 'life' | 'head' | 'data'): Promise<unknown> => {
  const fields = await redis.hgetall(keyOf(run));
  const [, text] = Object.entries(fields).find(([name]) => PARTS[part].test(name)) ?? [];
  return text && JSON.parse(text);
};
const PARTS = { life: /^head:life$/, head: /^head:(?!life$)/, data: /^data:/ };
const movedBy = (actor: string) => ({ from: 'empty', to: 'has_items', event: null, actor });
afterAll(() => redis.disconnect());
afterEach(() => vi.restoreAllMocks());

describe('what the store keeps in Redis', () => {
  it('is one key for a run, which expires when the run does', async () => {
    const run = randomUUID();
    await step(store, run, { create: {} }, { ttlMs: 30_000 });
    expect(await redis.keys(`*${run}*`)).toEqual([keyOf(run)]);
    const rest = await redis.pttl(keyOf(run));
    expect(rest).toBeGreaterThan(29_000);
    // The process estimates the server's time between two answers.
    expect(rest).toBeLessThanOrEqual(30_000 + 250);
    const { expiresAt } = (await partOf(run, 'life')) as { expiresAt: number };
    expect(await redis.pexpiretime(keyOf(run))).toBe(expiresAt);
  });

  it('has an expiry after each operation that leaves no `hold` step and no freeze', async () => {
    const run = randomUUID();
    const kept: string[] = [];
    for (const [name, operation] of Object.entries(everyOperation(store, run))) {
      await operation();
      if ((await redis.pttl(keyOf(run))) === -1) kept.push(name);
    }
    expect(kept).toEqual(['claim', 'renew', 'freeze', 'another claim', 'end']);
  });

  it('is a frozen run without an expiry, which the index never drops', async () => {
    const run = randomUUID();
    const short = { create: { principal: run }, ttlMs: 40 };
    await store.freeze(freezeOf(run, { freeze: { actor: 'ann', note: 'a\tb' }, ...short }));
    expect(await partOf(run, 'head')).toMatchObject({ frozen: { actor: 'ann', note: 'a\tb' } });
    await store.freeze(freezeOf(run, { workflow: 'other', ttlMs: 40 }));
    expect(await redis.pttl(keyOf(run))).toBe(-1);
    await sleep(60);
    await store.purge();
    expect((await store.list({ principal: run, limit: 10 })).runs).toEqual([run]);
    await store.freeze(thawOf(run, { workflow: 'other' }));
    expect(await redis.pttl(keyOf(run))).toBe(-1);
    await store.freeze(thawOf(run));
    const rest = await redis.pttl(keyOf(run));
    expect(rest).toBeGreaterThan(24 * HOUR - 10_000);
    expect(rest).toBeLessThanOrEqual(24 * HOUR);
    for (const workflow of ['checkout', 'other'])
      expect((await store.read(run, HOUR))?.workflows[workflow]?.frozen).toBeUndefined();
  });

  it('is a switch without an expiry, of which other texts of the name find nothing', async () => {
    const names = ['checkout', 'check out', '\ud800', 'x'.repeat(4000)];
    for (const [index, name] of names.entries()) {
      const workflow = `${name} ${randomUUID()}`;
      expect(await store.swapSwitch(workflow, undefined, { value: [], revision: 'r' })).toBe(true);
      const key = keys.switch(workflow);
      expect(await redis.pttl(key)).toBe(-1);
      expect(await redis.hgetall(key)).toEqual({
        layout: String(LAYOUT),
        name: JSON.stringify(workflow),
        revision: '"r"',
        value: '[]',
      });
      expect(await store.readSwitch(`${workflow}${index}`)).toBeUndefined();
    }
  });

  it('is no switch of another format or workflow, which is refused and stays', async () => {
    const workflow = randomUUID();
    const key = keys.switch(workflow);
    const [, members] = keys.index(keys.bucket(workflow));
    const expectRefusal = async (how: object): Promise<void> => {
      const before = await redis.hgetall(key);
      const next = { value: 2, revision: 'b' };
      await expect(store.readSwitch(workflow)).rejects.toMatchObject(how);
      await expect(store.swapSwitch(workflow, 'a', next)).rejects.toMatchObject(how);
      expect(await redis.hgetall(key)).toEqual(before);
    };
    await store.swapSwitch(workflow, undefined, { value: 1, revision: 'a' });
    for (const format of ['2', String(LAYOUT + 1)]) {
      const other = {
        code: 'ERR_INTERLOCK_STORE',
        message: expect.stringMatching(`format ${format}, `),
      };
      await redis.hset(key, { layout: format });
      await expectRefusal(other);
      await redis.hset(key, { layout: LAYOUT });
      const noted = await redis.hget(members, '#format');
      await redis.hset(members, { '#format': format });
      await expectRefusal(other);
      if (noted === null) await redis.hdel(members, '#format');
      else await redis.hset(members, { '#format': noted });
    }
    await redis.hset(key, { name: '"another"' });
    await expectRefusal({ message: expect.stringMatching('another workflow') });
  });

  it('is a held run without an expiry, which the index never drops', async () => {
    const run = randomUUID();
    const short = { create: { principal: run }, ttlMs: 40, leaseMs: 0 } as const;
    const held = claimOf(run, { ...short, workflow: 'other' });
    await store.claim(held);
    await store.claim(claimOf(run, { ...short, step: { uncertain: 'retry' } }));
    expect(await redis.pttl(keyOf(run))).toBe(-1);
    await sleep(60);
    await store.purge();
    expect((await store.list({ principal: run, limit: 10 })).runs).toEqual([run]);
    await store.release(held, held.token);
    const rest = await redis.pttl(keyOf(run));
    expect(rest).toBeGreaterThan(24 * HOUR - 10_000);
    expect(rest).toBeLessThanOrEqual(24 * HOUR);
    expect(await store.read(run, HOUR)).toMatchObject({ sessionEnded: true });
    expect(await redis.pttl(keyOf(run))).toBeLessThanOrEqual(rest);
  });

  it('is a run of a step that may be repeated for `keyMs`, whatever its later calls say', async () => {
    const run = randomUUID();
    const retry = {
      create: {},
      leaseMs: 0,
      keyMs: 30 * HOUR,
      step: { uncertain: 'retry' },
    } as const;
    await store.claim(claimOf(run, retry));
    await store.read(run, HOUR);
    await step(store, run, { workflow: 'other' });
    expect(await redis.pttl(keyOf(run))).toBeGreaterThan(29 * HOUR);
    const again = claimOf(run, retry);
    await store.claim(again);
    await store.commit(commitOf(again));
    expect(await redis.pttl(keyOf(run))).toBeLessThanOrEqual(HOUR);
  });

  it('names no person once the run is anonymous', async () => {
    const alice = `alice-${randomUUID()}`;
    const entry = { tool: 'pay', actor: alice, args: { of: alice } };
    await step(store, alice, { create: { principal: alice }, entry }, { trail: movedBy(alice) });
    await store.claim(claimOf(alice, { leaseMs: 0, entry }));
    await store.claim(claimOf(alice, { workflow: 'other', leaseMs: 0, entry }));
    await store.freeze(freezeOf(alice, { freeze: { actor: alice, note: alice } }));
    await store.anonymize('no such run');
    const run = (await store.anonymize(alice)) ?? '';
    expect(await redis.exists(keyOf(alice))).toBe(0);
    expect(await redis.pttl(keyOf(run))).toBe(-1);
    const kept = await Promise.all([
      redis.hgetall(keyOf(run)),
      ...keys.indexes.flatMap(([index, members]) => [
        redis.zrange(index, '0', '-1'),
        redis.hgetall(members),
      ]),
    ]);
    expect(JSON.stringify(kept)).not.toContain(alice);
    expect((await store.held({ workflow: 'checkout', limit: 10 })).runs).toMatchObject([{ run }]);
  });

  it('goes on with its chain where a process without the option moves the run', async () => {
    const chained = redisStore({ client: redis, prefix, chainTrail: true });
    const run = randomUUID();
    const from = { run, workflow: 'checkout' };
    await step(chained, run, { create: {} });
    await step(store, run);
    await step(chained, run);
    const trail = await store.history(from);
    expect(trail.map(({ seq, hash }) => [seq, hash?.slice(0, 5)])).toEqual(
      [1, 2, 3].map((seq) => [seq, 'sha25']),
    );
    expect(verifyTrail(trail, { from })).toEqual([]);
    expect(verifyTrail(trail, { from: { ...from, run: 'other' } })).toMatchObject([
      { fault: 'foreign' },
    ]);
  });

  it('is nothing once the run was deleted, but for switches', async () => {
    const run = randomUUID();
    for (const operation of Object.values(everyOperation(store, run))) await operation();
    expect(await redis.keys(`*${run}*`)).toEqual([keys.switch(run)]);
  });

  it('has nothing of an evicted trail once the run is opened or made anew', async () => {
    const run = randomUUID();
    await step(store, run, { create: {} });
    await redis.del(keyOf(run));
    expect((await store.claim(claimOf(run))).status).toBe('unknown');
    await step(store, run, { create: {} });
    expect(await store.history({ run, workflow: 'checkout' })).toMatchObject([{ seq: 1 }]);
  });

  it('keeps its expiry while nine tenths of the time to live remain', async () => {
    const run = randomUUID();
    await step(store, run, { create: {} });
    const before = await redis.pexpiretime(keyOf(run));
    await step(store, run);
    await store.read(run, HOUR);
    expect(await redis.pexpiretime(keyOf(run))).toBe(before);
    await store.read(run, 2 * HOUR);
    expect(await redis.pexpiretime(keyOf(run))).toBeGreaterThan(before + HOUR / 2);
  });

  it.each([1e15, Number.MAX_SAFE_INTEGER, Number.POSITIVE_INFINITY, 1000.5])(
    'takes a time to live of %d ms',
    async (ttlMs) => {
      const run = randomUUID();
      expect(await step(store, run, { create: {}, ttlMs }, { ttlMs })).toBe(1);
      expect(await redis.pttl(keyOf(run))).toBeGreaterThan(Math.min(ttlMs, 1e15) - 1000);
      await store.delete(run);
    },
  );

  it('is nothing for an unknown run', async () => {
    const run = randomUUID();
    const claim = claimOf(run);
    await store.claim(claim);
    await store.commit(commitOf(claim));
    await store.renew(claim, claim.token, 1000);
    await store.release(claim, claim.token);
    expect(await redis.keys(`*${run}*`)).toEqual([]);
  });

  it('is the context in the text of the caller, which Lua would change', async () => {
    const run = randomUUID();
    const context = { items: [], id: 9007199254740991, price: 1.1 };
    await step(store, run, { create: {} }, { snapshot: { state: 'has_items', context } });
    const fields = Object.values(await redis.hgetall(keyOf(run)));
    expect(fields).toContain('{"items":[],"id":9007199254740991,"price":1.1}');
  });

  it('is a trail of as many entries as the option says', async () => {
    const short = redisStore({ client: redis, prefix, trailLimit: 50 });
    const run = randomUUID();
    await short.open(run, {}, HOUR);
    for (let version = 1; version <= 60; version += 1) await step(short, run);
    const fields = await redis.hkeys(keyOf(run));
    expect(fields.filter((field) => field.startsWith('e:'))).toHaveLength(50);
    const entries = await short.history({ run, workflow: 'checkout' }, 1000);
    expect(entries.map(({ version }) => version)).toEqual(
      Array.from({ length: 50 }, (_, index) => index + 11),
    );
  });

  it('has a bounded number of settled tokens and unfinished steps', async () => {
    const run = randomUUID();
    await store.open(run, {}, HOUR);
    for (let round = 0; round < 40; round += 1) {
      await step(store, run);
      await store.claim(
        claimOf(run, { leaseMs: 0, step: { uncertain: 'retry', digest: `d-${round}` } }),
      );
    }
    const head = (await partOf(run, 'head')) as { unsettled: unknown[] };
    expect(head.unsettled).toHaveLength(16);
    const fields = Object.entries(await redis.hgetall(keyOf(run)));
    const [, settled = ''] = fields.find(([name]) => name.startsWith('settled:')) ?? [];
    expect(settled.split(' ')).toHaveLength(32);
  });
});

describe('a token', () => {
  it('that claims again has a whole lease again', async () => {
    const claim = claimOf(randomUUID(), { create: {}, leaseMs: 0 });
    await store.claim(claim);
    expect((await store.read(claim.run, HOUR))?.workflows.checkout?.claim?.live).toBe(false);
    expect((await store.claim({ ...claim, leaseMs: 60_000 })).status).toBe('claimed');
    expect((await store.claim(claimOf(claim.run))).status).toBe('busy');
  });

  it('that committed still gets that answer after a release', async () => {
    const claim = claimOf(randomUUID(), { create: {} });
    await store.claim(claim);
    await store.commit(commitOf(claim));
    await store.release(claim, claim.token);
    expect(await store.commit(commitOf(claim))).toEqual(repeated(1));
  });

  it('that was released before the first claim of the workflow gets no lease either', async () => {
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
  it("is the server's: a process that is a day ahead does not end another's lease", async () => {
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
    scriptedStore(async () => reply, { prefix, trailLimit: 1000, chainTrail: false });

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

  it('is an error of the server, which reaches the caller unchanged', async () => {
    const run = randomUUID();
    await redis.set(keyOf(run), 'a string, where a hash belongs', 'PX', 60_000);
    await expect(store.read(run, HOUR)).rejects.toThrow(/WRONGTYPE/);
    await expect(store.claim(claimOf(run))).rejects.toThrow(/WRONGTYPE/);
  });
});
