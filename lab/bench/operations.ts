/**
 * How long a store needs to say which runs are held or stuck, and how many there are, where it
 * keeps very many. Each store is a row of {@link STORES}: it is filled faster than by steps, with
 * what steps would have written.
 */
import { parseArgs } from 'node:util';
import { Redis } from 'ioredis';
import { Pool } from 'pg';
import { postgresStore } from '../../src/stores/postgres.ts';
import { redisStore } from '../../src/stores/redis.ts';
import type { AtomicStateStore, ClaimRequest } from '../../src/stores/store.ts';
import { RedisKeys } from '../../test/helpers/redis-keys.ts';
import { startPostgres } from '../../test/services/postgres.ts';
import { startRedis } from '../../test/services/redis.ts';

/** How many runs a store is filled with. */
interface Filling {
  readonly runs: number;
  /** Of those, how many have not ended. */
  readonly open: number;
  /** And of those, how many are held. */
  readonly held: number;
}

type FilledStore = Required<Omit<AtomicStateStore, 'evictedKeys'>>;

interface Filled {
  readonly store: FilledStore;
  /** What the server says of its own statements, where it does. */
  statements?(): Promise<unknown>;
  /** The statements of the page about stores, by what they are for. Each is run once. */
  readonly page?: Readonly<Record<string, () => Promise<unknown>>>;
  close(): Promise<void>;
}

/** A store's name, and how one is made that has so many runs. */
const STORES: Readonly<Record<string, (filling: Filling) => Promise<Filled>>> = {
  Redis: filledRedis,
  PostgreSQL: filledPostgres,
};

const HOUR = 3_600_000;
const WORKFLOW = 'checkout';
const ROUNDS = 20;

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '1000000' },
    open: { type: 'string', default: '10000' },
    held: { type: 'string', default: '100' },
    only: { type: 'string' },
  },
});
const filling = {
  runs: Number(values.runs),
  open: Number(values.open),
  held: Number(values.held),
};

async function measure(store: FilledStore) {
  const stuck = { workflow: WORKFLOW, forMs: 0 };
  const asked: Readonly<Record<string, () => Promise<unknown>>> = {
    'held({ limit: 100 })': () => store.held({ workflow: WORKFLOW, limit: 100 }),
    'stuck({ limit: 100 })': () => store.stuck({ ...stuck, limit: 100 }),
    'stuck({ states, limit: 100 })': () => store.stuck({ ...stuck, states: ['cart'], limit: 100 }),
    'unsettled({ limit: 100 })': () => store.unsettled({ workflow: WORKFLOW, limit: 100 }),
    'count()': () => store.count(stuck),
    'list({ principal, limit: 100 })': () => store.list({ principal: 'user-1', limit: 100 }),
    'read()': () => store.read(`run-${filling.held}`, 24 * HOUR),
    'claim() and commit()': () => makeOpen(store, `run-${filling.held}`, steps++),
    'purge()': () => store.purge(),
  };
  let steps = 0;
  const table: Record<string, { readonly median: string; readonly slowest: string }> = {};
  for (const [operation, ask] of Object.entries(asked)) {
    const times: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const start = performance.now();
      await ask();
      times.push(performance.now() - start);
    }
    times.sort((a, b) => a - b);
    const inMs = (ms = Number.NaN): string => `${ms.toFixed(1)} ms`;
    table[operation] = { median: inMs(times[ROUNDS / 2]), slowest: inMs(times.at(-1)) };
  }
  return table;
}

/** What is measured must be there. */
async function checkCounts(store: FilledStore): Promise<void> {
  const { states, held } = await store.count({ workflow: WORKFLOW, forMs: 0 });
  const open = states.reduce((sum, { runs }) => sum + runs, 0);
  if (open !== filling.open || held !== filling.held)
    throw new Error(`The store says that ${open} runs are open and ${held} held`);
}

/** The kinds of runs, each made by steps. */
const KINDS = { ended: makeEnded, open: makeOpen, held: makeHeld };
type Kind = keyof typeof KINDS;

async function makeEnded(store: AtomicStateStore, run: string, index: number): Promise<void> {
  await takeStep(store, run, index, 'paid', true);
}

async function makeOpen(store: AtomicStateStore, run: string, index: number): Promise<void> {
  await takeStep(store, run, index, index % 2 === 0 ? 'cart' : 'payment', false);
}

async function makeHeld(store: AtomicStateStore, run: string, index: number): Promise<void> {
  await makeOpen(store, run, index);
  await store.claim(claimOf(run, index, 0));
}

async function takeStep(
  store: AtomicStateStore,
  run: string,
  index: number,
  state: string,
  ended: boolean,
): Promise<void> {
  const claim = claimOf(run, index, HOUR);
  const { token } = claim;
  await store.claim(claim);
  const trail = {
    from: 'empty',
    to: state,
    event: 'GO',
    outcome: 'succeeded' as const,
    ...claim.entry,
  };
  const snapshot = { state, context: { items: [index] } };
  await store.commit({ run, workflow: WORKFLOW, token, snapshot, trail, ttlMs: 24 * HOUR, ended });
}

function claimOf(run: string, index: number, leaseMs: number): ClaimRequest {
  const tool = 'cart.pay';
  const digest = `digest-${index}`;
  return {
    run,
    workflow: WORKFLOW,
    token: `${run}-${leaseMs}-${index}`,
    step: { tool, digest, uncertain: 'hold' },
    entry: { tool, digest, actor: 'user', requestId: index },
    states: undefined,
    initial: { state: 'empty', updatedAt: 0 },
    create: { principal: `user-${index}` },
    leaseMs,
    ttlMs: 24 * HOUR,
  };
}

/** Which kind the run of this number is. */
function kindOf(index: number, { open, held }: Filling): Kind {
  if (index < held) return 'held';
  return index < open ? 'open' : 'ended';
}

/** The hash of a run. */
type Fields = Readonly<Record<string, string>>;

/** How many runs of each kind steps make; all others are copies of these. */
const MODELS = 200;

/** The life of a run says its name, in the same words in each store. */
function named(run: string): string {
  return `"run":${JSON.stringify(run)}`;
}

/**
 * What steps wrote is copied under other names, and the index is made of the copies. The tests of
 * the store hold that such an index is equal to that of steps.
 */
async function filledRedis(filling: Filling): Promise<Filled> {
  const server = await startRedis();
  const client = new Redis(server.url);
  const store = redisStore({ client });
  const keys = new RedisKeys('interlock');
  const copies: Record<Kind, { readonly fields: Fields; readonly run: string }[]> = {
    ended: [],
    open: [],
    held: [],
  };
  for (const [kind, make] of Object.entries(KINDS) as [Kind, typeof makeOpen][]) {
    for (let index = 0; index < MODELS; index += 1) {
      const run = `model-${kind}-${index}`;
      await make(store, run, index);
      const key = keys.run(run);
      copies[kind].push({ run, fields: await client.hgetall(key) });
      // Not by the store, which deletes no held run. The index is made anew below.
      await client.unlink(key);
    }
  }
  for (let index = 0; index < filling.runs; ) {
    const pipeline = client.pipeline();
    for (let of = 0; of < 5_000 && index < filling.runs; of += 1, index += 1) {
      const copy = copies[kindOf(index, filling)][index % MODELS];
      if (copy === undefined) throw new Error('There is no model of this run');
      const run = `run-${index}`;
      const life = (copy.fields.life ?? '').replace(named(copy.run), named(run));
      pipeline.hset(keys.run(run), { ...copy.fields, life });
    }
    const failed = (await pipeline.exec())?.find(([error]) => error !== null);
    if (failed !== undefined) throw failed[0];
  }
  const began = performance.now();
  const found = await store.rebuildIndex();
  console.log(`rebuildIndex(): ${found} runs in ${Math.round(performance.now() - began)} ms`);
  const memory = /used_memory_human:(\S+)/.exec(await client.info('memory'))?.[1];
  console.log(`memory: ${memory}`);
  return {
    store,
    async close() {
      client.disconnect();
      await server.stop();
    },
  };
}

/** What steps wrote is copied under other names, in the tables themselves. */
async function filledPostgres(filling: Filling): Promise<Filled> {
  const server = await startPostgres();
  const options = '-c track_functions=all';
  // One connection, which knows all statistics.
  const pool = new Pool({ connectionString: server.url, max: 1, options });
  // The server says that it stops, before the last connection is closed.
  pool.on('error', () => {});
  const schema = 'bench';
  const store = postgresStore({ pool, schema });
  await store.migrate();
  for (const [kind, make] of Object.entries(KINDS) as [Kind, typeof makeOpen][])
    for (let index = 0; index < MODELS; index += 1) await make(store, `${kind}-${index}`, index);
  const columnsOf = async (table: string, without: readonly string[]): Promise<string> => {
    const { rows } = await pool.query<{ name: string }>(
      'SELECT column_name AS name FROM information_schema.columns WHERE table_name = $1',
      [table],
    );
    return rows
      .map(({ name }) => name)
      .filter((name) => !without.includes(name))
      .join(', ');
  };
  const [runs, workflows] = [
    await columnsOf('workflow_runs', ['run', 'principal', 'life']),
    await columnsOf('workflows', ['id', 'run']),
  ];
  const parts: readonly (readonly [Kind, number, number])[] = [
    ['held', 0, filling.held],
    ['open', filling.held, filling.open],
    ['ended', filling.open, filling.runs],
  ];
  for (const [kind, from, to] of parts) {
    const model = `'${kind}-' || n % ${MODELS}`;
    const numbers = `generate_series(${from}, ${to - 1}) n`;
    await pool.query(
      `INSERT INTO ${schema}.workflow_runs (run, principal, life, ${runs})
       SELECT 'run-' || n, principal,
              replace(life::text, '${named("' || r.run || '")}', '${named("run-' || n || '")}')::json,
              ${runs} FROM ${numbers}
         JOIN ${schema}.workflow_runs r ON r.run = ${model}`,
    );
    await pool.query(
      `INSERT INTO ${schema}.workflows (run, ${workflows})
       SELECT 'run-' || n, ${workflows} FROM ${numbers}
         JOIN ${schema}.workflows w ON w.run = ${model}`,
    );
  }
  const events = await columnsOf('workflow_events', ['id', 'workflow_id', 'occurred_at']);
  // Half of the entries are old enough for the page's `DELETE`.
  await pool.query(
    `INSERT INTO ${schema}.workflow_events (workflow_id, occurred_at, ${events})
     SELECT w.id, now() - interval '1 day' * (w.id % 2 * 100), e.${events.replaceAll(', ', ', e.')}
       FROM ${schema}.workflows w
       JOIN LATERAL (
         SELECT id AS model FROM ${schema}.workflows m
          WHERE m.run = (CASE WHEN w.ended THEN 'ended-' WHEN w.claim_tool IS NULL THEN 'open-'
                         ELSE 'held-' END) || right(w.run, -4)::int % ${MODELS}
       ) m ON true
       JOIN ${schema}.workflow_events e ON e.workflow_id = m.model
      WHERE w.run ~ '^run-'`,
  );
  // Not by the store, which deletes no held run.
  await pool.query(`DELETE FROM ${schema}.workflow_runs WHERE run !~ '^run-'`);
  await pool.query('VACUUM ANALYZE');
  await pool.query('SELECT pg_stat_reset()');
  return {
    store,
    async statements() {
      // It publishes them once a second.
      await pool.query('SELECT pg_sleep(1.1)');
      const { rows } = await pool.query(
        `SELECT funcname AS function, calls, round((total_time / nullif(calls, 0))::numeric, 2) AS ms
           FROM pg_stat_user_functions WHERE schemaname = $1 AND calls > 0 ORDER BY total_time DESC`,
        [schema],
      );
      return rows;
    },
    page: {
      'SELECT by state': () =>
        pool.query(
          `SELECT run, state, context ->> 'total' FROM ${schema}.workflows WHERE state = 'payment'`,
        ),
      'CREATE INDEX by age': () =>
        pool.query(`CREATE INDEX workflow_events_age ON ${schema}.workflow_events (occurred_at)`),
      'DELETE of old entries': () =>
        pool.query(`DELETE FROM ${schema}.workflow_events old
          WHERE old.occurred_at < now() - interval '90 days'
            AND NOT EXISTS (
              SELECT FROM ${schema}.workflow_events kept
               WHERE kept.workflow_id = old.workflow_id AND kept.seq < old.seq
                 AND kept.occurred_at >= now() - interval '90 days'
            )`),
    },
    async close() {
      await pool.end();
      await server.stop();
    },
  };
}

for (const [name, fill] of Object.entries(STORES)) {
  if (values.only !== undefined && values.only !== name) continue;
  const began = performance.now();
  const { store, statements, page = {}, close } = await fill(filling);
  const seconds = Math.round((performance.now() - began) / 1000);
  console.log(
    `${name}: ${filling.runs} runs, ${filling.open} not ended, ${filling.held} held ` +
      `(filled in ${seconds} s)`,
  );
  try {
    await checkCounts(store);
    console.table(await measure(store));
    for (const [statement, run] of Object.entries({
      ...page,
      "purge({ principal: 'user-1' })": () => store.purge({ principal: 'user-1' }),
    })) {
      const start = performance.now();
      const told = await run();
      const rows = typeof told === 'number' ? told : (told as { rowCount: number }).rowCount;
      console.log(`${statement}: ${Math.round(performance.now() - start)} ms, ${rows ?? 0} rows`);
    }
    if (statements) console.table(await statements());
  } finally {
    await close();
  }
}
