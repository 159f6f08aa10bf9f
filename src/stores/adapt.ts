import * as z from 'zod/mini';
import { InterlockError, quoteNames } from '../basics/errors.ts';
import {
  clockOption,
  functionOption,
  kindOf,
  lazyOptions,
  parseOptions,
  showValue,
} from '../basics/options.ts';
import { KeyedQueue } from './keyed-queue.ts';
import { RunTable } from './memory-store.ts';
import { type Operation, RulebookStore } from './rulebook.ts';
import {
  isKnown,
  isNeeded,
  isPinned,
  type Life,
  neverExpires,
  type RunState,
  type WorkflowState,
} from './run-life.ts';
import { lastEntries, releaseStep, renewStep, withTrailEntry, workflowAt } from './run-state.ts';
import {
  type SavedRun,
  SavedRuns,
  type SavedRunsOptions,
  type SavedSession,
} from './saved-runs.ts';
import type {
  AtomicStateStore,
  DeleteResult,
  FsmStateStore,
  ReleaseOptions,
  RenewOptions,
  RunKey,
  SessionRecord,
  StateStore,
  SwitchRecord,
  TrailDraft,
  TrailEntry,
} from './store.ts';

export interface AdaptOptions {
  /** The clock for leases and expiry, in milliseconds since the epoch. Default `Date.now`. */
  readonly now?: (() => number) | undefined;
  /**
   * Called once, at the start, with what the store cannot do, and for each `save` that does not
   * settle in time. Default `process.emitWarning`.
   */
  readonly onWarning?: ((warning: string) => void) | undefined;
  /**
   * In how many milliseconds a `load` or a `save` has to settle. Default 2,000. A `load` fails
   * then. A `save` may still arrive, so its run is unavailable until it settles.
   */
  readonly deadlineMs?: number | undefined;
}

const optionsSchema = lazyOptions(() => ({
  now: clockOption(),
  onWarning: z._default(functionOption<(warning: string) => void>(), () => emitWarning),
  deadlineMs: z._default(z.number().check(z.positive()), 2_000),
}));

const PLAIN = ['load', 'save'] as const satisfies readonly (keyof FsmStateStore)[];

const ATOMIC = [
  'open',
  'read',
  'claim',
  'commit',
  'renew',
  'record',
  'freeze',
  'release',
  'end',
  'delete',
  'history',
] as const satisfies readonly (keyof AtomicStateStore)[];

/** Methods by which an object says that it is no mere `load` and `save`. */
const REVEALING = [
  'claim',
  'commit',
  'renew',
  'record',
  'release',
] as const satisfies readonly (keyof AtomicStateStore)[];

/** The contract that this version keeps to. */
const CONTRACT = 1 satisfies AtomicStateStore['contract'];

/** One adapter for each store: two adapters of one store would not see each other's claims. */
const adapted = new WeakMap<FsmStateStore, AtomicStateStore>();

/**
 * Makes steps exact within this process on a store that can only `load` and `save`. It saves the
 * run's session under `session:<run>`, and each workflow's snapshot under `<workflow>:<run>`; the
 * switch of a workflow under `switch:<workflow>`.
 * Claims, idempotency keys and the trail (the last 50 entries of each workflow) live in this
 * process.
 *
 * An operation costs one load for the session and one for each workflow of the run; a commit costs
 * one save. The adapter saves a run in use again whenever a tenth of its time to live has passed. A
 * backend's own expiry must be no shorter than the time to live.
 *
 * A run of which a snapshot is missing was evicted, and is unknown. A malformed snapshot is an
 * error. Use one adapter for a store, as {@link resolveStore} does.
 */
export function adaptStateStore(
  store: FsmStateStore,
  options: AdaptOptions = {},
): AtomicStateStore {
  const { now, ...watch } = parseOptions('adaptStateStore()', optionsSchema, options);
  if (missingOf(store, PLAIN).length > 0) throw notAStore(store);
  assertPlain(store);
  watch.onWarning(LIMITS);
  return new AdaptedStore(store, now, watch);
}

/** Whether the store has every operation that makes steps exact across processes. */
export function isAtomicStore(store: StateStore): store is AtomicStateStore {
  return missingOf(store, ATOMIC).length === 0 && contractOf(store) === CONTRACT;
}

function contractOf(store: unknown): unknown {
  return typeof store === 'object' && store !== null ? Reflect.get(store, 'contract') : undefined;
}

/**
 * The store as an {@link AtomicStateStore}: itself if it is one, else its adapter. The first call
 * makes the adapter with its options, and later calls get the same one.
 *
 * @throws InterlockError `ERR_INTERLOCK_STORE` where it is neither kind of store; the message names
 * the missing methods. Also where it has some of the operations and not all, or keeps another
 * contract. Such a store is never taken for one of `load` and `save`.
 */
export function resolveStore(store: StateStore, options: AdaptOptions = {}): AtomicStateStore {
  if (isAtomicStore(store)) return store;
  assertPlain(store);
  const known = adapted.get(store);
  if (known) return known;
  const adapter = adaptStateStore(store, options);
  adapted.set(store, adapter);
  return adapter;
}

/** Counts inherited methods: a store is often an object of a class. */
function missingOf(store: unknown, names: readonly string[]): string[] {
  if (typeof store !== 'object' || store === null) return [...names];
  return names.filter((name) => typeof Reflect.get(store, name) !== 'function');
}

/** @throws InterlockError `ERR_INTERLOCK_STORE` for a store of operations that is not whole */
function assertPlain(store: StateStore): void {
  const contract = contractOf(store);
  if (contract === undefined && missingOf(store, REVEALING).length === REVEALING.length) return;
  const missing = missingOf(store, ATOMIC);
  const faults = [
    ...(missing.length > 0 ? [`it lacks ${quoteNames(missing)}`] : []),
    ...(contract === CONTRACT ? [] : [`it must say contract: ${CONTRACT}, ${said(contract)}`]),
  ];
  throw new InterlockError(
    'ERR_INTERLOCK_STORE',
    `the store has operations of an AtomicStateStore, and is none: ${faults.join('; ')}. Such a ` +
      'store is never adapted, since its steps would be exact within one process only. ' +
      'describeStateStore() of mcp-interlock-testing tests the whole contract',
  );
}

function said(contract: unknown): string {
  return contract === undefined ? 'and says none' : `and says ${showValue(contract)}`;
}

function notAStore(store: unknown): InterlockError {
  const kind = kindOf(store);
  if (kind?.store !== undefined) {
    const message = `the store is ${kind.name}, not a store: wrap it in ${kind.store}`;
    return new InterlockError('ERR_INTERLOCK_STORE', message);
  }
  // Not its value: a connection string has a password in it.
  const type = store === null || store === undefined ? String(store) : typeof store;
  const given = type === 'object' ? 'the store' : `the store is of type ${type}, which`;
  const [plain, atomic] = [missingOf(store, PLAIN), missingOf(store, ATOMIC)].map(quoteNames);
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    `${given} is no store: to be an FsmStateStore it lacks ${plain}; ` +
      `to be an AtomicStateStore it lacks ${atomic}`,
  );
}

const LIMITS =
  'the store has only load and save, so steps are exact within one process only. A run whose ' +
  'step has an unknown outcome is held until this process ends, and no longer. An ' +
  'AtomicStateStore keeps both promises across processes and restarts';

function emitWarning(warning: string): void {
  process.emitWarning(warning, 'InterlockWarning');
}

/** Whether the store is the adapter of one with only `load` and `save`. */
export function isAdaptedStore(store: AtomicStateStore): boolean {
  return store instanceof AdaptedStore;
}

/** What only this process knows of a run: claims, keys, tokens and trail. */
interface Kept {
  readonly workflows: Map<string, WorkflowState>;
  /** Workflows whose last save failed. It may have arrived all the same: overwrite it. */
  readonly unsure: Set<string>;
  released: RunState['released'];
  expiresAt: number;
  readonly sessionEnded: Life['sessionEnded'];
}

/** A run during one operation: what the store saved, and what this process keeps. */
interface AdaptedRun extends Omit<Kept, keyof Life | 'released'>, RunState {
  readonly key: string;
  readonly workflows: Map<string, WorkflowState>;
  /** `undefined` where this operation makes the run. */
  saved: SavedSession | undefined;
}

const RUNS_KEPT = 10_000;

/**
 * Operations made of loads and saves; the queue of this process keeps them apart. Each saves first
 * and remembers afterwards, so that a failed save changes nothing.
 */
class AdaptedStore extends RulebookStore {
  readonly #saved: SavedRuns;
  readonly #now: () => number;
  readonly #queue = new KeyedQueue();
  readonly #switches = new KeyedQueue();
  readonly #kept: RunTable<Kept>;

  constructor(store: FsmStateStore, now: () => number, watch: SavedRunsOptions) {
    super(false);
    this.#saved = new SavedRuns(store, watch);
    this.#now = now;
    this.#kept = new RunTable({ maxRuns: RUNS_KEPT, now, isNeeded: isOpen });
  }

  protected change<Result>(key: string, operation: Operation<Result>): Promise<Result> {
    return this.#inTurn(key, async () => {
      const known = await this.#load(key);
      const changed = operation(known, this.#now());
      const { result, made, workflow: name = '', next } = changed;
      if (changed.isRemoved && known) await this.#remove(key);
      // An evicted run goes on listing its snapshots, or a deletion would not find them.
      const isEvicting = known !== undefined && made !== undefined;
      const life = isEvicting ? made : changed.life;
      const run =
        made && !isEvicting ? newRun(key, made.session, made.expiresAt, made.openedBy) : known;
      if (run === undefined || changed.isRemoved) return result;
      // A new workflow is saved before its freeze, so that a failed save leaves it unfrozen.
      const before = run.workflows.get(name) ?? (next?.frozen && workflowAt(next.snapshot));
      const isMove =
        before !== undefined &&
        next !== undefined &&
        (before.snapshot !== next.snapshot || before.frozen !== next.frozen);
      if (next) run.workflows.set(name, isMove ? before : next);
      await this.#keep(run, life);
      if (isMove) await this.#commitTo(run, name, next);
      return result;
    });
  }

  override renew(
    { run: key, workflow: name }: RunKey,
    token: string,
    leaseMs: number,
    options: RenewOptions = {},
  ): Promise<boolean> {
    return this.#inTurn(key, async () => {
      const kept = this.#kept.get(key);
      if (!kept) return false;
      const { result, next, life } = renewStep(kept, name, token, leaseMs, options, this.#now());
      if (next) kept.workflows.set(name, next);
      kept.expiresAt = life?.expiresAt ?? kept.expiresAt;
      return result;
    });
  }

  override release(
    { run: key, workflow: name }: RunKey,
    token: string,
    options: ReleaseOptions = {},
  ): Promise<void> {
    return this.#inTurn(key, async () => {
      const kept = this.#kept.get(key);
      if (!kept) return;
      const { next, released, life } = releaseStep(kept, name, token, options, this.#now());
      // Read before: without its claim, a run whose session has ended would be unknown.
      const run = life && (await this.#load(key));
      if (released) kept.released = released;
      if (next) (run ?? kept).workflows.set(name, next);
      if (run) await this.#keep(run, life);
    });
  }

  override append({ run, workflow: name }: RunKey, entry: TrailDraft): Promise<void> {
    return this.#inTurn(run, async () => {
      const workflows = this.#kept.get(run)?.workflows;
      const workflow = workflows?.get(name);
      if (workflow) workflows?.set(name, withTrailEntry(workflow, entry, this.#now()));
    });
  }

  /** It need not be able to read the run. */
  override delete(key: string): Promise<DeleteResult> {
    return this.#inTurn(key, async () => {
      const kept = this.#kept.get(key);
      if (kept && isPinned(kept)) return 'pinned';
      const expiresAt = await this.#remove(key);
      if (expiresAt === undefined) return 'unknown';
      const now = this.#now();
      const isNeededNow = kept !== undefined && isNeeded(kept, now);
      const until = Math.max(expiresAt, kept?.expiresAt ?? 0);
      return until > now || isNeededNow ? 'deleted' : 'unknown';
    });
  }

  /** Where a save is overdue, the operation is refused at once, so that nothing piles up. */
  async #inTurn<T>(key: string, operation: () => Promise<T>): Promise<T> {
    this.#saved.assertSettled(key);
    return this.#queue.run(key, operation);
  }

  /** Resolves to when the run expires, as saved; `undefined` where there was none. */
  async #remove(key: string): Promise<number | undefined> {
    const expiresAt = await this.#saved.end(key, this.#now());
    this.#kept.delete(key);
    return expiresAt;
  }

  history({ run: key, workflow: name }: RunKey, limit = 50): Promise<TrailEntry[]> {
    return this.#inTurn(key, async () => {
      return lastEntries((await this.#load(key))?.workflows.get(name), limit);
    });
  }

  readSwitch(workflow: string): Promise<SwitchRecord | undefined> {
    return this.#saved.loadSwitch(workflow);
  }

  async swapSwitch(
    workflow: string,
    expected: string | undefined,
    next: SwitchRecord,
  ): Promise<boolean> {
    this.#saved.assertSwitchSettled(workflow);
    return this.#switches.run(workflow, async () => {
      const found = (await this.#saved.loadSwitch(workflow))?.revision;
      if (found !== expected) return found === next.revision;
      await this.#saved.saveSwitch(workflow, next, this.#now());
      return true;
    });
  }

  async #load(key: string): Promise<AdaptedRun | undefined> {
    const saved = await this.#saved.load(key);
    const kept = this.#kept.get(key);
    if (saved === undefined && kept !== undefined && neverExpires(kept)) throw dropped();
    const run = saved && merge(key, saved, kept);
    if (run && isKnown(run, this.#now())) return run;
    this.#kept.delete(key);
    return undefined;
  }

  /** Remembers the run, and saves it where a part of it is not saved yet or its life changes. */
  async #keep(run: AdaptedRun, life?: Life): Promise<void> {
    const kept = life === undefined ? run : { ...run, ...life };
    if (!isSaved(run) || life !== undefined) await this.#save(kept);
    const { workflows, unsure, released, expiresAt, sessionEnded } = kept;
    run.saved = kept.saved;
    this.#kept.set(run.key, { workflows, unsure, released, expiresAt, sessionEnded });
  }

  /**
   * Saves snapshots before the session record, which lists them: so none of those that it lists is
   * an earlier run's. Saves all of them, because a backend may count each key's time to live from
   * its last save. One after the other, so that none is under way when another one fails.
   */
  async #save(run: AdaptedRun): Promise<void> {
    const { key, workflows, unsure } = run;
    for (const [name, { snapshot }] of workflows)
      await this.#saved.saveWorkflow(key, name, snapshot);
    unsure.clear();
    await this.#saveSession(run);
  }

  async #saveSession(run: AdaptedRun): Promise<void> {
    const { key, workflows, session, openedBy, expiresAt, sessionEnded } = run;
    const names = [...workflows.keys()];
    const ended = names.filter((name) => workflows.get(name)?.ended);
    const more = run.saved?.more;
    const frozen = names.flatMap((name) => {
      const by = workflows.get(name)?.frozen;
      return by === undefined ? [] : [{ workflow: name, ...by }];
    });
    const life = { expiresAt, sessionEnded };
    const saved = { ...session, openedBy, workflows: names, ended, frozen, ...life, more };
    await this.#saved.saveSession(key, saved, this.#now());
    run.saved = saved;
  }

  /**
   * The workflow is unsure until all of the change is saved. The session record says whether the
   * workflow has ended, and who has frozen it.
   */
  async #commitTo(run: AdaptedRun, name: string, next: WorkflowState): Promise<void> {
    const { key, workflows, unsure, saved } = run;
    const before = workflows.get(name);
    unsure.add(name);
    if (before?.snapshot !== next.snapshot)
      await this.#saved.saveWorkflow(key, name, next.snapshot);
    const isSaidToEnd = saved?.ended?.includes(name) ?? false;
    if (saved && (isSaidToEnd !== (next.ended ?? false) || before?.frozen !== next.frozen)) {
      const after = { ...run, workflows: new Map(workflows).set(name, next) };
      const { expiresAt, sessionEnded } = saved;
      await this.#saveSession({ ...after, expiresAt, sessionEnded });
    }
    unsure.delete(name);
    workflows.set(name, next);
  }
}

/** Its claim or freeze is still known here: it must not begin again as if nothing had been. */
function dropped(): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    'the store has dropped a run that a step of unknown outcome holds, or that an operator has ' +
      'frozen: give its keys no time to live, or a much longer one than idleMs',
  );
}

function newRun(
  key: string,
  { principal, minted, clientInfo }: SessionRecord,
  expiresAt: number,
  openedBy?: string,
): AdaptedRun {
  return {
    key,
    session: { principal, minted, clientInfo },
    openedBy,
    saved: undefined,
    workflows: new Map(),
    unsure: new Set(),
    released: undefined,
    expiresAt,
  };
}

/** The saved snapshot counts, unless it may come from a save that seemed to fail. */
function merge(key: string, { session, snapshots }: SavedRun, kept: Kept | undefined): AdaptedRun {
  const { expiresAt, openedBy, sessionEnded } = session;
  const run = {
    // This process has renewed leases since that the saved expiry does not know.
    ...newRun(key, session, Math.max(expiresAt, kept?.expiresAt ?? 0), openedBy),
    saved: session,
    sessionEnded,
    unsure: new Set(kept?.unsure),
    released: kept?.released,
  };
  for (const [name, saved] of snapshots) {
    const known = kept?.workflows.get(name);
    const fromOutside = workflowAt(saved, session.ended?.includes(name) || undefined);
    const by = session.frozen?.find(({ workflow }) => workflow === name);
    const frozen = by && { actor: by.actor, note: by.note };
    if (known === undefined) run.workflows.set(name, { ...fromOutside, frozen });
    else if (run.unsure.has(name)) run.workflows.set(name, known);
    else run.workflows.set(name, { ...known, frozen, snapshot: fromOutside.snapshot });
  }
  return run;
}

function isSaved({ saved, workflows, unsure }: AdaptedRun): boolean {
  return saved !== undefined && workflows.size === saved.workflows.length && unsure.size === 0;
}

/** Forgetting such a run could let a step run twice. */
function isOpen(kept: Kept, now: number): boolean {
  if (isNeeded(kept, now)) return true;
  if (kept.expiresAt <= now) return false;
  const isUnsettled = ({ claim, unsettled }: WorkflowState) =>
    claim !== undefined || unsettled.length > 0;
  return kept.unsure.size > 0 || [...kept.workflows.values()].some(isUnsettled);
}
