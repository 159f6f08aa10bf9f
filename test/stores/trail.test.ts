import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { failedStep, step } from '../../packages/testing/src/fixtures.ts';
import { memoryStore } from '../../src/stores/memory.ts';
import type { Json, TrailDraft, TrailEntry } from '../../src/stores/store.ts';
import { verifyTrail } from '../../src/stores/trail.ts';
import { few } from '../helpers/few.ts';
import { ManualTime } from '../helpers/manual-clock.ts';

/** Any text, halves of surrogate pairs too. */
const text = fc.string({ unit: 'binary' });
const json = fc.jsonValue() as fc.Arbitrary<Json>;

/** What an entry may say beside its target state. */
const drafts = fc.record(
  {
    from: text,
    event: fc.option(text),
    outcome: fc.constantFrom('succeeded', 'failed', 'input_required', 'unknown'),
    kind: text,
    tool: text,
    digest: text,
    args: json,
    actor: text,
    requestId: fc.oneof(text, fc.integer()),
    workflowVersion: fc.nat(),
    payload: json,
    errors: fc.array(json),
    note: text,
    calledBy: text,
  } satisfies Readonly<Record<keyof Omit<TrailDraft, 'to'>, fc.Arbitrary<unknown>>>,
  { requiredKeys: ['from', 'event'] },
) as fc.Arbitrary<TrailDraft>;

const FROM = { run: 'run', workflow: 'checkout' };

const attempts = fc.array(fc.tuple(drafts, fc.option(text)), { minLength: 2, maxLength: 8 });

/** The chained trail of those attempts. Those with a target state are commits. */
async function trailOf(
  each: readonly (readonly [TrailDraft, string | null])[],
): Promise<TrailEntry[]> {
  const time = new ManualTime();
  const store = memoryStore({ now: time.now, chainTrail: true });
  await store.open('run', {}, 1_000_000);
  for (const [draft, to] of each) {
    time.advance(1);
    if (to === null) await failedStep(store, 'run', {}, { outcome: undefined, ...draft });
    else await step(store, 'run', {}, { trail: { ...draft, to } });
  }
  return store.history(FROM);
}

const RUNS = few(20);

describe('verifyTrail()', () => {
  it('finds nothing in an unchanged trail, from any entry on', async () => {
    const property = fc.asyncProperty(attempts, fc.nat(7), async (each, dropped) => {
      const trail = await trailOf(each);
      expect(verifyTrail(trail, { from: FROM })).toEqual([]);
      const later = JSON.parse(JSON.stringify(trail.slice(dropped)));
      expect(verifyTrail(later, { from: FROM })).toEqual([]);
    });
    await fc.assert(property, RUNS);
  });

  it('finds each entry of which any part was altered', async () => {
    const property = fc.asyncProperty(attempts, fc.nat(), drafts, async (each, place, other) => {
      const trail = await trailOf(each);
      const index = place % trail.length;
      const members = Object.entries({ ...other, version: 99, attempt: 99, at: 99, to: 'changed' });
      for (const [name, value] of members) {
        const before: unknown = Reflect.get(trail[index] ?? {}, name);
        if (JSON.stringify(before) === JSON.stringify(value)) continue;
        const altered = trail.map((entry, at) =>
          at === index ? { ...entry, [name]: value } : entry,
        );
        const fault = { index, seq: index + 1, fault: 'altered' };
        expect(verifyTrail(altered, { from: FROM }), name).toEqual([fault]);
      }
    });
    await fc.assert(property, RUNS);
  });

  it('finds where an entry was dropped, unless it is the oldest or the newest', async () => {
    const property = fc.asyncProperty(attempts, fc.nat(), async (each, place) => {
      const trail = await trailOf(each);
      const index = place % trail.length;
      const rest = trail.filter((_, at) => at !== index);
      const isAtEnd = index === 0 || index === trail.length - 1;
      const fault = { index, seq: index + 2, fault: 'missing' };
      expect(verifyTrail(rest, { from: FROM })).toEqual(isAtEnd ? [] : [fault]);
    });
    await fc.assert(property, RUNS);
  });

  it('finds where two entries were swapped, even with their numbers left in order', async () => {
    const property = fc.asyncProperty(attempts, fc.nat(), async (each, place) => {
      const trail = await trailOf(each);
      const index = place % (trail.length - 1);
      const [one, other] = [trail[index], trail[index + 1]];
      if (one === undefined || other === undefined) throw new Error('No two entries');
      const swapped = [...trail.slice(0, index), other, one, ...trail.slice(index + 2)];
      expect(verifyTrail(swapped, { from: FROM }).map(({ fault }) => fault)).toContain('order');
      const renumbered = swapped.map((entry, at) => ({ ...entry, seq: at + 1 }));
      expect(verifyTrail(renumbered, { from: FROM }).map(({ fault }) => fault)).toContain(
        'altered',
      );
    });
    await fc.assert(property, RUNS);
  });

  it('finds a trail of which each entry was written anew, by the hash that was kept', async () => {
    const said: readonly [TrailDraft, string | null][] = [
      [{ from: 'a', event: null }, 'b'],
      [{ from: 'b', event: null }, null],
    ];
    const [kept, anew] = [await trailOf(said), await trailOf([...said.slice(1), ...said])];
    const newest = kept.at(-1)?.hash;
    expect(verifyTrail(kept, { from: FROM, newest })).toEqual([]);
    const cut = { index: -1, seq: 0, fault: 'cut' };
    expect(verifyTrail(anew, { from: FROM, newest })).toEqual([cut]);
    expect(verifyTrail(kept.slice(0, 1), { from: FROM, newest })).toEqual([cut]);
    expect(verifyTrail([], { from: FROM, newest })).toEqual([cut]);
  });

  it('finds the first entry of another run', async () => {
    const trail = await trailOf([[{ from: 'a', event: null }, 'b']]);
    const from = { ...FROM, run: 'other' };
    expect(verifyTrail(trail, { from })).toEqual([{ index: 0, seq: 1, fault: 'foreign' }]);
  });

  it('finds an entry without a hash, or with one of another kind, unchained', async () => {
    const trail = await trailOf([
      [{ from: 'a', event: null }, 'b'],
      [{ from: 'b', event: null }, null],
    ]);
    for (const hash of [undefined, '', 'md5:00', 'sha256:zz']) {
      const [first, second] = trail;
      const { hash: _, ...bare } = second as TrailEntry;
      const spoilt = { ...bare, ...(hash !== undefined && { hash }) };
      const found = verifyTrail([first as TrailEntry, spoilt], { from: FROM });
      expect(found).toEqual([{ index: 1, seq: 2, fault: 'unchained' }]);
    }
  });

  it('finds nothing in no entries', () => {
    expect(verifyTrail([], { from: FROM })).toEqual([]);
  });
});
