import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { claimOf, commitOf, HOUR, LONG } from '../../../packages/testing/src/fixtures.ts';
import { memoryStore } from '../../../src/stores/memory.ts';
import { postgresStore } from '../../../src/stores/postgres.ts';
import type { AtomicStateStore, CallNote, StepDescription } from '../../../src/stores/store.ts';
import { few } from '../../helpers/few.ts';
import { makePostgresSchema } from '../../helpers/postgres-schema.ts';

const TIMES = ['updatedAt', 'at', 'now', 'remainingMs', 'since', 'until'];

/** A call of a store, in a run whose key begins with the test's own prefix. */
interface Operation {
  ask(store: AtomicStateStore, prefix: string): Promise<unknown>;
}

/** A token is for one claim only, so a token always claims the same step. */
const CLAIMS: Readonly<
  Record<string, Partial<StepDescription> & { readonly states?: readonly string[] }>
> = {
  t1: { uncertain: 'retry', use: { amounts: [1.5, 1e21], '\\\0': '\ud800' } },
  t2: { uncertain: 'retry', states: ['has_items'], use: null },
  t3: { uncertain: 'retry', digest: 'other' },
  t4: { uncertain: 'retry', tool: 'cart.view\\\0', states: ['empty'], use: '' },
  t5: { uncertain: 'hold', use: [] },
  t6: { uncertain: 'hold', states: [] },
  t7: { uncertain: 'retry' },
  t8: { uncertain: 'hold', digest: 'other', states: ['empty', 'has_items'] },
};

const names = {
  run: fc.constantFrom('one', 'two'),
  workflow: fc.constantFrom('checkout', 'approval'),
  token: fc.constantFrom(...Object.keys(CLAIMS)),
  state: fc.constantFrom('empty', 'has_items'),
  /** Leases that end at once or after the test, so that no clock matters. */
  leaseMs: fc.constantFrom(0, 0, LONG),
  ttlMs: fc.constantFrom(HOUR, HOUR, HOUR, HOUR, 0),
};
const context = fc.constantFrom({ a: 1 }, null, undefined);
/** The entries of a claim or a release for the trail. */
const entry = fc.constantFrom<CallNote | undefined>(
  undefined,
  { tool: 'cart.pay', actor: 'alice', requestId: 7, workflowVersion: 3 },
  { digest: 'd\\0', args: null, requestId: '\ud800' },
  {},
);

const open = operation(
  'open',
  { ...names, principal: fc.constantFrom('alice', 'bob', undefined) },
  (store, { run, principal, ttlMs, token }) => store.open(run, { principal }, ttlMs, token),
);

const read = operation(
  'read',
  { ...names, about: fc.constantFrom('checkout', 'approval', undefined) },
  async (store, { run, ttlMs, about }) => {
    const record = await store.read(run, ttlMs, about);
    // A read that ends the session itself may say so or not.
    return ttlMs === 0 && record ? { ...record, sessionEnded: undefined } : record;
  },
);

const claim = operation(
  'claim',
  {
    ...names,
    context,
    entry,
    create: fc.constantFrom({}, undefined),
    keyMs: fc.constantFrom(undefined, undefined, 2 * HOUR),
  },
  (store, { run, token, state, context, ...request }) => {
    const { states, ...step } = CLAIMS[token] ?? {};
    const initial = { state, updatedAt: 0, ...(context !== undefined && { context }) };
    return store.claim(claimOf(run, { ...request, token, step, states, initial }));
  },
);

const commit = operation(
  'commit',
  {
    ...names,
    context,
    event: fc.constantFrom('GO', null),
    ended: fc.constantFrom(true, false, undefined),
    settles: fc.constantFrom(undefined, undefined, false, 'all' as const),
    as: fc.constantFrom(undefined, undefined, 'someone'),
    from: fc.constantFrom(undefined, undefined, 0, 1, 2),
  },
  (store, { run, workflow, token, state, context, event, ...options }) => {
    const snapshot = { state, ...(context !== undefined && { context }) };
    const trail = { from: 'somewhere', to: state, event, note: 'done', calledBy: 'bob' };
    const claim = claimOf(run, { workflow, token });
    return store.commit(commitOf(claim, { snapshot, trail, ...options }));
  },
);

const record = operation(
  'record',
  {
    ...names,
    token: fc.constantFrom('r1', 'r2', 'r3', 't7'),
    context,
    create: fc.constantFrom({ principal: 'carol' }, undefined),
    from: fc.constantFrom(0, 0, 1, 2, 3),
  },
  (store, { state, context, leaseMs: _, ...request }) => {
    const snapshot = { state, ...(context !== undefined && { context }) };
    const trail = { from: 'somewhere', to: state, event: 'lookup', outcome: 'succeeded' } as const;
    const initial = { state: 'empty', updatedAt: 0 };
    return store.record({ ...request, initial, snapshot, trail });
  },
);

const freeze = operation(
  'freeze',
  {
    ...names,
    token: fc.constantFrom('f1', 'f2', 'f3', 't5'),
    context,
    create: fc.constantFrom({ principal: 'carol' }, undefined, undefined),
    by: fc.constantFrom(
      undefined,
      undefined,
      { actor: 'ann', note: 'the provider charges twice' },
      { actor: '\\\0', note: '\ud800"' },
    ),
  },
  (store, { state, context, by, leaseMs: _, ...request }) => {
    const initial = { state, updatedAt: 0, ...(context !== undefined && { context }) };
    const entry = { from: state, event: 'mark', actor: by?.actor, note: by?.note };
    return store.freeze({ ...request, initial, freeze: by, entry });
  },
);

const renew = operation(
  'renew',
  { ...names, hold: fc.constantFrom(undefined, undefined, 'undecided') },
  (store, { token, leaseMs, hold, ...key }) => store.renew(key, token, leaseMs, { hold }),
);
const release = operation('release', { ...names, entry }, (store, { token, entry, ...key }) => {
  const failed = { from: 'somewhere', event: null, outcome: 'failed', kind: 'tool_error' } as const;
  return store.release(key, token, entry && { entry: { ...failed, ...entry } });
});
const append = operation(
  'append',
  { ...names, outcome: fc.constantFrom('refused', 'unknown', undefined) },
  (store, { outcome, ...key }) =>
    store.append?.(key, { from: 'somewhere', event: null, outcome }) ?? Promise.reject(),
);
const end = operation(
  'end',
  { ...names, ifUnclaimed: fc.boolean() },
  (store, { run, ifUnclaimed }) => store.end(run, { ifUnclaimed }),
);
const remove = operation('delete', names, (store, { run }) => store.delete(run));
const anonymize = operation('anonymize', names, async (store, { run }) => {
  const unnamed = await store.anonymize?.(run);
  if (unnamed === undefined) return undefined;
  const checkout = { run: unnamed, workflow: 'checkout' };
  return [
    await store.read(unnamed, HOUR),
    await store.history(checkout),
    await store.open(run, {}, 0),
  ];
});
const history = operation(
  'history',
  { ...names, limit: fc.constantFrom(undefined, 0, 1, 2) },
  (store, { limit, ...key }) => store.history(key, limit),
);

const anyOperation = fc.oneof(
  { weight: 2, arbitrary: open },
  { weight: 4, arbitrary: read },
  { weight: 16, arbitrary: claim },
  { weight: 10, arbitrary: commit },
  { weight: 4, arbitrary: record },
  { weight: 6, arbitrary: freeze },
  { weight: 4, arbitrary: renew },
  { weight: 4, arbitrary: release },
  { weight: 2, arbitrary: append },
  { weight: 3, arbitrary: end },
  { weight: 1, arbitrary: remove },
  { weight: 1, arbitrary: anonymize },
  { weight: 4, arbitrary: history },
);

const database = await makePostgresSchema();
afterAll(() => database.drop());
const pool = database.connect();
const store = postgresStore({ pool, schema: database.schema });
await store.migrate();

describe('postgresStore() beside the store in memory', () => {
  it('gives the same answers to any sequence of operations', { timeout: 60_000 }, async () => {
    const sequences = fc.array(anyOperation, { minLength: 10, maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(sequences, async (operations) => {
        const prefix = randomUUID();
        const expected = await answers(memoryStore(), operations, prefix);
        expect(await answers(store, operations, prefix)).toEqual(expected);
      }),
      few(30),
    );
  });
});

/**
 * The answers of the store without times, with each idempotency key replaced by its place among all
 * keys.
 */
async function answers(
  store: AtomicStateStore,
  operations: readonly Operation[],
  prefix: string,
): Promise<unknown[]> {
  const keys: string[] = [];
  const comparable = (name: string, value: unknown) => {
    if (TIMES.includes(name)) return undefined;
    if (name !== 'idempotencyKey') return value;
    if (!keys.includes(String(value))) keys.push(String(value));
    return keys.indexOf(String(value));
  };
  const given: unknown[] = [];
  for (const operation of operations) {
    const answer = await operation.ask(store, prefix);
    given.push(answer === undefined ? 'nothing' : JSON.parse(JSON.stringify(answer, comparable)));
  }
  return given;
}

/** An operation with random arguments, which a counterexample shows. */
function operation<Arguments extends { readonly run: string }>(
  name: string,
  model: { [Key in keyof Arguments]: fc.Arbitrary<Arguments[Key]> },
  ask: (store: AtomicStateStore, given: Arguments) => Promise<unknown>,
): fc.Arbitrary<Operation> {
  return fc.record(model).map((given) => ({
    ask: (store, prefix) => ask(store, { ...given, run: prefix + given.run }),
    [fc.toStringMethod]: () => `${name} ${fc.stringify(given)}`,
  }));
}
