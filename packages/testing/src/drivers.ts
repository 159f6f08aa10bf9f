/**
 * The promises of a driver, where the store is made of one: what the rules of the store may hide of
 * its faults. Each test has keys and lists of its own.
 */
import assert from 'node:assert/strict';
import { newToken } from '../../../src/internal.ts';
import type {
  Documents,
  IndexEntry,
  IndexPlace,
  IndexQuery,
} from '../../../src/stores/document.ts';
import { HOUR, type Promises } from './fixtures.ts';
import { keysOf } from './listed.ts';

/** How many callers race for one revision, and how often a swap races with a removal. */
const RACERS = 20;
const RACES = 8;

const FAR = Number.MAX_SAFE_INTEGER;

/** A document that the test wrote, as it must be found. */
interface Written {
  readonly document: string;
  readonly revision: string;
  readonly index: readonly IndexEntry[];
}

export function driverPromises(all: Promises): void {
  const promises = (promise: string, body: (driver: Documents, key: string) => Promise<void>) =>
    all(promise, async ({ documents, run }) => {
      if (documents) await body(documents, run);
    });

  promises('a document changes only from the revision that it has', async (driver, key) => {
    assert.equal(await write(driver, key, indexOf(key, 0), undefined, newId()), undefined);
    await assertFound(driver, key, undefined);
    const first = await write(driver, key, indexOf(key, 1));
    for (const expected of [undefined, newId()])
      assert.equal(await write(driver, key, indexOf(key, 2), first, expected), undefined);
    await assertFound(driver, key, first);
    const second = await write(driver, key, indexOf(key, 2), first, first?.revision);
    assert.equal(await write(driver, key, indexOf(key, 3), first, first?.revision), undefined);
    await assertFound(driver, key, second);
  });

  promises('of many who swap one revision, exactly one does, and reads it', async (driver, key) => {
    for (let before: Written | undefined, at = 0; at < 2; at += 1) {
      const race = async (racer: number) => {
        const written = await write(driver, key, indexOf(key, racer), before, before?.revision);
        // A loser that was answered too early would lose again and again.
        const { revision } = (await driver.read(key)) ?? {};
        if (written === undefined) assert.notEqual(revision ?? undefined, before?.revision);
        return written ?? [];
      };
      const racers = Array.from({ length: RACERS }, (_, racer) => race(racer));
      const [winner, ...others] = (await Promise.all(racers)).flat();
      assert.deepEqual([winner !== undefined, others], [true, []]);
      await assertFound(driver, key, winner);
      before = winner;
    }
  });

  promises('a document is removed only at the revision that it has', async (driver, key) => {
    const first = await write(driver, key, indexOf(key, 1));
    const lists = first?.index.map(({ list }) => list) ?? [];
    assert.equal(await driver.remove(key, newId(), lists), false);
    await assertFound(driver, key, first);
    const { revision = '' } = first ?? {};
    assert.equal(await driver.remove(key, revision, lists), true);
    await assertFound(driver, key, undefined);
    assert.equal(await driver.remove(key, revision, lists), false);
    const next = await write(driver, key, indexOf(key, 2));
    assert.equal(await driver.remove(key, revision, lists), false);
    await assertFound(driver, key, next);
  });

  promises('of a swap and a removal of one revision, exactly one is done', async (driver, run) => {
    const race = async (key: string, at: number) => {
      const before = await write(driver, key, indexOf(run, 1));
      const lists = before?.index.map(({ list }) => list) ?? [];
      const swap = () => write(driver, key, indexOf(run, 2), before, before?.revision);
      const remove = () => driver.remove(key, before?.revision ?? '', lists);
      const [written, isRemoved] =
        at % 2 === 0
          ? await Promise.all([swap(), remove()])
          : ((await Promise.all([remove(), swap()])).toReversed() as [
              Written | undefined,
              boolean,
            ]);
      assert.notEqual(written !== undefined, isRemoved);
      await assertFound(driver, key, written);
    };
    await Promise.all(keysOf(run, RACES).map(race));
  });

  promises(
    'a list is found in its order, behind a place and within bounds',
    async (driver, run) => {
      if (driver.find === undefined) return;
      const places: IndexPlace[] = [];
      for (const [at, key] of keysOf(run, 6).entries()) {
        const score = [5, 3, 3, 1, 3, 2][at] ?? 0;
        places.push({ score, key });
        const index = [{ list: `${run}-list`, label: at % 2 === 0 ? 'even' : 'odd', score }];
        await write(driver, key, [
          ...index,
          { list: `${run}-other`, label: 'even', score: 9 - score },
        ]);
      }
      const found = async (query: Partial<IndexQuery>) => {
        const asked = { list: `${run}-list`, upTo: FAR, limit: 10, ...query };
        return (await driver.find?.(asked))?.map(({ score, key }) => ({ score, key }));
      };
      const ordered = places.toSorted((a, b) => a.score - b.score || (a.key < b.key ? -1 : 1));
      const even = ordered.filter(
        ({ key }) => places.findIndex((each) => each.key === key) % 2 === 0,
      );
      assert.deepEqual(await found({}), ordered);
      assert.deepEqual(await found({ label: 'even' }), even);
      assert.deepEqual(await found({ label: 'eve' }), []);
      assert.deepEqual(await found({ list: `${run}-lis` }), []);
      assert.deepEqual(await found({ upTo: 3 }), ordered.slice(0, 5));
      assert.deepEqual(await found({ upTo: 3, label: 'even', limit: 1 }), even.slice(0, 1));
      for (const [at, after] of ordered.entries())
        assert.deepEqual(await found({ after, limit: 2 }), ordered.slice(at + 1, at + 3));
    },
  );

  promises('a list is counted by labels, without what has expired', async (driver, run) => {
    if (driver.count === undefined) return;
    const [first, second, third, expired, other] = keysOf(run, 5) as [string, ...string[]];
    const list = `${run}-list`;
    const entry = (label: string, score: number) => [{ list, label, score }];
    const kept = await write(driver, first, entry('payment', 1), undefined, undefined, undefined);
    await write(driver, second ?? '', entry('payment', 2));
    await write(driver, third ?? '', entry('done', 2));
    await write(driver, expired ?? '', entry('payment', 1), undefined, undefined, 1);
    await write(driver, other ?? '', [{ list: `${run}-other`, label: 'done', score: 1 }]);
    const counted = async (upTo: number) => {
      const counts = await driver.count?.({ list, now: Date.now(), upTo });
      const shown = counts?.map(({ label, entries, upTo }) => [
        label,
        Number(entries),
        Number(upTo),
      ]);
      return shown?.toSorted(([a = ''], [b = '']) => (a < b ? -1 : 1));
    };
    assert.deepEqual(await counted(1), [
      ['done', 1, 0],
      ['payment', 2, 1],
    ]);
    assert.deepEqual(await counted(2), [
      ['done', 1, 1],
      ['payment', 2, 2],
    ]);
    await driver.remove(first, kept?.revision ?? '', [list]);
    assert.deepEqual(await counted(1), [
      ['done', 1, 0],
      ['payment', 1, 0],
    ]);
  });
}

function newId(): string {
  return newToken().slice(0, 12);
}

/** Two entries of three lists: the next index has other scores, another label, and another list. */
function indexOf(key: string, at: number): readonly IndexEntry[] {
  const entry = (list: string) => ({ list: `${key}-${list}`, label: `label-${at}`, score: at });
  return [entry('open'), entry(at % 2 === 0 ? 'even' : 'odd')];
}

/** Swaps what is there, `before`, by a document with that index; `undefined` where it lost. */
async function write(
  driver: Documents,
  key: string,
  index: readonly IndexEntry[],
  before?: Written,
  expected?: string,
  expiresAt: number | undefined = Date.now() + HOUR,
): Promise<Written | undefined> {
  const revision = newId();
  const document = JSON.stringify({ revision });
  const old = before?.index ?? [];
  const put = index.filter(({ list, label, score }) => {
    const same = old.find((entry) => entry.list === list);
    return same?.label !== label || same.score !== score;
  });
  const dropped = old.filter(({ list }) => !index.some((entry) => entry.list === list));
  const drop = dropped.map(({ list }) => list);
  const next = { document, revision, expiresAt, index, put, drop };
  const answer = await driver.swap(key, expected, next);
  return answer.swapped ? { document, revision: answer.revision ?? revision, index } : undefined;
}

/** Asserts that exactly this document is under the key, and exactly its entries in the index. */
async function assertFound(
  driver: Documents,
  key: string,
  written: Written | undefined,
): Promise<void> {
  const { document, revision } = (await driver.read(key)) ?? {};
  assert.deepEqual(
    [document ?? undefined, revision ?? undefined],
    [written?.document, written?.revision],
  );
  if (driver.find === undefined) return;
  for (const list of ['open', 'even', 'odd'].map((name) => `${key}-${name}`)) {
    const entry = written?.index.find((each) => each.list === list);
    for (const label of [undefined, entry?.label ?? 'none']) {
      const found = await driver.find({ list, label, upTo: FAR, limit: 10 });
      assert.deepEqual(
        found.map(({ key, score }) => [key, score]),
        entry ? [[key, entry.score]] : [],
      );
    }
  }
}
