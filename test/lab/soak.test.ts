import { describe, expect, it } from 'vitest';
import { soak } from '../../lab/soak/soak.ts';

describe('a soak', () => {
  it('finds no lost or extra move, and nothing left of the load', {
    timeout: 300_000,
  }, async () => {
    const seed = Math.floor(Math.random() * 1e9);
    console.log(`soak --seed ${seed}`);
    const result = await soak({ minutes: 0.12, clients: 4, seed, idleMs: 4_000 });
    expect(result.faults, `seed ${seed}: ${JSON.stringify(result.faults)}`).toEqual([]);
    expect(result.chapters).toBeGreaterThan(0);
    expect(result.tally.done).toBeGreaterThan(0);
  });
});
