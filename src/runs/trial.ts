/**
 * A deployment, tried on the runs that live. Hides the pages of the store's lists, the runs that
 * move meanwhile, and how findings about very many runs stay few. It only looks: it takes no claim,
 * tells no event, and keeps no run alive.
 */
import { InterlockError } from '../basics/errors.ts';
import { runDigest } from '../basics/events.ts';
import { ownText } from '../basics/names.ts';
import { showValue } from '../basics/options.ts';
import { isFromOutside, statusOf } from '../gate/standing.ts';
import type { FoundRun, FsmSnapshot, PageQuery, RunsPage } from '../stores/store.ts';
import { openContext } from '../workflow/envelope.ts';
import { type UnreadableKind, unreadableKind } from '../workflow/stored.ts';
import type { Workflow } from '../workflow/workflow.ts';
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
   * How many are held. A person must resolve them, and this gate cannot tell which event their
   * success sends.
   */
  readonly held: number;
  /** How many were running. Processes of the deployment that forwarded them still save them. */
  readonly running: number;
  /** One of their runs, as in {@link UnreadableRuns}. */
  readonly run: string;
}

/** So many runs are asked for at once. */
const AT_ONCE = 200;

/** A store of statecharts or of rules may have as many states as runs. */
const MOST_ROWS = 1_000;

/** @throws InterlockError `ERR_INTERLOCK_STORE` where the store keeps no index of its runs */
export async function checkRuns(mover: RunsMover): Promise<CheckedRuns> {
  const { workflow } = mover;
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
    const read = isWhole ? tryRead(workflow, snapshot, now) : NO_VERSION;
    if ('kind' in read) {
      unreadable++;
      const { kind } = read;
      faults.row([kind, state, version], { ...read, state, version, runs: 0, run }).runs++;
    } else if (version !== (workflow.version ?? 0) || !workflow.model.has(state)) {
      // It is none of this gate's own, and the gate has read it: by `migrate`.
      const { to } = read;
      migrated.row([state, version, to], { from: state, version, to, runs: 0 }).runs++;
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
  };
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
type Read = { readonly to: string } | { readonly kind: UnreadableKind; readonly reason: string };

/** The gate would take such a run for one of an unknown state. */
const NO_VERSION: Read = {
  kind: 'malformed',
  reason: 'the "version" of the gate that saved the run is no number',
};

/** Reads a saved run as the gate does before each call. */
function tryRead(workflow: Workflow, snapshot: FsmSnapshot, now: number): Read {
  try {
    const read = workflow.parseSnapshot(snapshot);
    const { updatedAt } = read;
    const reached = workflow.rules.standAt(read, updatedAt, now);
    workflow.overdue({ ...reached, updatedAt }, now);
    return { to: read.state };
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
