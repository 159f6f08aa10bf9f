import { describe, expect, it, onTestFinished } from 'vitest';
import {
  bytesOf,
  type Place,
  postgresPlace,
  redisPlace,
  stepTrips,
  upstashPlace,
} from '../../lab/bench/trips.ts';
import { sharedPostgres, sharedRedis } from '../services/shared.ts';

const PLACES: Readonly<Record<string, () => Promise<Place>>> = {
  Redis: async () => redisPlace(await sharedRedis()),
  Upstash: async () => upstashPlace(await sharedRedis()),
  PostgreSQL: async () => postgresPlace(await sharedPostgres()),
};

/** Bytes that a step and a renewal may send, beside the run's data. */
const MOST_BYTES: Readonly<Record<string, { step: number; renewal: number }>> = {
  Redis: { step: 1_720, renewal: 620 },
  Upstash: { step: 2_580, renewal: 1_050 },
  PostgreSQL: { step: 2_220, renewal: 780 },
};

// On a busy machine seconds pass between two calls, and then a session is read anew.
describe.each(Object.keys(PLACES))('the round trips to %s', { retry: 3 }, (name) => {
  it('are two for a step, and three where the process has to learn what others did', async () => {
    const place = (await PLACES[name]?.()) as Place;
    onTestFinished(() => place.close());
    expect(await stepTrips(place, 200)).toEqual({
      'one instance': 2,
      'four instances in turn': 3,
      'a fresh process, its first step': 3,
      'one instance with many live runs': 2,
    });
  });

  it('carry a run’s data once in a step, and never in a renewal', async () => {
    const place = (await PLACES[name]?.()) as Place;
    onTestFinished(() => place.close());
    const most = MOST_BYTES[name] ?? { step: 0, renewal: 0 };
    const bare = await bytesOf(place, 0);
    expect(bare.step).toBeLessThan(most.step);
    expect(bare.renewal).toBeLessThan(most.renewal);
    const full = await bytesOf(place, 12_000);
    expect(full.step).toBeLessThan(bare.step + 12_300);
    expect(full.renewal).toBeLessThan(most.renewal);
  });
});
