/**
 * A deployment, tried on the runs that live. Hides the pages of the store's lists, the runs that
 * move meanwhile, and how findings about very many runs stay few. It only looks: it takes no claim,
 * sends no event, and keeps no run alive.
 */
import * as z from 'zod/mini';
import { configError, InterlockError } from '../basics/errors.ts';
import { runDigest } from '../basics/events.ts';
import { ownText } from '../basics/names.ts';
import { lazyOptions, parseOptions, showValue } from '../basics/options.ts';
import { isFromOutside, type Standing, statusOf } from '../gate/standing.ts';
import { type NotedGate, notedGates } from '../step/noted-gates.ts';
import type { FoundRun, FsmSnapshot, PageQuery, RunsPage } from '../stores/store.ts';
import { openContext } from '../workflow/envelope.ts';
import { StateMachineGate } from '../workflow/gate.ts';
import { gateOfNote, noteOf } from '../workflow/gate-note.ts';
import { type UnreadableKind, unreadableKind } from '../workflow/stored.ts';
import type { Workflow } from '../workflow/workflow.ts';
import {
  type ComparedLimit,
  ComparedRuns,
  type ComparedTool,
  standingBy,
} from './compared-runs.ts';
import { indexOf } from './run-views.ts';
import type { RunsMover } from './runs-mover.ts';

/**
 * What `check()` says: how a gate would take the runs that its store has. The runs with the most in
 * common come first in each table, and a table has at most 1,000 rows.
 */
export interface CheckedRuns {
  /**
   * How many runs the gate's workflow has: those that have not ended, and those that ended and are
   * held. A run that moves during the check may be left out; it is never counted twice.
   */
  readonly runs: number;
  /** The runs by the state that was saved. */
  readonly states: readonly RunsInState[];
  /** How many runs the gate cannot read. It would refuse their calls as `unreadable`. */
  readonly unreadable: number;
  /** Why it cannot read them. */
  readonly faults: readonly UnreadableRuns[];
  /** Where `migrate` takes the runs that it is asked about. */
  readonly migrated: readonly MigratedRuns[];
  /** The running and held steps of tools that the gate does not bind any more. */
  readonly unbound: readonly UnboundSteps[];
  /** Whether a table has no room for all of its rows. `runs` and `unreadable` are right then. */
  readonly isCut: boolean;
  /** What would change for these runs, compared with the gate that serves them. */
  readonly compared: ComparedDeployment;
}

/** What changes for the runs that live. */
export interface ComparedDeployment {
  /**
   * With what the gate is compared. `given`: the gate in the options. `noted`: the gate that the
   * store has noted last. `none`: the store has noted no gate of this workflow. `unmade`: no gate
   * can be made of the note, since that was a statechart or was too long; give the gate itself.
   */
  readonly with: 'given' | 'noted' | 'none' | 'unmade';
  /** The gates that the store has noted, the newest first; at most four. */
  readonly noted: readonly NotedRecord[];
  /** The tools of which anything changes. */
  readonly tools: readonly ComparedTool[];
  /** The limits that do not go on with what they have counted. */
  readonly limits: readonly ComparedLimit[];
  /** How many runs the gate from before cannot read by itself, so that they are not compared. */
  readonly unread: number;
}

/** A gate that has served runs of the workflow. */
export interface NotedRecord extends Pick<NotedGate, 'digest' | 'version' | 'first' | 'last'> {
  /** Whether it says the same as the gate that is checked. Functions count by their names. */
  readonly isSame: boolean;
}

/** The runs in one state. */
export interface RunsInState {
  /** The state's name in the store, which this gate may not have. */
  readonly state: string;
  readonly runs: number;
}

/** The runs that a gate cannot read for one and the same reason. */
export interface UnreadableRuns extends RunsInState {
  readonly kind: UnreadableKind;
  /** The `version` of the gate that saved them; 0 where it had none. */
  readonly version: number;
  /** The reason in words, as it is for `run`. It may have the words of what `migrate` threw. */
  readonly reason: string;
  /** One of the runs: `runDigest()` of its key, by which events name it too. Never the key. */
  readonly run: string;
}

/** The runs that `migrate` takes from one state to another, or leaves in theirs with other data. */
export interface MigratedRuns {
  /** The state that was saved. */
  readonly from: string;
  /** The `version` of the gate that saved them; 0 where it had none. */
  readonly version: number;
  /** The state of this gate in which they go on. A deadline that has passed may move them on. */
  readonly to: string;
  readonly runs: number;
}

/** The steps of a tool that a gate does not bind any more. */
export interface UnboundSteps {
  readonly tool: string;
  /**
   * How many are held. A person must resolve them, and this gate cannot know which event their
   * success sends.
   */
  readonly held: number;
  /** How many were running. Processes of the deployment that forwarded them still save them. */
  readonly running: number;
  /** One of their runs, as in {@link UnreadableRuns}. */
  readonly run: string;
}

/** Options of `check()`. */
export interface CheckRunsOptions {
  /**
   * The gate that serves the runs now, where its functions matter, or the store has noted none.
   * Default: the one that the store has noted last.
   */
  readonly old?: StateMachineGate<string, string> | undefined;
}

const optionsSchema = lazyOptions(() => ({
  old: z.optional(
    z.custom<StateMachineGate<string, string>>(
      (value) => value instanceof StateMachineGate,
      'expected a StateMachineGate',
    ),
  ),
}));

/** So many runs are asked for at once. */
const AT_ONCE = 200;

/** A store of statecharts or of rules may have as many states as runs. */
const MOST_ROWS = 1_000;

/** @throws InterlockError `ERR_INTERLOCK_STORE` where the store keeps no index of its runs */
export async function checkRuns(
  mover: RunsMover,
  options: CheckRunsOptions | undefined,
): Promise<CheckedRuns> {
  const { workflow } = mover;
  const { old, ...compared } = await gateBefore(mover, options);
  const comparison = old && new ComparedRuns(old, workflow);
  let unread = 0;
  const states = new Table<RunsInState>();
  const faults = new Table<UnreadableRuns>();
  const migrated = new Table<MigratedRuns>();
  const unbound = new Table<UnboundSteps>();
  let runs = 0;
  let unreadable = 0;
  for await (const { now, ...found } of livingRuns(mover)) {
    const { snapshot } = found;
    const run = runDigest(found.run);
    const { state, version, isWhole } = savedAs(snapshot);
    runs++;
    states.row([state], { state, runs: 0 }).runs++;
    const read = isWhole ? tryRead(workflow, found, now) : NO_VERSION;
    if ('kind' in read) {
      unreadable++;
      const { kind } = read;
      faults.row([kind, state, version], { ...read, state, version, runs: 0, run }).runs++;
    } else if (
      workflow.migrates &&
      (version !== (workflow.version ?? 0) || !workflow.model.has(state))
    ) {
      // It is none of this gate's own, and the gate has read it: by `migrate`.
      const { to } = read;
      migrated.row([state, version, to], { from: state, version, to, runs: 0 }).runs++;
    }
    if (old !== undefined && comparison !== undefined && 'standing' in read) {
      const before = tryRead(old, found, now);
      if ('standing' in before) comparison.add(before.standing, read.standing, run);
      else unread++;
    }
    const step = unboundStep(workflow, found);
    if (step === undefined) continue;
    const { tool, status } = step;
    unbound.row([tool], { tool, held: 0, running: 0, run })[status]++;
  }
  return {
    runs,
    states: states.sorted(({ runs }) => runs),
    unreadable,
    faults: faults.sorted(({ runs }) => runs),
    migrated: migrated.sorted(({ runs }) => runs),
    unbound: unbound.sorted(({ held, running }) => held + running),
    isCut: [states, faults, migrated, unbound].some(({ isCut }) => isCut),
    compared: {
      ...compared,
      tools: comparison?.tools ?? [],
      limits: comparison?.limits ?? [],
      unread,
    },
  };
}

/** The gate that serves the runs now, as far as that is known. */
async function gateBefore(
  { store, workflow }: RunsMover,
  options: CheckRunsOptions | undefined,
): Promise<Pick<ComparedDeployment, 'with' | 'noted'> & { readonly old: Workflow | undefined }> {
  const { old: given } = parseOptions('check()', optionsSchema, options);
  if (given !== undefined && given.id !== workflow.id)
    throw configError(
      `check(): old: expected a gate of ${JSON.stringify(workflow.id)}, got one of ` +
        JSON.stringify(given.id),
    );
  const { digest } = noteOf(workflow);
  const notes = await notedGates(store, workflow.id);
  const noted = notes.map(({ digest: own, version, first, last }) => ({
    digest: own,
    ...(version !== undefined && { version }),
    first,
    last,
    isSame: own === digest,
  }));
  if (given !== undefined) return { with: 'given', noted, old: given.compile() };
  const [newest] = notes;
  if (newest === undefined) return { with: 'none', noted, old: undefined };
  // Compared with itself a gate changes nothing, also where no gate can be made of its note.
  if (newest.digest === digest) return { with: 'noted', noted, old: undefined };
  const old = gateOfNote(workflow.id, newest)?.compile();
  return { with: old === undefined ? 'unmade' : 'noted', noted, old };
}

/** A run of a list, and what time it was for the store. */
type ListedRun = FoundRun & { readonly now: number };

/** The runs that have not ended, and the held ones that have: those on which a gate is asked. */
async function* livingRuns(mover: RunsMover): AsyncGenerator<ListedRun> {
  const { workflow, clock } = mover;
  const { held, stuck } = indexOf(mover, 'check()');
  let began: number | undefined;
  /** The runs of a list, but for those that came to their place in it since the check began. */
  async function* all(
    list: (page: PageQuery) => Promise<RunsPage>,
    timeOf: (found: FoundRun) => number | undefined,
  ): AsyncGenerator<ListedRun> {
    let after: string | undefined;
    do {
      const { runs, next, now = clock.now() } = await list({ limit: AT_ONCE, after });
      began ??= now;
      const latest = began;
      const old = runs.filter((found) => !((timeOf(found) ?? 0) > latest));
      for (const found of old) yield { ...found, now };
      // Lists are in the order of that time. A busy store would never come to the end of one.
      const isPast = runs.length > 0 && old.length === 0;
      after = isPast ? undefined : next;
    } while (after !== undefined);
  }
  const asked = { workflow: workflow.id };
  yield* all(
    (page) => stuck({ ...asked, ...page, forMs: 0 }),
    ({ snapshot }) => snapshot.updatedAt,
  );
  const heldRuns = all(
    (page) => held({ ...asked, ...page }),
    ({ claim }) => claim?.until,
  );
  for await (const found of heldRuns) if (found.ended) yield found;
}

/**
 * The state, and the version of the gate that saved it. A store may return anything in the place of
 * either; `isWhole` says whether that is a version.
 */
function savedAs({ state, context }: FsmSnapshot): {
  readonly state: string;
  readonly version: number;
  readonly isWhole: boolean;
} {
  const saved: unknown = state;
  const { version = 0 }: { readonly version?: unknown } = openContext(context);
  return {
    state: typeof saved === 'string' ? saved : showValue(saved),
    ...(typeof version === 'number' ? { version, isWhole: true } : { version: 0, isWhole: false }),
  };
}

/** Where a run would stand, or why the gate cannot read it. */
type Read =
  | { readonly to: string; readonly standing: Standing }
  | { readonly kind: UnreadableKind; readonly reason: string };

/** The gate would take such a run for one of an unknown state. */
const NO_VERSION: Read = {
  kind: 'malformed',
  reason: 'the "version" of the gate that saved the run is no number',
};

/** Reads a saved run as the gate does before each call. */
function tryRead(workflow: Workflow, found: FoundRun, now: number): Read {
  try {
    const read = workflow.parseSnapshot(found.snapshot);
    return { to: read.state, standing: standingBy(workflow, found, read, now) };
  } catch (error) {
    return { kind: unreadableKind(error), reason: wordsOf(error) };
  }
}

/** What the app's `migrate` throws may be long, and is kept for each row. */
const LONGEST = 1_000;

/** An error's words and those of its cause, without the code and the link. */
function wordsOf(error: unknown): string {
  const { message, cause } = error instanceof Error ? error : new Error(String(error));
  const end = error instanceof InterlockError ? message.lastIndexOf(` (${error.code}`) : -1;
  const words = end < 0 ? message : message.slice(0, end);
  const why = cause instanceof Error ? cause.message : cause;
  return ownText(why === undefined ? words : `${words}: ${why}`, LONGEST);
}

/** The step of a run whose tool the gate does not bind. One that may be tried again is none. */
function unboundStep(
  workflow: Workflow,
  { claim }: FoundRun,
): { readonly tool: string; readonly status: 'held' | 'running' } | undefined {
  if (claim === undefined || isFromOutside(claim) || workflow.isBound(claim.tool)) return undefined;
  const status = statusOf(claim);
  return status === 'idle' ? undefined : { tool: claim.tool, status };
}

type Mutable<Row> = { -readonly [Name in keyof Row]: Row[Name] };

/** Rows by what they are about. Its memory does not grow with the number of runs. */
class Table<Row> {
  readonly #rows = new Map<string, Mutable<Row>>();
  /** Whether there was no room for a row. */
  isCut = false;

  /** The row to count in; `first`, where there is none yet. */
  row(about: readonly unknown[], first: Mutable<Row>): Mutable<Row> {
    const key = JSON.stringify(about);
    const known = this.#rows.get(key);
    if (known !== undefined) return known;
    if (this.#rows.size < MOST_ROWS) this.#rows.set(key, first);
    else this.isCut = true;
    return first;
  }

  /** The rows, those with the highest count first. */
  sorted(countOf: (row: Row) => number): Row[] {
    return [...this.#rows.values()].sort((a, b) => countOf(b) - countOf(a));
  }
}
