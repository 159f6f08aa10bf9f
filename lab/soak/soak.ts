/**
 * Many runs over a long time, while everything around them fails. Gates are killed, stopped, set
 * forward and replaced; the upstream and the store restart; clients vanish. The checker judges each
 * run, and at the end nothing may be left of all that. `--help` says how.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { createClient } from 'redis';
import { runsOf } from '../../src/runs/index.ts';
import { redisStore } from '../../src/stores/redis.ts';
import { Progress } from '../../test/helpers/progress.ts';
import { startRedis } from '../../test/services/redis.ts';
import type { Service } from '../../test/services/server-process.ts';
import { type LedgerLine, now } from '../checker/evidence.ts';
import { Ledger } from '../checker/ledger.ts';
import { gateOf, SHOP } from '../checker/machines.ts';
import { type Random, seeded } from '../checker/random.ts';
import { type Judged, playChapter, type World } from './chapter.ts';
import { type Holdings, SoakFleet } from './fleet.ts';

export interface SoakOptions {
  readonly minutes: number;
  readonly seed: number;
  readonly clients: number;
  /** How long a run lives after its last use, in milliseconds. Default 30 s. */
  readonly idleMs?: number;
  /** Is called when a part of {@link partsOf} is over. */
  readonly onPart?: () => void;
}

export interface SoakResult {
  readonly chapters: number;
  readonly tally: Readonly<Record<string, number>>;
  /** How often each disturbance happened. */
  readonly disturbances: Readonly<Record<string, number>>;
  /** Moves that were told late or never while hints could be lost: no fault. */
  readonly hintsLost: number;
  readonly before: Holdings;
  readonly after: Holdings;
  readonly keysLeft: number;
  /** All that contradicts the promises, in words. */
  readonly faults: readonly string[];
}

const IDLE_MS = 30_000;
const ISSUER = 'https://issuer.example';
const LEASE_MS = 1_500;
const WAIT_MS = 4_000;
/** How much more may be in use at the end: what V8 and the drivers keep for later. */
const HEAP_SLACK = 8 * 1024 * 1024;
/** What a disturbance reaches into, on either side. */
const REACH_MS = 6_000;

const HELP = `npm run soak -- [options]

  --minutes N    how long, 5 by default; a minute more goes by until everything has expired
  --seed N       the choices that are made; default: a new seed each time, which is printed
  --clients N    how many runs at a time, 8 by default
`;

interface Window {
  readonly from: number;
  to: number;
}

interface Scene {
  readonly fleet: SoakFleet;
  readonly store: Service;
  readonly random: Random;
}

const DISTURBANCES: Readonly<Record<string, (scene: Scene) => unknown>> = {
  'a gate is killed': ({ fleet, random }) => fleet.killGate(random),
  'a gate is drained and replaced': ({ fleet, random }) => fleet.replaceGate(random, 3_000),
  'a gate stands still past its lease': ({ fleet, random }) =>
    fleet.stopGate(random, random.between(LEASE_MS, 2 * LEASE_MS)),
  "a gate's clock jumps": ({ fleet, random }) =>
    fleet.jump(random, random.pick([-3_600_000, -5_000, 5_000, 3_600_000])),
  'the upstream restarts': ({ fleet, random }) => fleet.restartUpstream(random.between(0, 1_500)),
  'the store restarts': async ({ store, random }) => {
    await store.kill9();
    await delay(random.between(0, 2_000));
    await store.restart();
  },
};

/** How long the last runs are played, in which a table drops what has expired. */
const LAST_MS = 500;

/** What a soak does, and for how long. */
function partsOf({ minutes, idleMs = IDLE_MS }: Pick<SoakOptions, 'minutes' | 'idleMs'>) {
  const expiryMs = idleMs + 2_000;
  return {
    // What is made once for all, such as compiled code, is there after the first part.
    warm: { name: 'warming up', ms: Math.min(20_000, minutes * 15_000) },
    expiry: { name: 'waiting until the first runs have expired', ms: expiryMs },
    soak: { name: 'runs amid disturbances', ms: minutes * 60_000 },
    end: { name: 'waiting until all runs have expired', ms: expiryMs + LAST_MS + expiryMs },
  } as const;
}

export async function soak({
  minutes,
  seed,
  clients,
  idleMs = IDLE_MS,
  onPart = () => {},
}: SoakOptions): Promise<SoakResult> {
  const folder = mkdtempSync(join(tmpdir(), 'interlock-soak-'));
  const store = await startRedis({ appendfsync: 'always' });
  const ledger = new RunLedger(join(folder, 'ledger'));
  const times = { idleMs, leaseMs: LEASE_MS, waitMs: WAIT_MS };
  const settings = { store: store.url, issuer: ISSUER, ...times };
  const fleet = await SoakFleet.start(settings, ledger.file);
  const client = createClient({
    url: store.url,
    disableOfflineQueue: true,
    socket: { reconnectStrategy: () => 50 },
  });
  client.on('error', () => {});
  await client.connect();
  const outages: Window[] = [];
  const world: World = {
    issuer: ISSUER,
    runs: runsOf(gateOf(SHOP), { store: redisStore({ client }), idleMs, onError() {} }),
    endpoint: (random) => fleet.endpoint(random),
    ledgerOf: (run) => ledger.of(run),
    isDead: (server) => fleet.dead.has(server),
    disturbances: () => ({ stalls: fleet.stalls, outages }),
    tally: {},
  };
  const found: string[] = [];
  const windows: Window[] = [];
  let hintsLost = 0;
  let chapters = 0;
  const play = async (until: number, part: string): Promise<void> => {
    const lanes = Array.from({ length: clients }, async (_, lane) => {
      for (let at = 0; now() < until; at++) {
        const name = `${part}-${lane}-${at}`;
        const random = seeded(seed, name);
        const from = now();
        const judged = await playChapter(world, name, random, () => now() >= until);
        const isCalm = !windows.some((each) => each.from - REACH_MS < now() && each.to > from);
        if (judged === undefined) continue;
        chapters += 1;
        for (const fault of judged.faults) {
          // A bus may lose hints while it, or one of its instances, is away.
          if (fault.kind === 'untold' && !isCalm) hintsLost += 1;
          else found.push(`${JSON.stringify(fault)}, evidence in ${write(judged, name)}`);
        }
      }
    });
    await Promise.all(lanes);
  };
  const disturbances: Record<string, number> = {};
  const disturb = async (until: number): Promise<void> => {
    const random = seeded(seed, 'disturbances');
    while (now() < until - REACH_MS) {
      await delay(random.between(500, 5_000));
      const what = random.pick(Object.keys(DISTURBANCES));
      const window = { from: now(), to: Number.POSITIVE_INFINITY };
      windows.push(window);
      outages.push(window);
      await DISTURBANCES[what]?.({ fleet, store, random });
      // Drivers need a moment to find out that their server is back.
      window.to = now() + REACH_MS;
      disturbances[what] = (disturbances[what] ?? 0) + 1;
    }
  };
  try {
    const parts = partsOf({ minutes, idleMs });
    await play(now() + parts.warm.ms, 'warm');
    onPart();
    await delay(parts.expiry.ms);
    const before = await fleet.measure();
    onPart();
    const until = now() + parts.soak.ms;
    await Promise.all([play(until, 'soak'), disturb(until)]);
    onPart();
    await delay(parts.expiry.ms);
    // A table that drops what has expired does so when it is used.
    await play(now() + LAST_MS, 'last');
    await delay(parts.expiry.ms);
    const after = await measureAfter(before, () => fleet.measure());
    const keysLeft = await keysOfRuns(client);
    onPart();
    return {
      chapters,
      tally: world.tally,
      disturbances,
      hintsLost,
      before,
      after,
      keysLeft,
      faults: [
        ...found,
        ...fleet.crashes,
        ...leftOver(before, after),
        ...(keysLeft > 0 ? [`${keysLeft} keys are left in the store`] : []),
      ],
    };
  } finally {
    client.destroy();
    await fleet.stop();
    await store.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Leaves what a fault was found in behind: `npm run checker -- FILE` judges it again. */
function write({ evidence }: Judged, name: string): string {
  const file = join(mkdtempSync(join(tmpdir(), 'interlock-evidence-')), `${name}.json`);
  writeFileSync(file, JSON.stringify(evidence));
  return file;
}

/** A connection may be on its way out when it is counted: what is left stays, however often. */
async function measureAfter(before: Holdings, measure: () => Promise<Holdings>): Promise<Holdings> {
  for (let look = 0; ; look++) {
    const after = await measure();
    if (look === 10 || leftOver(before, after).length === 0) return after;
    await delay(2_000);
  }
}

/** What the elder holds at the end, and did not hold before. */
function leftOver(before: Holdings, after: Holdings): string[] {
  const kinds = Object.keys(after.resources);
  const more = kinds.filter((kind) => (after.resources[kind] ?? 0) > (before.resources[kind] ?? 0));
  const left = more.map(
    (kind) => `${kind}: ${before.resources[kind] ?? 0} before, ${after.resources[kind]} after`,
  );
  if (after.sockets.length > 0) left.push(after.sockets.join(', '));
  if (after.listeners > before.listeners)
    left.push(`listeners: ${before.listeners} before, ${after.listeners} after`);
  if (after.heap > before.heap + HEAP_SLACK)
    left.push(`heap: ${mebibytes(before.heap)} before, ${mebibytes(after.heap)} after`);
  return left.map((each) => `left over: ${each}`);
}

/** What the count of what is left needs of the driver, beside the store. */
type RedisKeys = Parameters<typeof redisStore>[0]['client'] & {
  keys(pattern: string): Promise<string[]>;
  zCard(key: string): Promise<number>;
  hGetAll(key: string): Promise<Record<string, string>>;
};

/**
 * How many keys are left of runs that should be gone, once a listing has taken what has expired out
 * of the index. Runs that are kept on purpose are first deleted, so that nothing of them counts.
 */
async function keysOfRuns(client: RedisKeys): Promise<number> {
  const store = redisStore({ client });
  await store.purge();
  // The run in which processes try the store.
  await store.delete('mcp-interlock probe');
  const keys = await client.keys('*');
  for (const key of keys.filter((each) => each.includes(':run:'))) {
    const { life, unsettled } = textsOf(await client.hGetAll(key));
    if (isKept(life, unsettled, Date.now())) await store.delete(life.run);
  }
  const left = await client.keys('*');
  // Each index has one member of its own, and beside the members are a note and texts of labels.
  const isLeft = left.map(async (key) => {
    // What gates note of themselves is no run's, and stays.
    if (key.includes(':switch:gates:')) return false;
    if (key.endsWith(':index')) return (await client.zCard(key)) > 1;
    if (!key.endsWith(':members')) return true;
    return Object.keys(await client.hGetAll(key)).some((field) => !/^#(format|.{16})$/.test(field));
  });
  return (await Promise.all(isLeft)).filter(Boolean).length;
}

const DAY_MS = 86_400_000;

/**
 * Whether a run outlives its idle time on purpose: it keeps the idempotency key of a `retry` step
 * for a later try (30 days), or it is the settled evidence of a session that has ended (24 h).
 */
function isKept({ expiresAt, sessionEnded }: LifeText, unsettled: boolean, at: number): boolean {
  const leftMs = expiresAt - at;
  // Once a failure has settled the key, only a commit makes the expiry earlier.
  if (unsettled || leftMs > DAY_MS) return leftMs <= 30 * DAY_MS;
  return sessionEnded === true;
}

interface LifeText {
  readonly run: string;
  readonly expiresAt: number;
  readonly sessionEnded?: boolean;
}

/** A part's text stands behind its revision. */
function textsOf(fields: Record<string, string>) {
  const heads = Object.entries(fields).filter(([name]) => name.startsWith('head:'));
  const unsettled = heads.some(([, text]) => 'unsettled' in JSON.parse(text));
  return { life: JSON.parse(fields['head:life'] ?? '') as LifeText, unsettled };
}

/** The ledger's lines by run; those of runs that are over are of no use any more. */
class RunLedger {
  readonly #ledger: Ledger;
  readonly #byRun = new Map<string, LedgerLine[]>();

  constructor(file: string) {
    this.#ledger = new Ledger(file);
  }

  get file(): string {
    return this.#ledger.file;
  }

  of(run: string): readonly LedgerLine[] {
    for (const line of this.#ledger.refresh().lines.splice(0)) {
      const lines = this.#byRun.get(line.run);
      if (lines === undefined) this.#byRun.set(line.run, [line]);
      else lines.push(line);
    }
    return this.#byRun.get(run) ?? [];
  }
}

function mebibytes(bytes: number): string {
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

function parseOptions(args: readonly string[]): SoakOptions | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      help: { type: 'boolean', default: false },
      minutes: { type: 'string', default: '5' },
      seed: { type: 'string', default: String(Math.floor(Math.random() * 1e9)) },
      clients: { type: 'string', default: '8' },
    },
  });
  if (values.help) return undefined;
  const numbers = { minutes: Number(values.minutes), clients: Number(values.clients) };
  const seed = Number(values.seed);
  if (!(numbers.minutes > 0)) throw new Error('--minutes: expected a number greater than 0');
  if (!(numbers.clients >= 1)) throw new Error('--clients: expected a number of at least 1');
  if (!Number.isSafeInteger(seed)) throw new Error('--seed: expected a whole number');
  return { ...numbers, seed };
}

async function main(options: SoakOptions): Promise<number> {
  const { minutes, seed, clients } = options;
  const command = `npm run soak -- --minutes ${minutes} --clients ${clients} --seed ${seed}`;
  console.log(`${command}: Node ${process.version}`);
  const progress = new Progress(Object.values(partsOf(options)));
  const result = await soak({ ...options, onPart: () => progress.done() }).finally(() =>
    progress.end(),
  );
  const { chapters, tally, disturbances, hintsLost, before, after, keysLeft, faults } = result;
  console.log(`${chapters} runs; answers: ${JSON.stringify(tally)}`);
  console.log(`disturbances: ${JSON.stringify(disturbances)}`);
  console.log(`${hintsLost} moves were not told of, while hints could be lost`);
  console.log(`heap ${mebibytes(before.heap)} before, ${mebibytes(after.heap)} after`);
  console.log(
    `handles ${JSON.stringify(before.resources)} before, ${JSON.stringify(after.resources)} after`,
  );
  console.log(
    `listeners ${before.listeners} before, ${after.listeners} after; ${keysLeft} keys left`,
  );
  for (const fault of faults.slice(0, 20)) console.log(`BROKEN ${fault}`);
  console.log(`${faults.length === 0 ? 'ALL HELD' : `BROKEN ${faults.length} TIMES`}: ${command}`);
  return faults.length === 0 ? 0 : 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const options = parseOptions(process.argv.slice(2));
  if (options === undefined) console.log(HELP);
  else process.exitCode = await main(options);
}
