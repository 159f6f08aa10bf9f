import { randomUUID } from 'node:crypto';
import { Redis } from '@upstash/redis';
import { Redis as Ioredis } from 'ioredis';
import { afterAll, describe, expect, it } from 'vitest';
import { claimOf, commitOf, HOUR, step } from '../../packages/testing/src/fixtures.ts';
import { describeStateStore } from '../../packages/testing/src/index.ts';
import type { AtomicStateStore } from '../../src/stores/store.ts';
import { upstashStore } from '../../src/stores/upstash.ts';
import { expectSameAnswers, inMemory } from '../helpers/agreement.ts';
import { everyOperation, TRIPS } from '../helpers/operations.ts';
import { withWrongClock } from '../helpers/wrong-clock.ts';
import { startRedis } from '../services/redis.ts';
import { startUpstashRest } from '../services/upstash-rest.ts';

/** A private server, since these tests make it forget its scripts. */
const redis = await startRedis();
const rest = await startUpstashRest(redis.url);
afterAll(async () => {
  await rest.stop();
  await redis.stop();
});

// Settings of the client only change how a reply is written. So the contract runs with those that
// are the default, and each other one is asked for the same answers, below.
describeStateStore(
  'upstashStore()',
  async () => {
    const prefix = `test-${randomUUID()}`;
    const reopen = async () => upstashStore({ redis: client({}), prefix });
    const reopenWithClock = async (offMs: number) => withWrongClock(await reopen(), offMs);
    return { store: await reopen(), reopen, reopenWithClock, close: async () => {} };
  },
  { describe: describe.concurrent, it },
);

/** Each setting that changes what the client makes of a reply, alone and together. */
const SETTINGS = [
  {},
  { automaticDeserialization: false },
  { enableAutoPipelining: false },
  { responseEncoding: false },
  { automaticDeserialization: false, enableAutoPipelining: false, responseEncoding: false },
] as const;

describe.each(SETTINGS)('upstashStore() with the settings %j', (settings) => {
  it('answers any operations on any names as memoryStore() does', async () => {
    const redis = client(settings);
    const overRest = (chainTrail: boolean) =>
      upstashStore({ redis, prefix: `test-${randomUUID()}`, chainTrail });
    await expectSameAnswers((chainTrail) => [overRest(chainTrail), inMemory(chainTrail)], 15);
  });

  it('gives what looks like JSON back as the text that it was', async () => {
    const store = storeOf(client(settings));
    for (const text of [
      '1',
      'null',
      'true',
      '{"a":1}',
      '[]',
      '"quoted"',
      '12345678901234567890',
      'Ünï 😀',
      '',
    ]) {
      const run = randomUUID();
      const request = claimOf(run, {
        create: { principal: text },
        initial: { state: text, updatedAt: 0 },
      });
      expect(await store.claim(request)).toMatchObject({
        status: 'claimed',
        snapshot: { state: text },
      });
      await store.commit(commitOf(request, { snapshot: { state: text, context: text } }));
      expect(await store.read(run, HOUR)).toMatchObject({
        session: { principal: text },
        workflows: { checkout: { snapshot: { state: text, context: text } } },
      });
    }
  });
});

describe('upstashStore()', () => {
  it('sends one request for each operation of a step, and two at most for any other', async () => {
    const store = storeOf(client({}));
    for (const operation of Object.values(everyOperation(store, randomUUID()))) await operation();
    const trips: Record<string, number> = {};
    for (const [name, operation] of Object.entries(everyOperation(store, randomUUID()))) {
      const { requests, commands } = await commandsDuring(operation);
      expect(commands, name).toEqual(Array.from({ length: requests }, () => 'evalsha'));
      trips[name] = requests;
    }
    expect(trips).toEqual(TRIPS);
  });

  it('sends a script again by its text where the server does not have it', async () => {
    for (const settings of [{}, { enableAutoPipelining: false }]) {
      const store = storeOf(client(settings));
      // The first run of a prefix also notes the format.
      await store.open(randomUUID(), {}, HOUR);
      for (const [name, operation] of Object.entries(everyOperation(store, randomUUID()))) {
        await client({}).scriptFlush();
        const trips = TRIPS[name] ?? 0;
        expect(await commandsDuring(operation), name).toEqual({
          requests: 2 * trips,
          commands: Array.from({ length: trips }, () => ['evalsha', 'eval']).flat(),
        });
      }
    }
  });

  it("does not take a caller's text in an error for the error of a missing script", async () => {
    const redis = client({});
    await redis.set('interlock:{b12}:run:NOSCRIPT', 'a string, where a hash belongs', {
      px: 60_000,
    });
    const claim = claimOf('NOSCRIPT', { workflow: 'NOSCRIPT', token: 'NOSCRIPT' });
    await upstashStore({ redis })
      .claim(claim)
      .catch(() => {});
    const executed = await commandsDuring(() =>
      expect(upstashStore({ redis }).claim(claim)).rejects.toThrow(/WRONGTYPE/),
    );
    expect(executed.commands).toEqual(['evalsha']);
  });
});

describe.each([{}, { enableAutoPipelining: false }])(
  'the retries of the client with the settings %j',
  (settings) => {
    const quick = { ...settings, retry: { retries: 3, backoff: () => 1 } };

    it('get the lost answers of a claim and of a commit again', async () => {
      const store = storeOf(client(quick));
      const run = randomUUID();
      await step(store, run, { create: {} });
      const claim = claimOf(run);
      rest.inject('drop-answer', 'drop-answer');
      const answered = await commandsDuring(() =>
        expect(store.claim(claim)).resolves.toMatchObject({
          status: 'claimed',
          snapshot: { version: 1 },
        }),
      );
      expect(answered.requests).toBe(3);
      rest.inject('drop-answer', 'drop-request', 'drop-answer');
      const committed = await commandsDuring(() =>
        expect(store.commit(commitOf(claim))).resolves.toEqual({ status: 'committed', version: 2 }),
      );
      expect(committed.requests).toBe(4);
      expect(await store.history(claim)).toHaveLength(2);
    });

    it('end in a rejection, which is no answer', async () => {
      const store = storeOf(client(quick));
      const run = randomUUID();
      await store.open(run, {}, HOUR);
      rest.inject('drop-request', 'drop-request', 'drop-request', 'drop-request');
      await expect(store.read(run, HOUR)).rejects.toThrow();
      rest.inject('status-500');
      await expect(store.read(run, HOUR)).rejects.toThrow();
      expect(await store.read(run, HOUR)).toEqual({
        session: {},
        workflows: {},
        now: expect.any(Number),
      });
    });

    it('end with a signal, and what the client makes up then is no answer', async () => {
      const store = storeOf(client({ ...quick, signal: AbortSignal.abort() }));
      for (const [name, operation] of Object.entries(everyOperation(store, randomUUID()))) {
        await expect(operation(), name).rejects.toThrow();
      }
    });
  },
);

describe('upstashStore() options', () => {
  it.each([undefined, null, 'https://eu1.upstash.io', {}])('refuse %j as a client', (redis) => {
    expect(() => upstashStore({ redis: redis as never })).toThrow(
      /redis: expected a client of @upstash\/redis/,
    );
  });

  it('refuse a client of another driver', () => {
    const ioredis = new Ioredis({ lazyConnect: true });
    expect(() => upstashStore({ redis: ioredis as never })).toThrow(
      /expected a client of @upstash\/redis/,
    );
  });

  it('name an unknown key with the nearest right one', () => {
    expect(() => upstashStore({ redis: client({}), prefx: 'a' } as never)).toThrow(
      /did you mean "prefix"/,
    );
  });
});

function client(settings: object): Redis {
  return new Redis({ url: rest.url, token: rest.token, ...settings });
}

function storeOf(redis: Redis): AtomicStateStore {
  return upstashStore({ redis, prefix: `test-${randomUUID()}` });
}

async function commandsDuring(action: () => Promise<unknown>) {
  const before = { requests: rest.requests, commands: rest.commands.length };
  await action();
  const commands = rest.commands.slice(before.commands).map(([name]) => name);
  return { requests: rest.requests - before.requests, commands };
}
