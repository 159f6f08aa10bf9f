import assert from 'node:assert/strict';
import {
  type CallNote,
  type Json,
  type TrailDraft,
  verifyTrail,
} from '../../../src/stores/index.ts';
import {
  claimed,
  claimOf,
  commitOf,
  failedStep,
  HOUR,
  type Promises,
  readClaim,
  type StoreStage,
  saidIn,
  same,
  step,
} from './fixtures.ts';
import { listed, stand, whereRunsAreListed } from './listed.ts';

/** Strings that have broken stores. Their names stand in the titles of the tests. */
export const HOSTILE: Readonly<Record<string, string>> = {
  'a prototype': '__proto__',
  'a method of every object': 'constructor',
  NUL: 'a\u0000b',
  'quotes and backslashes': `'"\`\\'; DROP TABLE workflows; --`,
  'braces, as in a hash tag': '{a}{}}{',
  'colons and per cent signs': 'session:%3A:%:',
  wildcards: '*?[a]_%',
  'line breaks': 'a\r\nb\u2028c',
  'spaces at the ends': ' a ',
  'nothing but a digit': '0',
  'something that looks like JSON': '{"state":"confirmed"}',
  'a number too large': '12345678901234567890',
  '4 KB of emoji': '😀'.repeat(1_024),
  'half of a surrogate pair': 'a\ud800b',
};

/** Two strings each that a careless key, collation or encoding takes for one. */
export const LOOKALIKES: readonly (readonly [string, string])[] = [
  ['a', 'A'],
  ['a', 'a '],
  ['a', 'a\u0000'],
  ['\u00e9', 'e\u0301'],
  ['\ud800', '\ud801'],
  ['\ud800', '\ufffd'],
  ['\u0000', '\\u0000'],
  ['1', '01'],
  ['%3A', ':'],
];

/** Ends of keys that a collation or a padded column takes for one. */
const NEAR_KEYS = ['-\u00e9ss', '-e\u0301ss', '-\u00c9SS', '-\u00e9\u00df', '-\u00e9ss ', '-ess'];

export const BIG: Json = {
  text: 'Ünïcødé 😀 \u0000 \u2028 "quotes" \\ </script>',
  halves: ['\ud83d', '\ude00'],
  numbers: [0, -1, 0.1, 1e21, 1e-7, Number.MAX_SAFE_INTEGER, Number.MIN_VALUE, Number.MAX_VALUE],
  empty: { array: [], object: {}, string: '', nothing: null, nested: [[], {}, [[]]] },
  flags: [true, false, null],
  keys: JSON.parse('{"__proto__":{"polluted":true},"constructor":1,"":2,"a\\u0000b":3}') as Json,
  deep: Array.from({ length: 60 }).reduce<Json>((inner) => ({ inner }), 'bottom'),
  many: Array.from({ length: 1_000 }, (_, index) => ({ id: index, name: `item ${index}` })),
};

/** @param maxBytes how many bytes a run may have */
export function hostilePromises(promises: Promises, maxBytes: number): void {
  const long = 'x'.repeat(Math.min(100_000, maxBytes / 20));
  const big: Json = { ...(BIG as object), long };

  for (const [name, text] of Object.entries(HOSTILE)) {
    promises(`${name} is an ordinary run key`, async ({ store, run }) => {
      const keys = [`${run}${text}`, `${text}${run}`];
      for (const key of keys) await store.open(key, { principal: text }, HOUR);
      for (const key of keys) {
        assert.equal((await store.read(key, HOUR))?.session.principal, text);
        await step(store, key);
        assert.equal(
          (await store.read(key, HOUR))?.workflows.checkout?.snapshot.state,
          'has_items',
        );
        await store.delete(key);
        assert.equal(await store.read(key, HOUR), undefined);
      }
    });

    promises(
      `${name} is an ordinary workflow, tool, state, event and actor`,
      async ({ store, run }) => {
        await store.open(run, {}, HOUR);
        const initial = { state: text, updatedAt: 0 };
        const asked = { tool: text, digest: text, uncertain: 'hold' } as const;
        const request = claimOf(run, { workflow: text, initial, states: ['x', text], step: asked });
        await claimed(store, request);
        const view = await store.read(run, HOUR);
        assert.deepEqual(Object.keys(view?.workflows ?? {}), [text]);
        const { tool, digest } = Object.values(view?.workflows ?? {})[0]?.claim ?? {};
        assert.deepEqual([tool, digest], [text, text]);
        const trail = { from: text, to: text, event: text, tool: text, actor: text, payload: text };
        await store.commit(commitOf(request, { snapshot: { state: text, context: text }, trail }));
        const { snapshot } = await claimed(store, claimOf(run, { workflow: text, states: [text] }));
        assert.deepEqual([snapshot.state, snapshot.context], [text, text]);
        same(await saidIn(store, run, text), [trail]);
      },
    );

    promises(`${name} is an ordinary word in the trail`, async (stage) => {
      const { store, run } = stage;
      await store.open(run, {}, HOUR);
      const [note, said] = [noteOf(text), { ...noteOf(text), ...restOf(text) }];
      const initial = { state: text, updatedAt: 0 };
      const key = { run, workflow: text };
      const dead = claimOf(run, { ...key, initial, entry: note, ...RETRY });
      await claimed(store, dead);
      same(Object.values((await store.read(run, HOUR))?.workflows ?? {})[0]?.claim?.entry, note);
      await stage.wait(dead.leaseMs);
      const next = claimOf(run, key);
      await claimed(store, next);
      await store.append?.(key, said);
      await store.release(next, next.token, { entry: said });
      await step(store, run, key, { trail: { ...said, to: text } });
      const over = { from: text, event: null, outcome: 'unknown', kind: 'taken_over', ...note };
      const appended = store.append ? [said] : [];
      same(await saidIn(store, run, text), [over, ...appended, said, { ...said, to: text }]);
      if (stage.isChained)
        assert.deepEqual(verifyTrail(await store.history(key), { from: key }), []);
    });
  }

  promises('names that look alike are not the same', async ({ store, run }) => {
    for (const [index, [one, other]] of LOOKALIKES.entries()) {
      const key = (name: string): string => `${run}-${index}${name}`;
      await store.open(key(one), {}, HOUR);
      assert.equal(await store.read(key(other), HOUR), undefined, JSON.stringify([one, other]));
      await step(store, key(one), { workflow: one });
      assert.equal(
        await step(store, key(one), { workflow: other }),
        1,
        JSON.stringify([one, other]),
      );
      const record = await store.read(key(one), HOUR);
      assert.deepEqual(Object.keys(record?.workflows ?? {}).sort(), [one, other].sort());
      const refused = await store.claim(
        claimOf(key(one), { workflow: 'w', initial: at(one), states: [other] }),
      );
      assert.equal(refused.status, 'state', JSON.stringify([one, other]));
    }
  });

  promises(
    'run keys that differ by case, by spaces at their ends or by their normal form only are apart',
    async ({ store, run: mine }) => {
      const keys = NEAR_KEYS.map((key) => `${mine}${key}`);
      for (const run of keys) {
        const opened = await store.open(run, { principal: run }, HOUR);
        assert.deepEqual(opened, { status: 'opened' }, JSON.stringify(run));
      }
      for (const run of keys)
        await step(store, run, {}, { snapshot: { state: 'has_items', context: run } });
      while (keys.length > 0) {
        for (const run of keys) {
          const record = await store.read(run, HOUR);
          const { version, context } = record?.workflows.checkout?.snapshot ?? {};
          assert.deepEqual([record?.session.principal, version, context], [run, 1, run]);
        }
        await store.delete(keys.pop() ?? '');
      }
    },
  );

  whereRunsAreListed(promises)(
    'each is found by its state, and those that look alike apart',
    async (stage) => {
      const { store, run: mine } = stage;
      for (const text of Object.values(HOSTILE)) {
        const [workflow, runs] = [`${mine}${text}`, [`${mine}${text}`, `${text}${mine}`]];
        for (const run of runs) await stand(store, run, workflow, text);
        const given = await listed(store, { workflow, state: text });
        assert.deepEqual(given.sort(), runs.sort());
      }
      for (const [one, other] of LOOKALIKES) {
        await stand(store, mine + one, mine, one);
        assert.deepEqual(await listed(store, { workflow: mine, state: one }), [mine + one]);
        assert.deepEqual(await listed(store, { workflow: mine, state: other }), []);
        await store.delete(mine + one);
      }
    },
  );

  promises('a run and a workflow cannot be shifted into one another', async ({ store, run }) => {
    for (const separator of [':', '/', '.', '\u0000', '|', '%', '#']) {
      const [a, b, c] = [`${run}a`, 'b', 'c'];
      await store.open(a, {}, HOUR);
      await store.open(a + separator + b, {}, HOUR);
      await step(store, a, { workflow: b + separator + c });
      assert.equal(
        await step(store, a + separator + b, { workflow: c }),
        1,
        JSON.stringify(separator),
      );
    }
    await store.open(run, {}, HOUR);
    for (const workflow of ['session', 'run', '', 'claim', 'trail']) {
      assert.equal(await step(store, run, { workflow }), 1, JSON.stringify(workflow));
    }
  });

  promises('a big context comes back as it went', async ({ store, run }) => {
    await store.open(run, {}, HOUR);
    const trail = { from: 'empty', to: 'has_items', event: 'ADD_ITEM', payload: big };
    await step(store, run, {}, { snapshot: { state: 'has_items', context: big }, trail });
    same((await store.read(run, HOUR))?.workflows.checkout?.snapshot.context, big);
    same((await claimed(store, claimOf(run))).snapshot.context, big);
    same((await store.history({ run, workflow: 'checkout' }))[0]?.payload, big);
  });

  promises('the id of a request stays the number or the string that it was', async (stage) => {
    await assertKept(
      stage,
      [0, 1, -1, 1.5, 1e21, Number.MAX_SAFE_INTEGER, '', '0', '1', '1e21', 'id'],
      (requestId) => ({ requestId }),
    );
  });

  promises('what the trail says of a call and a move keeps its type', async (stage) => {
    const values: Json[] = ['', 'null', 0, false, null, [], {}, [[]], [{}], { a: null }, '{"a":1}'];
    await assertKept(
      stage,
      [...values, { b: 1, a: 2 }, big],
      (args) => ({ args }),
      // A backend may have no room for two copies of the big one.
      (payload) => (payload === big ? { payload } : { payload, errors: [payload] }),
    );
    await assertKept(
      stage,
      ['', long],
      (actor) => ({ actor }),
      (note) => ({ note, calledBy: note }),
    );
    await assertKept(stage, [0, 1, 2.5, -1], (workflowVersion) => ({ workflowVersion }));
  });

  promises('any JSON can be what a step would use', async ({ store, run, wait }) => {
    const plain: Json[] = ['', 'null', 0, -1.5, 1e21, false, null, [], {}, [[]], [{}], { a: null }];
    const steps = [...plain, '{"a":1}', '{}', { b: 1, a: 2 }, big].map((use) => ({ use }));
    const named = Object.values(HOSTILE).map((text) => {
      return { tool: text, digest: text, use: [text, { [text]: text }] };
    });
    const asked = [...steps, ...named].map((step, index) =>
      claimOf(`${run}-${index}`, { leaseMs: 1, create: {}, step: { ...step, ...RETRY.step } }),
    );
    for (const request of asked) {
      await claimed(store, request);
      same((await readClaim({ store, run: request.run })).use, request.step.use);
    }
    await wait(1);
    for (const { run: key, step } of asked) {
      const { tool, digest, use } = step;
      const { unsettled = [] } = await claimed(store, claimOf(key));
      same(
        unsettled.map((each) => [each.tool, each.digest, each.use]),
        [[tool, digest, use]],
      );
    }
  });

  for (const context of ['text', '', '{"a":1}', 0, false, null, [], {}] satisfies Json[]) {
    promises(
      `${JSON.stringify(context)} comes back as a context of its own kind`,
      async ({ store, run }) => {
        await store.open(run, {}, HOUR);
        const initial = { state: 'empty', updatedAt: 0, context };
        same(
          (await claimed(store, claimOf(run, { initial, workflow: 'initial' }))).snapshot.context,
          context,
        );
        await step(store, run, {}, { snapshot: { state: 'has_items', context } });
        same((await store.read(run, HOUR))?.workflows.checkout?.snapshot.context, context);
      },
    );
  }

  promises('a caller cannot change the store through a snapshot', async ({ store, run }) => {
    await store.open(run, {}, HOUR);
    const given = { items: ['a'] };
    await step(store, run, {}, { snapshot: { state: 'has_items', context: given } });
    given.items.push('b');
    const handedOut = (await store.read(run, HOUR))?.workflows.checkout?.snapshot.context;
    ignoringErrors(() => (handedOut as typeof given).items.push('c'));
    same((await store.read(run, HOUR))?.workflows.checkout?.snapshot.context, { items: ['a'] });
  });

  promises('a caller cannot change the store through what a step would use', async (stage) => {
    const { store, run, wait } = stage;
    await store.open(run, {}, HOUR);
    const given = { amounts: [1] };
    await claimed(store, claimOf(run, { leaseMs: 1, step: { uncertain: 'retry', use: given } }));
    given.amounts.push(2);
    const { use } = await readClaim(stage);
    ignoringErrors(() => (use as typeof given).amounts.push(3));
    await wait(1);
    const next = claimOf(run);
    const { unsettled: seen = [] } = await claimed(store, next);
    for (const step of seen) ignoringErrors(() => (step.use as typeof given).amounts.push(4));
    ignoringErrors(() => (seen as unknown[]).pop());
    const { unsettled } = await claimed(store, next);
    same(
      unsettled?.map((step) => step.use),
      [{ amounts: [1] }],
    );
  });
}

const RETRY = { leaseMs: 1, step: { uncertain: 'retry' } } as const;

function noteOf(text: string): CallNote {
  const args = { [text]: [text] };
  return { tool: text, digest: text, args, actor: text, requestId: text, workflowVersion: 2 };
}

function restOf(text: string): TrailDraft {
  const words = { event: text, kind: text, payload: { [text]: text }, note: text, calledBy: text };
  return { from: text, outcome: 'failed', ...words, errors: [text, { [text]: text }] };
}

/**
 * Asserts that each value comes back from the trail as a release, a commit and a takeover wrote it.
 * A takeover writes only what the call says of itself.
 */
async function assertKept<Value>(
  { store, run, wait }: StoreStage,
  values: readonly Value[],
  ofCall: (value: Value) => CallNote,
  ofDraft: (value: Value) => Partial<TrailDraft> = () => ({}),
): Promise<void> {
  for (const value of values) {
    const key = `${run}-${values.indexOf(value)}`;
    const [entry, rest] = [ofCall(value), ofDraft(value)];
    await store.open(key, {}, HOUR);
    await failedStep(store, key, {}, { ...entry, ...rest });
    const trail = { ...entry, ...rest, from: 'empty', to: 'has_items', event: null };
    await step(store, key, {}, { trail });
    await claimed(store, claimOf(key, { ...RETRY, entry }));
    same((await store.read(key, HOUR))?.workflows.checkout?.claim?.entry, entry);
    await wait(RETRY.leaseMs);
    const last = claimOf(key);
    await claimed(store, last);
    await store.release(last, last.token);
    const [released, committed, overtaken] = await saidIn(store, key);
    same({ ...released, ...entry, ...rest }, released);
    same(committed, trail);
    same({ ...overtaken, ...entry }, overtaken);
    await store.delete(key);
  }
}

function at(state: string) {
  return { state, updatedAt: 0 };
}

/** A store may freeze its snapshots; then a change throws. */
function ignoringErrors(change: () => void): void {
  try {
    change();
  } catch (error) {
    assert.ok(error instanceof TypeError);
  }
}
