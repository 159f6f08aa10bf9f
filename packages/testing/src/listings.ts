/**
 * The promises of a store with an index. It lists the held runs, the stuck ones and those of a
 * principal, and counts runs. Stores may share data, so each test has its own workflow and
 * principals, named by its run key.
 */

import assert from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { ClaimRequest } from '../../../src/stores/index.ts';
import {
  claimed,
  claimOf,
  commitOf,
  failedStep,
  HOUR,
  LONG,
  type Promises,
  SHORT,
  same,
  step,
} from './fixtures.ts';
import { HOSTILE, LOOKALIKES } from './hostile.ts';
import {
  assertInOrder,
  assertListed,
  assertStates,
  heldIn,
  hold,
  INDEX,
  type IndexPromises,
  isIndexed,
  keysOf,
  listed,
  listOf,
  paged,
  stand,
  stuckIn,
  unsettledIn,
  whereIndexed,
} from './listed.ts';

/** Two operations so many milliseconds apart have different times. */
const APART = 2;
/** More than a page, and more than a store will keep in one place. */
const MANY = 60;

export function listingPromises(all: Promises): void {
  all('a store has all operations of an index or none', async ({ store }) => {
    const missing = INDEX.filter((name) => store[name] === undefined);
    assert.ok(missing.length === 0 || missing.length === INDEX.length, `no ${missing.join()}`);
    assert.ok(!store.count || missing.length === 0, 'count() needs an index');
  });

  const promises = whereIndexed(all);
  heldPromises(promises);
  stuckPromises(promises);
  countPromises(promises);
  listPromises(promises);
  lifePromises(promises);
  pagePromises(promises);
}

function heldPromises(promises: IndexPromises): void {
  promises('the runs that wait to be resolved are given, the longest first', async (stage) => {
    const { store, run: workflow } = stage;
    const [one, two, three, live, free, retried] = keysOf(workflow, 6);
    assert.ok(one && two && three && live && free && retried);
    for (const [run, leaseMs] of [
      [two, SHORT],
      [three, 2 * SHORT],
      [one, 1],
      [live, LONG],
    ] as const) {
      await hold(store, run, workflow, leaseMs);
      await stage.wait(APART);
    }
    await hold(store, retried, workflow, 1, { step: { uncertain: 'retry' } });
    await stand(store, free, workflow, 'payment');
    await hold(store, `${workflow}-elsewhere`, `${workflow}-2`, 1);
    await stage.wait(2 * SHORT);
    const ends = new Map<string, number>();
    for (const run of [one, two, three]) {
      const claim = (await store.read(run, HOUR))?.workflows[workflow]?.claim;
      ends.set(run, claim?.until ?? Number.NaN);
    }
    const held = await heldIn(store, workflow);
    assert.deepEqual([...held].sort(), [one, two, three].sort());
    // A store may know more of a time than the milliseconds that a read gives.
    const given = held.map((run) => ends.get(run) ?? Number.NaN);
    same(
      given,
      [...given].sort((a, b) => a - b),
    );
    assert.deepEqual(await heldIn(store, `${workflow}-3`), []);
  });

  promises('a run that is held is given as a read gives it', async (stage) => {
    const { store, run } = stage;
    const entry = { tool: 'cart.pay', actor: 'alice', requestId: 1 };
    await stand(store, run, run, 'payment');
    await hold(store, run, run, SHORT, { entry });
    await stage.wait(SHORT);
    const { runs, now } = await store.held({ workflow: run, limit: 10 });
    same(runs, [{ run, ...(await store.read(run, HOUR))?.workflows[run] }]);
    const { until = Number.NaN, live, entry: kept } = runs[0]?.claim ?? {};
    same([live, kept], [false, entry]);
    assert.ok(now === undefined || now >= until, `at ${now} a lease was over that ended ${until}`);
  });

  promises('a lease that begins anew takes its run out, until it is over', async (stage) => {
    const { store, run: workflow } = stage;
    const [renewed, again] = keysOf(workflow, 2);
    assert.ok(renewed && again);
    const claims = [await hold(store, renewed, workflow), await hold(store, again, workflow)];
    await stage.wait(SHORT);
    assert.equal((await heldIn(store, workflow)).length, 2);
    for (const [index, request] of claims.entries())
      if (index === 0) await store.renew(request, request.token, stage.soon);
      else await claimed(store, { ...request, leaseMs: stage.soon });
    assert.deepEqual(await heldIn(store, workflow), []);
    await stage.wait(stage.soon);
    assert.deepEqual((await heldIn(store, workflow)).sort(), [renewed, again].sort());
  });

  promises(
    'the runs with unsettled steps are given, the oldest first, and no others',
    async (stage) => {
      const { store, run: workflow } = stage;
      const [old, late, live, held] = keysOf(workflow, 4);
      assert.ok(old && late && live && held);
      const retried = { step: { uncertain: 'retry' } } as const;
      for (const run of [late, old]) await stand(store, run, workflow, 'payment');
      await hold(store, old, workflow, 1, retried);
      await stage.wait(SHORT);
      await step(store, old, { workflow, step: { digest: 'other' } });
      const request = await hold(store, late, workflow, 1, retried);
      await hold(store, live, workflow, LONG, retried);
      await hold(store, held, workflow, 1);
      await stage.wait(SHORT);
      assert.deepEqual(await unsettledIn(store, workflow), [old, late]);
      assert.deepEqual(await unsettledIn(store, workflow, 1), [old, late]);
      await store.commit(commitOf(request));
      assert.deepEqual(await unsettledIn(store, workflow), [old]);
    },
  );

  promises(
    'a run that was resolved, by a person or its holder, is held no longer',
    async (stage) => {
      const { store, run: workflow } = stage;
      const [done, undone, late] = keysOf(workflow, 3);
      assert.ok(done && undone && late);
      const claims = new Map<string, ClaimRequest>();
      for (const run of [done, undone, late]) claims.set(run, await hold(store, run, workflow, 1));
      await stage.wait(SHORT);
      const left = new Set([done, undone, late]);
      for (const [run, request] of claims) {
        assert.deepEqual((await heldIn(store, workflow)).sort(), [...left].sort());
        if (run === undone) await store.release(request, request.token);
        else await store.commit(commitOf(request, run === done ? { as: `${run}-resolved` } : {}));
        left.delete(run);
      }
      assert.deepEqual(await heldIn(store, workflow), []);
    },
  );
}

function stuckPromises(promises: IndexPromises): void {
  promises(
    'the runs that have not moved for so long are given, the oldest first',
    async (stage) => {
      const { store, run: workflow } = stage;
      const [one, other, third, late] = keysOf(workflow, 4);
      assert.ok(one && other && third && late);
      for (const run of [third, one, other]) {
        await stand(store, run, workflow, 'payment');
        await stage.wait(APART);
      }
      await stand(store, `${workflow}-elsewhere`, `${workflow}-2`, 'payment');
      await stage.wait(stage.soon);
      await stand(store, late, workflow, 'payment');
      assert.deepEqual(await stuckIn(store, { workflow, forMs: stage.soon }), [third, one, other]);
      assert.deepEqual(await stuckIn(store, { workflow, forMs: 0 }), [third, one, other, late]);
      assert.deepEqual(await stuckIn(store, { workflow, forMs: HOUR }), []);
      await stage.wait(APART);
      await stand(store, third, workflow, 'payment');
      assert.deepEqual(await stuckIn(store, { workflow, forMs: stage.soon }), [one, other]);
      assert.deepEqual(await stuckIn(store, { workflow, forMs: 0 }), [one, other, late, third]);
    },
  );

  promises('a run that is stuck is given as a read gives it', async ({ store, run }) => {
    const snapshot = { state: 'payment', context: { total: 12.5 } };
    await step(store, run, { workflow: run, create: {} }, { snapshot });
    await claimed(store, claimOf(run, { workflow: run }));
    const { runs } = await store.stuck({ workflow: run, forMs: 0, limit: 10 });
    same(runs, [{ run, ...(await store.read(run, HOUR))?.workflows[run] }]);
    same(runs[0]?.snapshot.context, { total: 12.5 });
  });

  promises('a run stays stuck through all that does not move it', async (stage) => {
    const { store, run } = stage;
    await stand(store, run, run, 'payment');
    await stage.wait(stage.soon);
    await failedStep(store, run, { workflow: run });
    await hold(store, run, run);
    await store.read(run, HOUR);
    assert.deepEqual(await stuckIn(store, { workflow: run, forMs: stage.soon }), [run]);
  });

  promises('only runs in the states that are named are given', async (stage) => {
    const { store, run: workflow } = stage;
    const [first, second, third] = keysOf(workflow, 3);
    assert.ok(first && second && third);
    for (const [run, state] of [
      [first, 'payment'],
      [second, 'review'],
      [third, 'draft'],
    ] as const) {
      await stand(store, run, workflow, state);
      await stage.wait(APART);
    }
    const inStates = (states?: string[]) => stuckIn(store, { workflow, forMs: 0, states });
    assert.deepEqual(await inStates(['payment']), [first]);
    assert.deepEqual(await inStates(['draft', 'payment', 'paymen']), [first, third]);
    assert.deepEqual(await inStates([]), []);
    assert.deepEqual(await inStates(), [first, second, third]);
    await stand(store, first, workflow, 'draft');
    assert.deepEqual(await inStates(['payment']), []);
    assert.deepEqual(await inStates(['draft']), [third, first]);
  });

  promises('a run stands in the first state from its first claim on', async ({ store, run }) => {
    await store.open(run, {}, HOUR);
    await store.claim(claimOf(run, { workflow: run, states: [] }));
    assert.deepEqual(await stuckIn(store, { workflow: run, forMs: 0 }), []);
    await claimed(store, claimOf(run, { workflow: run }));
    assert.deepEqual(await stuckIn(store, { workflow: run, forMs: 0, states: ['empty'] }), [run]);
  });
}

function countPromises(promises: IndexPromises): void {
  promises(
    'the runs of a workflow are counted by state, and those that are stuck',
    async (stage) => {
      const { store, run: workflow } = stage;
      if (store.count === undefined) return;
      const { unsettled: _, ...empty } = await store.count({ workflow, forMs: 0 });
      same({ ...empty, now: 0 }, { states: [], held: 0, running: 0, now: 0 });
      const keys = keysOf(workflow, 7);
      for (const [index, run] of keys.entries()) {
        if (index === 4) await stage.wait(stage.soon);
        await stand(store, run, workflow, index % 3 === 0 ? 'payment' : 'draft');
      }
      await stand(store, `${workflow}-elsewhere`, `${workflow}-2`, 'payment');
      await assertStates(store, workflow, stage.soon, [
        ['draft', 4, 2],
        ['payment', 3, 2],
      ]);
      for (const [index, run] of keys.entries())
        if (index % 3 === 0) await stand(store, run, workflow, 'draft');
      await assertStates(store, workflow, 0, [['draft', 7, 7]]);
    },
  );

  promises('steps are counted that run or wait to be resolved', async (stage) => {
    const { store, run: workflow } = stage;
    const { count } = store;
    if (count === undefined) return;
    const [one, two, live, retried] = keysOf(workflow, 4);
    assert.ok(one && two && live && retried);
    const counts = async () => {
      const { held, running, oldestClaim } = await count.call(store, { workflow, forMs: 0 });
      return { held, running, oldestClaim };
    };
    const claims = [];
    for (const run of [one, two]) claims.push(await hold(store, run, workflow));
    await hold(store, retried, workflow, SHORT, { step: { uncertain: 'retry' } });
    await hold(store, `${workflow}-elsewhere`, `${workflow}-2`);
    await stage.wait(SHORT);
    const atWork = await hold(store, live, workflow, LONG);
    const since = async (run: string) =>
      (await store.read(run, HOUR))?.workflows[workflow]?.claim?.since;
    assert.deepEqual(await counts(), { held: 2, running: 1, oldestClaim: await since(one) });
    const [first, second] = claims;
    assert.ok(first && second);
    await store.renew(first, first.token, LONG);
    assert.deepEqual(await counts(), { held: 1, running: 2, oldestClaim: await since(one) });
    await store.commit(commitOf(first));
    await store.release(second, second.token);
    const takenOver = await hold(store, retried, workflow, LONG);
    assert.deepEqual(await counts(), { held: 0, running: 2, oldestClaim: await since(live) });
    await store.release(takenOver, takenOver.token);
    await store.release(atWork, atWork.token);
    assert.deepEqual(await counts(), { held: 0, running: 0, oldestClaim: undefined });
  });
}

function listPromises(promises: IndexPromises): void {
  promises(
    'a principal’s runs are given, begun or not, ended or not',
    async ({ store, run: mine }) => {
      const [alice, bob] = [`${mine} alice`, `${mine} bob`];
      const [opened, made, ended, other, nobodys] = keysOf(mine, 5);
      assert.ok(opened && made && ended && other && nobodys);
      await store.open(opened, { principal: alice }, HOUR);
      await claimed(store, claimOf(made, { create: { principal: alice } }));
      await step(store, ended, { create: { principal: alice } }, { ended: true });
      await store.open(other, { principal: bob }, HOUR);
      await store.open(nobodys, {}, HOUR);
      await store.open(opened, { principal: bob }, HOUR);
      assert.deepEqual(await listOf(store, alice), [opened, made, ended].sort());
      assert.deepEqual(await listOf(store, bob), [other]);
      assert.deepEqual(await listOf(store, mine), []);
      await store.open(`${mine}-none`, { principal: '' }, HOUR);
      const ofNoName = await listOf(store, '');
      assert.ok(ofNoName.includes(`${mine}-none`) && !ofNoName.includes(nobodys));
    },
  );
}

/** How runs leave the index. */
function lifePromises(promises: IndexPromises): void {
  promises('a run that has ended is neither stuck nor counted, until it goes on', async (stage) => {
    const { store, run: workflow } = stage;
    const [run, other] = keysOf(workflow, 2);
    assert.ok(run && other);
    await stand(store, other, workflow, 'payment');
    await stand(store, run, workflow, 'payment');
    await step(store, run, { workflow }, { snapshot: { state: 'done' }, ended: true });
    await failedStep(store, run, { workflow });
    assert.deepEqual(await stuckIn(store, { workflow, forMs: 0 }), [other]);
    assert.deepEqual(await stuckIn(store, { workflow, forMs: 0, states: ['done'] }), []);
    await assertStates(store, workflow, 0, [['payment', 1, 1]]);
    await stage.wait(APART);
    await step(store, run, { workflow }, { snapshot: { state: 'draft' } });
    assert.deepEqual(await stuckIn(store, { workflow, forMs: 0 }), [other, run]);
    await assertStates(store, workflow, 0, [
      ['draft', 1, 1],
      ['payment', 1, 1],
    ]);
  });

  promises('a run that was deleted or has expired is in no listing', async (stage) => {
    const { store, run: mine } = stage;
    const [deleted, expired] = keysOf(mine, 2);
    assert.ok(deleted && expired);
    const ttlMs = stage.soon;
    const dead = { create: { principal: mine }, ttlMs, step: { uncertain: 'retry' } } as const;
    for (const run of [deleted, expired])
      for (const workflow of [mine, `${mine}-2`]) await hold(store, run, workflow, 1, dead);
    assert.deepEqual((await stuckIn(store, { workflow: mine, forMs: 0 })).sort(), [
      deleted,
      expired,
    ]);
    await store.delete(deleted);
    assert.deepEqual(await stuckIn(store, { workflow: mine, forMs: 0 }), [expired]);
    await stage.wait(ttlMs);
    await assertListed(store, mine, []);
    await assertListed(store, `${mine}-2`, []);
  });

  promises(
    'a run that is made anew under an old key is listed as the new one, and as no other',
    async (stage) => {
      const { store, run: mine } = stage;
      const [deleted, expired] = keysOf(mine, 2);
      assert.ok(deleted && expired);
      const create = { principal: mine };
      const dead = { create, ttlMs: stage.soon, step: { uncertain: 'retry' } } as const;
      for (const run of [deleted, expired]) await hold(store, run, mine, 1, dead);
      await store.delete(deleted);
      await stage.wait(stage.soon);
      for (const run of [deleted, expired]) {
        await store.open(run, { principal: `${mine} other` }, HOUR);
        await claimed(store, claimOf(run, { workflow: `${mine}-2` }));
      }
      await assertListed(store, mine, []);
      assert.deepEqual(await listOf(store, `${mine} other`), [deleted, expired].sort());
      const stuck = await stuckIn(store, { workflow: `${mine}-2`, forMs: 0 });
      assert.deepEqual(stuck.sort(), [deleted, expired].sort());
    },
  );

  promises('being listed keeps no run alive', async (stage) => {
    const { store, run } = stage;
    const ttlMs = stage.soon;
    await step(store, run, { workflow: run, create: { principal: run }, ttlMs }, { ttlMs });
    assert.deepEqual(await stuckIn(store, { workflow: run, forMs: 0 }), [run]);
    assert.deepEqual(await listOf(store, run), [run]);
    await assertStates(store, run, 0, [['has_items', 1, 1]]);
    await stage.wait(ttlMs);
    assert.equal(await store.read(run, HOUR), undefined);
  });
}

function pagePromises(promises: IndexPromises): void {
  promises('over pages of any size each run is given once, and in order', async (stage) => {
    const { store, run: mine } = stage;
    const runs = keysOf(mine, MANY);
    const create = { principal: mine };
    await Promise.all(
      runs.map((run) => claimed(store, claimOf(run, { workflow: mine, create, leaseMs: 1 }))),
    );
    await stage.wait(SHORT);
    runs.sort();
    for (const limit of [7, MANY, 1_000]) {
      const held = await paged((page) => store.held({ workflow: mine, ...page }), limit);
      assertInOrder(held.map(({ claim }) => claim?.until));
      assert.deepEqual(held.map(({ run }) => run).sort(), runs);
      const ofAny = { workflow: mine, forMs: 0 };
      const stuck = await paged((page) => store.stuck({ ...ofAny, ...page }), limit);
      assertInOrder(stuck.map(({ snapshot }) => snapshot.updatedAt));
      assert.deepEqual(stuck.map(({ run }) => run).sort(), runs);
      assert.deepEqual(await listOf(store, mine, limit), runs);
    }
    await assertStates(store, mine, 0, [['empty', MANY, MANY]]);
  });

  promises('any name is found by any other, one run on a page', async (stage) => {
    const { store, run: mine } = stage;
    for (const text of Object.values(HOSTILE)) {
      const [workflow, principal] = [`${mine}${text}`, `${text}${mine}`];
      const runs = [workflow, principal, `${text}${mine}${text}`].sort();
      const initial = { state: text, updatedAt: 0 };
      for (const run of runs)
        await hold(store, run, workflow, 1, { initial, create: { principal } });
      await stage.wait(1);
      const query = { workflow, forMs: 0, states: [text] };
      assert.deepEqual((await heldIn(store, workflow, 1)).sort(), runs);
      assert.deepEqual((await stuckIn(store, query, 1)).sort(), runs);
      assert.deepEqual(await listOf(store, principal, 1), runs);
      await assertStates(store, workflow, 0, [[text, 3, 3]]);
    }
  });

  promises('names that look alike are listed apart', async ({ store, run: mine }) => {
    for (const [one, other] of LOOKALIKES) {
      const create = { principal: mine + one };
      const initial = { state: one, updatedAt: 0 };
      const request = claimOf(mine + one, { workflow: mine + one, initial, create });
      await claimed(store, request);
      await store.release(request, request.token);
      const query = { workflow: mine + one, forMs: 0 };
      assert.deepEqual(await stuckIn(store, { ...query, states: [other] }), []);
      assert.deepEqual(await stuckIn(store, { ...query, states: [one] }), [mine + one]);
      assert.deepEqual(await stuckIn(store, { ...query, workflow: mine + other }), []);
      assert.deepEqual(await listOf(store, mine + one), [mine + one]);
      assert.deepEqual(await listOf(store, mine + other), []);
      await assertStates(store, mine + other, 0, []);
      await store.delete(mine + one);
    }
  });
}

/** What holds of an index between two processes on the same data. */
export function sharedListingPromises(all: Promises): void {
  whereIndexed(all)('what one side does is in the listings of the other', async (stage) => {
    const { store, run } = stage;
    const other = { ...stage, store: await stage.reopen() };
    assert.ok(isIndexed(other));
    const request = await hold(store, run, run, SHORT, { create: { principal: run } });
    await stage.wait(SHORT);
    await assertListed(other.store, run, [run]);
    await other.store.commit(commitOf(request, { as: `${run}-resolved` }));
    assert.deepEqual(await heldIn(store, run), []);
    await assertStates(store, run, 0, [['has_items', 1, 1]]);
    await other.store.delete(run);
    await assertListed(store, run, []);
  });

  whereIndexed(all)('a run that two sides claim at once is listed by the claim', async (stage) => {
    const { store, run: workflow } = stage;
    const sides = [store, await stage.reopen()];
    const runs = keysOf(workflow, RACES);
    const race = (run: string, at: number) =>
      (at % 2 === 0 ? sides : sides.toReversed()).map((side, racer) => {
        const create = { principal: workflow };
        return side.claim(claimOf(run, { workflow, create, leaseMs: racer * APART + 1 }));
      });
    await Promise.all(runs.flatMap(race));
    await stage.wait(SHORT);
    await assertListed(store, workflow, runs);
  });
}

/** For how many runs two sides race. */
const RACES = 8;

/** How many runs move meanwhile, and how often. */
const MOVING = 5;
const MOVES = 6;

/** What holds of listings while another process moves the runs. */
export function movingListingPromises(all: Promises): void {
  whereIndexed(all)(
    'a run that moves while it is listed is given as it is then, or not at all',
    async (stage) => {
      const { store, run: workflow } = stage;
      const other = await stage.reopen();
      const stateAt = (version: number) => (version % 2 === 0 ? 'payment' : 'done');
      /** Of each run, the moves that were asked for, and those that are known to be done. */
      const asked = new Map<string, number>();
      const done = new Map<string, number>();
      const move = async (run: string) => {
        for (let version = 1; version <= MOVES; version++) {
          const request = claimOf(run, { workflow, token: `${run}-${version}`, leaseMs: 1 });
          await claimed(other, { ...request, create: {} });
          await stage.wait(APART);
          asked.set(run, version);
          const snapshot = { state: stateAt(version), context: version };
          await other.commit(commitOf(request, { snapshot }));
          done.set(run, version);
          await nextTurn();
        }
      };
      /** The versions of which a run may be, by what was known before the store was asked. */
      const may = (before: ReadonlyMap<string, number>, run: string) => {
        const first = before.get(run) ?? 0;
        return Array.from({ length: (asked.get(run) ?? 0) - first + 1 }, (_, at) => first + at);
      };
      const runs = keysOf(workflow, MOVING);
      let isOver = false;
      const moved = Promise.all(runs.map(move)).finally(() => {
        isOver = true;
      });
      const list = async () => {
        for (let isLast = false; !isLast; await nextTurn()) {
          isLast = isOver;
          const before = new Map(done);
          const page = { workflow, limit: MOVING };
          const stuck = await store.stuck({ ...page, states: ['payment'], forMs: 0 });
          for (const { run, snapshot } of stuck.runs) {
            const { state, version = 0, context = 0 } = snapshot;
            assert.deepEqual([state, context], ['payment', version]);
            assert.ok(may(before, run).includes(version), `${version} of ${may(before, run)}`);
          }
          const held = await store.held(page);
          for (const { run, claim } of held.runs) {
            const tokens = may(before, run).map((version) => `${run}-${version + 1}`);
            assert.ok(claim && tokens.includes(claim.token), `${claim?.token} of ${tokens}`);
            assert.deepEqual([claim.uncertain, claim.live], ['hold', false]);
          }
          for (const run of await listed(store, { workflow, state: 'payment' })) {
            const states = may(before, run).map(stateAt);
            assert.ok(states.includes('payment'), `${run} is ${states}`);
          }
        }
      };
      await Promise.all([moved, list()]);
    },
  );
}
