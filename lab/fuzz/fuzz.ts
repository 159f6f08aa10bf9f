/**
 * Looks for inputs that break a promise, with targets that take turns until the time is over. A
 * run's seed comes from the program's seed, the target's name and the run's number. These three
 * play a finding again. `--help` says how.
 */
import { parseArgs } from 'node:util';
import {
  type Costs,
  type Finding,
  MOST,
  type OpenTarget,
  replayOf,
  runOnce,
  type Target,
} from './target.ts';
import { TARGETS } from './targets.ts';

const HELP = `npm run fuzz -- [options]

  --minutes N    for how long; default 10
  --seed S       the inputs that are tried; default: a new seed each time, which is printed
  --target T     only this one; several times or with commas:
${TARGETS.map(({ name, what }) => `                   ${name.padEnd(13)} ${what}`).join('\n')}
  --run N        only this run of each target: plays a finding again
`;

interface Options {
  readonly minutes: number;
  readonly seed: number;
  readonly targets: readonly Target[];
  readonly run: number | undefined;
}

/**
 * `undefined` where help is asked for. @throws Error naming what is wrong and what would be right.
 */
function parseOptions(args: readonly string[]): Options | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      help: { type: 'boolean', default: false },
      minutes: { type: 'string', default: '10' },
      seed: { type: 'string', default: String(Math.floor(Math.random() * 1e9)) },
      target: { type: 'string', multiple: true, default: [TARGETS.map(({ name }) => name).join()] },
      run: { type: 'string' },
    },
  });
  if (values.help) return undefined;
  const minutes = Number(values.minutes);
  if (!(minutes > 0))
    throw new Error(`--minutes: expected a number above 0, got "${values.minutes}"`);
  const targets = values.target
    .flatMap((names) => names.split(','))
    .map((name) => {
      const target = TARGETS.find((each) => each.name === name);
      if (target !== undefined) return target;
      throw new Error(
        `--target: expected one of ${TARGETS.map((each) => each.name).join(', ')}, got "${name}"`,
      );
    });
  const whole = (option: string, value: string): number => {
    if (/^\d+$/.test(value)) return Number(value);
    throw new Error(`${option}: expected a whole number, got "${value}"`);
  };
  const run = values.run === undefined ? undefined : whole('--run', values.run);
  return { minutes, targets, seed: whole('--seed', values.seed), run };
}

const interrupt = new AbortController();

async function fuzz({ minutes, seed, targets, run }: Options): Promise<number> {
  const end = performance.now() + minutes * 60_000;
  const isOver = (): boolean => performance.now() > end || interrupt.signal.aborted;
  console.log(`npm run fuzz -- --seed ${seed}: ${targets.map(({ name }) => name).join(', ')}`);
  const open = new Map<Target, OpenTarget>();
  const runs = new Map<Target, number>(targets.map((target) => [target, 0]));
  const costs = new Map<Target, Costs>(
    targets.map((target) => [target, { cpuMs: 0, megabytes: 0 }]),
  );
  const findings: Finding[] = [];
  try {
    for (const target of targets) open.set(target, await target.open());
    for (let number = run ?? 0; number === run || (run === undefined && !isOver()); number++) {
      for (const [target, opened] of open) {
        if (interrupt.signal.aborted || (run === undefined && isOver())) break;
        const found = await runOnce(target, opened, seed, number, costs.get(target));
        runs.set(target, (runs.get(target) ?? 0) + 1);
        if (found === undefined || !isNew(found, findings)) continue;
        findings.push(found);
        console.log(`\nFOUND by ${found.target}: ${found.text}\n  ${replayOf(found)}\n`);
      }
    }
  } finally {
    for (const opened of open.values()) await opened.close();
  }
  for (const [target, count] of runs) {
    const { cpuMs = 0, megabytes = 0 } = costs.get(target) ?? {};
    const cost = `the dearest took ${cpuMs.toFixed(0)} ms and ${megabytes.toFixed(1)} MB`;
    console.log(`${target.name.padEnd(13)} ${count * target.inputs} inputs; ${cost}`);
  }
  console.log(`one input may take ${MOST.cpuMs} ms of CPU time and ${MOST.megabytes} MB`);
  console.log(
    findings.length === 0
      ? `NOTHING FOUND with seed ${seed}`
      : `${findings.length} FINDINGS with seed ${seed}`,
  );
  return findings.length === 0 ? 0 : 1;
}

/** One finding a reason is enough: what follows is mostly the same one. */
function isNew({ target, text }: Finding, known: readonly Finding[]): boolean {
  const reason = (finding: string) => finding.split('\n')[0];
  return !known.some((each) => each.target === target && reason(each.text) === reason(text));
}

process.on('SIGINT', () => interrupt.abort());
process.on('SIGTERM', () => interrupt.abort());
try {
  const options = parseOptions(process.argv.slice(2));
  if (options === undefined) console.log(HELP);
  else process.exitCode = await fuzz(options);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
