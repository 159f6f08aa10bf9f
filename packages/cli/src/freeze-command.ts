/**
 * `mcp-interlock freeze`, `unfreeze`, `frozen`, `enforce` and `observe`: the switch for a night
 * without a page. Hides which workflows of a file are meant, and in which words an operator reads
 * what was done.
 */

import { InterlockError, runDigest, UnknownOutcome } from 'mcp-interlock';
import { type FreezeOptions, type Runs, runsOf } from 'mcp-interlock/runs';
import {
  type CommandSpec,
  durationOf,
  Failure,
  type Given,
  parseCommand,
  UsageError,
} from './command-line.ts';
import { printLine } from './log.ts';
import { doubtOf, type OpenStore, STORE_HELP, storeFailure, storeOfGates } from './stores.ts';
import { loadWorkflows } from './workflow-file.ts';

const STORE = { takes: 'URL', help: `${STORE_HELP}. Default sqlite:runs.db` } as const;
const SERVICE = { takes: 'NAME', help: 'the --service of the gates. Default: none' } as const;
export const OPTIONS = {
  store: STORE,
  service: SERVICE,
  actor: { takes: 'NAME', help: 'who does it, for the operators who look later; needed' },
  note: { takes: 'WHY', help: 'why, for the same; needed' },
  tool: { takes: 'NAME', help: 'one tool alone, or a glob as the file binds it' },
  run: { takes: 'KEY', help: 'one run alone, by its key' },
  workflow: { takes: 'ID', help: 'one workflow of the file. Default: each of them' },
  idle: { takes: 'TIME', help: 'beside --run: the --idle of the gates. Default 24h' },
  json: { help: 'prints JSON' },
} as const;

export const FREEZE = {
  usage: 'mcp-interlock freeze ./gate.ts --store URL --actor NAME --note WHY [options]',
  about:
    'Stops all calls of the tools that the workflows of a file bind, in all runs and on all ' +
    'instances that share the store: within a second none of them forwards another call. Calls ' +
    'that were forwarded before go on, and are saved. It is stopped until `unfreeze`, or the ' +
    'inspector, lets it go on.',
  options: OPTIONS,
} as const satisfies CommandSpec;

export const UNFREEZE = {
  usage: 'mcp-interlock unfreeze ./gate.ts --store URL --actor NAME --note WHY [options]',
  about:
    'Lets go on what was stopped. Without --tool and --run that are all tools, also those that ' +
    'were stopped one by one. A run that was stopped by itself stays so: see --run.',
  options: OPTIONS,
} as const satisfies CommandSpec;

export const FROZEN = {
  usage: 'mcp-interlock frozen ./gate.ts --store URL [options]',
  about: 'Says what is stopped, since when, by whom and why. It changes nothing.',
  options: {
    store: STORE,
    service: SERVICE,
    run: { takes: 'KEY', help: 'says it of one run, by its key' },
    workflow: OPTIONS.workflow,
    idle: OPTIONS.idle,
    json: OPTIONS.json,
  },
} as const satisfies CommandSpec;

const MODE_OPTIONS = {
  store: STORE,
  service: SERVICE,
  actor: OPTIONS.actor,
  note: OPTIONS.note,
  workflow: OPTIONS.workflow,
  json: OPTIONS.json,
} as const;

export const ENFORCE = {
  usage: 'mcp-interlock enforce ./gate.ts --store URL --actor NAME --note WHY [options]',
  about:
    'Has the gates of a file enforce, on all instances that share the store: within a second, in ' +
    'runs that begin from now on and in those of principals. A gate whose option names tools ' +
    'enforces these.',
  options: {
    ...MODE_OPTIONS,
    living: { help: 'also in all other runs that were observed before, unless they strayed' },
  },
} as const satisfies CommandSpec;

export const OBSERVE = {
  usage: 'mcp-interlock observe ./gate.ts --store URL --actor NAME --note WHY [options]',
  about:
    'Has the gates of a file observe and refuse nothing, on all instances that share the store: ' +
    'within a second, in all runs, until `enforce`.',
  options: MODE_OPTIONS,
} as const satisfies CommandSpec;

/** Has gates enforce. Resolves to the status 0. */
export async function runEnforce(args: readonly string[]): Promise<number> {
  const { file, given } = parseCommand(ENFORCE, args);
  return setMode(file, given, { enforce: true, living: given.living === true });
}

/** Has gates observe. Resolves to the status 0. */
export async function runObserve(args: readonly string[]): Promise<number> {
  const { file, given } = parseCommand(OBSERVE, args);
  return setMode(file, given, { enforce: false, living: false });
}

/** Stops what the arguments name. Resolves to the status 0. */
export async function runFreeze(args: readonly string[]): Promise<number> {
  const { file, given } = parseCommand(FREEZE, args);
  return throwSwitch(file, given, { verb: 'freeze', by: parseBy(given) });
}

/** Lets go on what the arguments name. Resolves to the status 0. */
export async function runUnfreeze(args: readonly string[]): Promise<number> {
  const { file, given } = parseCommand(UNFREEZE, args);
  return throwSwitch(file, given, { verb: 'unfreeze', by: parseBy(given) });
}

/** Says what is stopped. Resolves to the status 0, whether anything is or not. */
export async function runFrozen(args: readonly string[]): Promise<number> {
  const { file, given } = parseCommand(FROZEN, args);
  return throwSwitch(file, given, { verb: 'frozen' });
}

/** What an operator wants: who stops it or lets it go on, and why; or only to look. */
type Deed =
  | { readonly verb: 'freeze' | 'unfreeze'; readonly by: FreezeOptions }
  | { readonly verb: 'frozen' };

type Asked = Given<typeof FROZEN.options> & { readonly tool?: string | undefined };

/** What is stopped, as far as it is known who did that and when. */
interface StoppedThing extends FreezeOptions {
  readonly tool?: string;
  readonly at?: number;
}

/** What came of it for one workflow. */
interface Report {
  readonly workflow: string;
  /** The digest of the run's key, where one run is meant. */
  readonly run?: string;
  /** Absent where the operator only looks. */
  readonly changed?: boolean;
  /** As it is now. */
  readonly stopped: readonly StoppedThing[];
}

function parseBy({
  actor,
  note,
  tool,
  run,
}: Given<typeof MODE_OPTIONS> &
  Partial<Pick<Given<typeof OPTIONS>, 'tool' | 'run'>>): FreezeOptions {
  if (actor === undefined) throw new UsageError('--actor is needed: who does it');
  if (note === undefined) throw new UsageError('--note is needed: why');
  if (tool !== undefined && run !== undefined)
    throw new UsageError('--tool and --run: give one of them. A run is stopped with all its tools');
  return { actor, note };
}

/** Opens the store of gates that serve, for what a command does with the runs of their file. */
export async function withRuns(
  path: string,
  { store: url = 'sqlite:runs.db', service, workflow, idle = '24h' }: Partial<Asked>,
  act: (all: readonly Runs[], store: OpenStore) => Promise<void>,
): Promise<void> {
  const open = storeOfGates(url);
  const idleMs = durationOf('idle', idle);
  const { gates } = await loadWorkflows(path);
  const meant = gates.filter(({ id }) => workflow === undefined || id === workflow);
  if (meant.length === 0)
    throw new UsageError(
      `--workflow: ${path} has ${gates.map(({ id }) => id).join(', ')}, ` +
        `and no ${JSON.stringify(workflow)}`,
    );
  const store = await open((message) => console.error(`mcp-interlock: ${message}`));
  try {
    const options = { store: store.store, service, idleMs, onError };
    await act(
      meant.map((gate) => runsOf(gate, options)),
      store,
    );
  } finally {
    await store.close();
  }
}

/** The commands list calls of unknown outcome themselves. */
function onError(error: unknown): void {
  if (!(error instanceof UnknownOutcome)) console.error(`mcp-interlock: ${String(error)}`);
}

async function throwSwitch(path: string, asked: Asked, deed: Deed): Promise<number> {
  const { workflow, run, json } = asked;
  const reports: Report[] = [];
  const act = async (all: readonly Runs[], store: OpenStore): Promise<void> => {
    const again = `mcp-interlock unfreeze ${path} --store ${store.name}`;
    for await (const report of run === undefined
      ? ofWorkflows(all, asked.tool, deed)
      : ofRun(all, run, deed)) {
      reports.push(report);
      if (!json) for (const line of wordsOf(report, asked.tool, deed)) printLine(line);
    }
    if (!json && deed.verb !== 'unfreeze' && reports.some(({ stopped }) => stopped.length > 0)) {
      const which = [
        ...(workflow === undefined ? [] : [`--workflow ${workflow}`]),
        // The key may be a session's, which is a credential.
        ...(run === undefined ? [] : ['--run KEY']),
        ...(asked.tool === undefined ? [] : [`--tool ${JSON.stringify(asked.tool)}`]),
      ];
      printLine(`To let it go on: ${[again, ...which, '--actor NAME --note WHY'].join(' ')}`);
    }
    if (deed.verb === 'freeze' && run === undefined) await doubt(all, store);
  };
  try {
    await withRuns(path, asked, act);
  } finally {
    if (json) process.stdout.write(`${JSON.stringify({ workflows: reports }, null, 2)}\n`);
  }
  return 0;
}

async function setMode(
  path: string,
  given: Given<typeof MODE_OPTIONS>,
  { enforce, living }: { readonly enforce: boolean; readonly living: boolean },
): Promise<number> {
  const by = parseBy(given);
  const reports: object[] = [];
  const act = async (all: readonly Runs[], store: OpenStore): Promise<void> => {
    for (const runs of all) {
      const set = enforce ? runs.enforce({ ...by, living }) : runs.observe(by);
      const { changed } = await set.catch((error: unknown) => {
        throw storeFailure(error);
      });
      reports.push({ workflow: runs.workflow, changed, enforce, living });
      const which = living ? 'enforces, also in runs that were observed' : 'enforces';
      const what = enforce ? which : 'observes, and refuses nothing';
      const since = changed ? `from now on, by ${by.actor}: ${by.note}` : 'as it was said before';
      if (!given.json) printLine(`${runs.workflow}: ${what}, ${since}.`);
    }
    await doubt(all, store);
  };
  try {
    await withRuns(path, given, act);
  } finally {
    if (given.json) process.stdout.write(`${JSON.stringify({ workflows: reports }, null, 2)}\n`);
  }
  return 0;
}

/** @throws UsageError for a tool that none of them binds */
async function* ofWorkflows(
  all: readonly Runs[],
  tool: string | undefined,
  deed: Deed,
): AsyncIterable<Report> {
  let unbound: InterlockError | undefined;
  let isDone = false;
  for (const runs of all) {
    const { workflow } = runs;
    try {
      const changed =
        deed.verb === 'frozen'
          ? undefined
          : deed.verb === 'freeze'
            ? (await runs.freezeAll({ tool, ...deed.by })).frozen
            : (await runs.unfreezeAll({ tool, ...deed.by })).unfrozen;
      const stopped = await runs.frozen();
      yield { workflow, ...(changed !== undefined && { changed }), stopped };
      isDone = true;
    } catch (error) {
      // Another workflow of the file may bind the tool.
      if (!(error instanceof InterlockError) || error.code !== 'ERR_INTERLOCK_CONFIG')
        throw storeFailure(error);
      unbound = error;
    }
  }
  if (!isDone && unbound !== undefined) throw new UsageError(`--tool: ${unbound.message}`);
}

/** A run has each workflow of its route. @throws Failure where there is no such run */
async function* ofRun(all: readonly Runs[], key: string, deed: Deed): AsyncIterable<Report> {
  const run = runDigest(key);
  let isThere = false;
  for (const runs of all) {
    const done = await changeRun(runs, key, deed).catch((error: unknown) => {
      throw storeFailure(error);
    });
    if (done === 'unknown-run') continue;
    isThere = true;
    yield { workflow: runs.workflow, run, ...done };
  }
  if (!isThere) throw new Failure('the store has no run of that key');
}

async function changeRun(
  runs: Runs,
  key: string,
  deed: Deed,
): Promise<Pick<Report, 'changed' | 'stopped'> | 'unknown-run'> {
  const did =
    deed.verb === 'frozen'
      ? undefined
      : deed.verb === 'freeze'
        ? await runs.freeze(key, deed.by)
        : await runs.unfreeze(key, deed.by);
  if (did !== undefined && 'reason' in did && did.reason === 'unknown-run') return 'unknown-run';
  const view = await runs.read(key);
  if (view === undefined) return 'unknown-run';
  const { frozen } = view;
  const entries = frozen === undefined ? [] : await runs.history(key, MOST_ENTRIES);
  const at = entries.findLast(({ event }) => event === 'freeze')?.at;
  return {
    ...(did !== undefined && { changed: 'frozen' in did ? did.frozen : did.unfrozen }),
    stopped: frozen === undefined ? [] : [{ ...frozen, ...(at !== undefined && { at }) }],
  };
}

/** So many of the newest entries of a run's trail are searched for when it was stopped. */
const MOST_ENTRIES = 200;

/** A wrong store has no runs, and an operator who has stopped nothing must not go to bed. */
async function doubt(all: readonly Runs[], store: OpenStore): Promise<void> {
  for (const runs of all) {
    const counted = await runs.count().catch(() => undefined);
    if (counted?.runs === 0) console.error(doubtOf(store, runs.workflow));
  }
}

function wordsOf(
  { workflow, run, changed, stopped }: Report,
  tool: string | undefined,
  deed: Deed,
): string[] {
  const name = run === undefined ? workflow : `${workflow}, run ${run}`;
  const said = stopped.map((each) => `${name}: ${stoppedWords(each, run !== undefined)}.`);
  if (deed.verb === 'unfreeze') {
    const { actor, note } = deed.by;
    const goesOn = run === undefined ? `${callsOf(tool)} go on` : 'it goes on';
    const wasNot =
      run !== undefined
        ? 'it was not stopped'
        : tool === undefined
          ? 'nothing was stopped'
          : `${callsOf(tool)} were not stopped by themselves`;
    const first = changed
      ? `${goesOn} again, by ${actor}: ${note}.`
      : `nothing was changed, since ${wasNot}.`;
    return [`${name}: ${first}`, ...said];
  }
  if (stopped.length === 0) return [`${name}: nothing is stopped.`];
  if (deed.verb === 'freeze' && !changed)
    return [`${name}: nothing was changed, since that was stopped before.`, ...said];
  return said;
}

function stoppedWords({ tool, at, actor, note }: StoppedThing, isRun: boolean): string {
  const what = isRun ? 'it is' : `${callsOf(tool)} are`;
  const since = at === undefined ? '' : ` since ${new Date(at).toISOString()}`;
  return `${what} stopped${since}, by ${actor}: ${note}`;
}

function callsOf(tool: string | undefined): string {
  return tool === undefined ? 'all calls' : `calls of ${tool}`;
}
