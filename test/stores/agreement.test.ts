import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { claimOf, commitOf, HOUR } from '../../packages/testing/src/fixtures.ts';
import { freezeOf } from '../../packages/testing/src/freezes.ts';
import { adaptStateStore } from '../../src/stores/adapt.ts';
import { memoryStore } from '../../src/stores/memory.ts';
import type { AtomicStateStore, Json } from '../../src/stores/store.ts';
import { few } from '../helpers/few.ts';
import { JsonStateStore } from '../helpers/json-state-store.ts';
import { ManualTime } from '../helpers/manual-clock.ts';

const RUNS = ['run-1', '__proto__'];

/** Few names, so that operations concern the same runs. */
const name = {
  run: fc.constantFrom(...RUNS),
  workflow: fc.constantFrom('checkout', 'session'),
  token: fc.constantFrom('t1', 't2', 't3', 't4', 't5'),
  digest: fc.constantFrom('d1', 'd2'),
  uncertain: fc.constantFrom('hold', 'retry'),
  use: fc.constantFrom<Json | undefined>(undefined, null, { amounts: [1.5] }),
  state: fc.constantFrom('empty', 'paid'),
};

const claim = fc.record({
  kind: fc.constant('claim'),
  ...name,
  states: fc.constantFrom(undefined, ['empty'], ['paid'], []),
  create: fc.boolean(),
  leaseMs: fc.constantFrom(10, 1_000),
});
const commit = fc.record({
  kind: fc.constant('commit'),
  ...name,
  as: fc.constantFrom(undefined, undefined, 't1', 't5', 'other'),
  ended: fc.boolean(),
  settles: fc.constantFrom(undefined, false, 'all' as const),
});
const freeze = fc.record({
  kind: fc.constantFrom('freeze', 'thaw'),
  ...name,
  create: fc.boolean(),
});
/** One thing that a client, an operator, a crash or the clock may do. */
const action = fc.oneof(
  { weight: 5, arbitrary: claim },
  { weight: 4, arbitrary: commit },
  { weight: 2, arbitrary: freeze },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('renew', 'release'), ...name }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('read', 'history'), ...name }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('open', 'delete', 'end'), ...name }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('wait'), ms: fc.constantFrom(5, 10, 1_000, HOUR) }),
  },
);
type Action = typeof action extends fc.Arbitrary<infer T> ? T : never;

describe('every in-process store', () => {
  it('answers any sequence of operations as every other one does', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(action, { maxLength: 60 }), async (actions) => {
        const [memory, adapted] = makeStores();
        expect(await play(adapted.store, adapted.time, actions)).toEqual(
          await play(memory.store, memory.time, actions),
        );
      }),
      few(75),
    );
  });

  it('deletes a run that has expired as one that it does not know', async () => {
    const about = { run: 'run-1', workflow: 'checkout', token: 't1', digest: 'd1' } as const;
    const rest = { ...about, uncertain: 'hold', use: undefined, state: 'empty' } as const;
    for (const { store, time } of makeStores()) {
      await perform(store, time, { kind: 'open', ...rest });
      for (let hour = 0; hour < 2; hour++) await perform(store, time, { kind: 'wait', ms: HOUR });
      expect(await perform(store, time, { kind: 'delete', ...rest })).toBe('unknown');
    }
  });

  it('has a trail without gaps, in which no token moved a run twice', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(action, { maxLength: 80 }), async (actions) => {
        for (const { store, time } of makeStores()) {
          for (const each of actions) await perform(store, time, each);
          for (const run of RUNS) await checkTrails(store, run);
        }
      }),
      few(75),
    );
  });
});

async function checkTrails(store: AtomicStateStore, run: string): Promise<void> {
  const record = await store.read(run, HOUR);
  for (const [workflow, { snapshot }] of Object.entries(record?.workflows ?? {})) {
    const trail = await store.history({ run, workflow }, 1_000);
    const oldest = trail[0]?.seq ?? 1;
    expect(trail.map(({ seq }) => seq)).toEqual(trail.map((_, index) => oldest + index));
    expect(oldest === 1 || trail.length === 50).toBe(true);
    const moves = trail.filter(({ to }) => to !== undefined);
    const first = (snapshot.version ?? 0) - moves.length + 1;
    expect(moves.map(({ version }) => version)).toEqual(moves.map((_, index) => first + index));
    expect(first === 1 || trail.length === 50).toBe(true);
    const tokens = trail.map(({ event }) => event);
    expect(new Set(tokens).size).toBe(tokens.length);
  }
}

function makeStores() {
  const [one, other] = [new ManualTime(), new ManualTime()];
  const options = { now: other.now, onWarning: () => {} };
  return [
    { store: memoryStore({ now: one.now }), time: one },
    { store: adaptStateStore(new JsonStateStore(), options), time: other },
  ] as const;
}

/** All answers, with each idempotency key replaced by its place among all keys. */
async function play(
  store: AtomicStateStore,
  time: ManualTime,
  actions: readonly Action[],
): Promise<unknown> {
  const keys: string[] = [];
  const numbered = (key: string, value: unknown) => {
    if (key !== 'idempotencyKey') return value;
    if (!keys.includes(String(value))) keys.push(String(value));
    return keys.indexOf(String(value));
  };
  const answers: unknown[] = [];
  for (const each of actions)
    answers.push(JSON.stringify(await perform(store, time, each), numbered) ?? 'nothing');
  return answers;
}

/**
 * Runs live for two hours, so that a refresh of their expiry that comes a little late makes no
 * difference to waits of an hour.
 */
async function perform(store: AtomicStateStore, time: ManualTime, each: Action): Promise<unknown> {
  if ('ms' in each) return time.advance(each.ms);
  const { run, workflow, token, digest, uncertain, use, state } = each;
  const create = 'create' in each && each.create ? { principal: 'alice' } : undefined;
  const as = ('as' in each ? each.as : undefined) ?? token;
  const states = 'states' in each ? each.states : undefined;
  const leaseMs = 'leaseMs' in each ? each.leaseMs : 1_000;
  const ttlMs = 2 * HOUR;
  const step = { digest, uncertain: uncertain as 'hold' | 'retry', use };
  const request = claimOf(run, { workflow, token, step, states, create, leaseMs, ttlMs });
  switch (each.kind) {
    case 'claim':
      return store.claim(request);
    case 'commit':
      return store.commit(
        commitOf(request, {
          snapshot: { state, context: { digest } },
          trail: { from: '', to: state, event: as },
          ttlMs,
          as,
          ended: 'ended' in each && each.ended,
          settles: 'settles' in each ? each.settles : undefined,
        }),
      );
    case 'renew':
      return store.renew(request, token, leaseMs);
    case 'release':
      return store.release(request, token);
    case 'freeze':
    case 'thaw': {
      const by = each.kind === 'freeze' ? { actor: token, note: state } : undefined;
      const event = `${token} ${each.kind}`;
      const entry = { from: state, event, actor: token };
      return store.freeze(
        freezeOf(run, { workflow, token: event, freeze: by, create, entry, ttlMs }),
      );
    }
    case 'end':
      return store.end(run, { ifUnclaimed: digest === 'd1' });
    case 'read':
      return store.read(run, ttlMs, digest === 'd1' ? workflow : undefined);
    case 'history':
      return store.history(request);
    case 'open':
      return store.open(run, { principal: state }, ttlMs, token);
    default:
      return store.delete(run);
  }
}
