/**
 * `mcp-interlock runs`, `held` and `resolve`: what waits for a person, and how it is settled from a
 * terminal. Hides which list a step is in, and prints no run's key.
 */

import { runDigest } from 'mcp-interlock';
import type { Runs, RunView } from 'mcp-interlock/runs';
import {
  type CommandSpec,
  choiceOf,
  Failure,
  type Given,
  parseCommand,
  UsageError,
} from './command-line.ts';
import { OPTIONS, withRuns } from './freeze-command.ts';
import { printLine } from './log.ts';
import { doubtOf, storeFailure } from './stores.ts';

const { store, service, workflow, idle, json, actor, note } = OPTIONS;

export const RUNS = {
  usage: 'mcp-interlock runs ./gate.ts --store URL [options]',
  about:
    'Counts the runs of the workflows of a file: by state, and how many are running, held or ' +
    'cannot be read. It changes nothing.',
  options: { store, service, workflow, json },
} as const satisfies CommandSpec;

export const HELD = {
  usage: 'mcp-interlock held ./gate.ts --store URL [options]',
  about:
    'Lists the calls of unknown outcome. A held one stops its run until `resolve`. An unsettled ' +
    'one may be repeated, and counts for limits until then. It changes nothing.',
  options: { store, service, workflow, json },
} as const satisfies CommandSpec;

export const RESOLVE = {
  usage:
    'mcp-interlock resolve ./gate.ts --store URL --key KEY --outcome OUTCOME --actor NAME ' +
    '--note WHY [options]',
  about:
    'Settles one call of unknown outcome, once a person has found out what it came to. The run ' +
    'moves as the call would have moved it.',
  options: {
    store,
    service,
    key: { takes: 'KEY', help: 'the idempotency key of the call, as `held` prints it' },
    run: { takes: 'KEY', help: 'instead of --key: the run by its key, which has one such call' },
    outcome: { takes: 'OUTCOME', help: 'what the call came to: succeeded or failed; needed' },
    event: { takes: 'NAME', help: 'the event to send, where it depends on the call' },
    actor,
    note,
    workflow,
    idle,
    json,
  },
} as const satisfies CommandSpec;

/** Counts the runs. Resolves to the status 0. */
export async function runRuns(args: readonly string[]): Promise<number> {
  const { file, given } = parseCommand(RUNS, args);
  await withRuns(file, given, async (all, opened) => {
    const counts = await Promise.all(
      all.map(async (runs) => ({ workflow: runs.workflow, ...(await answered(runs.count())) })),
    );
    if (given.json) return printJson({ workflows: counts });
    for (const { workflow, runs, states, running, held, ...few } of counts) {
      const { unsettled = 0, unreadable, unenforced = 0 } = few;
      printLine(
        `${workflow}: ${many(runs)} not ended; ${running} running, ${held} held, ` +
          `${unsettled} with unsettled calls, ${unreadable} unreadable` +
          (unenforced > 0 ? `, ${unenforced} still observed` : ''),
      );
      for (const each of states) printLine(`  ${each.state}: ${each.runs}`);
      if (runs === 0) console.error(doubtOf(opened, workflow));
    }
  });
  return 0;
}

function many(runs: number): string {
  return runs === 1 ? '1 run has' : `${runs} runs have`;
}

/** A call of unknown outcome, as an operator reads it. */
interface UnknownCall {
  readonly workflow: string;
  /** The digest of the run's key. */
  readonly run: string;
  readonly status: 'held' | 'unsettled';
  readonly tool: string;
  readonly idempotencyKey: string;
  readonly since?: number | undefined;
}

/** Lists the calls of unknown outcome. Resolves to the status 0, whether there are any or not. */
export async function runHeld(args: readonly string[]): Promise<number> {
  const { file, given } = parseCommand(HELD, args);
  await withRuns(file, given, async (all, opened) => {
    const calls: UnknownCall[] = [];
    for (const runs of all)
      for (const status of ['held', 'unsettled'] as const)
        for await (const view of pagesOf((page) => runs[status](page)))
          for (const step of stepsOf(view, status)) {
            const { tool, idempotencyKey, since } = step;
            const run = runDigest(view.run);
            calls.push({ workflow: runs.workflow, run, status, tool, idempotencyKey, since });
          }
    if (given.json) return printJson({ calls });
    for (const { workflow, run, status, tool, idempotencyKey, since } of calls) {
      const from = since === undefined ? '' : ` since ${new Date(since).toISOString()}`;
      printLine(`${workflow}, run ${run}: ${tool} is ${status}${from}, key ${idempotencyKey}`);
    }
    if (calls.length === 0) return printLine('No call has an unknown outcome.');
    printLine(
      `To settle one: mcp-interlock resolve ${file} --store ${opened.name} --key KEY ` +
        '--outcome succeeded|failed --actor NAME --note WHY',
    );
  });
  return 0;
}

function stepsOf({ claim, unsettled = [] }: RunView, status: UnknownCall['status']) {
  return status === 'unsettled' ? unsettled : claim === undefined ? [] : [claim];
}

/** All runs of a list, page after page. */
async function* pagesOf(
  list: (page: { after?: string }) => ReturnType<Runs['held']>,
): AsyncIterable<RunView> {
  let after: string | undefined;
  do {
    const page = await answered(list(after === undefined ? {} : { after }));
    yield* page.runs;
    after = page.next;
  } while (after !== undefined);
}

/** Settles a call. Resolves to the status 0, and rejects where it was not settled. */
export async function runResolve(args: readonly string[]): Promise<number> {
  const { file, given } = parseCommand(RESOLVE, args);
  const { call, outcome, options } = parseResolution(given);
  await withRuns(file, given, async (all) => {
    if (typeof call === 'string' && all.length > 1)
      throw new UsageError(
        `--run: ${file} has several workflows, and each has its own calls in a run: ` +
          `give --workflow, one of ${all.map((runs) => runs.workflow).join(', ')}`,
      );
    let reason: string = 'not-held';
    for (const runs of all) {
      const did = await answered(runs.resolve(call, outcome, options));
      if (did.resolved) {
        const { workflow } = runs;
        if (given.json) return printJson({ workflow, resolved: true, state: did.state });
        const by = `by ${options.actor}: ${options.note}`;
        return printLine(`${workflow}: the call counts as ${outcome}, ${by}. Now: ${did.state}`);
      }
      reason = did.reason;
      if (reason !== 'not-held') break;
    }
    throw new Failure(`nothing was changed: ${UNRESOLVED[reason] ?? reason}`);
  });
  return 0;
}

const UNRESOLVED: Readonly<Record<string, string>> = {
  'unknown-run': 'the store has no run of that key',
  'not-held': 'no such call waits for a person. It may be running still, or be settled',
  running: 'the call is running still. Try again when it has ended, or its lease has',
  several: 'the run has several such calls. `held` prints their keys: give --key',
};

function parseResolution({ key, run, outcome, event, actor, note }: Given<typeof RESOLVE.options>) {
  if ((key === undefined) === (run === undefined))
    throw new UsageError('give one of --key and --run: which call is settled');
  if (outcome === undefined) throw new UsageError('--outcome is needed: what the call came to');
  if (actor === undefined) throw new UsageError('--actor is needed: who does it');
  if (note === undefined) throw new UsageError('--note is needed: why');
  return {
    call: key === undefined ? (run ?? '') : { idempotencyKey: key },
    outcome: choiceOf('outcome', outcome, ['succeeded', 'failed']),
    options: { actor, note, ...(event !== undefined && { event }) },
  };
}

/** @throws Failure with the words of the store */
function answered<T>(asked: Promise<T>): Promise<T> {
  return asked.catch((error: unknown) => {
    throw storeFailure(error);
  });
}

function printJson(value: object): void {
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
}
