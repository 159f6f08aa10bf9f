/** `mcp-interlock replay`: what a gate would have made of recorded calls, without a server. */
import { statSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { type ReplayDifference, type ReplayedCalls, replayCalls } from 'mcp-interlock-check';
import { type CommandSpec, parseCommand, UsageError } from './command-line.ts';
import { assertFiles, linesOf } from './recorded-files.ts';
import { loadWorkflows } from './workflow-file.ts';

export const REPLAY = {
  usage: 'mcp-interlock replay ./gate.ts --calls calls.jsonl [options]',
  about:
    'Plays recorded calls through the gates of a file, and says which runs would have met a ' +
    'refusal. It starts no server. The status is 0; 1 where more runs are refused than ' +
    '--max-refused allows, or nothing was recorded; and 2 for a mistake in the command line.',
  options: {
    calls: { takes: 'FILE', many: true, help: 'what recordCalls() or gate --record wrote; needed' },
    'max-refused': { takes: 'SHARE', help: 'the most refused runs: 0.1%, for example, or 3' },
    compare: { takes: 'FILE', help: 'another gate file: prints only the runs that differ' },
    json: { help: 'prints JSON' },
  },
} as const satisfies CommandSpec;

export async function runReplay(args: readonly string[]): Promise<number> {
  // Each call leaves some garbage that lived long. Else it may be four times what is in use.
  setFlagsFromString('--heap-growing-percent=50');
  const { file, given } = parseCommand(REPLAY, args);
  assertFiles(given.calls);
  const most = mostRefused(given['max-refused']);
  const { gates } = await loadWorkflows(file);
  const others = given.compare === undefined ? [] : (await loadWorkflows(given.compare)).gates;
  const played: ReplayedCalls[] = [];
  for (const gate of gates) {
    const other = others.find(({ id }) => id === gate.id);
    if (given.compare !== undefined && other === undefined)
      throw new UsageError(`--compare: ${given.compare} has no gate "${gate.id}"`);
    const progress = progressOf(given.calls);
    const found = await replayCalls(gate, {
      lines: () => linesOf(given.calls, progress.read),
      compareTo: other,
    });
    progress.end();
    played.push(found);
  }
  const isCompared = given.compare !== undefined;
  process.stdout.write(
    given.json
      ? `${JSON.stringify(played, null, 2)}\n`
      : played.map((each) => (isCompared ? changesIn(each) : inWords(each))).join('\n'),
  );
  const isEmpty = played.every(({ runs }) => runs === 0);
  if (isEmpty) console.error('mcp-interlock: no run was recorded in these files');
  const isTooMany = played.some(({ runs, refused }) => refused > most(runs));
  if (isTooMany) console.error(`mcp-interlock: more than ${given['max-refused']} of runs refused`);
  return isEmpty || isTooMany ? 1 : 0;
}

/** How many of so many runs may be refused. */
function mostRefused(asked: string | undefined): (runs: number) => number {
  if (asked === undefined) return () => Number.POSITIVE_INFINITY;
  const [, number = '', percent] = /^(\d+(?:\.\d+)?)(%?)$/.exec(asked) ?? [];
  if (number === '')
    throw new UsageError(`--max-refused: expected 0.1% or 3, got ${JSON.stringify(asked)}`);
  return (runs) => (percent === '%' ? (runs * Number(number)) / 100 : Number(number));
}

/** How much is read, for people who watch. Each file is read twice. */
function progressOf(paths: readonly string[]): { read(bytes: number): void; end(): void } {
  const all = 2 * paths.reduce((sum, path) => sum + statSync(path).size, 0);
  let done = 0;
  let shown = -1;
  const isWatched = process.stderr.isTTY === true;
  return {
    read(bytes) {
      done += bytes;
      const percent = Math.floor((100 * done) / Math.max(1, all));
      if (!isWatched || percent === shown) return;
      shown = percent;
      process.stderr.write(`\r${percent} %`);
    },
    end() {
      if (isWatched) process.stderr.write('\r\u001b[K');
    },
  };
}

function inWords(played: ReplayedCalls): string {
  const { workflow, runs, calls, refused, waited, unknown, ended, waits } = played;
  const lines = [
    `${workflow}: ${counted(calls, 'call')} in ${counted(runs, 'run')}`,
    `  refused    ${share(refused, runs)}: a call of theirs would have been refused`,
    `  would wait ${share(waited, runs)}: ${counted(waits, 'call')} would have waited`,
    `  unknown    ${share(unknown, runs)}: the recording does not say`,
    `  ended      ${share(ended, runs)}: they came to an end of the workflow`,
    ...section('First refusals, which are all that the recording can say of a run:', [
      ...played.refusals.flatMap(({ tool, reason, state, says, runs: of, histories }) => [
        `  ${[`${counted(of, 'run')}: ${tool}, ${reason} in ${state}`, ...says].join('; ')}`,
        ...histories.map(
          (each) => `    ${each.runs} after ${each.calls.join(', ') || 'nothing'} (${each.run})`,
        ),
      ]),
    ]),
    ...section('What the recording does not say:', [
      ...played.doubts.map(
        ({ tool, why, calls: of, run }) =>
          `  ${counted(of, 'call')} of ${tool}: ${WHY[why] ?? why} (${run})`,
      ),
    ]),
    ...named('Called, and never refused', played.neverRefused),
    ...named('Never called', played.neverCalled),
    ...leftOut(played),
  ];
  return `${lines.join('\n')}\n`;
}

const WHY: Readonly<Record<string, string>> = {
  guard: 'a guard decides, and was not asked',
  values: 'a rule reads values that are not in clear',
  outcome: 'what follows depends on values that are not in clear',
  unreadable: 'a function of the gate failed',
};

function changesIn({ workflow, differences, runs }: ReplayedCalls): string {
  if (differences.length === 0) return `${workflow}: nothing changes for ${counted(runs, 'run')}\n`;
  const lines = differences.map(
    ({ before, after, runs: of, run }) =>
      `  ${counted(of, 'run')}: ${words(before)} → ${words(after)} (${run})`,
  );
  return `${workflow}: of ${counted(runs, 'run')}\n${lines.join('\n')}\n`;
}

function words(refusal: ReplayDifference['before']): string {
  if (refusal === undefined) return 'not refused';
  return `${refusal.tool} refused, ${refusal.reason} in ${refusal.state}`;
}

function section(title: string, lines: readonly string[]): readonly string[] {
  return lines.length === 0 ? [] : ['', title, ...lines];
}

function named(what: string, tools: readonly string[]): readonly string[] {
  return tools.length === 0 ? [] : ['', `${what}: ${tools.join(', ')}`];
}

function leftOut({ withoutRun, unreadable, dropped }: ReplayedCalls): readonly string[] {
  return [
    ...(withoutRun > 0 ? [`Left out: ${counted(withoutRun, 'call')} that name no run`] : []),
    ...(unreadable > 0 ? [`Left out: ${counted(unreadable, 'line')} that are none`] : []),
    ...(dropped > 0 ? [`The recorder dropped ${counted(dropped, 'line')}`] : []),
  ];
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

function share(part: number, all: number): string {
  const percent = all === 0 ? 0 : (100 * part) / all;
  return `${counted(part, 'run')} (${percent.toFixed(1)} %)`;
}
