#!/usr/bin/env node
/** The command `mcp-interlock`: finds out which command is meant, and ends with its status. */
import { rightNames } from '../../../src/basics/names.ts';
import manifest from '../package.json' with { type: 'json' };
import type { CheckReport } from './check-command.ts';
import { type CommandSpec, Failure, helpOf, UsageError, usageOf } from './command-line.ts';
import { painted } from './log.ts';

interface Command {
  readonly spec: CommandSpec;
  /** Resolves to the status that the process ends with. */
  readonly run: (args: readonly string[]) => Promise<number>;
}

/** Each is loaded where it is meant: a gate's packages take longer than a whole check. */
const COMMANDS: Readonly<Record<string, () => Promise<Command>>> = {
  gate: async () => {
    const { GATE, runGate } = await import('./gate-command.ts');
    return { spec: GATE, run: runGate };
  },
  stdio: async () => {
    const { runStdio, STDIO } = await import('./stdio-command.ts');
    return { spec: STDIO, run: runStdio };
  },
  check: async () => {
    const { CHECK, check } = await import('./check-command.ts');
    return { spec: CHECK, run: async (args) => printCheck(await check(args)) };
  },
  replay: async () => {
    const { REPLAY, runReplay } = await import('./replay-command.ts');
    return { spec: REPLAY, run: runReplay };
  },
  suggest: async () => {
    const { SUGGEST, runSuggest } = await import('./suggest-command.ts');
    return { spec: SUGGEST, run: runSuggest };
  },
  freeze: async () => {
    const { FREEZE, runFreeze } = await import('./freeze-command.ts');
    return { spec: FREEZE, run: runFreeze };
  },
  unfreeze: async () => {
    const { runUnfreeze, UNFREEZE } = await import('./freeze-command.ts');
    return { spec: UNFREEZE, run: runUnfreeze };
  },
  enforce: async () => {
    const { ENFORCE, runEnforce } = await import('./freeze-command.ts');
    return { spec: ENFORCE, run: runEnforce };
  },
  observe: async () => {
    const { OBSERVE, runObserve } = await import('./freeze-command.ts');
    return { spec: OBSERVE, run: runObserve };
  },
  frozen: async () => {
    const { FROZEN, runFrozen } = await import('./freeze-command.ts');
    return { spec: FROZEN, run: runFrozen };
  },
  runs: async () => {
    const { RUNS, runRuns } = await import('./runs-command.ts');
    return { spec: RUNS, run: runRuns };
  },
  held: async () => {
    const { HELD, runHeld } = await import('./runs-command.ts');
    return { spec: HELD, run: runHeld };
  },
  resolve: async () => {
    const { RESOLVE, runResolve } = await import('./runs-command.ts');
    return { spec: RESOLVE, run: runResolve };
  },
};

async function help(): Promise<string> {
  const commands = await Promise.all(Object.values(COMMANDS).map((load) => load()));
  return `Usage: mcp-interlock <command> [options]

${commands.map(({ spec }) => usageOf(spec.usage)).join('\n')}

mcp-interlock <command> --help says more.
`;
}

async function main([name, ...args]: readonly string[]): Promise<number> {
  if (name === '--version') return print(`${manifest.version}\n`);
  if (name === undefined || name === '--help' || name === 'help') return print(await help());
  const load = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (load === undefined)
    throw new UsageError(`unknown command ${name}, ${rightNames(name, Object.keys(COMMANDS))}`);
  const command = await load();
  // What follows is another program's.
  const own = args.slice(0, [...args, '--'].indexOf('--'));
  if (own.includes('--help')) return print(helpOf(command.spec));
  return command.run(args);
}

function printCheck({ out, err, status, failure }: CheckReport): number {
  process.stdout.write(painted(out, process.stdout));
  process.stderr.write(painted(err, process.stderr));
  if (failure !== undefined) throw failure;
  return status;
}

function print(text: string): number {
  process.stdout.write(text);
  return 0;
}

/** 2 for a mistake in the command line, 1 for everything else. */
async function statusOf(error: unknown): Promise<number> {
  // Most commands begin sooner without it.
  const { InterlockError } = await import('mcp-interlock');
  const isUsers =
    error instanceof UsageError || error instanceof Failure || error instanceof InterlockError;
  console.error(isUsers ? `mcp-interlock: ${error.message}` : error);
  return error instanceof UsageError ? 2 : 1;
}

process.exitCode = await main(process.argv.slice(2)).catch(statusOf);
