import { describe, expect, it, onTestFinished } from 'vitest';
import { claimOf, claimStatus } from '../../packages/testing/src/fixtures.ts';
import { memoryStore } from '../../src/index.ts';
import { sqliteStore } from '../../src/stores/sqlite.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { ManualTime } from '../helpers/manual-clock.ts';
import { begins, pass, scene } from '../helpers/scene.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';

const HOUR = 3_600_000;

/** The stores whose clock a test can move. */
const STORES = {
  memory: (now: () => number) => memoryStore({ now }),
  SQLite: (now: () => number) => {
    const file = makeSqliteFile();
    onTestFinished(() => file.remove());
    return sqliteStore({ database: file.connect(), now });
  },
};

/** An app whose store has a clock of its own. */
async function jumping(kind: keyof typeof STORES, uncertain: 'hold' | 'retry' = 'hold') {
  const storeClock = new ManualTime();
  const workflow = checkoutGate().bindTool('cart.view', ['empty'], {
    success: 'ADD_ITEM',
    uncertain,
  });
  const app = await scene({ workflow, data: STORES[kind](storeClock.now) });
  return { app, storeClock, client: await app.client() };
}

describe.each(['memory', 'SQLite'] as const)('where the clock of a store jumps (%s)', (kind) => {
  it('forward, a live step looks held until it renews its lease, and commits once', async () => {
    const { app, storeClock, client } = await jumping(kind);
    const held = await begins(app, 'cart.view', () => client.raw.call('cart.view'));
    storeClock.advance(HOUR);
    await app.run(client.run).is('held');
    expect(await claimStatus(app.data, client.run)).not.toBe('claimed');
    await pass(app.clock, 3_000);
    expect((await app.runs.held()).runs).toEqual([]);
    held.finish();
    await held.answer;
    await app.run(client.run).isIn('has_items');
    expect(app.ledger.calls).toEqual(['cart.view']);
  });

  it('forward, a step that may be repeated can be taken over, and its own outcome moves nothing', async () => {
    const { app, storeClock, client } = await jumping(kind, 'retry');
    const first = await begins(app, 'cart.view', () => client.raw.call('cart.view'));
    storeClock.advance(HOUR);
    const token = 'of another process';
    const changes = { step: { tool: 'cart.view', digest: '', uncertain: 'retry' } } as const;
    expect(await claimStatus(app.data, client.run, { ...changes, token })).toBe('claimed');
    first.finish();
    await first.answer;
    expect((await app.runs.read(client.run))?.snapshot.version).toBe(0);
  });

  it('back and then right again, a call that was refused meanwhile has not shortened the run', async () => {
    const { app, storeClock, client } = await jumping(kind);
    await client.calls('cart.view');
    storeClock.advance(-25 * HOUR);
    expect(await claimStatus(app.data, client.run, { ttlMs: 24 * HOUR, states: [] })).toBe('state');
    expect((await client.raw.tools()).length).toBeGreaterThan(0);
    storeClock.advance(25 * HOUR);
    await app.run(client.run).isIn('has_items');
  });

  it('back, a live step commits, and a dead one blocks its run for longer', async () => {
    const { app, storeClock, client } = await jumping(kind);
    const held = await begins(app, 'cart.view', () => client.raw.call('cart.view'));
    storeClock.advance(-HOUR);
    held.finish();
    await held.answer;
    await app.run(client.run).isIn('has_items');
    const dead = claimOf(client.run, { states: undefined, leaseMs: 8_000 });
    expect((await app.data.claim(dead)).status).toBe('claimed');
    storeClock.advance(-HOUR);
    storeClock.advance(8_001);
    expect(await claimStatus(app.data, client.run, { states: undefined })).toBe('busy');
    storeClock.advance(HOUR);
    expect(await claimStatus(app.data, client.run, { states: undefined })).not.toBe('busy');
  });
});

it('where the clock of a process jumps, its steps and leases go on by their timers', async () => {
  const { app, client } = await jumping('memory');
  const held = await begins(app, 'cart.view', () => client.raw.call('cart.view'));
  for (const ms of [HOUR, -2 * HOUR]) {
    app.clock.jump(ms);
    expect((await client.raw.tools()).length).toBeGreaterThan(0);
  }
  held.finish();
  await held.answer;
  await app.run(client.run).isIn('has_items');
  await client.calls('cart.checkout');
});
