import { randomUUID } from 'node:crypto';
import { Redis as Upstash } from '@upstash/redis';
import { Redis } from 'ioredis';
import { createClient, RESP_TYPES } from 'redis';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { claimOf, commitOf, HOUR, oneTaken, step } from '../../packages/testing/src/fixtures.ts';
import { freezeOf } from '../../packages/testing/src/freezes.ts';
import { describeStateStore } from '../../packages/testing/src/index.ts';
import { InterlockError } from '../../src/basics/errors.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { expectSameAnswers, inMemory } from '../helpers/agreement.ts';
import { everyOperation, TRIPS } from '../helpers/operations.ts';
import { type Connection, DRIVERS, driverNamed } from '../helpers/redis-drivers.ts';
import { commandsDuring } from '../helpers/redis-monitor.ts';
import { inOrder, takeStepsThroughFreezes, versionsTo } from '../helpers/take-steps.ts';
import { withWrongClock } from '../helpers/wrong-clock.ts';
import { startFlakyProxy } from '../services/flaky-proxy.ts';
import { startRedis } from '../services/redis.ts';
import { sharedRedis } from '../services/shared.ts';

/** A server that these tests kill, and a proxy to it that loses answers. */
const redis = await startRedis({ appendfsync: 'always' });
const proxy = await startFlakyProxy(redis.port);
afterAll(async () => {
  await proxy.stop();
  await redis.stop();
});

/**
 * A driver only carries a script's keys and arguments there and its reply back. So the contract,
 * whose promises are those of the scripts, runs through one driver of each family, without and with
 * a chained trail. What each driver may break is asked through each of them, below.
 */
const runner = { describe: describe.concurrent, it };

describeStateStore(
  'redisStore()',
  async () => {
    const [url, prefix] = [await sharedRedis(), `test-${randomUUID()}`];
    const connections: Connection[] = [];
    const reopen = async () => {
      const connection = await driverNamed('node-redis 6').connect(url);
      connections.push(connection);
      return redisStore({ client: connection.client, prefix });
    };
    const close = async () => {
      for (const connection of connections) connection.close();
    };
    const reopenWithClock = async (offMs: number) => withWrongClock(await reopen(), offMs);
    return { store: await reopen(), reopen, reopenWithClock, close };
  },
  runner,
);

describeStateStore(
  'redisStore({ chainTrail })',
  async () => {
    const connection = await driverNamed('ioredis 6').connect(await sharedRedis());
    const prefix = `test-${randomUUID()}`;
    const reopen = async () => redisStore({ client: connection.client, prefix, chainTrail: true });
    return { store: await reopen(), reopen, close: async () => connection.close() };
  },
  { ...runner, chainTrail: true },
);

describe.each(DRIVERS)('redisStore() through $name', (driver) => {
  async function openStore() {
    const connection = await driver.connect(`redis://127.0.0.1:${proxy.port}`);
    onTestFinished(() => connection.close());
    return { store: redisStore({ client: connection.client }), run: randomUUID() };
  }

  it('answers any operations on any names as memoryStore() does', async () => {
    const { client, close } = await driver.connect(await sharedRedis());
    onTestFinished(close);
    const inRedis = (chainTrail: boolean) =>
      redisStore({ client, prefix: `test-${randomUUID()}`, chainTrail });
    await expectSameAnswers((chainTrail) => [inRedis(chainTrail), inMemory(chainTrail)], 10);
  });

  it('carries a run of 2 MB there and back, and each of 50 claims at once', async () => {
    const { store, run } = await openStore();
    const context = { text: '€ "\\" \u0000'.repeat(120_000) };
    await step(store, run, { create: {} }, { snapshot: { state: 'full', context } });
    expect((await store.read(run, HOUR))?.workflows.checkout?.snapshot.context).toEqual(context);
    const claims = Array.from({ length: 50 }, () => store.claim(claimOf(run)));
    oneTaken(await Promise.all(claims));
  });

  it('sends one script for each operation of a step, and two at most for any other', async () => {
    const { store, run } = await openStore();
    for (const operation of Object.values(everyOperation(store, randomUUID()))) await operation();
    const trips: Record<string, number> = {};
    for (const [name, operation] of Object.entries(everyOperation(store, run))) {
      const commands = await commandsDuring(redis.url, operation);
      expect(new Set(commands), name).toEqual(new Set(['EVALSHA']));
      trips[name] = commands.length;
    }
    expect(trips).toEqual(TRIPS);
  });

  it('sends one script more for the first step of a run that another process made', async () => {
    const [maker, other] = [await openStore(), await openStore()];
    const { run } = maker;
    await step(maker.store, run, { create: {} });
    const trips = async () =>
      (await commandsDuring(redis.url, () => step(other.store, run))).join(' ');
    expect(await trips()).toBe('EVALSHA EVALSHA EVALSHA');
    expect(await trips()).toBe('EVALSHA EVALSHA');
  });

  it('sends a script again by its text where the server does not have it', async () => {
    const { store, run } = await openStore();
    for (const operation of Object.values(everyOperation(store, randomUUID()))) await operation();
    for (const [name, operation] of Object.entries(everyOperation(store, run))) {
      await onServer(redis.url, (server) => server.script('FLUSH'));
      const both = Array.from({ length: TRIPS[name] ?? 0 }, () => ['EVALSHA', 'EVAL']).flat();
      expect(await commandsDuring(redis.url, operation), name).toEqual(both);
    }
  });

  it('goes on after the server was killed and started again', async () => {
    const { store, run } = await openStore();
    const claim = claimOf(run, { create: {} });
    await store.claim(claim);
    await step(store, run, { workflow: 'approval' });
    await store.freeze(freezeOf(run));
    await store.swapSwitch(run, undefined, { value: 'on', revision: 'r' });
    await redis.kill9();
    await redis.restart();
    await expect
      .poll(() => store.commit(commitOf(claim)))
      .toEqual({ status: 'committed', version: 1 });
    expect(await store.read(run, HOUR)).toMatchObject({
      workflows: { checkout: { snapshot: { version: 1 } }, approval: { snapshot: { version: 1 } } },
    });
    expect((await store.claim(claimOf(run))).status).toBe('frozen');
    expect(await store.readSwitch(run)).toEqual({ value: 'on', revision: 'r' });
  });

  it('grants no claim that comes after a freeze, and commits what was granted before', async () => {
    const connections = await Promise.all(
      [0, 1, 2].map(async () => driver.connect(await sharedRedis())),
    );
    onTestFinished(() => {
      for (const connection of connections) connection.close();
    });
    const prefix = `test-${randomUUID()}`;
    const sides = connections.map(({ client }) => redisStore({ client, prefix }));
    const run = randomUUID();
    await sides[0]?.open(run, {}, HOUR);
    const { versions, stopped, forwarded } = await takeStepsThroughFreezes(sides, run, 100);
    expect([...stopped, ...forwarded]).toEqual(['frozen', 'committed']);
    expect(inOrder([versions])).toEqual(versionsTo(versions.length));
  });

  it('gives the answer of a claim or a commit though the connection breaks before it', async () => {
    const { store, run } = await openStore();
    await step(store, run, { create: {} });
    const claim = claimOf(run);
    const claimed = await afterLosingTheAnswer(() => store.claim(claim));
    expect(claimed).toMatchObject({
      status: 'claimed',
      snapshot: { state: 'has_items', version: 1 },
    });
    const committed = await afterLosingTheAnswer(() => store.commit(commitOf(claim)));
    expect(committed).toEqual({ status: 'committed', version: 2 });
    expect(await store.history(claim)).toHaveLength(2);
  });

  /** Some drivers repeat a command by themselves; for the others the store looks. */
  async function afterLosingTheAnswer<T>(ask: () => Promise<T>): Promise<T> {
    const lost = proxy.dropNextAnswer();
    const answer = await ask();
    await lost;
    return answer;
  }
});

async function onServer<T>(url: string, ask: (server: Redis) => Promise<T>): Promise<T> {
  const server = new Redis(url);
  try {
    return await ask(server);
  } finally {
    server.disconnect();
  }
}

describe('redisStore() options', () => {
  const client = { eval: async () => 'ok', evalSha: async () => 'ok' };

  it('refuse a client of Upstash, and say what takes it', () => {
    const upstash = new Upstash({ url: 'http://127.0.0.1:1', token: 't' });
    expect(() => redisStore({ client: upstash as never })).toThrow(/upstashStore\(\)/);
  });

  it.each([undefined, null, 'redis://127.0.0.1', {}, { evalsha: async () => 'ok' }])(
    'refuse %j as a client',
    (value) => {
      expect(() => redisStore({ client: value as never })).toThrow(
        /client: expected a client of node-redis or ioredis/,
      );
    },
  );

  it('name an unknown key with the nearest right one', () => {
    expect(() => redisStore({ client, prefx: 'a' } as never)).toThrow(
      /"prefx", did you mean "prefix"/,
    );
  });

  it('refuse a prefix with braces, which would become the hash tag', () => {
    expect(() => redisStore({ client, prefix: '{}' })).toThrow(/without braces, got "\{\}"/);
  });

  it('refuse a trail shorter than the contract has it', () => {
    expect(() => redisStore({ client, trailLimit: 49 })).toThrow(InterlockError);
  });

  it('take an explicit undefined for the default', async () => {
    const connection = await driverNamed('ioredis 6').connect(redis.url);
    onTestFinished(() => connection.close());
    const { client: real } = connection;
    const store = redisStore({ client: real, prefix: undefined, trailLimit: undefined });
    await step(store, 'run', { create: {} });
    const kept = await onServer(redis.url, (server) => server.keys('interlock:{b09}:*'));
    expect(kept).toEqual(
      expect.arrayContaining([
        'interlock:{b09}:run:run',
        'interlock:{b09}:index',
        'interlock:{b09}:members',
      ]),
    );
  });

  it('take a client of node-redis that gives bytes', async () => {
    const url = await sharedRedis();
    const bytes = createClient({
      url,
      commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } },
    });
    await bytes.connect();
    onTestFinished(() => bytes.destroy());
    const ofBytes = (chainTrail: boolean) =>
      redisStore({ client: bytes, prefix: `test-${randomUUID()}`, chainTrail });
    await expectSameAnswers((chainTrail) => [ofBytes(chainTrail), inMemory(chainTrail)], 10);
  });
});
