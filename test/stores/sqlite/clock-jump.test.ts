import { expect, it, onTestFinished } from 'vitest';
import { sqliteStore } from '../../../src/stores/sqlite.ts';
import { latch } from '../../helpers/latch.ts';
import { ManualTime } from '../../helpers/manual-clock.ts';
import { scene } from '../../helpers/scene.ts';
import { makeSqliteFile } from '../../helpers/sqlite-file.ts';

/** In milliseconds: the default. */
const LEASE = 8_000;

/**
 * Two processes on one file. The machine's clock, which SQLite's leases go by, is the test's; their
 * timers run on another clock, as Node's timers do not follow a clock that jumps.
 */
async function jumpDuringStep() {
  const machine = new ManualTime();
  const file = makeSqliteFile();
  const { opened: released, open: release } = latch();
  let isSlow = false;
  const here = await scene({
    data: sqliteStore({ database: file.connect(), now: machine.now }),
    behind: [(_req, _res, next) => void (isSlow ? released.then(() => next()) : next())],
  });
  const there = await scene({
    beside: here,
    data: sqliteStore({ database: file.connect(), now: machine.now }),
  });
  onTestFinished(() => file.remove());
  const client = await here.client();
  isSlow = true;
  const step = client.raw.call('cart.add_item');
  await expect.poll(async () => (await there.runs.read(client.run))?.status).toBe('running');
  expect((await there.runs.held()).runs).toEqual([]);
  machine.advance(LEASE + 1);
  return { here, there, client, step, release };
}

it('SQLite lists a live step as held where the clock jumps by a lease, until it is renewed', async () => {
  const { here, there, client, step, release } = await jumpDuringStep();
  expect((await there.runs.held()).runs).toMatchObject([{ run: client.run, status: 'held' }]);
  // The step's own process renews after a third of a lease, as it would anyway.
  here.clock.advance(LEASE / 3);
  await expect.poll(async () => (await there.runs.read(client.run))?.status).toBe('running');
  expect((await there.runs.held()).runs).toEqual([]);
  release();
  expect(await step).toMatchObject({ isError: false });
  await there.run(client.run).isIn('has_items', 'idle');
  expect(here.ledger.calls).toHaveLength(1);
});

it('SQLite saves a live step whose clock jumped, also before it is renewed', async () => {
  const { there, client, step, release } = await jumpDuringStep();
  release();
  expect(await step).toMatchObject({ isError: false });
  await there.run(client.run).isIn('has_items', 'idle');
});
