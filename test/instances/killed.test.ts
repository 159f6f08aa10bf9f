import { randomUUID } from 'node:crypto';
import { Redis } from '@upstash/redis';
import { createClient } from 'redis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type HealthReport, runsOf } from '../../src/runs/index.ts';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { upstashStore } from '../../src/stores/upstash.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { makePostgresSchema } from '../helpers/postgres-schema.ts';
import { ADDRESS, startProgram } from '../helpers/program.ts';
import { RawSession, reasonOf, send } from '../helpers/raw.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';
import { sharedRedis } from '../services/shared.ts';
import { startUpstashRest } from '../services/upstash-rest.ts';

const INSTANCE = new URL('./instance.ts', import.meta.url).pathname;
const LEASE = '300';

interface Place {
  readonly kind: string;
  readonly address: string;
  /** The prefix or schema of this test's runs. */
  readonly name: string;
  readonly store: AtomicStateStore;
  readonly env?: NodeJS.ProcessEnv;
}

const places: readonly [string, () => Promise<Place>][] = [
  [
    'Redis',
    async () => {
      const address = await sharedRedis();
      const client = createClient({ url: address });
      await client.connect();
      onTestFinished(() => client.destroy());
      const name = `killed-${randomUUID()}`;
      return { kind: 'redis', address, name, store: redisStore({ client, prefix: name }) };
    },
  ],
  [
    'Upstash',
    async () => {
      const rest = await startUpstashRest(await sharedRedis());
      onTestFinished(() => rest.stop());
      const { url, token } = rest;
      const name = `killed-${randomUUID()}`;
      const store = upstashStore({ redis: new Redis({ url, token }), prefix: name });
      return { kind: 'upstash', address: url, name, store, env: { TOKEN: token } };
    },
  ],
  [
    'PostgreSQL',
    async () => {
      const place = await makePostgresSchema();
      onTestFinished(() => place.drop());
      const { url: address, schema: name } = place;
      const store = postgresStore({ pool: place.connect(), schema: name });
      await store.migrate();
      return { kind: 'postgres', address, name, store };
    },
  ],
  [
    'SQLite',
    async () => {
      const file = makeSqliteFile();
      onTestFinished(() => file.remove());
      const store = sqliteStore({ database: file.connect() });
      return { kind: 'sqlite', address: file.path, name: '', store };
    },
  ],
];

/** Kills a process during the first step of a session; another process serves the session on. */
async function killed({ kind, address, name, store, env: own }: Place) {
  const start = async (hangs: boolean) => {
    const args = [kind, address, name];
    const env = { ...own, LEASE_MS: LEASE, ...(hangs && { HANGS: 'cart.add_item' }) };
    const program = await startProgram(INSTANCE, { args, env, ready: ADDRESS });
    onTestFinished(program.kill9);
    let said = '';
    program.child.stderr?.on('data', (bytes) => {
      said += bytes;
    });
    return { url: new URL(program.match), said: () => said, kill9: program.kill9 };
  };
  const victim = await start(true);
  const { id } = await RawSession.begin(victim.url);
  const claimOf = async () => (await store.read(id, 60_000))?.workflows.checkout?.claim;
  RawSession.resume(victim.url, id)
    .call('cart.add_item')
    .catch(() => {});
  await expect.poll(claimOf).toMatchObject({ live: true });
  await victim.kill9();
  const heir = await start(false);
  return { id, claimOf, heir, session: RawSession.resume(heir.url, id) };
}

describe.each(places)('a process that is killed in the middle of a step, on %s', (_, place) => {
  it('has its held run told of by the next one, once, with the call that resolves it', async () => {
    const here = await place();
    const { claimOf, heir, session } = await killed(here);
    await expect.poll(claimOf, { timeout: 10_000 }).toMatchObject({ live: false });
    for (let times = 0; times < 3; times++) {
      expect(reasonOf(await session.call('cart.add_item'))).toBe('held');
      await session.tools();
    }
    await expect.poll(heir.said).toContain('UnknownOutcome');
    expect(heir.said().match(/UnknownOutcome: the outcome/g)).toHaveLength(1);
    expect(heir.said()).toMatch(
      /a call of "cart\.add_item" is unknown.*see https:\/\/\S+outcome-is-unknown\)/,
    );

    const [, idempotencyKey = ''] =
      /resolve\(\{ idempotencyKey: "(.*?)" \}, 'succeeded'\)/.exec(heir.said()) ?? [];
    const runs = runsOf(checkoutGate(), { store: here.store });
    expect(await runs.resolve({ idempotencyKey }, 'succeeded')).toEqual({
      resolved: true,
      state: 'has_items',
    });
    expect(reasonOf(await session.call('cart.checkout'))).toBeUndefined();
  }, 60_000);

  it('is found and resolved by a person who knows no key', async () => {
    const { store, ...rest } = await place();
    const { id, heir, session } = await killed({ store, ...rest });
    const runs = runsOf(checkoutGate(), { store, onError() {} });
    const health = async (authorization: string): Promise<[number, string]> => {
      const { status, text } = await send(new URL('/health', heir.url), {
        method: 'GET',
        headers: { authorization },
      });
      return [status, text];
    };

    await expect.poll(async () => (await runs.count()).held, { timeout: 10_000 }).toBe(1);
    const { runs: found } = await runs.held();
    expect(found).toMatchObject([
      { run: id, state: 'empty', status: 'held', claim: { tool: 'cart.add_item', live: false } },
    ]);
    expect((await runs.stuck({ forMs: 0, state: 'empty' })).runs).toMatchObject([{ run: id }]);

    const [status, shown] = await health('operator');
    const [{ heldRuns: [held] = [], ...counted } = {}] = (JSON.parse(shown) as HealthReport)
      .workflows as HealthReport['workflows'][number][];
    expect([status, counted]).toMatchObject([200, { store: 'ok', held: 1, running: 0 }]);
    expect(held).toMatchObject({ run: id, tool: 'cart.add_item' });
    expect(held?.idempotencyKey).toBe(found[0]?.claim?.idempotencyKey);
    expect((await health(''))[1]).not.toContain(id);
    const call = `.resolve({ idempotencyKey: "${held?.idempotencyKey}" }, 'succeeded')`;
    await expect.poll(heir.said).toContain(call);
    expect(heir.said()).not.toContain(id);
    expect(heir.said().match(/UnknownOutcome: the outcome/g)).toHaveLength(1);

    expect(await runs.resolve(held?.run ?? '', 'succeeded')).toMatchObject({ resolved: true });
    expect(await runs.held()).toEqual({ runs: [] });
    expect(JSON.parse((await health(''))[1])).toMatchObject({ workflows: [{ held: 0 }] });
    expect(reasonOf(await session.call('cart.checkout'))).toBeUndefined();
    await runs.delete(id);
    expect(await runs.count()).toMatchObject({ runs: 0, held: 0 });
  }, 60_000);
});
