/**
 * Plays the same random cases on the source of an older revision and on the working tree, and
 * compares all that can be seen: answers, lists, refusals, events, errors, runs and trails. `--help`
 * says how.
 */
import { execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { drawCase } from './cases.ts';
import { type Compared, differing, type Found, keeping, type Range, textOf } from './compare.ts';
import { REASONS } from './play.ts';
import { loadSide } from './side.ts';
import { takeOver } from './world.ts';

const HELP = `npm run decisions -- [options]

  --old REV      the revision to compare the working tree with; default HEAD
  --cases N      how many cases; default 20000
  --from SEED    the first case; default 0
  --jobs N       how many processes; default: one for each core
  --seed SEED    only this case, which is shown as it is played
  --keep I,J     with --seed: only these operations of it
  --check        compares with the recorded digests instead of a revision
  --record       records the digests anew
`;

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** Digests of what the cases came to, a block of them each. */
const RECORDED = fileURLToPath(new URL('./recorded.json', import.meta.url));
/** How many cases a process plays at a time, and a digest stands for. */
const BLOCK = 50;
/** How many cases are recorded: what two cores play in a few seconds. */
const RECORDED_CASES = 2_000;
/** In so many cases, each reason must be met at least once. */
const CASES_PER_REASON = 1_000;

interface Options {
  readonly old: string;
  readonly cases: number;
  readonly from: number;
  readonly jobs: number;
  readonly seed: number | undefined;
  readonly keep: readonly number[] | undefined;
  readonly check: boolean;
  readonly record: boolean;
}

/** `undefined` where help is asked for. @throws Error naming what is wrong */
function parseOptions(args: readonly string[]): Options | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      help: { type: 'boolean', default: false },
      old: { type: 'string', default: 'HEAD' },
      cases: { type: 'string', default: '20000' },
      from: { type: 'string', default: '0' },
      jobs: { type: 'string', default: String(availableParallelism()) },
      seed: { type: 'string' },
      keep: { type: 'string' },
      check: { type: 'boolean', default: false },
      record: { type: 'boolean', default: false },
    },
  });
  if (values.help) return undefined;
  const { old, seed, keep, check, record } = values;
  return {
    old,
    check,
    record,
    cases: wholeNumber('--cases', values.cases),
    from: wholeNumber('--from', values.from),
    jobs: Math.max(1, wholeNumber('--jobs', values.jobs)),
    seed: seed === undefined ? undefined : wholeNumber('--seed', seed),
    keep: keep?.split(',').map((each) => wholeNumber('--keep', each)),
  };
}

function wholeNumber(option: string, value: string): number {
  if (/^\d+$/.test(value)) return Number(value);
  throw new Error(`${option}: expected a whole number, got "${value}"`);
}

/** The source of a revision in a folder of its own. The caller removes the folder. */
function checkOut(revision: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'decisions-'));
  const archive = execFileSync(
    'git',
    ['-C', ROOT, 'archive', revision, 'src', 'package.json', 'tsconfig.json'],
    { maxBuffer: 2 ** 28 },
  );
  execFileSync('tar', ['-x', '-C', folder], { input: archive });
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  return folder;
}

/** Hands the ranges out to so many processes. */
async function playAll(
  ranges: readonly Range[],
  jobs: number,
  older: string | undefined,
): Promise<readonly Compared[]> {
  const rest = [...ranges];
  const done: Compared[] = [];
  const began = performance.now();
  const cases = ranges.reduce((sum, { count }) => sum + count, 0);
  let told = began;
  const work = async (): Promise<void> => {
    const worker = fork(
      fileURLToPath(new URL('./worker.ts', import.meta.url)),
      [ROOT, older ?? ''],
      { execArgv: ['--import', 'tsx'] },
    );
    const ended = once(worker, 'exit').then(() => {
      throw new Error('a process that plays cases has ended');
    });
    ended.catch(() => {});
    await Promise.race([once(worker, 'message'), ended]);
    for (let range = rest.shift(); range !== undefined; range = rest.shift()) {
      worker.send(range);
      const [compared]: unknown[] = await Promise.race([once(worker, 'message'), ended]);
      done.push(compared as Compared);
      if (performance.now() - told < 30_000) continue;
      told = performance.now();
      const played = done.length * BLOCK;
      console.error(`${played} of ${cases} cases, ${perSecond(played, told - began)} a second`);
    }
    worker.disconnect();
  };
  await Promise.all(Array.from({ length: jobs }, work));
  console.log(`${cases} cases, ${perSecond(cases, performance.now() - began)} a second`);
  return done.sort((one, other) => one.range.from - other.range.from);
}

function perSecond(cases: number, ms: number): number {
  return Math.round((cases / ms) * 1_000);
}

function rangesOf(from: number, cases: number): Range[] {
  return Array.from({ length: Math.ceil(cases / BLOCK) }, (_, i) => ({
    from: from + i * BLOCK,
    count: Math.min(BLOCK, cases - i * BLOCK),
  }));
}

/** Prints how often each reason was met. `false` where one was met too seldom. */
function reportReasons(compared: readonly Compared[], cases: number): boolean {
  const counts = new Map<string, number>();
  for (const [reason, times] of compared.flatMap(({ reasons }) => reasons))
    counts.set(reason, (counts.get(reason) ?? 0) + times);
  const least = Math.floor(cases / CASES_PER_REASON);
  const seldom = REASONS.filter((reason) => (counts.get(`call ${reason}`) ?? 0) < least);
  for (const [reason, times] of [...counts].sort()) console.log(`  ${reason.padEnd(20)} ${times}`);
  if (seldom.length > 0) console.log(`MET TOO SELDOM: ${seldom.join(', ')}`);
  return seldom.length === 0;
}

async function compareWith(
  revision: string,
  { from, cases, jobs }: Pick<Options, 'from' | 'cases' | 'jobs'>,
): Promise<number> {
  const older = checkOut(revision);
  try {
    const compared = await playAll(rangesOf(from, cases), jobs, older);
    const isWhole = reportReasons(compared, cases);
    for (const [reason, times] of compared.flatMap(({ wanted }) => wanted))
      console.log(`  wanted: ${reason}: ${times}`);
    const found = compared.flatMap((each) => each.found);
    for (const each of found.slice(0, 5))
      console.log(`\n${repeated(revision, each)}\n${each.text}`);
    console.log(found.length === 0 ? 'NO DIFFERENCE' : `${found.length} DIFFERENCES`);
    return isWhole && found.length === 0 ? 0 : 1;
  } finally {
    rmSync(older, { recursive: true });
  }
}

function repeated(revision: string, { seed, kept }: Found): string {
  return `npm run decisions -- --old ${revision} --seed ${seed} --keep ${kept.join()}`;
}

async function showOne(seed: number, { old, keep }: Options): Promise<number> {
  const folder = checkOut(old);
  try {
    takeOver();
    const [newer, older] = [await loadSide(ROOT), await loadSide(folder)];
    const drawn = drawCase(seed);
    const kept = keep === undefined ? drawn : keeping(drawn, keep);
    const difference = await differing(newer, older, kept);
    console.log(difference === undefined ? 'NO DIFFERENCE' : textOf(kept, difference));
    return difference === undefined ? 0 : 1;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function record(jobs: number): Promise<number> {
  const played = await playAll(rangesOf(0, RECORDED_CASES), jobs, undefined);
  writeFileSync(
    RECORDED,
    `${JSON.stringify(
      played.map(({ digest }) => digest),
      undefined,
      2,
    )}\n`,
  );
  return reportReasons(played, RECORDED_CASES) ? 0 : 1;
}

async function check(jobs: number): Promise<number> {
  const recorded: unknown = JSON.parse(readFileSync(RECORDED, 'utf8'));
  const digests: readonly unknown[] = Array.isArray(recorded) ? recorded : [];
  const played = await playAll(rangesOf(0, RECORDED_CASES), jobs, undefined);
  const isWhole = reportReasons(played, RECORDED_CASES);
  const changed = played.filter(({ digest }, i) => digest !== digests[i]);
  const [first] = changed;
  if (first === undefined) {
    console.log('AS RECORDED');
    return isWhole ? 0 : 1;
  }
  console.log(`${changed.length} of ${played.length} BLOCKS ARE NOT AS RECORDED`);
  const { from, count } = first.range;
  console.log(`to see how:      npm run decisions -- --from ${from} --cases ${count} --old REV`);
  console.log('where it is meant: npm run decisions -- --record');
  return 1;
}

async function main(): Promise<number> {
  const options = parseOptions(process.argv.slice(2));
  if (options === undefined) {
    console.log(HELP);
    return 0;
  }
  if (options.record) return record(options.jobs);
  if (options.check) return check(options.jobs);
  if (options.seed !== undefined) return showOne(options.seed, options);
  return compareWith(options.old, options);
}

process.exitCode = await main();
