import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sqliteStore } from '../../../src/stores/sqlite.ts';
import { claimed, claimOf, claimStatus, commitOf, count, HOUR, step } from '../../../src/testing/fixtures.ts';
import { describeStateStore } from '../../../src/testing/index.ts';
import { makeSqliteFile, type SqliteFile } from '../../helpers/sqlite-file.ts';
import { type StoreProcess, startStoreProcess } from '../../helpers/store-process.ts';

let file: SqliteFile;
let other: StoreProcess;

beforeAll(async () => {
  file = makeSqliteFile();
  other = await startStoreProcess({ kind: 'sqlite', file: file.path });
});

afterAll(async () => {
  await other?.stop();
  file?.remove();
});

const makeStore = async () => ({
  store: sqliteStore({ database: file.connect() }),
  reopen: async () => other.store,
  close: async () => {},
});

describeStateStore('sqliteStore() next to another process', makeStore, { describe, it });

describe('sqliteStore() on one file in several processes', () => {
  it('makes its tables once when all start at the same moment', async () => {
    const fresh = makeSqliteFile();
    const starts = Array.from({ length: 4 }, () => startStoreProcess({ kind: 'sqlite', file: fresh.path }));
    const processes = await Promise.all(starts);
    const run = randomUUID();
    await processes[0]?.store.open(run, {}, HOUR);
    for (const [index, { store }] of processes.entries()) expect(await step(store, run)).toBe(index + 1);
    await Promise.all(processes.map((process) => process.stop()));
    fresh.remove();
  });

  it('gives each of 200 races for a run to exactly one', async () => {
    const own = sqliteStore({ database: file.connect() });
    for (let race = 0; race < 200; race += 1) {
      const run = randomUUID();
      const sides = [own, other.store, own, other.store];
      const results = await Promise.all(sides.map((side) => side.claim(claimOf(run, { create: {} }))));
      expect(count(results, ({ status }) => status === 'claimed')).toBe(1);
      expect(count(results, ({ status }) => status === 'busy')).toBe(3);
    }
  });

  it('goes on where it was after a process was killed in the middle of a step', async () => {
    const run = randomUUID();
    const victim = await startStoreProcess({ kind: 'sqlite', file: file.path });
    await victim.store.open(run, { principal: 'alice' }, HOUR);
    await step(victim.store, run, {}, { snapshot: { state: 'payment', context: { total: 12.5 } } });
    const interrupted = claimOf(run, { leaseMs: 50 });
    const { idempotencyKey } = await claimed(victim.store, interrupted);
    await victim.kill9();

    const restarted = await startStoreProcess({ kind: 'sqlite', file: file.path });
    const record = await restarted.store.read(run, HOUR);
    expect(record?.session.principal).toBe('alice');
    expect(record?.workflows.checkout?.snapshot).toMatchObject({ state: 'payment', context: { total: 12.5 } });
    expect(record?.workflows.checkout?.claim).toMatchObject({ token: interrupted.token, idempotencyKey });
    await expect.poll(() => claimStatus(restarted.store, run)).toBe('held');
    expect(await restarted.store.commit(commitOf(interrupted))).toEqual({ status: 'committed', version: 2 });
    await restarted.stop();
  });

  it('loses no commit that was answered, and nothing else, in kills at random moments', async () => {
    ...
  });
});
