/** What a gate and health do while a real server takes no writes, answers nothing, or evicts runs. */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { Pool } from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';
import { claimed, claimOf, claimStatus, commitOf } from '../../packages/testing/src/fixtures.ts';
import { Events } from '../../src/basics/events.ts';
import { type HealthReport, type Runs, runsOf, workflowHealth } from '../../src/runs/index.ts';
import { guardStore } from '../../src/step/store-calls.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { documentsOfTest } from '../helpers/controlled-documents.ts';
import { ManualClock } from '../helpers/manual-clock.ts';
import { reasonOf } from '../helpers/raw.ts';
import { begins, passUntil, type Scene, scene, settle } from '../helpers/scene.ts';
import { startPostgres, unprivilegedOwner } from '../services/postgres.ts';
import { startRedis } from '../services/redis.ts';

const run = promisify(execFile);

async function healthOf({ sessions }: Scene): Promise<{ status: number; report: HealthReport }> {
  const runs = [runsOf(checkoutGate(), { sessions }) as Runs];
  const health = workflowHealth({ runs, stuckAfterMs: 60_000, maxAgeMs: 0 });
  const answer = await health.fetch(new Request('https://app.example/health'));
  return { status: answer.status, report: (await answer.json()) as HealthReport };
}

/** A server whose tables are on a disk of 24 MB. */
async function onSmallDisk() {
  const disk = await mkdtemp(join(tmpdir(), 'interlock-disk-'));
  await run('mount', ['-t', 'tmpfs', '-o', 'size=24m', 'tmpfs', disk]);
  onTestFinished(async () => {
    await run('umount', [disk]);
    await rm(disk, { recursive: true });
  });
  const owner = await unprivilegedOwner();
  if (owner !== undefined) await chown(disk, owner.uid, owner.gid);
  const server = await startPostgres();
  onTestFinished(() => server.stop());
  const admin = new Pool({ connectionString: server.url });
  await admin.query(`CREATE TABLESPACE small LOCATION '${disk}'`);
  await admin.query('ALTER DATABASE postgres SET default_tablespace = small');
  await admin.end();
  const pool = new Pool({ connectionString: server.url });
  // Its `end()` does not wait until the connections are closed, and the server says that it stops.
  pool.on('error', () => {});
  onTestFinished(() => pool.end());
  const store = postgresStore({ pool });
  await store.migrate();
  const filler = join(disk, 'filler');
  return {
    store,
    /** Leaves no byte of it. Rejects with ENOSPC once it is full. */
    fill: () => writeFile(filler, Buffer.alloc(24 << 20)).catch(() => {}),
    free: () => rm(filler),
  };
}

/** Each commit writes so much, which fits in no page that is there already. */
const begin = () => ({ data: randomBytes(30_000).toString('base64') });

/** A database cluster is made for each test. */
const LONG = { timeout: 120_000 };

// Only root can make a disk.
describe.runIf(process.getuid?.() === 0)('while the disk of PostgreSQL is full', LONG, () => {
  async function shop() {
    const disk = await onSmallDisk();
    const app = await scene({
      data: disk.store,
      gate: { begin },
      session: { storeDeadlineMs: 60_000 },
    });
    const [paying, other, held] = [
      await app.sessionAt('has_items'),
      await app.sessionAt('has_items'),
      await app.sessionAt('payment'),
    ];
    const step = { tool: 'cart.pay', digest: '', uncertain: 'hold' } as const;
    await claimed(disk.store, claimOf(held.id, { states: undefined, step, leaseMs: 1 }));
    const call = await begins(app, 'cart.checkout', () => paying.call('cart.checkout'));
    await disk.fill();
    call.finish();
    await expect
      .poll(() => app.errors)
      .toContainEqual(expect.objectContaining({ name: 'StoreUnavailable' }));
    app.ledger.calls.length = 0;
    return { app, disk, call, other, held };
  }

  it('no further tool runs, health says so, and the commit that waits brings all back', async () => {
    const { app, disk, call, other } = await shop();
    for (let times = 0; times < 3; times++)
      expect(reasonOf(await other.call('cart.checkout'))).toBe('unavailable');
    expect(app.ledger.calls).toEqual([]);
    expect(await healthOf(app)).toMatchObject({
      status: 503,
      report: { failing: ['store'], workflows: [{ store: 'failing' }] },
    });
    await disk.free();
    expect(await passUntil(app.clock, call.answer)).not.toHaveProperty('result.isError');
    expect(reasonOf(await other.call('cart.checkout'))).toBeUndefined();
    expect(await healthOf(app)).toMatchObject({
      status: 200,
      report: { workflows: [{ store: 'ok' }] },
    });
  });

  it('where no commit waits any more, the next claim finds out that there is room', async () => {
    const { app, disk, call, other } = await shop();
    expect(await passUntil(app.clock, call.answer)).toHaveProperty('result.isError', true);
    expect(reasonOf(await other.call('cart.checkout'))).toBe('unavailable');
    await disk.free();
    app.clock.advance(1_000);
    expect(reasonOf(await other.call('cart.checkout'))).toBeUndefined();
  });

  it('a person can resolve what is held while claims are refused', async () => {
    const { app, disk, other, held } = await shop();
    expect(reasonOf(await other.call('cart.checkout'))).toBe('unavailable');
    await disk.free();
    // The clock stands still: claims are not tried again.
    expect(reasonOf(await other.call('cart.checkout'))).toBe('unavailable');
    expect(await app.runs.resolve(held.id, 'succeeded')).toMatchObject({ resolved: true });
    await app.run(held.id).isIn('confirmed', 'idle');
  });
});

describe('while Redis', () => {
  async function shop() {
    const server = await startRedis();
    onTestFinished(() => server.stop());
    const client = new Redis(server.url, { enableOfflineQueue: false });
    client.on('error', () => {});
    await once(client, 'ready');
    onTestFinished(() => client.disconnect());
    const store = redisStore({ client });
    const app = await scene({ session: { store }, shape: { mode: 'stateful', answers: 'json' } });
    const session = await app.session();
    expect(reasonOf(await session.call('cart.add_item'))).toBeUndefined();
    expect(await healthOf(app)).toMatchObject({ status: 200, report: { status: 'ok' } });
    return { app, client, server, session };
  }

  const FAILING = { status: 503, report: { failing: ['store'] } };

  it('is dead, the first claim that fails makes health say so', async () => {
    const { app, server, session } = await shop();
    await server.kill9();
    expect(reasonOf(await session.call('cart.add_item'))).toBe('unavailable');
    expect(await healthOf(app)).toMatchObject(FAILING);
  });

  it('is full, the first claim that fails makes health say so', async () => {
    const { app, client, session } = await shop();
    await client.config('SET', 'maxmemory', '1');
    expect(reasonOf(await session.call('cart.add_item'))).toBe('unavailable');
    expect(await healthOf(app)).toMatchObject(FAILING);
    await client.config('SET', 'maxmemory', '0');
    app.clock.advance(1_000);
    expect(await healthOf(app)).toMatchObject({ status: 200 });
  });

  it('does not answer, health does within a second', async () => {
    const { app, client } = await shop();
    await client.client('PAUSE', 60_000, 'ALL');
    app.clock.advance(10_000);
    const asked = healthOf(app);
    await settle();
    app.clock.advance(999);
    expect(await asked).toMatchObject(FAILING);
  });

  it('evicts keys, health is degraded for an hour, and never unready', async () => {
    const { app, client } = await shop();
    await client.set('of another program', 'x'.repeat(100_000), 'EX', 1_000);
    await client.config('SET', 'maxmemory-policy', 'volatile-lru');
    await client.config('SET', 'maxmemory', '1');
    await client.get('makes room').catch(() => {});
    await expect
      .poll(() => client.set('more', 'x').catch(() => client.info('stats')))
      .toMatch(/^evicted_keys:[1-9]/m);
    await client.config('SET', 'maxmemory', '0');
    const alarmed = { status: 'degraded', degraded: ['evictions'], failing: [] };
    expect(await healthOf(app)).toMatchObject({
      status: 200,
      report: { ...alarmed, workflows: [{ store: 'ok', evictions: 'rising' }] },
    });
    expect(app.errors).toContainEqual(
      expect.objectContaining({ message: expect.stringMatching(/evicted \d+ keys/) }),
    );
    app.clock.advance(60 * 60_000);
    expect((await healthOf(app)).report.status).toBe('ok');
  });

  it('hides its evictions, health says so', async () => {
    const { app, client } = await shop();
    await client.acl('SETUSER', 'default', '-info');
    expect(await healthOf(app)).toMatchObject({
      status: 200,
      report: { status: 'ok', workflows: [{ evictions: 'hidden' }] },
    });
  });
});

it('a commit too large for the store holds up no other run', async () => {
  const { store: documents } = documentsOfTest().start({ maxBytes: 20_000 });
  const store = guardStore(documents, 2_000, new ManualClock(), new Events({}));
  const large = claimOf('large', {
    create: {},
    initial: { state: 'empty', context: 'x'.repeat(12_000), updatedAt: 0 },
  });
  const { snapshot } = await claimed(store, large);
  const tooLarge = commitOf(large, { snapshot: { state: 'empty', context: 'x'.repeat(25_000) } });
  await expect(store.commit(tooLarge, snapshot)).rejects.toThrow('ERR_INTERLOCK_STORE');
  expect(await claimStatus(store, 'other', { create: {} })).toBe('claimed');
});
