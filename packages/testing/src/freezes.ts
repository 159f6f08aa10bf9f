/**
 * What an operator's freeze stops, and what it leaves alone: the claim beside it and the position.
 * Hides how an operator's request looks.
 */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import {
  type AtomicStateStore,
  type Freeze,
  type FreezeRequest,
  type FreezeResult,
  verifyTrail,
  type WorkflowRecord,
} from '../../../src/stores/index.ts';
import {
  attemptOf,
  claimed,
  claimOf,
  claimStatus,
  commitOf,
  count,
  failedStep,
  HOUR,
  LONG,
  opened,
  type Promises,
  recordingOf,
  SHORT,
  saidIn,
  same,
  step,
} from './fixtures.ts';
import { HOSTILE } from './hostile.ts';

export const MARY: Freeze = { actor: 'mary', note: 'The provider is away.' };
const PAUL: Freeze = { actor: 'paul', note: 'A second look.' };
const RETRY = { uncertain: 'retry' } as const;

/** A freeze of a run's `checkout` by Mary, with its own token; with no `freeze` she lifts one. */
export function freezeOf(run: string, changes: Partial<FreezeRequest> = {}): FreezeRequest {
  const freeze = 'freeze' in changes ? changes.freeze : MARY;
  const event = freeze === undefined ? 'unfreeze' : 'freeze';
  return {
    run,
    workflow: 'checkout',
    token: randomUUID(),
    freeze,
    initial: { state: 'empty', updatedAt: 0 },
    entry: { from: 'empty', event, ...(freeze ?? MARY) },
    ttlMs: HOUR,
    ...changes,
  };
}

export function thawOf(run: string, changes: Partial<FreezeRequest> = {}): FreezeRequest {
  return freezeOf(run, { ...changes, freeze: undefined });
}

export function freezePromises(promises: Promises): void {
  stopPromises(promises);
  answerPromises(promises);
  besideStepPromises(promises);
  trailPromises(promises);
  racePromises(promises);
  namePromises(promises);
}

function stopPromises(promises: Promises): void {
  promises('a frozen run grants no claim, and says who has stopped it and why', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await step(store, run);
    const frozen = await changed(store, freezeOf(run));
    same([frozen.frozen, frozen.snapshot.state], [MARY, 'has_items']);
    const refused = await store.claim(claimOf(run));
    assert.ok(refused.status === 'frozen', refused.status);
    same([refused.freeze, refused.snapshot.state], [MARY, 'has_items']);
    same((await checkoutOf(store, run)).frozen, MARY);

    const thawed = await changed(store, thawOf(run));
    same([thawed.frozen, thawed.snapshot.state], [undefined, 'has_items']);
    assert.equal((await checkoutOf(store, run)).frozen, undefined);
    assert.equal(await step(store, run), 2);
  });

  promises('a freeze leaves the position, its version and its time as they are', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const context = { total: 12.5 };
    await step(store, run, {}, { snapshot: { state: 'payment', context }, ended: true });
    const before = await checkoutOf(store, run);
    await stage.wait(SHORT);
    await changed(store, freezeOf(run));
    same(await checkoutOf(store, run), { ...before, frozen: MARY });
    await changed(store, thawOf(run));
    same(await checkoutOf(store, run), before);
  });

  promises('a workflow can be frozen before its first claim', async (stage) => {
    const { store } = stage;
    const run = await opened(stage, { principal: 'alice' });
    const initial = { state: 'migrated', updatedAt: 0, version: 41, context: [1] };
    const { snapshot } = await changed(store, freezeOf(run, { initial }));
    const { updatedAt: _, ...position } = snapshot;
    same(position, { state: 'migrated', version: 41, context: [1] });
    const refused = await store.claim(claimOf(run, { initial: { state: 'later', updatedAt: 0 } }));
    assert.ok(refused.status === 'frozen', refused.status);
    same(refused.snapshot, snapshot);
    await changed(store, thawOf(run));
    assert.equal(await step(store, run, { states: ['migrated'] }), 42);
    const [entry] = await store.history({ run, workflow: 'checkout' });
    same([entry?.seq, entry?.version, entry?.attempt], [1, 41, 0]);
  });

  promises('a freeze stops one workflow, and no other of the run', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await changed(store, freezeOf(run));
    assert.equal(await claimStatus(store, run), 'frozen');
    assert.equal(await step(store, run, { workflow: 'approval' }), 1);
    await changed(store, freezeOf(run, { workflow: 'approval', freeze: PAUL }));
    await changed(store, thawOf(run));
    assert.equal(await step(store, run), 1);
    assert.equal(await claimStatus(store, run, { workflow: 'approval' }), 'frozen');
    const workflows = (await store.read(run, HOUR))?.workflows;
    same([workflows?.checkout?.frozen, workflows?.approval?.frozen], [undefined, PAUL]);
  });

  promises(
    'a freeze is reported before a claim that lives or is held and a wrong state, and after a ' +
      'spent token',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const [spent, held] = [await failedStep(store, run), claimOf(run, { leaseMs: SHORT })];
      await claimed(store, held);
      await changed(store, freezeOf(run));
      assert.equal(await claimStatus(store, run, { states: [] }), 'frozen');
      assert.equal((await store.claim(spent)).status, 'state');
      await stage.wait(SHORT);
      assert.equal(await claimStatus(store, run, { states: [] }), 'frozen');
      await changed(store, thawOf(run));
      assert.equal(await claimStatus(store, run, { states: [] }), 'held');
    },
  );

  promises('a frozen run is deleted, and its key is free', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await changed(store, freezeOf(run));
    assert.equal(await store.delete(run), 'deleted');
    assert.equal(await store.read(run, HOUR), undefined);
    assert.deepEqual(await store.freeze(thawOf(run)), { status: 'unknown' });
    assert.deepEqual(await store.open(run, {}, HOUR), { status: 'opened' });
    assert.equal(await claimStatus(store, run), 'claimed');
  });

  promises('a frozen run that is held is not deleted', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = claimOf(run);
    await claimed(store, request);
    await changed(store, freezeOf(run));
    assert.equal(await store.delete(run), 'pinned');
    same((await checkoutOf(store, run)).frozen, MARY);
  });
}

function answerPromises(promises: Promises): void {
  promises('a second freeze leaves the first one, and lifting none does nothing', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const idle = await store.freeze(thawOf(run));
    assert.ok(idle.status === 'unchanged', idle.status);
    same([idle.frozen, idle.snapshot.state], [undefined, 'empty']);
    same((await store.read(run, HOUR))?.workflows, {});
    await changed(store, freezeOf(run));
    const second = await store.freeze(freezeOf(run, { freeze: PAUL }));
    assert.ok(second.status === 'unchanged', second.status);
    same([second.frozen, second.snapshot.state], [MARY, 'empty']);
    same((await checkoutOf(store, run)).frozen, MARY);
    await changed(store, thawOf(run));
    assert.equal((await store.freeze(thawOf(run))).status, 'unchanged');
    same(eventsOf(await saidIn(store, run)), ['freeze', 'unfreeze']);
  });

  promises(
    'a freeze that arrives again gets its first answer, and changes nothing more',
    async (stage) => {
      const { store } = stage;
      const run = await opened(stage);
      const [freeze, thaw] = [freezeOf(run), thawOf(run)];
      await changed(store, freeze);
      same((await changed(store, freeze)).frozen, MARY);
      await changed(store, thaw);
      assert.equal((await changed(store, freeze)).frozen, undefined);
      assert.equal((await changed(store, thaw)).frozen, undefined);
      assert.equal(await step(store, run), 1);
      await changed(store, freezeOf(run, { freeze: PAUL }));
      for (const late of [freeze, thaw]) same((await changed(store, late)).frozen, PAUL);
      same(eventsOf(await saidIn(store, run)), ['freeze', 'unfreeze', 'ADD_ITEM', 'freeze']);
    },
  );

  promises('a freeze makes no run, unless it says for whom', async (stage) => {
    const { store, run } = stage;
    assert.deepEqual(await store.freeze(freezeOf(run)), { status: 'unknown' });
    assert.deepEqual(await store.freeze(thawOf(run)), { status: 'unknown' });
    assert.equal(await store.read(run, HOUR), undefined);
    await changed(store, freezeOf(run, { create: { principal: 'alice' } }));
    assert.equal((await store.read(run, HOUR))?.session.principal, 'alice');
    const create = { principal: 'mallory' };
    assert.equal(await claimStatus(store, run, { create }), 'frozen');
    assert.equal((await store.read(run, HOUR))?.session.principal, 'alice');
  });

  promises('a caller cannot change the store through a freeze', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const given = { ...MARY, more: 'a member that no store knows' };
    await changed(store, freezeOf(run, { freeze: given }));
    given.actor = 'mallory';
    same((await checkoutOf(store, run)).frozen, MARY);
    try {
      Object.assign((await checkoutOf(store, run)).frozen ?? {}, { actor: 'mallory' });
    } catch (error) {
      assert.ok(error instanceof TypeError);
    }
    same((await checkoutOf(store, run)).frozen, MARY);
  });
}

function besideStepPromises(promises: Promises): void {
  promises('a step that runs when its run is frozen goes on, and is saved', async (stage) => {
    const { store } = stage;
    for (const uncertain of ['hold', 'retry'] as const) {
      const run = `${stage.run}-${uncertain}`;
      const request = claimOf(run, { create: {}, leaseMs: SHORT, step: { uncertain } });
      const { idempotencyKey } = await claimed(store, request);
      await changed(store, freezeOf(run));
      const { claim } = await checkoutOf(store, run);
      assert.deepEqual([claim?.token, claim?.idempotencyKey], [request.token, idempotencyKey]);
      await stage.wait(SHORT);
      assert.equal((await claimed(store, request)).idempotencyKey, idempotencyKey);
      assert.equal(await store.renew(request, request.token, LONG), true);
      assert.deepEqual(await store.commit(commitOf(request)), COMMITTED);
      const { snapshot, claim: left, frozen } = await checkoutOf(store, run);
      same([snapshot.state, left, frozen], ['has_items', undefined, MARY]);
      assert.equal(await claimStatus(store, run), 'frozen');
      await changed(store, thawOf(run));
      assert.equal(await step(store, run), 2);
    }
  });

  promises('a step of a frozen run that is released leaves it frozen', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const [request, never] = [claimOf(run), claimOf(run)];
    await claimed(store, request);
    await changed(store, freezeOf(run));
    await store.release(never, never.token);
    await store.release(request, request.token, { entry: attemptOf(request) });
    same((await checkoutOf(store, run)).frozen, MARY);
    assert.equal(await claimStatus(store, run), 'frozen');
    await changed(store, thawOf(run));
    assert.equal((await store.claim(never)).status, 'state');
    assert.equal(await claimStatus(store, run), 'claimed');
  });

  promises('a person resolves a held step while its run is frozen', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const held = claimOf(run, { leaseMs: SHORT });
    await claimed(store, held);
    await changed(store, freezeOf(run));
    await stage.wait(SHORT);
    assert.equal((await checkoutOf(store, run)).claim?.live, false);
    assert.deepEqual(await store.commit(commitOf(held, { as: 'a person' })), COMMITTED);
    assert.deepEqual(await store.commit(commitOf(held)), { status: 'lost' });
    same((await checkoutOf(store, run)).frozen, MARY);
    assert.equal(await claimStatus(store, run), 'frozen');
  });

  promises('a step of unknown outcome is taken over once its run goes on', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const dead = claimOf(run, { leaseMs: SHORT, step: RETRY, entry: { tool: 'cart.pay' } });
    const { idempotencyKey } = await claimed(store, dead);
    await changed(store, freezeOf(run));
    await stage.wait(SHORT);
    assert.equal(await claimStatus(store, run, { step: RETRY }), 'frozen');
    assert.equal((await checkoutOf(store, run)).claim?.token, dead.token);
    await changed(store, thawOf(run));
    const next = await claimed(store, claimOf(run, { step: RETRY }));
    assert.equal(next.idempotencyKey, idempotencyKey);
    same(
      (await saidIn(store, run)).map(({ event, kind }) => event ?? kind),
      ['freeze', 'unfreeze', 'taken_over'],
    );
  });

  promises('what a call adds beside others is recorded while the run is frozen', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await changed(store, freezeOf(run));
    const recorded = await store.record(recordingOf(run, 0, 'a'));
    assert.deepEqual(recorded, { status: 'recorded', version: 1 });
    const { snapshot, frozen } = await checkoutOf(store, run);
    same([snapshot.state, frozen], ['a', MARY]);
  });
}

function trailPromises(promises: Promises): void {
  promises('a freeze is in the trail as it was given, and counts as no attempt', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await failedStep(store, run);
    const [freeze, thaw] = [freezeOf(run), thawOf(run)];
    await changed(store, freeze);
    await changed(store, thaw);
    await failedStep(store, run);
    await step(store, run);
    const key = { run, workflow: 'checkout' };
    const trail = await store.history(key);
    same(
      trail.map(({ seq, version, attempt }) => [seq, version, attempt]),
      [
        [1, 0, 1],
        [2, 0, 1],
        [3, 0, 1],
        [4, 0, 2],
        [5, 1, 3],
      ],
    );
    same((await saidIn(store, run)).slice(1, 3), [freeze.entry, thaw.entry]);
    if (stage.isChained) assert.deepEqual(verifyTrail(trail, { from: key }), []);
  });

  promises('a trail that begins with a freeze is one as any other', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    await changed(store, freezeOf(run));
    await changed(store, thawOf(run));
    await step(store, run);
    const key = { run, workflow: 'checkout' };
    const trail = await store.history(key);
    same(
      trail.map(({ seq, version, attempt }) => [seq, version, attempt]),
      [
        [1, 0, 0],
        [2, 0, 0],
        [3, 1, 1],
      ],
    );
    if (stage.isChained) assert.deepEqual(verifyTrail(trail, { from: key }), []);
  });
}

function racePromises(promises: Promises): void {
  promises('of 50 freezes at once exactly one stops the run', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const asked = Array.from({ length: 50 }, (_, index) =>
      freezeOf(run, { freeze: { actor: `operator ${index}`, note: '' } }),
    );
    oneChanged(await Promise.all(asked.map((request) => store.freeze(request))));
    assert.equal((await store.history({ run, workflow: 'checkout' })).length, 1);
  });

  promises('50 freezes at once with one token are one freeze', async (stage) => {
    const { store } = stage;
    const run = await opened(stage);
    const request = freezeOf(run);
    await Promise.all(Array.from({ length: 50 }, () => changed(store, request)));
    assert.equal((await store.history({ run, workflow: 'checkout' })).length, 1);
  });

  promises('a claim came before a freeze, or gets none', async ({ store, run: mine }) => {
    for (let race = 0; race < 20; race += 1) {
      const run = `${mine}-${race}`;
      await store.open(run, {}, HOUR);
      const request = claimOf(run);
      const asked = [store.claim(request), store.freeze(freezeOf(run))] as const;
      const [claim, freeze] = await Promise.all(race % 2 === 0 ? asked : [...asked].reverse());
      const seen = [claim?.status, freeze?.status].sort().join();
      assert.ok(['changed,claimed', 'changed,frozen'].includes(seen), seen);
      same((await checkoutOf(store, run)).frozen, MARY);
      const committed = await store.commit(commitOf(request));
      assert.equal(committed.status, seen.includes('claimed') ? 'committed' : 'lost');
    }
  });
}

function namePromises(promises: Promises): void {
  promises('any string is a workflow, an actor and a note of a freeze', async (stage) => {
    const { store, run } = stage;
    await store.open(run, {}, HOUR);
    for (const text of ['', ...Object.values(HOSTILE)]) {
      const [freeze, about] = [
        { actor: text, note: text },
        { run, workflow: text },
      ];
      const entry = { from: text, event: text, ...freeze };
      const initial = { state: text, updatedAt: 0 };
      const { frozen, snapshot } = await changed(
        store,
        freezeOf(run, { workflow: text, freeze, entry, initial }),
      );
      same([frozen, snapshot.state], [freeze, text]);
      const refused = await store.claim(claimOf(run, { workflow: text }));
      assert.ok(refused.status === 'frozen', refused.status);
      same([refused.freeze, refused.snapshot.state], [freeze, text]);
      const workflows = Object.entries((await store.read(run, HOUR))?.workflows ?? {});
      same(workflows.find(([name]) => name === text)?.[1].frozen, freeze);
      same(await saidIn(store, run, text), [entry]);
      if (stage.isChained)
        assert.deepEqual(verifyTrail(await store.history(about), { from: about }), []);
    }
  });
}

const COMMITTED = { status: 'committed', version: 1 };

/** Freezes or lifts, and expects that to be the answer. */
export async function changed(
  store: AtomicStateStore,
  request: FreezeRequest,
): Promise<Exclude<FreezeResult, { status: 'unknown' }>> {
  const result = await store.freeze(request);
  assert.ok(
    result.status === 'changed',
    `expected the freeze to change the run, not ${JSON.stringify(result)}`,
  );
  return result;
}

/** Of 50 freezes one changed the run, and each of the others says by whom it was stopped. */
export function oneChanged(results: readonly FreezeResult[]): void {
  const found = (wanted: string): number => count(results, ({ status }) => status === wanted);
  assert.deepEqual([found('changed'), found('unchanged')], [1, 49]);
  const actors = results.map((result) => 'frozen' in result && result.frozen?.actor);
  assert.equal(new Set(actors).size, 1);
}

export async function checkoutOf(store: AtomicStateStore, run: string): Promise<WorkflowRecord> {
  const workflow = (await store.read(run, HOUR))?.workflows.checkout;
  assert.ok(workflow, 'expected the run to have its workflow');
  return workflow;
}

export function eventsOf(entries: Awaited<ReturnType<typeof saidIn>>): (string | null)[] {
  return entries.map(({ event }) => event);
}
