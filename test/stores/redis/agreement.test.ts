import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { Redis } from 'ioredis';
import { afterAll, describe, expect, it } from 'vitest';
import { claimOf, commitOf } from '../../../packages/testing/src/fixtures.ts';
import { redisStore } from '../../../src/stores/redis.ts';
import { verifyTrail } from '../../../src/stores/trail.ts';
import { anyNote, anyText, expectSameAnswers, inMemory } from '../../helpers/agreement.ts';
import { sharedRedis } from '../../services/shared.ts';

const redis = new Redis(await sharedRedis());
afterAll(() => redis.disconnect());

const inRedis = (chainTrail: boolean) =>
  redisStore({ client: redis, prefix: `test-${randomUUID()}`, chainTrail });

describe('redisStore() and memoryStore()', () => {
  it('answer any sequence of operations the same, and their trails verify', async () => {
    await expectSameAnswers((chainTrail) => [inRedis(chainTrail), inMemory(chainTrail)], 75);
  }, 60_000);

  it('finds a change of any text of an entry', async () => {
    await fc.assert(
      fc.asyncProperty(anyNote, anyText, async (said, state) => {
        const store = inRedis(true);
        for (const to of [state, 'paid', state]) {
          const claim = claimOf('run', { create: {}, entry: said });
          await store.claim(claim);
          const trail = { from: state, to, event: state, payload: said.args, ...said };
          await store.commit(commitOf(claim, { trail, snapshot: { state: to } }));
        }
        const from = { run: 'run', workflow: 'checkout' };
        const entries = await store.history(from);
        expect(verifyTrail(entries, { from })).toEqual([]);
        const altered = entries.map((entry) =>
          entry.seq === 2 ? { ...entry, from: `${entry.from}.` } : entry,
        );
        expect(verifyTrail(altered, { from })).toMatchObject([{ seq: 2, fault: 'altered' }]);
      }),
      { numRuns: 50 },
    );
  }, 60_000);
});
