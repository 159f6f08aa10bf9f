/**
 * Plays the same random cases on the source of an older revision and on the working tree, and
 * compares all that can be seen: answers, lists, refusals, events, errors, runs and trails. `--help`
 * says how.
 */
import { execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { compiled } from '../../test/helpers/program.ts';
import { REASONS } from '../../test/helpers/reasons.ts';
import { drawCase } from './cases.ts';
import { type Compared, differing, keeping, type Range, textOf } from './compare.ts';
import { loadSide } from './side.ts';
import { takeOver } from './world.ts';

const HELP = `npm run decisions -- [options]

  --old REV      the older side: a revision, or a folder with the source; default HEAD
  --new FOLDER   the newer side; default: the working tree
  --cases N      how many cases; default 20000
  --from SEED    the first case; default 0
  --jobs N       how many processes; default: one for each core
  --seed SEED    only this case, which is shown as it is played
  --keep I,J     with --seed: only these operations of it, or "none"
  --observe      compares a gate that enforces with one that observes, up to a run's first refusal
  --check        compares with the recorded digests instead of a revision
  --record       records the digests anew
`;

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** Digests of what the cases came to, a block of them each. */
const RECORDED = fileURLToPath(new URL('./recorded.json', import.meta.url));
/** How many cases a process plays at a time, and a digest stands for. */
const BLOCK = 50;
/** Then another process goes on: what two copies of the package keep of each case adds up. */
const BLOCKS_OF_A_PROCESS = 200;
/** How many cases are recorded: what two cores play in ten seconds. */
const RECORDED_CASES = 400;
/** More findings are only counted. */
const MOST_SHOWN = 5;
/** In so many cases, each reason must be met at least once. */
const CASES_PER_REASON = 400;

interface Options {
  readonly old: string;
  readonly new: string;
  readonly cases: number;
  readonly from: number;
  readonly jobs: number;
  readonly seed: number | undefined;
  readonly keep: readonly number[] | undefined;
  readonly check: boolean;
  readonly observe: boolean;
  readonly record: boolean;
}

/** `undefined` where help is asked for. @throws Error naming what is wrong */
function parseOptions(args: readonly string[]): Options | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      help: { type: 'boolean', default: false },
      old: { type: 'string', default: 'HEAD' },
      new: { type: 'string', default: ROOT },
      cases: { type: 'string', default: '20000' },
      from: { type: 'string', default: '0' },
      jobs: { type: 'string', default: String(availableParallelism()) },
      seed: { type: 'string' },
      keep: { type: 'string' },
      check: { type: 'boolean', default: false },
      observe: { type: 'boolean', default: false },
      record: { type: 'boolean', default: false },
    },
  });
  if (values.help) return undefined;
  const { old, seed, keep, check, record, observe } = values;
  return {
    old,
    new: resolve(values.new),
    check,
    record,
    observe,
    cases: wholeNumber('--cases', values.cases),
    from: wholeNumber('--from', values.from),
    jobs: Math.max(1, wholeNumber('--jobs', values.jobs)),
    seed: seed === undefined ? undefined : wholeNumber('--seed', seed),
    keep: keep === 'none' ? [] : keep?.split(',').map((each) => wholeNumber('--keep', each)),
  };
}

function wholeNumber(option: string, value: string): number {
  if (/^\d+$/.test(value)) return Number(value);
  throw new Error(`${option}: expected a whole number, got "${value}"`);
}

/** Gives the folder of the older side to `use`, and removes it where it was made for that. */
async function withOlder<T>(old: string, use: (folder: string) => Promise<T>): Promise<T> {
  if (existsSync(join(old, 'src'))) return use(resolve(old));
  const folder = mkdtempSync(join(tmpdir(), 'decisions-'));
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  process.once('exit', remove);
  process.once('SIGINT', () => process.exit(130));
  const wanted = ['archive', old, 'src', 'package.json', 'tsconfig.json'];
  const archive = execFileSync('git', ['-C', ROOT, ...wanted], { maxBuffer: 2 ** 28 });
  execFileSync('tar', ['-x', '-C', folder], { input: archive });
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  return use(folder);
}

/** Hands the ranges out to so many processes. */
async function playAll(
  ranges: readonly Range[],
  jobs: number,
  newer: string,
  older = '',
  mode: readonly 'observe'[] = [],
): Promise<readonly Compared[]> {
  const rest = [...ranges];
  const program = await compiled(fileURLToPath(new URL('./worker.ts', import.meta.url)));
  const done: Compared[] = [];
  const began = performance.now();
  const cases = ranges.reduce((sum, { count }) => sum + count, 0);
  let told = began;
  const report = (): void => {
    if (performance.now() - told < 30_000) return;
    told = performance.now();
    const played = done.reduce((sum, { range }) => sum + range.count, 0);
    console.error(`${played} of ${cases} cases, ${perSecond(played, told - began)} a second`);
  };
  const work = async (): Promise<void> => {
    while (rest.length > 0) {
      const worker = fork(program, [newer, older, ...mode], { execArgv: [] });
      const ended = once(worker, 'exit').then(() => {
        throw new Error('a process that plays cases has ended');
      });
      ended.catch(() => {});
      await Promise.race([once(worker, 'message'), ended]);
      for (const range of takeFrom(rest, BLOCKS_OF_A_PROCESS)) {
        worker.send(range);
        const [compared]: unknown[] = await Promise.race([once(worker, 'message'), ended]);
        done.push(compared as Compared);
        report();
      }
      worker.disconnect();
    }
  };
  await Promise.all(Array.from({ length: Math.min(jobs, ranges.length) }, work));
  console.log(`${cases} cases, ${perSecond(cases, performance.now() - began)} a second`);
  return done.sort((one, other) => one.range.from - other.range.from);
}

/** Takes at most so many, each once it is asked for: other processes take theirs meanwhile. */
function* takeFrom(rest: Range[], most: number): Generator<Range> {
  for (let taken = 0; taken < most; taken++) {
    const range = rest.shift();
    if (range === undefined) return;
    yield range;
  }
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

async function compareSides(options: Options, older: string): Promise<number> {
  const { from, cases, jobs } = options;
  const compared = await playAll(rangesOf(from, cases), jobs, options.new, older);
  const isWhole = reportReasons(compared, cases);
  for (const [reason, times] of compared.flatMap(({ wanted }) => wanted))
    console.log(`  wanted: ${reason}: ${times}`);
  const found = compared.flatMap((each) => each.found);
  for (const each of found.slice(0, MOST_SHOWN)) {
    const { seed, kept, text } = each;
    console.log(`\n${commandOf(options)} --seed ${seed} --keep ${kept.join() || 'none'}\n${text}`);
  }
  const count = compared.reduce((sum, { differences }) => sum + differences, 0);
  console.log(count === 0 ? 'NO DIFFERENCE' : `${count} CASES DIFFER`);
  return isWhole && count === 0 ? 0 : 1;
}

function commandOf(options: Options): string {
  const newer = options.new === ROOT ? '' : ` --new ${options.new}`;
  return `npm run decisions -- --old ${options.old}${newer}`;
}

async function showOne(seed: number, options: Options, older: string): Promise<number> {
  takeOver();
  const sides = [await loadSide(options.new), await loadSide(older)] as const;
  const drawn = drawCase(seed);
  const kept = options.keep === undefined ? drawn : keeping(drawn, options.keep);
  const difference = await differing(...sides, kept);
  console.log(difference === undefined ? 'NO DIFFERENCE' : textOf(kept, difference));
  return difference === undefined ? 0 : 1;
}

async function record({ jobs, new: newer }: Options): Promise<number> {
  const played = await playAll(rangesOf(0, RECORDED_CASES), jobs, newer);
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

async function check({ jobs, new: newer }: Options): Promise<number> {
  const recorded: unknown = JSON.parse(readFileSync(RECORDED, 'utf8'));
  const digests: readonly unknown[] = Array.isArray(recorded) ? recorded : [];
  const played = await playAll(rangesOf(0, RECORDED_CASES), jobs, newer);
  const isWhole = reportReasons(played, RECORDED_CASES);
  const changed = played.filter(({ digest }, i) => digest !== digests[i]);
  const [first] = changed;
  if (first === undefined) {
    console.log('AS RECORDED');
    return isWhole ? 0 : 1;
  }
  console.log(`${changed.length} of ${played.length} BLOCKS ARE NOT AS RECORDED`);
  const { from, count } = first.range;
  console.log(
    `to see how:           npm run decisions -- --from ${from} --cases ${count} --old REV`,
  );
  console.log('once it is as meant:  npm run decisions -- --record');
  return 1;
}

async function compareModes({ from, cases, jobs, new: newer }: Options): Promise<number> {
  const compared = await playAll(rangesOf(from, cases), jobs, newer, '', ['observe']);
  reportReasons(compared, 0);
  const found = compared.flatMap((each) => each.found);
  for (const { seed, text } of found.slice(0, MOST_SHOWN)) console.log(`\ncase ${seed}\n${text}`);
  console.log(found.length === 0 ? 'NO DIFFERENCE' : `${found.length} CASES DIFFER`);
  return found.length === 0 ? 0 : 1;
}

async function main(): Promise<number> {
  const options = parseOptions(process.argv.slice(2));
  if (options === undefined) {
    console.log(HELP);
    return 0;
  }
  if (options.record) return record(options);
  if (options.check) return check(options);
  if (options.observe) return compareModes(options);
  const { seed } = options;
  return withOlder(options.old, (older) =>
    seed === undefined ? compareSides(options, older) : showOne(seed, options, older),
  );
}

process.exitCode = await main();
