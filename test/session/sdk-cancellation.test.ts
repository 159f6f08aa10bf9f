import { describe, expect, it } from 'vitest';
import { collect } from '../helpers/collect.ts';
import { ListEventStore } from '../helpers/event-store.ts';
import { latch } from '../helpers/latch.ts';
import { callOf } from '../helpers/raw.ts';
import { pass, scene } from '../helpers/scene.ts';

describe('a step on a server of the SDK, whose client timed out', () => {
  it.each(['json', 'sse'] as const)(
    'is saved when its handler succeeds after all (%s)',
    async (answers) => {
      const { client: connect, ledger, run, clock } = await scene({ shape: { answers } });
      const client = await connect();
      await client.calls('cart.add_item');
      await client.calls('cart.checkout');
      const handler = latch();
      ledger.gates.set('cart.pay', handler.opened);
      const leaving = new AbortController();
      const calling = client.raw.client.callTool({ name: 'cart.pay', arguments: {} }, undefined, {
        signal: leaving.signal,
      });
      await expect.poll(() => ledger.calls).toContain('cart.pay');
      // The SDK sends `notifications/cancelled`, as it does at a time-out.
      leaving.abort();
      await expect(calling).rejects.toThrow();
      await pass(clock, 6_000);
      handler.open();
      await expect
        .poll(async () => (await run(client.run).runs.read(client.run))?.snapshot.state)
        .toBe('confirmed');
      await run(client.run).is('idle');
      expect(await run(client.run).moves()).toEqual(['cart.add_item', 'cart.checkout', 'cart.pay']);
    },
  );
});

describe('answers that may be replayed', () => {
  it('do not keep their requests in memory', { timeout: 60_000 }, async () => {
    const events = new ListEventStore();
    // What the upstream's own event store keeps is its business.
    const eventStore = () => Object.assign(events, { storeEvent: async () => '1' });
    const { session: open } = await scene({ eventStore });
    const session = await open();
    const call = (id: number) =>
      session.post(callOf(id, 'cart.add_item', { sku: 'x'.repeat(1_000_000) }));
    await call(1);
    collect();
    const before = process.memoryUsage().heapUsed;
    for (let id = 2; id <= 40; id++) await call(id);
    collect();
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(20_000_000);
  });
});
