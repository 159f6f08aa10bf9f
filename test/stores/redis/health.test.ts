import { Redis } from 'ioredis';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { claimed, claimOf } from '../../../packages/testing/src/fixtures.ts';
import { workflowHealth } from '../../../src/runs/health.ts';
import { runsOf } from '../../../src/runs/index.ts';
import { redisStore } from '../../../src/stores/redis.ts';
import { checkoutGate } from '../../helpers/checkout.ts';
import { DRIVERS } from '../../helpers/redis-drivers.ts';
import { commandsDuring } from '../../helpers/redis-monitor.ts';
import { type RedisOptions, startRedis } from '../../services/redis.ts';

async function openServer(options?: RedisOptions) {
  const server = await startRedis(options);
  onTestFinished(() => server.stop());
  const admin = new Redis(server.url);
  onTestFinished(() => admin.disconnect());
  const warned = vi.spyOn(process, 'emitWarning').mockReturnValue();
  onTestFinished(() => warned.mockRestore());
  return { ...server, admin, warnings: () => warned.mock.calls.map(([warning]) => warning) };
}

describe('a Redis that keeps nothing on its disk', () => {
  it.each(DRIVERS)('is told of once at the first probe, through $name', async ({ connect }) => {
    const { url, warnings } = await openServer();
    const { client, close } = await connect(url);
    onTestFinished(close);
    const { fetch } = healthOn(client);
    for (let probe = 0; probe < 3; probe += 1)
      expect((await fetch(new Request('http://localhost/health'))).status).toBe(200);
    expect(warnings()).toEqual([expect.stringContaining('keeps nothing on its disk')]);
  });

  it.each([
    ['has an append-only file', { appendfsync: 'always' }],
    ['saves snapshots', { settings: { save: '3600 1' } }],
  ] as const)('is none that %s', async (_, options) => {
    const { admin, warnings } = await openServer(options);
    await redisStore({ client: admin }).evictedKeys?.();
    expect(warnings()).toEqual([]);
  });

  it('is told of with the first run, and not to a command that only counts', async () => {
    const { admin, warnings } = await openServer();
    const store = redisStore({ client: admin });
    await store.count({ workflow: 'checkout', forMs: 0 });
    expect(warnings()).toEqual([]);
    await claimed(store, claimOf('first', { create: {} }));
    expect(warnings()).toHaveLength(1);
  });

  it.each(['info', 'config|get'])(
    'cannot be told to a user without %s, nor asked',
    async (right) => {
      const { admin, warnings } = await openServer();
      await admin.acl('SETUSER', 'default', `-${right}`);
      await redisStore({ client: admin }).evictedKeys?.();
      expect(warnings()).toEqual([]);
      const denied = (await admin.acl('LOG')) as unknown[];
      expect(denied.flat()).not.toContain('config|get');
    },
  );
});

it('a probe of health takes at most 8 round trips to the 64 buckets of one server', async () => {
  const { url, admin } = await openServer({ appendfsync: 'no' });
  await claimed(redisStore({ client: admin }), claimOf('held', { create: {}, leaseMs: 0 }));
  const { fetch } = healthOn(admin);
  const probe = async () => (await fetch(new Request('http://localhost/health'))).json();
  // The server has no script yet, and the process no proof that the server takes writes.
  await probe();
  const commands = await commandsDuring(url, async () => {
    expect(await probe()).toMatchObject({ workflows: [{ store: 'ok', index: 'ok', held: 1 }] });
  });
  expect(commands).toContain('EVALSHA');
  expect(commands.length).toBeLessThanOrEqual(8);
});

function healthOn(client: Parameters<typeof redisStore>[0]['client']) {
  const runs = runsOf(checkoutGate(), { store: redisStore({ client }), onError() {} });
  return workflowHealth({ runs: [runs], stuckAfterMs: 60_000, maxAgeMs: 0 });
}
