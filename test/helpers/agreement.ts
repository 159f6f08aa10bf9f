/** Random operations with hostile words, and whether two stores answer them the same. */
import fc from 'fast-check';
import { expect } from 'vitest';
import { claimOf, commitOf, HOUR } from '../../packages/testing/src/fixtures.ts';
import { HOSTILE } from '../../packages/testing/src/hostile.ts';
import { memoryStore } from '../../src/stores/memory.ts';
import type { AtomicStateStore, CallNote, Json } from '../../src/stores/store.ts';
import { verifyTrail } from '../../src/stores/trail.ts';
import { few } from './few.ts';

/** Any JavaScript string, halves of surrogate pairs and what scripts split by included. */
export const anyText = fc.oneof(
  fc.string({ unit: fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)) }),
  fc.string({ unit: fc.constantFrom('\t', '\n', '"', '\\', ' ', ':', '{', '}', '%', '-', 'a') }),
);
const maybe = <T>(of: fc.Arbitrary<T>) => fc.option(of, { nil: undefined });
export const anyNote: fc.Arbitrary<CallNote> = fc.record({
  tool: maybe(anyText),
  digest: maybe(anyText),
  args: maybe(fc.jsonValue() as fc.Arbitrary<Json>),
  actor: maybe(anyText),
  requestId: maybe(fc.oneof(anyText, fc.integer())),
  workflowVersion: maybe(fc.nat()),
});

/** Few names, so that operations meet. Leases end at once or never: a server has its own clock. */
const action = fc.record({
  kind: fc.constantFrom(
    ...['claim', 'claim', 'claim', 'commit', 'commit', 'commit', 'renew', 'renew', 'release'],
    ...['record', 'record', 'append', 'read', 'delete', 'open', 'end', 'anonymize'],
    ...['freeze', 'freeze', 'thaw', 'thaw'],
  ),
  isUnnamed: fc.boolean(),
  isOther: fc.boolean(),
  token: fc.constantFrom('t1', 't1', 't2', 't2', 't3', 't4\t"', 't5'),
  as: fc.constantFrom(undefined, undefined, 't1', 't5'),
  digest: fc.constantFrom('d1', 'd 2'),
  use: maybe(fc.oneof(anyText, fc.jsonValue()) as fc.Arbitrary<Json>),
  uncertain: fc.constantFrom('hold' as const, 'retry' as const),
  leaseMs: fc.constantFrom(0, 0, HOUR),
  keyMs: fc.constantFrom(undefined, 2 * HOUR),
  states: fc.constantFrom(undefined, undefined, ['empty', 'pa\tid'], ['empty']),
  from: fc.constantFrom(0, 0, 1, 2, 3),
  hold: fc.constantFrom(undefined, undefined, 'undecided', 'unk\tnown'),
  state: fc.constantFrom('empty', 'pa\tid'),
  settles: fc.constantFrom(undefined, false, 'all' as const),
  outcome: fc.constantFrom('failed' as const, 'refused' as const, undefined),
  by: fc.record({ actor: anyText, note: anyText }),
  isOn: fc.boolean(),
  note: anyNote,
});
type Action = typeof action extends fc.Arbitrary<infer T> ? T : never;

const hostile = fc.constantFrom(...Object.values(HOSTILE));
const play = fc.record({
  run: fc.oneof(fc.constant('run'), hostile),
  workflow: fc.oneof(fc.constant('__proto__'), hostile),
  chainTrail: fc.boolean(),
  actions: fc.array(action, { maxLength: 40 }),
});
type Play = typeof play extends fc.Arbitrary<infer T> ? T : never;

type WholeStore = Required<AtomicStateStore>;

/** The store with which most others are compared. */
export const inMemory = (chainTrail: boolean): WholeStore =>
  memoryStore({ chainTrail }) as WholeStore;

/**
 * Expects the store to answer any sequence of operations as the other one does, and its chained
 * trails to verify. Each play has both stores empty.
 */
export async function expectSameAnswers(
  makeStores: (chainTrail: boolean) => readonly [store: WholeStore, other: WholeStore],
  plays: number,
): Promise<void> {
  await fc.assert(
    fc.asyncProperty(play, async (each) => {
      const [store, other] = makeStores(each.chainTrail);
      const { answers, runs } = await answersOf(store, each);
      expect(answers).toEqual((await answersOf(other, each)).answers);
      if (!each.chainTrail) return;
      for (const run of runs)
        for (const workflow of ['checkout', each.workflow]) {
          const from = { run, workflow };
          expect(verifyTrail(await store.history(from, 1000), { from })).toEqual([]);
        }
    }),
    few(plays),
  );
}

const TIMES = ['now', 'at', 'since', 'until', 'updatedAt', 'remainingMs', 'oldestClaim'];
/** The times of its entry are in a hash. */
const HASHES = ['hash', 'previous'];

/**
 * All answers without times, with each idempotency key replaced by its place among all keys. And
 * the runs, of which all but the first one are anonymous.
 */
async function answersOf(
  store: WholeStore,
  { run: first, workflow: other, actions }: Play,
): Promise<{ readonly answers: readonly unknown[]; readonly runs: readonly string[] }> {
  const keys: string[] = [];
  const runs = [first];
  const workflows = ['checkout', other];
  const comparable = (name: string, value: unknown) => {
    if (TIMES.includes(name) || HASHES.includes(name)) return 0;
    const place = typeof value === 'string' ? runs.indexOf(value) : 0;
    if (place > 0) return `anonymous ${place}`;
    if (name !== 'idempotencyKey') return value;
    if (!keys.includes(String(value))) keys.push(String(value));
    return keys.indexOf(String(value));
  };
  const answers: unknown[] = [];
  const say = (answer: unknown): void => {
    const written = JSON.stringify(answer, comparable);
    answers.push(written === undefined ? undefined : JSON.parse(written));
  };
  for (const each of actions) {
    const run = (each.isUnnamed && runs.at(-1)) || first;
    const answer = await perform(store, run, each.isOther ? other : 'checkout', each);
    if (each.kind === 'anonymize' && typeof answer === 'string') runs.push(answer);
    say(answer);
    say(await store.read(run, HOUR));
    for (const workflow of workflows) say(await store.history({ run, workflow }));
  }
  for (const run of runs) say(await store.read(run, HOUR));
  for (const workflow of workflows) {
    const { states, ...count } = await store.count({ workflow, forMs: 0 });
    say({ ...count, states: states.toSorted((a, b) => (a.state < b.state ? -1 : 1)) });
    const held = await store.held({ workflow, limit: 10 });
    const stuck = await store.stuck({ workflow, limit: 10, forMs: 0, states: ['empty'] });
    const unsettled = await store.unsettled({ workflow, limit: 10 });
    for (const page of [held, stuck, unsettled])
      say(page.runs.toSorted((a, b) => runs.indexOf(a.run) - runs.indexOf(b.run)));
  }
  say(await store.list({ principal: 'alice', limit: 10 }));
  return { answers, runs };
}

async function perform(
  store: WholeStore,
  run: string,
  workflow: string,
  each: Action,
): Promise<unknown> {
  const { token, as, digest, uncertain, use, leaseMs, states, state, settles, isOn } = each;
  const create = isOn ? { principal: 'alice' } : undefined;
  const request = claimOf(run, {
    workflow,
    token,
    step: { digest, uncertain, use },
    states,
    leaseMs,
    create,
    keyMs: each.keyMs,
    entry: isOn ? each.note : undefined,
  });
  const { outcome, note } = each;
  const errors = isOn && note.args !== undefined ? [note.args, state] : undefined;
  const entry = { from: state, event: null, outcome, ...note, errors };
  const snapshot = { state, ...(isOn && { context: { digest } }) };
  const trail = { ...entry, to: state };
  switch (each.kind) {
    case 'claim':
      return store.claim(request);
    case 'commit': {
      // Mostly from any version, because most versions are too old.
      const from = each.isUnnamed ? each.from : undefined;
      return store.commit(commitOf(request, { snapshot, trail, as, from, ended: isOn, settles }));
    }
    case 'record': {
      const { initial, ttlMs } = request;
      const { from } = each;
      return store.record({ run, workflow, token, from, initial, create, snapshot, trail, ttlMs });
    }
    case 'freeze':
    case 'thaw': {
      const { initial, ttlMs } = request;
      const freeze = each.kind === 'freeze' ? each.by : undefined;
      const said = { from: state, event: 'mark', ...each.by };
      return store.freeze({ run, workflow, token, initial, create, freeze, entry: said, ttlMs });
    }
    case 'renew':
      return store.renew(request, token, leaseMs, { hold: each.hold });
    case 'release':
      return store.release(request, token, {
        settles: settles !== false,
        ...(isOn && { entry: { ...entry, outcome: 'failed' as const } }),
      });
    case 'append':
      return store.append(request, entry);
    case 'read':
      return store.read(run, HOUR, isOn ? workflow : undefined);
    case 'delete':
      return isOn ? store.delete(run) : undefined;
    case 'end':
      return store.end(run, { ifUnclaimed: isOn });
    case 'anonymize':
      return store.anonymize(run);
    default:
      return store.open(run, { principal: 'alice' }, HOUR, token);
  }
}
