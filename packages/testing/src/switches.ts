/**
 * The switch of a whole workflow: replaced by comparing its revision, and never forgotten. A store
 * need not have any; then each test here passes.
 */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { AtomicStateStore, Json, SwitchRecord } from '../../../src/stores/index.ts';
import { count, HOUR, type Promises, SHORT, type StoreStage, same, step } from './fixtures.ts';
import { BIG, HOSTILE, LOOKALIKES } from './hostile.ts';

const YEAR = 365 * 24 * HOUR;

type Switches = Required<Pick<AtomicStateStore, 'readSwitch' | 'swapSwitch'>>;
interface SwitchStage extends StoreStage {
  readonly store: AtomicStateStore & Switches;
}
type SwitchPromises = (promise: string, body: (stage: SwitchStage) => Promise<void>) => void;

/** @param maxBytes how many bytes a run may have, and so a switch too */
export function switchPromises(all: Promises, maxBytes: number): void {
  all('a store has both operations on switches, or none', async ({ store }) => {
    assert.equal(typeof store.readSwitch, typeof store.swapSwitch);
  });
  const promises = whereSwitched(all);

  promises('a switch is written where there is none, and read as it was', async (stage) => {
    const { store, run: workflow } = stage;
    assert.equal(await store.readSwitch(workflow), undefined);
    assert.equal(await store.swapSwitch(workflow, randomUUID(), valued('never')), false);
    assert.equal(await store.readSwitch(workflow), undefined);
    const first = valued({ all: { actor: 'mary' } });
    assert.equal(await store.swapSwitch(workflow, undefined, first), true);
    same(await store.readSwitch(workflow), first);
    assert.equal(await store.readSwitch(`${workflow}-other`), undefined);
  });

  promises('a switch is replaced only by a caller that knows its revision', async (stage) => {
    const { store, run: workflow } = stage;
    const [first, second] = [valued('first'), valued('second')];
    await store.swapSwitch(workflow, undefined, first);
    for (const expected of [undefined, randomUUID(), second.revision])
      assert.equal(await store.swapSwitch(workflow, expected, valued('never')), false);
    same(await store.readSwitch(workflow), first);
    assert.equal(await store.swapSwitch(workflow, first.revision, second), true);
    same(await store.readSwitch(workflow), second);
    assert.equal(await store.swapSwitch(workflow, first.revision, valued('never')), false);
    same(await store.readSwitch(workflow), second);
  });

  promises(
    'a write of a switch that arrives again is a success, until the next one',
    async (stage) => {
      const { store, run: workflow } = stage;
      const [first, second] = [valued('first'), valued('second')];
      const write = () => store.swapSwitch(workflow, undefined, first);
      for (let times = 0; times < 3; times += 1) assert.equal(await write(), true);
      assert.equal(await store.swapSwitch(workflow, first.revision, second), true);
      assert.equal(await store.swapSwitch(workflow, first.revision, second), true);
      assert.equal(await write(), false);
      same(await store.readSwitch(workflow), second);
    },
  );

  promises('of 50 writes of a switch at once exactly one is taken', async (stage) => {
    const { store, run: workflow } = stage;
    let expected: string | undefined;
    for (let round = 0; round < 3; round += 1) {
      const known = expected;
      const writes = Array.from({ length: 50 }, (_, index) => valued(index));
      const taken = await Promise.all(
        writes.map((next) => store.swapSwitch(workflow, known, next)),
      );
      expected = await assertOneTaken([store], workflow, writes, taken);
    }
  });

  promises('50 writes of a switch at once with one revision are one write', async (stage) => {
    const { store, run: workflow } = stage;
    const next = valued('once');
    const taken = await Promise.all(
      Array.from({ length: 50 }, () => store.swapSwitch(workflow, undefined, next)),
    );
    assert.ok(taken.every((isTaken) => isTaken));
    same(await store.readSwitch(workflow), next);
  });

  promises('a switch never expires, and nothing that becomes of runs touches it', async (stage) => {
    const { store, run: workflow } = stage;
    const set = valued(workflow);
    await store.swapSwitch(workflow, undefined, set);
    // Under the last of these names a gate notes itself.
    const alike = [`switch:${workflow}`, `switch-${workflow}`, `gates:${workflow}`];
    for (const run of [workflow, ...alike]) {
      await step(store, run, { workflow, create: {}, leaseMs: SHORT }, { ttlMs: SHORT });
      await store.swapSwitch(run, undefined, set);
    }
    await stage.wait(stage.clockIsInjected ? YEAR : 2 * SHORT);
    await store.purge?.();
    for (const run of [workflow, `switch:${workflow}`]) {
      await step(store, run, { workflow: 'switch', create: {} });
      await store.delete(run);
    }
    for (const name of [workflow, ...alike]) same(await store.readSwitch(name), set);
  });

  promises('any string names a switch', async ({ store, run }) => {
    const names = Object.values(HOSTILE).flatMap((text) => [`${run}${text}`, `${text}${run}`]);
    for (const name of names) {
      assert.equal(await store.readSwitch(name), undefined, JSON.stringify(name));
      assert.equal(await store.swapSwitch(name, undefined, { value: name, revision: run }), true);
    }
    for (const name of names) same((await store.readSwitch(name))?.value, name);
  });

  promises('switches whose names look alike are apart', async ({ store, run }) => {
    for (const [index, pair] of LOOKALIKES.entries()) {
      const [one, other] = pair.map((text) => `${run}-${index}${text}`) as [string, string];
      const [first, second] = [valued(one), valued(other)];
      assert.equal(await store.swapSwitch(one, undefined, first), true);
      assert.equal(await store.readSwitch(other), undefined, JSON.stringify(pair));
      assert.equal(await store.swapSwitch(other, undefined, second), true, JSON.stringify(pair));
      same([await store.readSwitch(one), await store.readSwitch(other)], [first, second]);
    }
  });

  promises('any JSON is the value of a switch', async ({ store, run }) => {
    const long = 'x'.repeat(Math.min(100_000, maxBytes / 20));
    const values: Json[] = ['', 'null', 0, 1e21, false, null, [], {}, [[]], { a: null }, BIG, long];
    for (const [index, value] of [...values, ...Object.values(HOSTILE)].entries()) {
      const next = valued(value);
      await store.swapSwitch(`${run}-${index}`, undefined, next);
      same(await store.readSwitch(`${run}-${index}`), next);
    }
  });

  promises('a caller cannot change the store through a switch', async ({ store, run }) => {
    const given = { tools: ['cart.pay'] };
    await store.swapSwitch(run, undefined, { value: given, revision: run });
    given.tools.push('cart.view');
    const read = (await store.readSwitch(run))?.value as typeof given;
    try {
      read.tools.push('cart.add');
    } catch (error) {
      assert.ok(error instanceof TypeError);
    }
    same((await store.readSwitch(run))?.value, { tools: ['cart.pay'] });
  });
}

/** What holds after the process was killed and started again. */
export function restartSwitchPromises(all: Promises): void {
  whereSwitched(all)('a switch is where it was', async (stage) => {
    const { store, run } = stage;
    const [first, second] = [valued('first'), valued({ second: [1] })];
    await store.swapSwitch(run, undefined, first);
    const reopened = (await stage.reopen()) as SwitchStage['store'];
    same(await reopened.readSwitch(run), first);
    assert.equal(await reopened.swapSwitch(run, undefined, first), true);
    assert.equal(await reopened.swapSwitch(run, undefined, second), false);
    assert.equal(await reopened.swapSwitch(run, first.revision, second), true);
    same(await ((await stage.reopen()) as SwitchStage['store']).readSwitch(run), second);
  });
}

/** What holds between two processes on the same data. */
export function sharedSwitchPromises(all: Promises): void {
  const promises = whereSwitched(all);

  promises('each side sees at once what the other has set', async (stage) => {
    const sides = [stage.store, (await stage.reopen()) as SwitchStage['store']] as const;
    let expected: string | undefined;
    for (let round = 0; round < 6; round += 1) {
      const [writer, reader] = round % 2 === 0 ? sides : [sides[1], sides[0]];
      const next = valued(round);
      assert.equal(await writer.swapSwitch(stage.run, expected, next), true);
      same(await reader.readSwitch(stage.run), next);
      assert.equal(await reader.swapSwitch(stage.run, expected, valued('late')), false);
      assert.equal(await reader.swapSwitch(stage.run, expected, next), true);
      expected = next.revision;
    }
  });

  promises('of 50 writes of a switch by two sides exactly one is taken', async (stage) => {
    const { store, run } = stage;
    const other = (await stage.reopen()) as SwitchStage['store'];
    let expected: string | undefined;
    for (let round = 0; round < 3; round += 1) {
      const known = expected;
      const writes = Array.from({ length: 50 }, (_, index) => valued(index));
      const taken = await Promise.all(
        writes.map((next, at) => (at % 2 === 0 ? store : other).swapSwitch(run, known, next)),
      );
      expected = await assertOneTaken([store, other], run, writes, taken);
    }
  });
}

function valued(value: Json): SwitchRecord {
  return { value, revision: randomUUID() };
}

/** Resolves to the revision of the one write that was taken, which is what each side reads. */
async function assertOneTaken(
  sides: readonly Switches[],
  workflow: string,
  writes: readonly SwitchRecord[],
  taken: readonly boolean[],
): Promise<string | undefined> {
  assert.equal(
    count(taken, (isTaken) => isTaken),
    1,
  );
  const winner = writes[taken.indexOf(true)];
  for (const side of sides) same(await side.readSwitch(workflow), winner);
  return winner?.revision;
}

/** Switches are optional: a test of them passes in a store without any. */
function whereSwitched(promises: Promises): SwitchPromises {
  return (promise, body) =>
    promises(promise, async (stage) => {
      const { readSwitch, swapSwitch } = stage.store;
      if (readSwitch && swapSwitch) await body(stage as SwitchStage);
    });
}
