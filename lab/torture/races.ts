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
  /** What is raced for, in turn. Default: each of them. */
  readonly races?: readonly RaceName[] | undefined;
}

type Members = Readonly<Record<string, unknown>>;
type Wanted = readonly [tool: string, members?: Members];

/** What many race for in a run, after what comes before it. */
interface Race {
  readonly before: readonly Wanted[];
  /** Each caller wants one of these. */
  readonly wanted: readonly Wanted[];
  /** How many of them can be had; of a sum how many cents, for each account. */
  readonly most: number;
  readonly isSum?: boolean;
}

const RACES = {
  draws: { before: [], wanted: [['draw']], most: CAPACITY.draws },
  amounts: {
    before: [],
    wanted: [0.1, 0.2, 0.25, 0.7, 1.05].map((amount) => ['spend', { amount }]),
    most: CAPACITY.spent * 100,
    isSum: true,
  },
  approval: { before: [['approve']], wanted: [['pay'], ['refund'], ['charge']], most: 1 },
  charges: {
    before: Array.from({ length: CAPACITY.charges + 2 }, (): Wanted => ['approve']),
    wanted: [['charge']],
    most: CAPACITY.charges,
  },
  signatures: {
    before: ['ada', 'ada', 'ada', 'bob', 'eve'].map((by) => ['sign', { by }]),
    wanted: [['release']],
    most: 2,
  },
  guesses: {
    before: [['code'], ['code']],
    wanted: [['guess'], ['guess', { fail: true }]],
    most: 2,
  },
  // One limit over three tools, one of which counts in cents, for each of two accounts.
  accounts: {
    before: [],
    wanted: ['one', 'two'].flatMap((account): Wanted[] => [
      ['transfer', { account, amount: 0.7 }],
      ['card_payment', { account, amount: 0.25 }],
      ['card_payment', { account, amount: 1.1 }],
      ['wire', { from_account: account, total_cents: 105 }],
      ['wire', { from_account: account, total_cents: 20 }],
    ]),
    most: CAPACITY.paid * 100 - 1,
    isSum: true,
  },
} as const satisfies Record<string, Race>;

export type RaceName = keyof typeof RACES;
export const RACE_NAMES = Object.keys(RACES) as RaceName[];

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
    const { races = RACE_NAMES } = scale;
    let runs = 0;
    const lane = async (_: unknown, index: number): Promise<void> => {
      const random = seeded(seed, `races, lane ${index}`);
      while (tally.uses < scale.uses && !arena.isEnding) {
        const race = races[runs++ % races.length] as RaceName;
        await playRace(arena, RACES[race], scale.callers, random, lines, tally);
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
  { before, wanted, most, isSum = false }: Race,
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
  const tools = [...new Set(wanted.map(([tool]) => tool))];
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
  const spent = centsByAccount(ran);
  const beyond = [...spent.values()].filter((cents) => cents > most).length;
  const excess = Math.max(over, isSum ? beyond : ran.length - most);
  const left = isSum ? unspent(raced, spent, most) : Math.max(0, most - done);
  tally.exceeded += excess;
  tally.lost += Math.max(left, ran.length - done);
  if (excess > over) {
    const made = isSum ? `${[...spent.values()]} cents` : ran.length;
    arena.faults.push(`exceeded: ${made} of ${most} ${tools} ran (run ${run})`);
  }
  if (ran.length !== done)
    arena.faults.push(`lost: ${ran.length} ${tools} ran, and ${done} were answered (run ${run})`);
  if (left > 0) arena.faults.push(`lost: ${left} more ${tools} were allowed (run ${run})`);
  for (const { kind, text } of found) arena.faults.push(`${kind}: ${text} (run ${run})`);
}

/** How many refused amounts would still have been allowed, as all is over. */
function unspent(
  raced: readonly Exchange[],
  spent: ReadonlyMap<string, number>,
  most: number,
): number {
  return raced.filter((each) => {
    const [account, cents] = centsOf(each.request.params.arguments);
    return answerOf(each).told.kind === 'refused' && (spent.get(account) ?? 0) + cents <= most;
  }).length;
}

function centsByAccount(ran: readonly LedgerLine[]): ReadonlyMap<string, number> {
  const spent = new Map<string, number>();
  for (const { args } of ran) {
    const [account, cents] = centsOf(args);
    spent.set(account, (spent.get(account) ?? 0) + cents);
  }
  return spent;
}

/** Of a call without an account there is one account. */
function centsOf(args: unknown): readonly [account: string, cents: number] {
  const {
    account,
    from_account,
    amount = 0,
    total_cents,
  } = args as {
    readonly account?: string;
    readonly from_account?: string;
    readonly amount?: number;
    readonly total_cents?: number;
  };
  return [account ?? from_account ?? '', total_cents ?? Math.round(amount * 100)];
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
