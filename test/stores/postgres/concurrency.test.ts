import { randomInt, randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import {
  claimed,
  claimOf,
  commitOf,
  count,
  HOUR,
  step,
} from '../../../packages/testing/src/fixtures.ts';
import { freezeOf, thawOf } from '../../../packages/testing/src/freezes.ts';
import { type PostgresStore, postgresStore } from '../../../src/stores/postgres.ts';
import { describeKills } from '../../helpers/killed-process.ts';
import { makePostgresSchema, moveExpiry } from '../../helpers/postgres-schema.ts';
import { startStoreProcess } from '../../helpers/store-process.ts';
import {
  inOrder,
  takeSteps,
  takeStepsThroughFreezes,
  versionsTo,
} from '../../helpers/take-steps.ts';
import { startPostgres } from '../../services/postgres.ts';

const database = await makePostgresSchema();
afterAll(() => database.drop());
await connect().migrate();

describe('postgresStore() under concurrency', { timeout: 60_000 }, () => {
  it('gives each of 300 races between two connections to exactly one', async () => {
    const sides = [connect(1), connect(1)];
    let run = randomUUID();
    for (let race = 0; race < 300; race += 1) {
      if (race % 3 === 0) run = randomUUID();
      const requests = sides.map(() => claimOf(run, { create: {} }));
      const results = await Promise.all(
        sides.map((side, i) => side.claim(requests[i] ?? claimOf(run))),
      );
      expect(results.map(({ status }) => status).sort()).toEqual(['busy', 'claimed']);
      for (const request of requests) await sides[0]?.commit(commitOf(request));
    }
  });

  it('gives the first claim of a workflow in an open run to one of 8 connections', async () => {
    const sides = Array.from({ length: 8 }, () => connect(1));
    for (let race = 0; race < 100; race += 1) {
      const run = randomUUID();
      await sides[0]?.open(run, {}, HOUR);
      const results = await Promise.all(sides.map((side) => side.claim(claimOf(run))));
      expect(count(results, ({ status }) => status === 'claimed')).toBe(1);
    }
  });

  it('commits every step of 8 connections that race in one run, without a gap', async () => {
    const run = randomUUID();
    const sides = Array.from({ length: 8 }, () => connect(1));
    await sides[0]?.open(run, {}, HOUR);
    const versions = await Promise.all(sides.map((side) => takeSteps(side, run, 25)));
    expect(inOrder(versions)).toEqual(versionsTo(200));
  });

  it('grants no claim that comes after a freeze, and commits what was granted before', async () => {
    const run = randomUUID();
    const sides = Array.from({ length: 4 }, () => connect(2));
    await sides[0]?.open(run, {}, HOUR);
    const { versions, stopped, forwarded } = await takeStepsThroughFreezes(sides, run, 40);
    expect([...stopped, ...forwarded]).toEqual(['frozen', 'committed']);
    expect(inOrder([versions])).toEqual(versionsTo(versions.length));
    const trail = await sides[0]?.history({ run, workflow: 'checkout' }, 100_000);
    expect(trail).toHaveLength(versions.length + 2 * 40);
  });

  it('takes over a dead step, renews it or commits it late, and only one of these', async () => {
    const sides = [connect(1), connect(1), connect(1)] as const;
    for (let race = 0; race < 100; race += 1) {
      const run = randomUUID();
      const late = claimOf(run, { create: {}, leaseMs: 0, step: { uncertain: 'retry' } });
      await claimed(sides[0], late);
      const [taken, renewed, committed] = await Promise.all([
        sides[0].claim(claimOf(run)),
        sides[1].renew(late, late.token, HOUR),
        sides[2].commit(commitOf(late)),
      ]);
      if (committed.status === 'lost') {
        expect(taken.status).toBe('claimed');
        expect(renewed).toBe(false);
      } else {
        expect(committed).toEqual({ status: 'committed', version: 1 });
        if (renewed) expect(taken.status).toBeOneOf(['busy', 'claimed']);
        if (taken.status === 'claimed') expect(taken.snapshot.state).toBe('has_items');
      }
    }
  });

  it('goes by the run that another process made anew while an operation waited', async () => {
    const asks = {
      open: (store: PostgresStore, run: string) => store.open(run, {}, HOUR),
      claim: (store: PostgresStore, run: string) => store.claim(claimOf(run, { create: {} })),
      freeze: (store: PostgresStore, run: string) => store.freeze(freezeOf(run, { create: {} })),
      end: (store: PostgresStore, run: string) => store.end(run, { ifUnclaimed: true }),
    };
    const answers: Record<string, string> = {};
    const pool = database.connect();
    for (const [name, ask] of Object.entries(asks)) {
      const run = randomUUID();
      const store = connect(1);
      await store.open(run, {}, HOUR);
      await pool.query(moveExpiry(`${database.schema}.`), [run, -2 * HOUR]);
      const { query, store: making } = inTransaction();
      await query('BEGIN');
      const request = claimOf(run, { create: {} });
      await claimed(making, request);
      const asked = ask(store, run);
      await waitsForLock();
      await query('COMMIT');
      const answer = await asked;
      answers[name] = typeof answer === 'string' ? answer : answer.status;
      expect(await store.commit(commitOf(request)), name).toMatchObject({ status: 'committed' });
    }
    expect(answers).toEqual({ open: 'taken', claim: 'busy', freeze: 'changed', end: 'claimed' });
  });

  it('gives a held run no other key while a transaction settles its step', async () => {
    const run = randomUUID();
    const held = claimOf(run, { create: {}, leaseMs: 0 });
    const store = connect(1);
    await claimed(store, held);
    const { query, store: settling } = inTransaction();
    await query('BEGIN');
    expect(await settling.commit(commitOf(held))).toMatchObject({ status: 'committed' });
    const anonymized = store.anonymize(run);
    await waitsForLock();
    await query('COMMIT');
    expect(await anonymized).toBeUndefined();
    expect((await store.read(run, HOUR))?.workflows.checkout?.snapshot.version).toBe(1);
  });

  it('settles no step of a held run that gets another key meanwhile', async () => {
    const run = randomUUID();
    const held = claimOf(run, { create: {}, leaseMs: 0 });
    const store = connect(1);
    await claimed(store, held);
    const { query, store: moving } = inTransaction();
    await query('BEGIN');
    const unnamed = await moving.anonymize(run);
    const committed = store.commit(commitOf(held));
    await waitsForLock();
    await query('COMMIT');
    expect(await committed).toEqual({ status: 'unknown' });
    expect(await store.commit({ ...commitOf(held), run: unnamed ?? '' })).toMatchObject({
      status: 'committed',
    });
  });

  it('never deadlocks, with all kinds of operations on a few runs', async () => {
    const sides = Array.from({ length: 8 }, () => connect(1));
    const runs = Array.from({ length: 3 }, () => randomUUID());
    const done = await Promise.all(sides.map((side) => doAnything(side, runs, 150)));
    expect(count(done.flat(), (operation) => operation === 'claim')).toBeGreaterThan(0);
    expect(done.flat()).toHaveLength(8 * 150);
  });
});

describeKills('postgresStore() in a process that is killed', () =>
  startStoreProcess({ kind: 'postgres', url: database.url, schema: database.schema }),
);

describe('postgresStore() on a server that is killed', { timeout: 60_000 }, () => {
  it('rejects while it is away, and goes on afterwards where it was', async () => {
    const server = await startPostgres();
    const pool = database.connect({ connectionString: server.url });
    pool.on('error', () => {});
    const store = postgresStore({ pool });
    await store.migrate();
    const run = randomUUID();
    await store.open(run, {}, HOUR);
    await step(store, run);
    const request = claimOf(run);
    await claimed(store, request);
    await store.freeze(freezeOf(run));
    await store.swapSwitch('checkout', undefined, { value: 'on', revision: 'r' });

    await server.kill9();
    await expect(store.commit(commitOf(request))).rejects.toThrow();
    await expect(store.read(run, HOUR)).rejects.toThrow();

    await server.restart();
    expect(await store.commit(commitOf(request))).toEqual({ status: 'committed', version: 2 });
    expect((await store.claim(claimOf(run))).status).toBe('frozen');
    expect(await store.readSwitch('checkout')).toEqual({ value: 'on', revision: 'r' });
    await database.disconnect(pool);
    await server.stop();
  });
});

function connect(max = 4): PostgresStore {
  return postgresStore({ pool: database.connect({ max }), schema: database.schema });
}

/** A store on one connection, on which the test opens and ends transactions. */
function inTransaction() {
  const pool = database.connect({ max: 1 });
  const store = postgresStore({ pool, schema: database.schema });
  return { store, query: (text: string) => pool.query(text) };
}

/** Waits until so many connections of this schema wait for a lock, or one has its answer. */
async function waitsForLock(connections = 1, answer?: Promise<unknown>): Promise<void> {
  let isDone = false;
  const note = () => {
    isDone = true;
  };
  answer?.then(note, note);
  const pool = database.connect({ max: 1 });
  const waiting = async () => {
    const { rows } = await pool.query(
      "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1",
      [`%${database.schema}%`],
    );
    return isDone || rows.length === connections;
  };
  await expect.poll(waiting, { timeout: 10_000 }).toBe(true);
  await database.disconnect(pool);
}

function recordOf(run: string) {
  const { workflow, token, initial } = claimOf(run, { workflow: `w${randomInt(2)}` });
  const { snapshot, trail } = commitOf(claimOf(run));
  return {
    run,
    workflow,
    token,
    initial,
    from: randomInt(3),
    create: {},
    snapshot,
    trail,
    ttlMs: 9,
  };
}

/**
 * Does one random operation after the other, and resolves to their names. Rejects if one of them
 * rejects, such as by a deadlock.
 */
async function doAnything(
  store: PostgresStore,
  runs: readonly string[],
  times: number,
): Promise<string[]> {
  const done: string[] = [];
  let last = claimOf(runs[0] ?? '');
  const operations = {
    open: (run: string) => store.open(run, {}, randomInt(20)),
    read: (run: string) => store.read(run, randomInt(20)),
    claim: (run: string) => {
      const changes = { create: {}, leaseMs: randomInt(20), ttlMs: randomInt(20) };
      last = claimOf(run, {
        ...changes,
        step: { uncertain: randomInt(4) === 0 ? 'hold' : 'retry' },
        workflow: `w${randomInt(2)}`,
      });
      return store.claim(last);
    },
    commit: () => store.commit(commitOf(last, { ttlMs: randomInt(20) })),
    freeze: (run: string) => store.freeze(freezeOf(run, { create: {}, ttlMs: randomInt(20) })),
    thaw: (run: string) => store.freeze(thawOf(run, { workflow: 'w0' })),
    swapSwitch: (run: string) =>
      store.swapSwitch(run, undefined, { value: 1, revision: randomUUID() }),
    renew: () => store.renew(last, last.token, randomInt(20)),
    release: () => store.release(last, last.token),
    record: (run: string) => store.record(recordOf(run)),
    end: (run: string) => store.end(run, { ifUnclaimed: randomInt(2) === 0 }),
    delete: (run: string) => store.delete(run),
    anonymize: (run: string) => store.anonymize(run),
    purge: () => store.purge(),
  };
  const names = Object.keys(operations) as (keyof typeof operations)[];
  while (done.length < times) {
    const name = names[randomInt(names.length)] ?? 'purge';
    await operations[name](runs[randomInt(runs.length)] ?? '');
    done.push(name);
  }
  return done;
}
