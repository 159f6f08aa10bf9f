import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import { claimOf, count, HOUR, step } from '../../../packages/testing/src/fixtures.ts';
import { describeStateStore } from '../../../packages/testing/src/index.ts';
import { sqliteStore } from '../../../src/stores/sqlite.ts';
import { describeKills } from '../../helpers/killed-process.ts';
import { makeSqliteFile } from '../../helpers/sqlite-file.ts';
import { startStoreProcess } from '../../helpers/store-process.ts';
import { inOrder, takeSteps, versionsTo } from '../../helpers/take-steps.ts';

const file = makeSqliteFile();
const other = await startStoreProcess({ kind: 'sqlite', file: file.path });
afterAll(async () => {
  await other.stop();
  file.remove();
});

const makeStore = async () => ({
  store: sqliteStore({ database: file.connect() }),
  reopen: async () => other.store,
  close: async () => {},
});

// Concurrent, since these tests mostly wait for the clock.
describeStateStore('sqliteStore() next to another process', makeStore, {
  describe: describe.concurrent,
  it,
});

describe('sqliteStore() on one file in several processes', { timeout: 60_000 }, () => {
  it('makes its tables once when all start at the same moment', async () => {
    const fresh = makeSqliteFile();
    const starts = Array.from({ length: 4 }, () =>
      startStoreProcess({ kind: 'sqlite', file: fresh.path }),
    );
    const processes = await Promise.all(starts);
    const run = randomUUID();
    await processes[0]?.store.open(run, {}, HOUR);
    for (const [index, { store }] of processes.entries())
      expect(await step(store, run)).toBe(index + 1);
    await Promise.all(processes.map((process) => process.stop()));
    fresh.remove();
  });

  it('commits every step of processes that race in one run, without a gap', async () => {
    const run = randomUUID();
    const third = await startStoreProcess({ kind: 'sqlite', file: file.path });
    await other.store.open(run, {}, HOUR);
    const own = sqliteStore({ database: file.connect(), busyTimeoutMs: 30_000 });
    const made = await Promise.all([
      other.takeSteps(run, 150),
      third.takeSteps(run, 150),
      takeSteps(own, run, 50),
    ]);
    expect(inOrder(made)).toEqual(versionsTo(350));
    await third.stop();
  });

  it('takes exactly one of the writes of a switch that race in each of 100 rounds', async () => {
    const own = sqliteStore({ database: file.connect() });
    let known: string | undefined;
    for (let round = 0; round < 100; round += 1) {
      const writes = [own, other.store, own, other.store].map((side, at) => {
        const revision = `${round} ${at}`;
        return side.swapSwitch?.('checkout', known, { value: at, revision });
      });
      const taken = await Promise.all(writes);
      expect(count(taken, (isTaken) => isTaken === true)).toBe(1);
      known = `${round} ${taken.indexOf(true)}`;
      for (const side of [own, other.store])
        expect((await side.readSwitch?.('checkout'))?.revision).toBe(known);
    }
  });

  it('gives each of 200 races for a run to exactly one', async () => {
    const own = sqliteStore({ database: file.connect() });
    for (let race = 0; race < 200; race += 1) {
      const run = randomUUID();
      const sides = [own, other.store, own, other.store];
      const results = await Promise.all(
        sides.map((side) => side.claim(claimOf(run, { create: {} }))),
      );
      expect(count(results, ({ status }) => status === 'claimed')).toBe(1);
      expect(count(results, ({ status }) => status === 'busy')).toBe(3);
    }
  });
});

describeKills('sqliteStore() in a process that is killed', () =>
  startStoreProcess({ kind: 'sqlite', file: file.path }),
);
