import { parseArgs } from 'node:util';
import type { Durability } from './backends.ts';
import { DEFECTS, type Defect } from './broken-store.ts';
import type { DuplicatesScale } from './duplicates.ts';
import type { FailoversScale } from './failovers.ts';
import type { KillsScale } from './kills.ts';
import type { LastUsesScale } from './last-uses.ts';
import type { PartitionsScale } from './partitions.ts';
import type { PinsScale } from './pins.ts';
import { RACE_NAMES, type RaceName, type RacesScale } from './races.ts';
import type { RestartsScale } from './restarts.ts';
import { STORE_NAMES, type StoreName } from './stores.ts';
import type { SwitchScale } from './switches.ts';

export const PARTS = [
  'duplicates',
  'pins',
  'kills',
  'restarts',
  'failovers',
  'partitions',
  'switch',
  'rules',
  'races',
] as const;
export type PartName = (typeof PARTS)[number];

export interface Scale {
  readonly duplicates: Omit<DuplicatesScale, 'longestRun'>;
  readonly pins: PinsScale;
  readonly kills: KillsScale;
  readonly restarts: RestartsScale;
  readonly failovers: FailoversScale;
  readonly partitions: PartitionsScale;
  readonly switch: SwitchScale;
  readonly rules: LastUsesScale;
  readonly races: RacesScale;
}

export interface TortureOptions {
  readonly stores: readonly StoreName[];
  readonly parts: readonly PartName[];
  readonly seed: number;
  readonly isQuick: boolean;
  /** How often the switch is thrown, how many uses are raced for; `undefined`: as the scale says. */
  readonly count: number | undefined;
  readonly races: readonly RaceName[];
  readonly durability: Durability;
  readonly defect: Defect | undefined;
}

/** What the promises are measured at. */
export const FULL: Scale = {
  duplicates: { steps: 10_000, duplicates: 4, lanes: 16 },
  pins: { runs: 1_000, lanes: 4 },
  kills: { kills: 200, lanes: 12 },
  restarts: { restarts: 20, lanes: 8, outagesMs: [50, 200, 500, 1000, 2000, 4000] },
  failovers: { failovers: 20, lanes: 8 },
  partitions: { partitions: 20, lastMs: 3_000 },
  switch: { throws: 100, clients: 6 },
  rules: { runs: 40, lanes: 2, callers: 25, wishes: 4, kills: 60, restarts: 20 },
  races: { uses: 20_000, callers: 50, lanes: 2 },
};

/** About four minutes for the stores that are tortured by default. */
export const QUICK: Scale = {
  duplicates: { steps: 300, duplicates: 4, lanes: 16 },
  pins: { runs: 60, lanes: 4 },
  kills: { kills: 6, lanes: 12 },
  restarts: { restarts: 3, lanes: 8, outagesMs: [50, 500, 1500] },
  failovers: { failovers: 2, lanes: 8 },
  partitions: { partitions: 2, lastMs: 1_500 },
  switch: { throws: 5, clients: 6 },
  rules: { runs: 2, lanes: 2, callers: 25, wishes: 3, kills: 6, restarts: 3 },
  races: { uses: 600, callers: 50, lanes: 2 },
};

export const HELP = `npm run torture -- [options]

  --quick             a small scale, about four minutes
  --seed N            the choices that are made; default: a new seed each time, which is printed
  --store NAME        ${STORE_NAMES.join(', ')}; several times or with commas
                      default: redis, upstash, postgres, sqlite
  --part NAME         ${PARTS.join(', ')}; default: all
  --count N           how often the part "switch" throws it, by default 100, and 5 with --quick;
                      how many uses the part "races" makes, by default 20000, and 600 with --quick
  --race NAME         what the part "races" races for: default all, in turn, of
                      ${RACE_NAMES.join(', ')}
  --durability NAME   full (default), relaxed or none: how soon the store writes to the disk
  --defect NAME       breaks the store on purpose, to see that it is found: ${DEFECTS.join(', ')}
`;

const DURABILITIES: readonly Durability[] = ['full', 'relaxed', 'none'];

/**
 * `undefined` where help is asked for. @throws Error naming what is wrong and what would be right.
 */
export function parseOptions(args: readonly string[]): TortureOptions | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      help: { type: 'boolean', default: false },
      quick: { type: 'boolean', default: false },
      seed: { type: 'string' },
      store: { type: 'string', multiple: true, default: ['redis,upstash,postgres,sqlite'] },
      part: { type: 'string', multiple: true, default: [PARTS.join(',')] },
      durability: { type: 'string', default: 'full' },
      defect: { type: 'string' },
      count: { type: 'string' },
      race: { type: 'string', multiple: true, default: [RACE_NAMES.join(',')] },
    },
  });
  if (values.help) return undefined;
  const seed = values.seed === undefined ? Math.floor(Math.random() * 1e9) : Number(values.seed);
  if (!Number.isSafeInteger(seed))
    throw new Error(`--seed: expected a whole number, got "${values.seed}"`);
  const count = values.count === undefined ? undefined : Number(values.count);
  if (count !== undefined && !(Number.isSafeInteger(count) && count > 0))
    throw new Error(`--count: expected a whole number above 0, got "${values.count}"`);
  return {
    stores: manyOf('--store', STORE_NAMES, values.store),
    parts: manyOf('--part', PARTS, values.part),
    seed,
    isQuick: values.quick,
    count,
    races: manyOf('--race', RACE_NAMES, values.race),
    durability: oneOf('--durability', DURABILITIES, values.durability),
    defect: values.defect === undefined ? undefined : oneOf('--defect', DEFECTS, values.defect),
  };
}

function manyOf<T extends string>(
  option: string,
  names: readonly T[],
  values: readonly string[],
): T[] {
  return values.flatMap((value) => value.split(',')).map((value) => oneOf(option, names, value));
}

function oneOf<T extends string>(option: string, names: readonly T[], value: string): T {
  const name = names.find((each) => each === value);
  if (name === undefined)
    throw new Error(`${option}: expected one of ${names.join(', ')}, got "${value}"`);
  return name;
}
