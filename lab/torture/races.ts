import type { Exchange, LedgerLine } from '../checker/evidence.ts';
import { type Random, seeded } from '../checker/random.ts';
import { answerOf } from '../checker/reading.ts';
import { usesFaults } from '../checker/uses.ts';
import { Arena, type ArenaOptions } from './arena.ts';
import type { PartResult } from './report.ts';
import { CAPACITY, LOOKUPS, RETRIED, RULEBOOK } from './rulebook.ts';

export interface RacesScale {
  /** How many uses are raced for, all in all. */
  readonly uses: number;
  /** How many callers race in a run at the same time, each for one use. */
  readonly callers: number;
  /** How many runs are raced in at the same time. */
  readonly lanes: number;
}

type Members = Readonly<Record<string, unknown>>;
type Wanted = readonly [tool: string, members?: Members];

/** What many race for in a run, after what comes before it. */
interface Race {
  readonly before: readonly Wanted[];
  /** Each caller wants one of these. */
  readonly wanted: readonly Wanted[];
  /** How many of them can be had; `undefined` for a sum. */
  readonly most: number | undefined;
}

const RACES: readonly Race[] = [
  { before: [], wanted: [['draw']], most: CAPACITY.draws },
  {
    before: [],
    wanted: [0.1, 0.2, 0.25, 0.7, 1.05].map((amount) => ['spend', { amount }]),
    most: undefined,
  },
  { before: [['approve']], wanted: [['pay'], ['refund'], ['charge']], most: 1 },
  {
    before: Array.from({ length: CAPACITY.charges + 2 }, (): Wanted => ['approve']),
    wanted: [['charge']],
    most: CAPACITY.charges,
  },
  {
    before: ['ada', 'ada', 'ada', 'bob', 'eve'].map((by) => ['sign', { by }]),
    wanted: [['release']],
    most: 2,
  },
  {
    before: [['code'], ['code']],
    wanted: [['guess'], ['guess', { fail: true }]],
    most: 2,
  },
];

interface Tally {
  uses: number;
  done: number;
  exceeded: number;
  lost: number;
  busy: number;
}

/** Callers race for uses, as many and as fast as they can, and nothing disturbs them. */
export function raceForUses(
  options: ArenaOptions,
  scale: RacesScale,
  seed: number,
): Promise<PartResult> {
  return Arena.with({ ...options, binds: 'rules' }, async (arena) => {
    const tally: Tally = { uses: 0, done: 0, exceeded: 0, lost: 0, busy: 0 };
    const lines = new LinesByRun(arena);
    let runs = 0;
    const lane = async (_: unknown, index: number): Promise<void> => {
      const random = seeded(seed, `races, lane ${index}`);
      while (tally.uses < scale.uses && !arena.isEnding) {
        const race = RACES[runs++ % RACES.length] as Race;
        await playRace(arena, race, scale.callers, random, lines, tally);
      }
    };
    const start = performance.now();
    await Promise.all(Array.from({ length: scale.lanes }, lane));
    const seconds = (performance.now() - start) / 1000;
    return {
      did: `${tally.uses} uses raced for, ${scale.callers} callers of a run, ${options.servers} servers`,
      measured: `${tally.exceeded} exceeded a limit, ${tally.lost} lost, ${tally.done} done`,
      details: `${runs} runs; ${Math.round(tally.uses / seconds)} a second; ${tally.busy} waited too long and came again`,
      faults: [...arena.faults, ...arena.fleet.crashes.map((crash) => `crash: ${crash}`)],
    };
  });
}

async function playRace(
  arena: Arena,
  { before, wanted, most }: Race,
  callers: number,
  random: Random,
  lines: LinesByRun,
  tally: Tally,
): Promise<void> {
  const caller = await arena.openSession(random);
  const exchanges: Exchange[] = [];
  let step = 0;
  const call = async ([tool, members]: Wanted): Promise<Exchange> => {
    const args = { step: ++step, ms: 0, ...members };
    for (;;) {
      const [server] = await arena.servers(1, random);
      if (server === undefined) throw new Error('no server is there');
      const exchange = await arena.recorder.call(server.endpoint, caller, tool, args);
      exchanges.push(exchange);
      const { told } = answerOf(exchange);
      if (told.kind !== 'refused' || told.reason !== 'busy') return exchange;
      tally.busy++;
    }
  };
  for (const each of before) await call(each);
  const raced = await Promise.all(Array.from({ length: callers }, () => call(random.pick(wanted))));
  // Each exchange is at hand here: the log need not grow.
  arena.log.exchanges.length = 0;
  const { run } = caller;
  const told = raced.map((each) => answerOf(each).told);
  const odd = told.find(({ kind }) => kind !== 'done' && kind !== 'refused');
  if (odd !== undefined) arena.faults.push(`wrong answer: ${JSON.stringify(odd)} (run ${run})`);
  const ledger = lines.of(run);
  const tools = wanted.map(([tool]) => tool);
  const ran = ledger.filter(({ phase, tool }) => phase === 'start' && tools.includes(tool));
  const done = told.filter(({ kind }) => kind === 'done').length;
  tally.uses += raced.length;
  tally.done += done;
  const found = usesFaults({
    rules: RULEBOOK,
    ...{ retried: RETRIED, lookups: LOOKUPS, runs: [run], exchanges, ledger },
    ...{ outside: [], trails: [], quiet: [] },
  });
  const over = found.filter(({ kind }) => kind === 'exceeded' || kind === 'used-twice').length;
  const excess = most === undefined ? over : Math.max(over, ran.length - most);
  const left = most === undefined ? unspent(raced, ran) : Math.max(0, most - done);
  tally.exceeded += excess;
  tally.lost += left;
  if (excess > 0 && found.length === 0)
    arena.faults.push(`exceeded: ${ran.length} of ${most} ${tools} ran (run ${run})`);
  if (left > 0) arena.faults.push(`lost: ${left} more ${tools} were allowed (run ${run})`);
  for (const { kind, text } of found) arena.faults.push(`${kind}: ${text} (run ${run})`);
}

/** How many refused amounts would still have been allowed, as all is over. In cents. */
function unspent(raced: readonly Exchange[], ran: readonly LedgerLine[]): number {
  const cents = (args: unknown): number =>
    Math.round((args as { readonly amount: number }).amount * 100);
  const spent = ran.reduce((sum, { args }) => sum + cents(args), 0);
  return raced.filter(
    (each) =>
      answerOf(each).told.kind === 'refused' &&
      spent + cents(each.request.params.arguments) <= CAPACITY.spent * 100,
  ).length;
}

/** The ledger's lines by run. Those of runs that are over are of no use any more. */
class LinesByRun {
  readonly #arena: Arena;
  readonly #byRun = new Map<string, LedgerLine[]>();

  constructor(arena: Arena) {
    this.#arena = arena;
  }

  of(run: string): readonly LedgerLine[] {
    for (const line of this.#arena.ledger.refresh().lines.splice(0)) {
      const lines = this.#byRun.get(line.run);
      if (lines === undefined) this.#byRun.set(line.run, [line]);
      else lines.push(line);
    }
    const own = this.#byRun.get(run) ?? [];
    this.#byRun.delete(run);
    return own;
  }
}
