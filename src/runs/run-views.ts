/**
 * Runs as operators see them: one run, and lists of those that need a person. Hides what a store
 * keeps of a run, and under which names it keeps a statechart's states. A held run that a list
 * finds is reported as an event.
 */
import { configError, InterlockError } from '../basics/errors.ts';
import { mountedAs } from '../gate/config.ts';
import {
  isStillObserved,
  markOf,
  type ObservedMark,
  type RunMark,
  stillObserved,
} from '../gate/mode.ts';
import { countUnread, Standing } from '../gate/standing.ts';
import { reportIfHeld } from '../step/unknown-outcome.ts';
import type {
  AtomicStateStore,
  FoundRun,
  PageQuery,
  RunsPage,
  WorkflowRecord,
} from '../stores/store.ts';
import { shownSnapshot } from '../workflow/envelope.ts';
import type { RunsMover } from './runs-mover.ts';
import type { RunsUnderWay, RunView, RunViews, StuckOptions } from './runs-options.ts';

/** A run in a listing, or as it was read. */
type ViewedRun = Partial<WorkflowRecord> & Pick<FoundRun, 'run' | 'sessionEnded'>;

/**
 * A run as its operators see it, by what its store has. One that has ended stands at its end.
 *
 * @param principal whose tools `available` names, where that is known
 * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where the gate does not understand what is stored
 */
export function viewOfRun(
  { workflow, onError }: Pick<RunsMover, 'workflow' | 'onError'>,
  found: ViewedRun,
  principal: string | undefined,
  now: number,
): RunView {
  const rules = { workflow, whenEnded: 'keep', onError } as const;
  const { snapshot, ...more } = found;
  const record = snapshot && { ...more, snapshot };
  return viewOf(found, Standing.of(rules, { run: found.run, actor: principal }, record, now));
}

function viewOf({ run, sessionEnded }: ViewedRun, standing: Standing): RunView {
  const { workflow, reached, parts, underWay, available, stopped } = standing;
  const { claim, unsettled, now, updatedAt, version } = parts;
  const shown = shownSnapshot({ ...reached, updatedAt, ...(updatedAt > 0 && { version }) });
  const { context, state } = shown;
  const heldSince = underWay === 'held' ? claim?.until : undefined;
  const ended = workflow.hasEnded(state);
  const mark = markOf(reached);
  return {
    run,
    state,
    snapshot: shown,
    status: underWay,
    ...(mark && { observed: observedBy(mark) }),
    ended,
    available,
    ...(stopped && { frozen: stopped.by }),
    ...(context !== undefined && { context }),
    ...(sessionEnded && { sessionEnded }),
    ...(claim && { claim }),
    ...(unsettled && { unsettled }),
    ...(heldSince !== undefined && { heldForMs: Math.max(0, now - heldSince) }),
    ...(!ended && updatedAt > 0 && { unmovedForMs: Math.max(0, now - updatedAt) }),
  };
}

/** A store may have anything. */
function observedBy({ enforced, refused, strayed }: RunMark): ObservedMark {
  const names = Array.isArray(enforced) ? enforced : [];
  return { enforced: names, refused: refused === true, strayed: strayed === true };
}

/** A part of the held runs, the longest held first. Each is reported as an event, once. */
export async function heldRuns(mover: RunsMover, page: PageQuery): Promise<RunViews> {
  const { held } = indexOf(mover, 'held()');
  return viewsOf(mover, await held({ workflow: mover.workflow.id, ...page }));
}

/** A part of the runs with unsettled steps, the oldest first. */
export async function unsettledRuns(mover: RunsMover, page: PageQuery): Promise<RunViews> {
  const { store, workflow } = mover;
  indexOf(mover, 'unsettled()');
  if (store.unsettled !== undefined)
    return viewsOf(mover, await store.unsettled({ workflow: workflow.id, ...page }));
  const message = 'unsettled(): this store lists its runs, and not those with unsettled steps';
  throw new InterlockError('ERR_INTERLOCK_STORE', message);
}

/** A part of the runs that have not moved for `forMs`, the oldest first. */
export async function stuckRuns(
  mover: RunsMover,
  { state, forMs, ...page }: StuckOptions & PageQuery,
): Promise<RunViews> {
  const { workflow } = mover;
  const { stuck } = indexOf(mover, 'stuck()');
  const fault = state === undefined ? undefined : workflow.faultOfAsking(state);
  if (fault !== undefined) throw configError(`stuck(): state: got ${fault}`);
  const states = await storedStates(mover, state);
  if (states?.length === 0) return { runs: [] };
  const found = viewsOf(mover, await stuck({ workflow: workflow.id, states, forMs, ...page }));
  if (state === undefined || states !== undefined) return found;
  const isAskedFor = (view: RunView): boolean => workflow.standsIn(view.state, state);
  return { ...found, runs: found.runs.filter(isAskedFor) };
}

/**
 * The stored names of the states that the caller asked for; `undefined` where they may be any. Each
 * combination of a statechart's parallel states has its own name, so the store is asked which names
 * runs have. One that counts none is asked for all, and the caller sorts them out.
 */
async function storedStates(
  mover: RunsMover,
  asked: StuckOptions['state'],
): Promise<readonly string[] | undefined> {
  const { workflow } = mover;
  if (asked === undefined || workflow.migrates) return undefined;
  if (workflow.model.isFlat)
    return workflow.states.filter((name) => workflow.standsIn(name, asked));
  const counted = await mover.store.count?.({ workflow: workflow.id, forMs: 0 });
  return counted?.states.map(({ state }) => state).filter((name) => workflow.standsIn(name, asked));
}

/** No count says what runs have saved, so the oldest are looked at, by parts, once a minute. */
const PART = 1_000;
const MOST_PARTS = 5;
const LOOK_MS = 60_000;
const warned = new WeakSet<RunsMover>();
const looked = new WeakMap<RunsMover, Look>();

/** How many of the oldest runs are observed though the gate enforces. */
type Oldest = Required<Pick<RunsUnderWay, 'unenforced' | 'strayed'>>;

interface Look {
  readonly at: number;
  readonly found: Promise<Oldest>;
  /** What this look found, or the one before; absent where there was none. */
  last: Oldest | undefined;
}

/** Notes also which of them cannot be read. The first look that finds any warns of them. */
async function lookAtOldest(mover: RunsMover): Promise<Oldest> {
  const { workflow, store } = mover;
  const { stuck } = indexOf(mover, 'count()');
  const { enforce } = mountedAs(workflow);
  // From then on the mode is known.
  await store.switchOf(workflow.id)?.soon();
  let [unenforced, strayed] = [0, 0];
  let after: string | undefined;
  for (let part = 1; part <= MOST_PARTS; part++) {
    const page = await stuck({ workflow: workflow.id, forMs: 0, limit: PART, after });
    viewsOf(mover, page);
    for (const { run, snapshot } of page.runs) {
      if (!isStillObserved({ enforce, workflow }, { run, store }, snapshot)) continue;
      unenforced += 1;
      if (markOf(snapshot)?.strayed === true) strayed += 1;
    }
    after = page.next;
    if (after === undefined) break;
  }
  if (unenforced > 0 && !warned.has(mover)) {
    warned.add(mover);
    const count = `: ${unenforced} at least, of which ${strayed} strayed`;
    mover.onWarning(stillObserved(workflow.id, count));
  }
  return { unenforced, strayed };
}

/** What the last look found: of a minute ago for a probe, which waits for the first look alone. */
async function oldestOf(mover: RunsMover, isProbe: boolean): Promise<Oldest> {
  const now = mover.clock.now();
  let look = looked.get(mover);
  if (look === undefined || Math.abs(now - look.at) >= LOOK_MS) {
    const begun: Look = { at: now, found: lookAtOldest(mover), last: look?.last };
    look = begun;
    looked.set(mover, begun);
    begun.found.then(
      (found) => {
        begun.last = found;
      },
      () => looked.delete(mover),
    );
  }
  return (isProbe ? look.last : undefined) ?? look.found;
}

/**
 * Counts the runs that have not ended.
 *
 * @param isProbe whether a prober asks, who waits for no list of thousands
 */
export async function countInStore(
  mover: RunsMover,
  { forMs }: { readonly forMs?: number | undefined },
  isProbe = false,
): Promise<RunsUnderWay> {
  const { workflow, clock } = mover;
  const { count } = indexOf(mover, 'count()');
  if (count === undefined) {
    const message = 'count(): this store lists its runs, and does not count them';
    throw new InterlockError('ERR_INTERLOCK_STORE', message);
  }
  const counted = await count({ workflow: workflow.id, forMs: forMs ?? 0 });
  const { unenforced, strayed } = await oldestOf(mover, isProbe);
  const { states, held, unsettled, running, oldestClaim, now = clock.now() } = counted;
  const sum = (key: 'runs' | 'stuck'): number => states.reduce((all, each) => all + each[key], 0);
  const isAsked = forMs !== undefined;
  // Only a run's data say where a `migrate` takes it, and the counts have none.
  const stranded = workflow.migrates
    ? []
    : states.filter(({ state }) => !workflow.model.has(state));
  return {
    runs: sum('runs'),
    states: states.map(({ state, runs, stuck }) => ({ state, runs, ...(isAsked && { stuck }) })),
    ...(isAsked && { stuck: sum('stuck') }),
    unreadable: Math.max(
      stranded.reduce((all, { runs }) => all + runs, 0),
      countUnread(workflow, now),
    ),
    ...(unenforced > 0 && { unenforced, strayed }),
    held,
    ...(unsettled !== undefined && { unsettled }),
    running,
    ...(oldestClaim !== undefined && { oldestClaimMs: Math.max(0, now - oldestClaim) }),
  };
}

type Index = Required<Pick<AtomicStateStore, 'held' | 'stuck' | 'list'>> &
  Pick<AtomicStateStore, 'count'>;

/** Whether the store can list its runs. */
export function hasIndex({ store }: Pick<RunsMover, 'store'>): boolean {
  return Boolean(store.held && store.stuck && store.list);
}

/** @throws InterlockError `ERR_INTERLOCK_STORE` where the store keeps no index of its runs */
export function indexOf(mover: Pick<RunsMover, 'store'>, what: string): Index {
  if (hasIndex(mover)) return mover.store as Index;
  throw new InterlockError(
    'ERR_INTERLOCK_STORE',
    `${what}: this store keeps no index of its runs. memoryStore(), sqliteStore(), redisStore(), ` +
      'upstashStore() and postgresStore() keep one, and documentStore() where the documents have ' +
      '"find". A store of your own needs "held", "stuck" and "list"',
  );
}

function viewsOf(mover: RunsMover, { runs, next, now = mover.clock.now() }: RunsPage): RunViews {
  const { workflow } = mover;
  for (const { run, ...found } of runs)
    reportIfHeld({ key: { run, workflow: workflow.id }, ...found, now }, mover);
  return {
    runs: runs.map((found) => viewOfFound(mover, found, now)),
    ...(next !== undefined && { next }),
  };
}

/** A run that the gate does not understand must not hide the others. */
function viewOfFound(mover: RunsMover, found: FoundRun, now: number): RunView {
  try {
    // A list does not say whose runs they are.
    return viewOfRun(mover, found, undefined, now);
  } catch (error) {
    const fault = error instanceof Error ? error.message : String(error);
    const { workflow, onError } = mover;
    const { run, snapshot, claim, unsettled, ended = false } = found;
    const { updatedAt, version = 0, ...position } = snapshot;
    const rules = { workflow, whenEnded: 'keep', onError } as const;
    const parts = { updatedAt, version, claim, unsettled, now };
    const standing = new Standing(rules, { run, actor: undefined }, position, parts);
    return { ...viewOf(found, standing), ended, fault };
  }
}
