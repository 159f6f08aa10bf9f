#!/usr/bin/env node
/** The command `mcp-interlock`: finds out which command is meant, and ends with its status. */
import { InterlockError } from 'mcp-interlock';
import { rightNames } from '../../../src/names.ts';
import manifest from '../package.json' with { type: 'json' };
import { CHECK, check } from './check-command.ts';
import { type CommandSpec, Failure, helpOf, UsageError, usageOf } from './command-line.ts';
import { FREEZE, FROZEN, runFreeze, runFrozen, runUnfreeze, UNFREEZE } from './freeze-command.ts';
import { GATE, runGate } from './gate-command.ts';
import { painted } from './log.ts';
import { REPLAY, runReplay } from './replay-command.ts';
import { runSuggest, SUGGEST } from './suggest-command.ts';

interface Command {
  readonly spec: CommandSpec;
  /** Resolves to the status that the process ends with. */
  readonly run: (args: readonly string[]) => Promise<number>;
}

const COMMANDS: Readonly<Record<string, Command>> = {
  gate: { spec: GATE, run: runGate },
  check: { spec: CHECK, run: runCheck },
  replay: { spec: REPLAY, run: runReplay },
  suggest: { spec: SUGGEST, run: runSuggest },
  freeze: { spec: FREEZE, run: runFreeze },
  unfreeze: { spec: UNFREEZE, run: runUnfreeze },
  frozen: { spec: FROZEN, run: runFrozen },
};

const HELP = `Usage: mcp-interlock <command> [options]

${Object.values(COMMANDS)
  .map(({ spec }) => usageOf(spec.usage))
  .join('\n')}

mcp-interlock <command> --help says more.
`;

async function main([name, ...args]: readonly string[]): Promise<number> {
  if (name === '--version') return print(`${manifest.version}\n`);
  if (name === undefined || name === '--help' || name === 'help') return print(HELP);
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (command === undefined)
    throw new UsageError(`unknown command ${name}, ${rightNames(name, Object.keys(COMMANDS))}`);
  if (args.includes('--help')) return print(helpOf(command.spec));
  return command.run(args);
}

async function runCheck(args: readonly string[]): Promise<number> {
  const { out, err, status, failure } = await check(args);
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
function statusOf(error: unknown): number {
  const isUsers =
    error instanceof UsageError || error instanceof Failure || error instanceof InterlockError;
  console.error(isUsers ? `mcp-interlock: ${error.message}` : error);
  return error instanceof UsageError ? 2 : 1;
}

process.exitCode = await main(process.argv.slice(2)).catch(statusOf);
