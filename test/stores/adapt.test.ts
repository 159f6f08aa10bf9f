import { describe, expect, it } from 'vitest';
import { claimOf, commitOf, HOUR, step } from '../../packages/testing/src/fixtures.ts';
import { freezeOf, thawOf } from '../../packages/testing/src/freezes.ts';
import { describeStateStore, testGate } from '../../packages/testing/src/index.ts';
import { type AdaptOptions, adaptStateStore } from '../../src/stores/adapt.ts';
import type { AtomicStateStore, FsmSnapshot, FsmStateStore } from '../../src/stores/store.ts';
import { checkoutGate } from '../helpers/checkout.ts';
import { JsonStateStore } from '../helpers/json-state-store.ts';
import { ManualTime } from '../helpers/manual-clock.ts';
import { INITIALIZE, send } from '../helpers/raw.ts';
import { scene } from '../helpers/scene.ts';

const KEY = { run: 'run', workflow: 'checkout' };

function adapt(plain: FsmStateStore, options: AdaptOptions = {}): AtomicStateStore {
  return adaptStateStore(plain, { onWarning: () => {}, ...options });
}

function makeStore() {
  const plain = new JsonStateStore();
  const time = new ManualTime();
  /** Starts again on the same data, as after a kill of the process. */
  const restart = () => adapt(new JsonStateStore(plain.texts), { now: time.now });
  return { plain, time, restart, store: adapt(plain, { now: time.now }) };
}

describeStateStore(
  'adaptStateStore()',
  async () => {
    const { store, time, restart } = makeStore();
    return { store, advance: time.advance, reopen: async () => restart(), close: async () => {} };
  },
  { describe, it, scope: 'restarts' },
);

describe('what adaptStateStore() saves', () => {
  it('is a session record and a snapshot for each workflow, under readable keys', async () => {
    const { store, plain, time } = makeStore();
    await store.open('run', { principal: 'alice', minted: true }, HOUR);
    await step(store, 'run', {}, { snapshot: { state: 'payment', context: { total: 5 } } });
    expect([...plain.texts.keys()]).toEqual(['session:run', 'checkout:run']);
    const expiresAt = time.now() + HOUR;
    expect(plain.saved('session:run')).toEqual({
      state: 'open',
      updatedAt: time.now(),
      context: {
        ...{ format: 1, principal: 'alice', minted: true, openedBy: '' },
        ...{ workflows: ['checkout'], expiresAt },
      },
    });
    expect(plain.saved('checkout:run')).toEqual({
      state: 'payment',
      updatedAt: time.now(),
      version: 1,
      context: { total: 5 },
    });
  });

  it('says in the session record who has frozen which workflow', async () => {
    const { store, plain } = makeStore();
    await step(store, 'run', { create: {}, workflow: 'other' });
    const freeze = { actor: 'mary', note: 'wait' };
    await store.freeze(freezeOf('run', { freeze }));
    expect(plain.saved('session:run')).toMatchObject({
      context: { workflows: ['other', 'checkout'], frozen: [{ workflow: 'checkout', ...freeze }] },
    });
    await store.freeze(thawOf('run'));
    expect(plain.saved('session:run')).not.toHaveProperty('context.frozen');
  });

  it('is a switch for each workflow, under a key that no run and no workflow has', async () => {
    const { store, plain, time } = makeStore();
    await store.swapSwitch?.('checkout', undefined, { value: { all: null }, revision: 'r1' });
    await store.swapSwitch?.('a:b', undefined, { value: 1, revision: 'r2' });
    await step(store, 'checkout', { create: {}, workflow: 'switch' });
    expect(plain.saved('switch:checkout')).toEqual({
      state: 'r1',
      updatedAt: time.now(),
      context: { format: 1, value: { all: null } },
    });
    const others = ['session:checkout', '%switch:checkout'];
    expect([...plain.texts.keys()].sort()).toEqual(
      ['switch:checkout', 'switch:a:b', ...others].sort(),
    );
  });

  it('is a tombstone once the run is deleted', async () => {
    const { store, plain, time } = makeStore();
    await store.open('run', {}, HOUR);
    plain.texts.set('session:run', '"broken"');
    await store.delete('run');
    expect(plain.saved('session:run')).toEqual({ state: 'ended', updatedAt: time.now() });
  });

  it('has its own key for each workflow of each run, with any names', async () => {
    const { store, plain } = makeStore();
    for (const run of ['a:b', '100%', 'x\u0000\ud800']) {
      await store.open(run, {}, HOUR);
      for (const workflow of ['session', 'b:c']) await step(store, run, { workflow });
    }
    expect([...plain.texts.keys()]).toEqual([
      'session:a:b',
      '%session:a:b',
      'b%3Ac:a:b',
      'session:100%25',
      '%session:100%25',
      'b%3Ac:100%25',
      'session:x%00%D800',
      '%session:x%00%D800',
      'b%3Ac:x%00%D800',
    ]);
  });

  it('takes one save for a commit, two for a first claim, and none for a read', async () => {
    const { store, plain } = makeStore();
    // After a first save, the adapter loads to see whether the store keeps all of it.
    await step(store, 'looked at', { create: {} });
    await store.open('run', {}, HOUR);
    const [first, second] = [claimOf('run'), claimOf('run')];
    plain.takeCalls();
    await store.claim(first);
    expect(plain.takeCalls()).toEqual([
      'load session:run',
      'save checkout:run',
      'save session:run',
    ]);
    await store.commit(commitOf(first));
    expect(plain.takeCalls()).toEqual([
      'load session:run',
      'load checkout:run',
      'save checkout:run',
    ]);
    await store.claim(second);
    await store.read('run', HOUR);
    expect(plain.takeCalls().filter((call) => call.startsWith('save'))).toEqual([]);
    await store.renew(second, second.token, HOUR);
    await store.release(second, second.token);
    expect(plain.takeCalls()).toEqual([]);
  });

  it('is saved again, with all keys, once a tenth of the time to live has passed', async () => {
    const { store, plain, time } = makeStore();
    await store.open('run', {}, HOUR);
    await step(store, 'run');
    plain.takeCalls();
    time.advance(HOUR / 10);
    await store.read('run', HOUR);
    expect(plain.takeCalls()).not.toContain('save session:run');
    time.advance(1);
    await store.read('run', HOUR);
    expect(plain.takeCalls().slice(-2)).toEqual(['save checkout:run', 'save session:run']);
  });
});

describe('a store that does not keep what adaptStateStore() gives it', () => {
  /** Exactly what the first version of FsmSnapshot had. */
  function columns(kept: readonly string[]): FsmStateStore {
    const rows = new Map<string, string>();
    return {
      load: async (key) => JSON.parse(rows.get(key) ?? 'null') ?? undefined,
      save: async (key, snapshot) => void rows.set(key, JSON.stringify(snapshot, [...kept])),
    };
  }
  const STATE_AND_TIME = ['state', 'updatedAt'];
  const CONTEXT = ['context', 'format', 'workflows', 'expiresAt', 'principal', 'openedBy'];

  it('is refused at the first save, with the names of what it lost', async () => {
    const store = adapt(columns(STATE_AND_TIME));
    await expect(store.open('run', {}, HOUR)).rejects.toMatchObject({
      code: 'ERR_INTERLOCK_STORE',
      message: expect.stringMatching(/without its "context".*updatedAt.*keep all/s),
    });
    await expect(store.open('run-2', {}, HOUR)).rejects.toThrow(/does not keep what it is given/);
  });

  it('is named in the text of the failure itself, since many logs have nothing else', async () => {
    const errors: unknown[] = [];
    await using t = testGate(checkoutGate(), {
      session: { store: columns(STATE_AND_TIME), onError: (error) => void errors.push(error) },
    });
    await t.list().catch(() => {});
    expect(errors.map(String).join()).toContain(
      'the store failed to open: the store does not keep what it is given: ' +
        'load() gave back a snapshot without its "context"',
    );
  });

  it('is refused at the first commit, where it loses the version', async () => {
    const store = adapt(columns([...STATE_AND_TIME, ...CONTEXT]));
    await store.open('run', {}, HOUR);
    await expect(step(store, 'run')).rejects.toThrow(/gave back a snapshot without its "version"/);
  });

  it('is not tested again once it has kept all of it', async () => {
    const { store, plain } = makeStore();
    await step(store, 'run', { create: {} });
    await step(store, 'run', {}, { snapshot: { state: 'paid', context: { total: 5 } } });
    plain.takeCalls();
    await store.open('run-2', {}, HOUR);
    expect(plain.takeCalls()).toEqual(['load session:run-2', 'save session:run-2']);
  });

  it('makes the app answer 503, and onError gets the reason', async () => {
    const { url, errors } = await scene({ session: { store: columns(STATE_AND_TIME) } });
    const answer = await send(url, { body: INITIALIZE });
    expect(answer.status).toBe(503);
    expect(answer.text).not.toContain('FsmSnapshot');
    expect(errors).toEqual([
      expect.objectContaining({
        cause: expect.objectContaining({ code: 'ERR_INTERLOCK_STORE' }),
      }),
    ]);
  });
});

describe('a run of which adaptStateStore() finds something missing', () => {
  it('is unknown as a whole where one of its snapshots was evicted', async () => {
    const { store, plain } = makeStore();
    await store.open('run', {}, HOUR);
    await step(store, 'run', { workflow: 'approval' });
    const committed = claimOf('run');
    await store.claim(committed);
    await store.commit(commitOf(committed));
    const inFlight = claimOf('run', { step: { uncertain: 'retry' } });
    await store.claim(inFlight);
    plain.texts.delete('checkout:run');
    expect(await store.commit(commitOf(committed))).toEqual({ status: 'unknown' });
    expect(await store.read('run', HOUR)).toBeUndefined();
    expect(await store.history({ run: 'run', workflow: 'approval' })).toEqual([]);
    for (const workflow of ['checkout', 'approval', 'new']) {
      expect(await store.claim(claimOf('run', { workflow }))).toEqual({ status: 'unknown' });
    }
    expect(await store.renew(inFlight, inFlight.token, HOUR)).toBe(false);
  });

  it('is no free key where a step holds it: the store has dropped what it must keep', async () => {
    const { store, plain } = makeStore();
    await store.claim(claimOf('run', { create: {} }));
    plain.texts.clear();
    const dropped = { code: 'ERR_INTERLOCK_STORE' };
    await expect(store.read('run', HOUR)).rejects.toMatchObject(dropped);
    await expect(store.open('run', {}, HOUR)).rejects.toMatchObject(dropped);
    await expect(store.claim(claimOf('run', { create: {} }))).rejects.toMatchObject(dropped);
  });

  it('is no free key where an operator has frozen it, and can be deleted', async () => {
    const { store, plain } = makeStore();
    await store.freeze(freezeOf('run', { create: {} }));
    plain.texts.clear();
    const dropped = { code: 'ERR_INTERLOCK_STORE' };
    await expect(store.open('run', {}, HOUR)).rejects.toMatchObject(dropped);
    await expect(store.claim(claimOf('run', { create: {} }))).rejects.toMatchObject(dropped);
    await expect(store.freeze(thawOf('run'))).rejects.toMatchObject(dropped);
    expect(await store.delete('run')).toBe('unknown');
    expect(await store.open('run', {}, HOUR)).toEqual({ status: 'opened' });
  });

  it('lives as long as its renewed lease, also once that is released', async () => {
    const { store, time } = makeStore();
    await store.open('run', {}, 10_000);
    const claim = claimOf('run', { leaseMs: 5_000, ttlMs: 10_000, step: { uncertain: 'retry' } });
    await store.claim(claim);
    time.advance(4_000);
    expect(await store.renew(claim, claim.token, 30_000)).toBe(true);
    time.advance(16_000);
    await store.release(claim, claim.token);
    time.advance(1_000);
    expect(await store.read('run', HOUR)).toBeDefined();
    expect(await store.open('run', {}, HOUR)).toEqual({ status: 'taken' });
  });

  it('stays over for its client though a step of it ends late', async () => {
    const { store, time } = makeStore();
    await store.open('run', {}, 10_000);
    const claim = claimOf('run', { leaseMs: 5_000, ttlMs: 10_000 });
    await store.claim(claim);
    time.advance(20_000);
    expect(await store.renew(claim, claim.token, 5_000)).toBe(true);
    expect((await store.read('run', HOUR))?.sessionEnded).toBe(true);
    await store.commit(commitOf(claim, { ended: true }));
    expect((await store.read('run', HOUR))?.sessionEnded).toBe(true);
    expect((await store.claim(claimOf('run'))).status).toBe('unknown');
  });

  it('keeps the entry of a release that could not be saved at first', async () => {
    const { store, plain, time } = makeStore();
    await store.open('run', {}, 10_000);
    const claim = claimOf('run', { leaseMs: 5_000, ttlMs: 10_000 });
    await store.claim(claim);
    time.advance(20_000);
    const entry = { from: 'empty', event: null, outcome: 'failed' } as const;
    plain.failures.set('save session:run', new Error('ECONNREFUSED'));
    await expect(store.release(claim, claim.token, { entry })).rejects.toThrow('ECONNREFUSED');
    plain.failures.clear();
    await store.release(claim, claim.token, { entry });
    expect(await store.history(claim)).toMatchObject([{ outcome: 'failed' }]);
    expect(await store.open('run', {}, HOUR)).toEqual({ status: 'taken' });
  });

  it('is unknown where its session record was evicted and its snapshots remain', async () => {
    const { store, plain, restart } = makeStore();
    await store.open('run', {}, HOUR);
    await step(store, 'run');
    plain.texts.delete('session:run');
    for (const view of [store, restart()]) {
      expect(await view.read('run', HOUR)).toBeUndefined();
      expect(await view.claim(claimOf('run'))).toEqual({ status: 'unknown' });
    }
  });

  it('has nothing of the old one when it is made again', async () => {
    const { store, plain } = makeStore();
    await store.open('run', { principal: 'alice' }, HOUR);
    await step(store, 'run');
    plain.texts.delete('session:run');
    const claim = claimOf('run', { create: { principal: 'bob' } });
    expect(await store.claim(claim)).toMatchObject({ snapshot: { state: 'empty', version: 0 } });
    expect(plain.saved('checkout:run')).toMatchObject({ state: 'empty', version: 0 });
    expect((await store.read('run', HOUR))?.session.principal).toBe('bob');
  });

  it('may be missing as null, which many clients give', async () => {
    const store = adapt({ load: async () => null as never, save: async () => {} });
    expect(await store.read('run', HOUR)).toBeUndefined();
  });
});

describe('a run of which adaptStateStore() finds something malformed', () => {
  const open = {
    state: 'open',
    updatedAt: 1,
    context: { format: 1, workflows: ['checkout'], expiresAt: 9e15 },
  };
  const snapshot = { state: 'empty', updatedAt: 1 };

  it.each([
    ['a session record that is text', JSON.stringify(open), snapshot],
    ['a session record that is a list', [], snapshot],
    ['a session record in another state', { ...open, state: 'half-open' }, snapshot],
    ['a session record without context', { ...open, context: undefined }, snapshot],
    [
      'a principal that is not a string',
      { ...open, context: { ...open.context, principal: 7 } },
      snapshot,
    ],
    [
      'workflows that are not a list',
      { ...open, context: { ...open.context, workflows: {} } },
      snapshot,
    ],
    [
      'an expiry that is not a number',
      { ...open, context: { ...open.context, expiresAt: '9e15' } },
      snapshot,
    ],
    ['a snapshot that is text', open, 'empty'],
    ['a snapshot without a state', open, { updatedAt: 1 }],
    ['a snapshot whose state is a list', open, { state: ['empty'], updatedAt: 1 }],
    ['a snapshot without a time', open, { state: 'empty' }],
    ['a version below zero', open, { ...snapshot, version: -1 }],
    ['a version that is text', open, { ...snapshot, version: '1' }],
  ])('is an error and not an unknown run: %s', async (_what, session, checkout) => {
    const { store, plain } = makeStore();
    plain.texts.set('session:run', JSON.stringify(session));
    plain.texts.set('checkout:run', JSON.stringify(checkout));
    const error = expect.objectContaining({ code: 'ERR_INTERLOCK_SNAPSHOT' });
    await expect(store.read('run', HOUR)).rejects.toThrow(error);
    await expect(store.claim(claimOf('run', { create: {} }))).rejects.toThrow(error);
    await expect(store.commit(commitOf(claimOf('run')))).rejects.toThrow(error);
    await expect(store.history(KEY)).rejects.toThrow(error);
  });

  it('can be read with unknown properties and without a version', async () => {
    const { store, plain } = makeStore();
    plain.texts.set('session:run', JSON.stringify({ ...open, ttl: 5 }));
    plain.texts.set('checkout:run', JSON.stringify({ ...snapshot, etag: 'x' }));
    expect((await store.read('run', HOUR))?.workflows.checkout?.snapshot.state).toBe('empty');
    expect(await step(store, 'run')).toBe(1);
  });
});

describe('a run that another version of the package saved', () => {
  /** A run as this version saves it, but with that format in its session record. */
  async function savedIn(format: number) {
    const made = makeStore();
    await step(made.store, 'run', { create: {} });
    const { state, updatedAt, context } = made.plain.saved('session:run') as FsmSnapshot;
    const said = { ...(context as object), format, more: { of: 'it' } };
    made.plain.texts.set('session:run', JSON.stringify({ state, updatedAt, context: said }));
    return made;
  }

  it.each([0, 2])(
    'is refused by every operation where its format is %d, and does not change',
    async (format) => {
      const { plain, restart } = await savedIn(format);
      const texts = new Map(plain.texts);
      const [store, request] = [restart(), claimOf('run', { create: {} })];
      const refused: Record<string, () => Promise<unknown>> = {
        open: () => store.open('run', {}, HOUR),
        read: () => store.read('run', HOUR),
        claim: () => store.claim(request),
        commit: () => store.commit(commitOf(request)),
        history: () => store.history(request),
        freeze: () => store.freeze(freezeOf('run', { create: {} })),
        delete: () => store.delete('run'),
      };
      for (const [name, operation] of Object.entries(refused)) {
        const told = `format ${format} by another version of mcp-interlock, and this one knows format 1`;
        await expect(operation(), name).rejects.toThrow(told);
        await expect(operation(), name).rejects.toMatchObject({ code: 'ERR_INTERLOCK_STORE' });
      }
      await store.release(request, request.token, { entry: { from: 'empty', event: null } });
      expect(await store.renew(request, request.token, HOUR)).toBe(false);
      expect(plain.texts).toEqual(texts);
    },
  );

  it('may have a switch of another format, which is refused and does not change', async () => {
    const { plain, store } = makeStore();
    const text = JSON.stringify({ state: 'r', updatedAt: 0, context: { format: 2, other: 1 } });
    plain.texts.set('switch:checkout', text);
    const told = { code: 'ERR_INTERLOCK_STORE', message: /a switch was saved in format 2/ };
    await expect(store.readSwitch?.('checkout')).rejects.toThrow(told.message);
    const swap = store.swapSwitch?.('checkout', 'r', { value: 1, revision: 's' });
    await expect(swap).rejects.toMatchObject({ code: told.code });
    expect(plain.texts.get('switch:checkout')).toBe(text);
  });

  it('goes on where its format is this one, and keeps whatever else is there', async () => {
    const { plain, restart } = await savedIn(1);
    const store = restart();
    expect(await step(store, 'run')).toBe(2);
    expect(await step(store, 'run', { workflow: 'other' })).toBe(1);
    expect(plain.saved('session:run')).toMatchObject({
      context: { format: 1, workflows: ['checkout', 'other'], more: { of: 'it' } },
    });
  });
});

describe('a store that fails below adaptStateStore()', () => {
  const failure = new Error('connection refused');

  it('rejects what it cannot answer, and serves again afterwards', async () => {
    const { store, plain } = makeStore();
    await store.open('run', {}, HOUR);
    plain.failures.set('load session:run', failure);
    await expect(store.read('run', HOUR)).rejects.toBe(failure);
    await expect(store.claim(claimOf('run', { create: {} }))).rejects.toBe(failure);
    plain.failures.clear();
    expect(await step(store, 'run')).toBe(1);
  });

  it.each(['save checkout:run', 'save session:run'])(
    'takes no lease where "%s" fails',
    async (call) => {
      const { store, plain, restart } = makeStore();
      await store.open('run', {}, HOUR);
      plain.failures.set(call, failure);
      await expect(store.claim(claimOf('run'))).rejects.toBe(failure);
      plain.failures.clear();
      expect((await restart().claim(claimOf('run'))).status).toBe('claimed');
      expect(await step(store, 'run')).toBe(1);
    },
  );

  it('keeps the claim of a commit that it cannot save, so that the caller can retry', async () => {
    const { store, plain } = makeStore();
    await store.open('run', {}, HOUR);
    const claim = claimOf('run');
    await store.claim(claim);
    plain.failures.set('save checkout:run', failure);
    await expect(store.commit(commitOf(claim))).rejects.toBe(failure);
    await expect(store.read('run', HOUR)).rejects.toBe(failure);
    plain.failures.clear();
    expect((await store.claim(claimOf('run'))).status).toBe('busy');
    expect(await store.commit(commitOf(claim))).toEqual({ status: 'committed', version: 1 });
    expect((await store.history(claim)).length).toBe(1);
  });

  it('counts a commit once where its save arrives and seems to fail several times', async () => {
    const { store, plain } = makeStore();
    await store.open('run', {}, HOUR);
    const claim = claimOf('run');
    await store.claim(claim);
    plain.lateFailures.set('save checkout:run', failure);
    for (const _ of [1, 2, 3]) await expect(store.commit(commitOf(claim))).rejects.toBe(failure);
    plain.lateFailures.clear();
    expect(await store.commit(commitOf(claim))).toEqual({ status: 'committed', version: 1 });
    expect(plain.saved('checkout:run')).toMatchObject({ state: 'has_items', version: 1 });
    plain.takeCalls();
    await store.read('run', HOUR);
    expect(plain.takeCalls()).toEqual(['load session:run', 'load checkout:run']);
  });

  it('goes back to the state before a commit that seemed to fail, after a release', async () => {
    const { store, plain, restart } = makeStore();
    await store.open('run', {}, HOUR);
    const claim = claimOf('run');
    await store.claim(claim);
    plain.lateFailures.set('save checkout:run', failure);
    await expect(store.commit(commitOf(claim))).rejects.toBe(failure);
    plain.lateFailures.clear();
    await store.release(claim, claim.token);
    expect((await store.read('run', HOUR))?.workflows.checkout?.snapshot.state).toBe('empty');
    expect((await restart().read('run', HOUR))?.workflows.checkout?.snapshot.state).toBe('empty');
    plain.takeCalls();
    await store.read('run', HOUR);
    expect(plain.takeCalls()).toEqual(['load session:run', 'load checkout:run']);
  });

  it.each([true, false])(
    'freezes once where its save arrives and seems to fail; the workflow is known: %j',
    async (isKnown) => {
      const { store, plain, restart } = makeStore();
      await store.open('run', {}, HOUR);
      if (isKnown) await step(store, 'run');
      const [freeze, thaw] = [freezeOf('run'), thawOf('run')];
      for (const request of [freeze, thaw]) {
        plain.lateFailures.set('save session:run', failure);
        for (const _ of [1, 2, 3]) await expect(store.freeze(request)).rejects.toBe(failure);
        plain.lateFailures.clear();
        expect(await store.freeze(request)).toMatchObject({ status: 'changed' });
        expect((await store.freeze(request)).status).toBe('changed');
        const status = request === freeze ? 'frozen' : 'claimed';
        expect((await restart().claim(claimOf('run'))).status).toBe(status);
      }
      const events = (await store.history(freeze)).map(({ event }) => event);
      expect(events.slice(-2)).toEqual(['freeze', 'unfreeze']);
      expect(events).toHaveLength(isKnown ? 3 : 2);
    },
  );

  it('is not frozen by a freeze that seemed to fail, once it goes on', async () => {
    const { store, plain, restart } = makeStore();
    await step(store, 'run', { create: {} });
    plain.lateFailures.set('save session:run', failure);
    await expect(store.freeze(freezeOf('run'))).rejects.toBe(failure);
    plain.lateFailures.clear();
    expect(await step(store, 'run')).toBe(2);
    expect((await restart().read('run', HOUR))?.workflows.checkout).not.toHaveProperty('frozen');
  });

  it('knows a write of a switch that arrived and seemed to fail', async () => {
    const { store, plain } = makeStore();
    const [first, second] = ['r1', 'r2'].map((revision) => ({ value: revision, revision }));
    if (!first || !second) throw new Error('unreachable');
    plain.lateFailures.set('save switch:checkout', failure);
    await expect(store.swapSwitch?.('checkout', undefined, first)).rejects.toBe(failure);
    plain.lateFailures.clear();
    expect(await store.swapSwitch?.('checkout', undefined, second)).toBe(false);
    expect(await store.swapSwitch?.('checkout', undefined, first)).toBe(true);
    expect(await store.readSwitch?.('checkout')).toEqual(first);
  });

  it('holds up only the run whose call hangs', async () => {
    const { plain, time } = makeStore();
    const hangs = (key: string) =>
      key.endsWith(':hangs') ? new Promise<never>(() => {}) : plain.load(key);
    const store = adapt({ load: hangs, save: (...args) => plain.save(...args) }, { now: time.now });
    // They fail at their deadline, after this test.
    store.read('hangs', HOUR).catch(() => {});
    store.claim(claimOf('hangs')).catch(() => {});
    await store.open('run', {}, HOUR);
    expect(await step(store, 'run')).toBe(1);
  });
});

describe('the memory of adaptStateStore()', () => {
  it('keeps what prevents a second run of a step, even when 10,000 other runs come', async () => {
    const { store, plain, time } = makeStore();
    for (const run of ['held', 'retried', 'unsure']) await store.open(run, {}, HOUR);
    await store.claim(claimOf('held', { leaseMs: 1 }));

    const retry = { step: { digest: 'retried', uncertain: 'retry' } } as const;
    const dead = (await store.claim(claimOf('retried', { leaseMs: 1, ...retry }))) as {
      idempotencyKey: string;
    };
    time.advance(1);
    await step(store, 'retried');

    const unsure = claimOf('unsure');
    await store.claim(unsure);
    plain.lateFailures.set('save checkout:unsure', new Error('timeout'));
    await store.commit(commitOf(unsure)).catch(() => {});
    plain.lateFailures.clear();
    await store.release(unsure, unsure.token);

    for (let index = 0; index < 10_001; index += 1) await store.open(`run-${index}`, {}, HOUR);
    expect((await store.claim(claimOf('held'))).status).toBe('held');
    expect(await store.claim(claimOf('retried', retry))).toMatchObject({
      idempotencyKey: dead.idempotencyKey,
    });
    expect(await store.claim(claimOf('unsure'))).toMatchObject({ snapshot: { state: 'empty' } });
  });

  it('is empty after a restart: claims and trail are gone, the snapshot is not', async () => {
    const { store, restart } = makeStore();
    await store.open('run', {}, HOUR);
    await step(store, 'run');
    const claim = claimOf('run');
    await store.claim(claim);
    const restarted = restart();
    expect(await restarted.commit(commitOf(claim))).toEqual({ status: 'lost' });
    expect(await restarted.history(claim)).toEqual([]);
    expect(await step(restarted, 'run', { states: ['has_items'] })).toBe(2);
  });

  it('gives way to what another process has saved', async () => {
    const { store, restart } = makeStore();
    await store.open('run', {}, HOUR);
    await step(store, 'run');
    await step(restart(), 'run', {}, { snapshot: { state: 'payment' } });
    expect(await store.claim(claimOf('run'))).toMatchObject({
      snapshot: { state: 'payment', version: 2 },
    });
  });
});

describe('the Redis store of the FSM guide, through adaptStateStore()', () => {
  /** The part of a Redis client that the store uses. */
  function makeRedis(now: () => number) {
    const entries = new Map<string, { text: string; expiresAt: number }>();
    return {
      entries,
      get: async (key: string) => {
        const entry = entries.get(key);
        return entry && entry.expiresAt > now() ? entry.text : null;
      },
      set: async (key: string, text: string, _ex: 'EX', seconds: number) => {
        entries.set(key, { text, expiresAt: now() + seconds * 1_000 });
      },
    };
  }

  function makeGuideStore() {
    const time = new ManualTime();
    const redis = makeRedis(time.now);
    const fsmStore: FsmStateStore = {
      async load(sessionId: string) {
        const raw = await redis.get(`fsm:${sessionId}`);
        return raw ? JSON.parse(raw) : undefined;
      },
      async save(sessionId: string, snapshot) {
        await redis.set(`fsm:${sessionId}`, JSON.stringify(snapshot), 'EX', 3600);
      },
    };
    return { time, redis, store: adapt(fsmStore, { now: time.now }) };
  }

  it('carries a checkout to its end', async () => {
    const { store, redis } = makeGuideStore();
    await store.open('run', { principal: 'alice' }, HOUR);
    const path = ['empty', 'has_items', 'payment', 'confirmed'];
    for (const [index, state] of path.slice(1).entries()) {
      expect(
        await step(store, 'run', { states: [path[index] ?? ''] }, { snapshot: { state } }),
      ).toBe(index + 1);
    }
    expect((await store.claim(claimOf('run', { states: ['payment'] }))).status).toBe('state');
    expect([...redis.entries.keys()]).toEqual(['fsm:session:run', 'fsm:checkout:run']);
  });

  it('keeps a run that is read but does not move for longer than its keys live', async () => {
    const { store, time } = makeGuideStore();
    await store.open('run', {}, HOUR);
    await step(store, 'run');
    for (let minutes = 0; minutes < 180; minutes += 20) {
      time.advance(20 * 60_000);
      expect((await store.read('run', HOUR))?.workflows.checkout?.snapshot.state).toBe('has_items');
    }
    time.advance(HOUR);
    expect(await store.read('run', HOUR)).toBeUndefined();
  });
});

describe('a call of the adapted store that does not settle', () => {
  function hanging(call: 'load' | 'save') {
    const plain = new JsonStateStore();
    const warnings: string[] = [];
    let isHanging = false;
    const goOn: (() => void)[] = [];
    const wait = async (): Promise<void> => {
      if (isHanging) await new Promise<void>((resolve) => goOn.push(resolve));
    };
    const store = adapt(
      {
        async load(key) {
          if (call === 'load') await wait();
          return plain.load(key);
        },
        async save(key, snapshot) {
          if (call === 'save') await wait();
          await plain.save(key, snapshot);
        },
      },
      { deadlineMs: 20, onWarning: (warning) => warnings.push(warning) },
    );
    const hang = (value: boolean): void => {
      isHanging = value;
    };
    return { store, hang, goOn, warnings };
  }

  it('fails where it is a load, and the next call asks anew', async () => {
    const { store, hang } = hanging('load');
    await store.open('run', {}, HOUR);
    hang(true);
    await expect(store.read('run', HOUR)).rejects.toThrow('load() within 20 ms');
    hang(false);
    expect(await store.read('run', HOUR)).toBeDefined();
  });

  it('keeps its run unavailable where it is a save, until that settles, and is told once', async () => {
    const { store, hang, goOn, warnings } = hanging('save');
    await store.open('run', {}, HOUR);
    hang(true);
    const claim = store.claim(claimOf('run'));
    await expect.poll(() => warnings).toHaveLength(2);
    for (let times = 0; times < 50; times++)
      await expect(store.read('run', HOUR)).rejects.toThrow('save() within 20 ms');
    expect(warnings[1]).toContain('may still arrive');
    expect(warnings).toHaveLength(2);
    hang(false);
    for (const each of goOn) each();
    expect(await claim).toMatchObject({ status: 'claimed' });
    expect(await store.read('run', HOUR)).toBeDefined();
  });

  it('refuses writes of a switch while one may still arrive, and lets it be read', async () => {
    const { store, hang, goOn, warnings } = hanging('save');
    const write = (revision: string, expected?: string) =>
      store.swapSwitch?.('checkout', expected, { value: revision, revision });
    await write('r1');
    hang(true);
    const late = write('r2', 'r1');
    await expect.poll(() => warnings).toHaveLength(2);
    for (let times = 0; times < 50; times++)
      await expect(write('r3', 'r1')).rejects.toThrow('save() within 20 ms');
    expect(await store.readSwitch?.('checkout')).toMatchObject({ value: 'r1' });
    hang(false);
    // No run shares its fate, whatever its key.
    await store.open('switch:checkout', {}, HOUR);
    for (const each of goOn) each();
    expect(await late).toBe(true);
    expect(await write('r3', 'r2')).toBe(true);
  });
});
