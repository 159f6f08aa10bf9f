import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';
import { connect, type TestClient } from '../helpers/client.ts';
import { cases } from '../helpers/few.ts';
import { sharedPostgres, sharedRedis } from '../services/shared.ts';
import { startFleet } from './fleet.ts';

const SESSIONS = cases(30);
const AT_ONCE = 20;
const BACKENDS = [
  { kind: 'redis', url: sharedRedis },
  { kind: 'postgres', url: sharedPostgres },
] as const;

const listChanges = ({ log }: TestClient): number =>
  log.filter((each) => each === 'list_changed').length;

/**
 * Walks one session through the checkout. Returns how long after its call's answer each
 * `list_changed` arrived.
 */
async function walk(url: URL): Promise<number[]> {
  const client = await connect(url);
  const latencies: number[] = [];
  try {
    await client.streaming;
    expect(await client.tools()).toEqual(['cart.add_item', 'cart.view']);
    expect((await client.call('cart.pay')).isError).toBe(true);
    const steps: [string, string[]][] = [
      ['cart.add_item', ['cart.add_item', 'cart.checkout', 'cart.view']],
      ['cart.checkout', ['cart.pay', 'cart.view']],
      ['cart.pay', ['cart.view']],
    ];
    for (const [tool, after] of steps) {
      const seen = listChanges(client);
      expect((await client.call(tool)).isError).toBe(false);
      const answered = performance.now();
      await expect.poll(() => listChanges(client), { interval: 1, timeout: 10_000 }).toBe(seen + 1);
      latencies.push(performance.now() - answered);
      expect(await client.tools()).toEqual(after);
    }
    expect(listChanges(client)).toBe(3);
    await client.transport.terminateSession();
  } finally {
    await client.close();
  }
  return latencies;
}

describe.each(BACKENDS)(
  'three instances on $kind, behind a proxy that picks one at random',
  ({ kind, url }) => {
    it(`serve ${SESSIONS} sessions: every list is right, and every list_changed arrives once`, {
      timeout: 180_000,
    }, async () => {
      const name = `fleet_${randomUUID().replaceAll('-', '').slice(0, 12)}`;
      const address = await url();
      if (kind === 'postgres') {
        onTestFinished(async () => {
          const client = new pg.Client({ connectionString: address });
          await client.connect();
          await client.query(`DROP SCHEMA IF EXISTS ${name} CASCADE`);
          await client.end();
        });
      }
      const fleet = await startFleet(3, kind, address, name);
      onTestFinished(() => fleet.close());
      const latencies: number[] = [];
      let left = SESSIONS;
      const lane = async (): Promise<void> => {
        while (left-- > 0) latencies.push(...(await walk(fleet.url)));
      };
      await Promise.all(Array.from({ length: AT_ONCE }, lane));
      latencies.sort((a, b) => a - b);
      const at = (share: number): string =>
        (latencies[Math.floor(latencies.length * share)] ?? 0).toFixed(1);
      console.log(
        `${kind}: ${latencies.length} list_changed, median ${at(0.5)} ms, ` +
          `p99 ${at(0.99)} ms after the answer`,
      );
      expect(latencies).toHaveLength(SESSIONS * 3);
      expect(Math.min(...fleet.served)).toBeGreaterThan(SESSIONS);
    });
  },
);
