/**
 * Shows that the checker finds the faults that it is for. It plays a scene around a gate, sound or
 * with a planted defect, and judges it. It also judges evidence from a file. `--help` says how.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { check, type Fault } from './check.ts';
import { DEFECT_NAMES, DEFECTS, type Defect, type DefectName } from './defects.ts';
import type { Evidence } from './evidence.ts';
import { playScene } from './scene.ts';

const HELP = `npm run checker -- [options] [FILE]

  FILE            evidence that --save wrote, instead of a scene
  --seed N        the choices that the scene's clients make; default: a new seed each time, which is printed
  --rounds N      how many rounds each client plays; default 20
  --defect NAME   plants a defect, or with "all" one after the other, to see that each is found:
${DEFECT_NAMES.map((name) => `                  ${name.padEnd(16)} ${DEFECTS[name].what}`).join('\n')}
  --save FILE     writes the evidence down
`;
const MOST_SHOWN = 10;

interface Options {
  readonly seed: number;
  readonly rounds: number;
  readonly save: string | undefined;
}

/** What a scene came to, with status 0 where no promise was broken. */
async function judge({ seed, rounds, save }: Options, defect?: DefectName): Promise<number> {
  const surroundings: Defect | undefined = defect && DEFECTS[defect];
  const { evidence, faults } = await playScene({
    seed,
    rounds,
    ...(surroundings && { surroundings }),
  });
  if (save !== undefined) writeFileSync(save, JSON.stringify(evidence));
  return report(evidence, faults);
}

/** Status 0 where each planted defect was found, and nothing without one. */
async function judgeAll({ seed, rounds }: Options): Promise<number> {
  let status = 0;
  for (const name of [undefined, ...DEFECT_NAMES]) {
    const surroundings: Defect | undefined = name && DEFECTS[name];
    const { faults } = await playScene({ seed, rounds, ...(surroundings && { surroundings }) });
    const kinds = [...new Set(faults.map(({ kind }) => kind))];
    const isRight =
      surroundings === undefined ? kinds.length === 0 : kinds.includes(surroundings.found);
    if (!isRight) status = 1;
    console.log(
      `${isRight ? 'found ' : 'MISSED'} ${(name ?? 'no defect').padEnd(16)} ${kinds.join(', ') || 'nothing'}`,
    );
  }
  return status;
}

function report({ exchanges, ledger, runs }: Evidence, faults: readonly Fault[]): number {
  for (const { kind, text, run } of faults.slice(0, MOST_SHOWN))
    console.log(`BROKEN ${kind}: ${text} (run ${run})`);
  if (faults.length > MOST_SHOWN) console.log(`and ${faults.length - MOST_SHOWN} more`);
  const handlers = ledger.filter(({ phase }) => phase === 'start').length;
  console.log(
    `${exchanges.length} exchanges and ${handlers} handlers in ${runs.length} runs: ${faults.length === 0 ? 'ALL HELD' : `BROKEN ${faults.length} TIMES`}`,
  );
  return faults.length === 0 ? 0 : 1;
}

function wholeNumber(option: string, value: string): number {
  const number = Number(value);
  if (Number.isSafeInteger(number) && number >= 0) return number;
  throw new Error(`${option}: expected a whole number, got "${value}"`);
}

function defectOf(name: string): DefectName {
  const found = DEFECT_NAMES.find((each) => each === name);
  if (found !== undefined) return found;
  throw new Error(`--defect: expected one of all, ${DEFECT_NAMES.join(', ')}, got "${name}"`);
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      help: { type: 'boolean', default: false },
      seed: { type: 'string', default: String(Math.floor(Math.random() * 1e9)) },
      rounds: { type: 'string', default: '20' },
      defect: { type: 'string' },
      save: { type: 'string' },
    },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const [file] = positionals;
  if (file !== undefined) {
    const evidence: Evidence = JSON.parse(readFileSync(file, 'utf8'));
    return report(evidence, check(evidence));
  }
  const options = {
    seed: wholeNumber('--seed', values.seed),
    rounds: wholeNumber('--rounds', values.rounds),
    save: values.save,
  };
  console.log(`npm run checker -- --seed ${options.seed} --rounds ${options.rounds}`);
  if (values.defect === 'all') return judgeAll(options);
  return judge(options, values.defect === undefined ? undefined : defectOf(values.defect));
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
