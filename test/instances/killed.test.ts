import { randomUUID } from 'node:crypto';
import { createClient } from 'redis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type AtomicStateStore, runsOf } from '../../src/index.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { ADDRESS, startProgram } from '../helpers/program.ts';
import { RawSession, reasonOf } from '../helpers/raw.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';
import { sharedRedis } from '../services/shared.ts';

const INSTANCE = new URL('./instance.ts', import.meta.url).pathname;
const LEASE = '300';

interface Place {
  readonly kind: string;
  readonly address: string;
  readonly store: AtomicStateStore;
}

const places: readonly [string, (name: string) => Promise<Place>][] = [
  [
    'Redis',
    async (name) => {
      const address = await sharedRedis();
      const client = createClient({ url: address });
      await client.connect();
      onTestFinished(() => client.destroy());
      return { kind: 'redis', address, store: redisStore({ client, prefix: name }) };
    },
  ],
  [
    'SQLite',
    async () => {
      const file = makeSqliteFile();
      onTestFinished(() => file.remove());
      return {
        kind: 'sqlite',
        address: file.path,
        store: sqliteStore({ database: file.connect() }),
      };
    },
  ],
];

describe.each(places)('a process that is killed in the middle of a step, on %s', (_, place) => {
  it('has its held run told of by the next one, once, with the call that resolves it', async () => {
    const name = `killed-${randomUUID()}`;
    const { kind, address, store } = await place(name);
    const start = async (hangs: boolean) => {
      const args = [kind, address, name];
      const env = { LEASE_MS: LEASE, ...(hangs && { HANGS: 'cart.add_item' }) };
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
    const session = RawSession.resume(heir.url, id);
    await expect.poll(claimOf, { timeout: 10_000 }).toMatchObject({ live: false });
    for (let times = 0; times < 3; times++) {
      expect(reasonOf(await session.call('cart.add_item'))).toBe('held');
      await session.tools();
    }
    await expect.poll(heir.said).toContain('UnknownOutcome');
    expect(heir.said().match(/UnknownOutcome: the outcome/g)).toHaveLength(1);
    expect(heir.said()).toMatch(
      /a call of "cart\.add_item" is unknown.*see https:\/\/\S+outcome\)/,
    );

    const [, run = ''] =
      /runsOf\(gate, \{ store \}\)\.resolve\((".*?"), 'succeeded'\)/.exec(heir.said()) ?? [];
    const runs = runsOf(checkoutGate(), { store });
    expect(await runs.resolve(JSON.parse(run), 'succeeded')).toEqual({
      resolved: true,
      state: 'has_items',
    });
    expect(reasonOf(await session.call('cart.checkout'))).toBeUndefined();
  }, 60_000);
});
