/**
 * The memory store, and the table in which it keeps runs. Hides their order of use, by which the
 * table makes room for new ones.
 */
import { randomUUID } from 'node:crypto';
import { type Placed, type UseOrder, YieldOrder } from '../clock.ts';
import {
  claimStep,
  commitStep,
  lastEntries,
  liveUntil,
  newExpiry,
  openedAgain,
  type RunState,
  recordOf,
  releaseStep,
  renewStep,
  ttlOfLook,
  type WorkflowState,
  withEntry,
  workflowRecord,
} from './run-state.ts';
import type {
  AtomicStateStore,
  ClaimRequest,
  ClaimResult,
  CommitRequest,
  CommitResult,
  CountQuery,
  HeldQuery,
  KeysPage,
  ListQuery,
  OpenResult,
  PageQuery,
  ReleaseOptions,
  RunKey,
  RunRecord,
  RunsCount,
  RunsPage,
  RunsQuery,
  SessionRecord,
  StuckQuery,
  TrailDraft,
  TrailEntry,
} from './store.ts';

export interface MemoryStoreSettings {
  readonly maxRuns: number;
  readonly now: () => number;
  readonly chainTrail: boolean;
}

interface KeptRun extends RunState {
  readonly workflows: Map<string, WorkflowState>;
  expiresAt: number;
}

/** Each method does all of its work before it first yields, which is what makes it atomic. */
export class MemoryStore implements AtomicStateStore {
  readonly #runs: RunTable<KeptRun>;
  readonly #now: () => number;
  readonly #isChained: boolean;

  constructor({ maxRuns, now, chainTrail }: MemoryStoreSettings) {
    const isPinned = ({ workflows }: KeptRun, time: number) =>
      liveUntil(workflows.values(), time) > time;
    const isOwned = ({ session }: KeptRun) => session.principal !== undefined;
    this.#runs = new RunTable({ maxRuns, now, isPinned, isOwned });
    this.#now = now;
    this.#isChained = chainTrail;
  }

  async open(
    key: string,
    session: SessionRecord,
    ttlMs: number,
    token?: string,
  ): Promise<OpenResult> {
    const known = this.#runs.get(key);
    if (known) return openedAgain(known, token);
    this.#make(key, session, this.#now() + ttlMs, token);
    return { status: 'opened' };
  }

  async read(key: string, ttlMs: number, about?: string): Promise<RunRecord | undefined> {
    const run = this.#runs.get(key);
    if (!run) return undefined;
    const now = this.#now();
    keepAlive(run, now, ttlOfLook(run, ttlMs, about));
    return recordOf(run, now);
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    const now = this.#now();
    const known = this.#runs.get(request.run);
    if (!known && !request.create) return { status: 'unknown' };
    const run = known ?? this.#make(request.run, request.create ?? {}, now + request.ttlMs);
    const { result, next, ttlMs } = claimStep(run, request, now, randomUUID, this.#isChained);
    if (next) run.workflows.set(request.workflow, next);
    keepAlive(run, now, ttlMs);
    return result;
  }

  async commit(request: CommitRequest): Promise<CommitResult> {
    const run = this.#runs.get(request.run);
    if (!run) return { status: 'unknown' };
    const now = this.#now();
    const { result, next } = commitStep(run, request, now);
    if (next) run.workflows.set(request.workflow, next);
    keepAlive(run, now, request.ttlMs);
    return result;
  }

  async renew(
    { run: key, workflow: name }: RunKey,
    token: string,
    leaseMs: number,
  ): Promise<boolean> {
    const run = this.#runs.get(key);
    const leaseEnd = this.#now() + leaseMs;
    const renewed = run && renewStep(run, name, token, leaseEnd);
    if (!renewed) return false;
    run.workflows.set(name, renewed);
    run.expiresAt = Math.max(run.expiresAt, leaseEnd);
    return true;
  }

  async release(
    { run: key, workflow: name }: RunKey,
    token: string,
    options: ReleaseOptions = {},
  ): Promise<void> {
    const run = this.#runs.get(key);
    const released = run && releaseStep(run, name, token, options, this.#now());
    if (released) run.workflows.set(name, released);
  }

  async append({ run: key, workflow: name }: RunKey, entry: TrailDraft): Promise<void> {
    const workflows = this.#runs.get(key)?.workflows;
    const workflow = workflows?.get(name);
    if (workflow) workflows?.set(name, withEntry(workflow, entry, this.#now()));
  }

  async delete(run: string): Promise<void> {
    this.#runs.delete(run);
  }

  async history({ run, workflow: name }: RunKey, limit = 50): Promise<TrailEntry[]> {
    return lastEntries(this.#runs.get(run)?.workflows.get(name), limit);
  }

  async *runs({ workflow: name, state, forMs = 0 }: RunsQuery): AsyncGenerator<string> {
    const latest = this.#now() - forMs;
    const found: { readonly key: string; readonly since: number }[] = [];
    for (const [key, { workflows }] of this.#runs.entries()) {
      const snapshot = workflows.get(name)?.snapshot;
      if (snapshot?.state !== state || snapshot.updatedAt > latest) continue;
      found.push({ key, since: snapshot.updatedAt });
    }
    for (const { key } of found.sort((a, b) => a.since - b.since)) yield key;
  }

  async held({ workflow, ...page }: HeldQuery): Promise<RunsPage> {
    const now = this.#now();
    return this.#page(page, now, workflow, ({ claim }) => {
      const isHeld = claim?.uncertain === 'hold' && claim.leaseEnd <= now;
      return isHeld ? claim.leaseEnd : undefined;
    });
  }

  async stuck({ workflow, states, forMs, ...page }: StuckQuery): Promise<RunsPage> {
    const now = this.#now();
    return this.#page(page, now, workflow, ({ snapshot: { state, updatedAt }, ended }) => {
      const isStuck = !ended && updatedAt <= now - forMs && (states?.includes(state) ?? true);
      return isStuck ? updatedAt : undefined;
    });
  }

  async count({ workflow: name, forMs }: CountQuery): Promise<RunsCount> {
    const now = this.#now();
    const states = new Map<string, { runs: number; stuck: number }>();
    let held = 0;
    let running = 0;
    let oldestClaim: number | undefined;
    for (const [, { workflows }] of this.#runs.entries()) {
      const workflow = workflows.get(name);
      if (workflow === undefined) continue;
      const { snapshot, claim, ended } = workflow;
      if (claim !== undefined) {
        if (claim.leaseEnd > now) running++;
        else if (claim.uncertain === 'hold') held++;
        oldestClaim = Math.min(oldestClaim ?? claim.since, claim.since);
      }
      if (ended) continue;
      const counted = states.get(snapshot.state) ?? { runs: 0, stuck: 0 };
      counted.runs++;
      if (snapshot.updatedAt <= now - forMs) counted.stuck++;
      states.set(snapshot.state, counted);
    }
    return {
      states: [...states].map(([state, counts]) => ({ state, ...counts })),
      held,
      running,
      ...(oldestClaim !== undefined && { oldestClaim }),
      now,
    };
  }

  async list({ principal, limit, after }: ListQuery): Promise<KeysPage> {
    const runs: string[] = [];
    for (const [key, { session }] of this.#runs.entries())
      if (session.principal === principal && (after === undefined || key > after)) runs.push(key);
    const given = runs.sort().slice(0, limit);
    return { runs: given, ...(runs.length > limit && { next: given.at(-1) ?? '' }) };
  }

  /** A page of the runs that have a score, in the order of their scores. */
  #page(
    { limit, after }: PageQuery,
    now: number,
    name: string,
    scoreOf: (workflow: WorkflowState) => number | undefined,
  ): RunsPage {
    const found: { readonly score: number; readonly run: string; workflow: WorkflowState }[] = [];
    for (const [run, { workflows }] of this.#runs.entries()) {
      const workflow = workflows.get(name);
      const score = workflow && scoreOf(workflow);
      if (workflow !== undefined && score !== undefined) found.push({ score, run, workflow });
    }
    found.sort((a, b) => a.score - b.score || (a.run < b.run ? -1 : 1));
    const { score = Number.NEGATIVE_INFINITY, run = '' } =
      after === undefined ? {} : parsePlace(after);
    const rest = found.filter(
      (each) => each.score > score || (each.score === score && each.run > run),
    );
    const given = rest.slice(0, limit);
    const last = given.at(-1);
    return {
      runs: given.map((each) => ({ run: each.run, ...workflowRecord(each.workflow, now) })),
      ...(last !== undefined &&
        rest.length > limit && { next: JSON.stringify([last.score, last.run]) }),
      now,
    };
  }

  #make(
    key: string,
    { principal, minted }: SessionRecord,
    expiresAt: number,
    openedBy?: string,
  ): KeptRun {
    const run: KeptRun = {
      session: Object.freeze({ principal, minted }),
      openedBy,
      workflows: new Map(),
      expiresAt,
    };
    this.#runs.set(key, run);
    return run;
  }
}

/** Where the page before ended. */
function parsePlace(after: string): { readonly score: number; readonly run: string } {
  const [score, run] = JSON.parse(after) as [number, string];
  return { score, run };
}

/** Always writes the new expiry, since writing costs nothing here. */
function keepAlive(run: KeptRun, now: number, ttlMs: number | undefined): void {
  run.expiresAt = newExpiry(run, now, ttlMs, 1) ?? run.expiresAt;
}

/** What the table needs of a run. */
interface Expiring {
  /** Milliseconds since the epoch, by the table's clock. From then on the run is unknown. */
  readonly expiresAt: number;
}

interface RunTableOptions<Run> {
  /** How many runs the table keeps, as long as enough of them are not pinned. */
  readonly maxRuns: number;
  readonly now: () => number;
  /** Whether the table must not evict the run yet. */
  readonly isPinned: (run: Run, now: number) => boolean;
  /** Whether the run belongs to a principal: the table evicts such runs last. Default: none. */
  readonly isOwned?: (run: Run) => boolean;
}

interface RunEntry<Run> extends Placed<RunEntry<Run>> {
  readonly key: string;
  readonly order: UseOrder<RunEntry<Run>>;
  run: Run;
}

/** How many runs of each kind an insertion looks at to find one that it may evict. */
const LOOKS = 8;

/**
 * A sweep looks at every run. It comes after so many insertions for each run in the table, so an
 * insertion costs four looks on average.
 */
const SWEEP_SHARE = 1 / 4;

/**
 * Runs by their key, and in the order of their last use. An expired run counts as absent. Later
 * insertions free its memory, so the table needs no timer.
 */
export class RunTable<Run extends Expiring> {
  readonly #entries = new Map<string, RunEntry<Run>>();
  readonly #options: RunTableOptions<Run>;
  readonly #order = new YieldOrder<RunEntry<Run>>();
  #insertionsSinceSweep = 0;

  constructor(options: RunTableOptions<Run>) {
    this.#options = options;
  }

  /** How many runs are in memory, including expired ones that no sweep has removed yet. */
  get size(): number {
    return this.#entries.size;
  }

  /** The run, which becomes the most recently used one; `undefined` if unknown or expired. */
  get(key: string): Run | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (entry.run.expiresAt <= this.#options.now()) {
      this.#remove(entry);
      return undefined;
    }
    entry.order.touch(entry);
    return entry.run;
  }

  /** Replaces the run under the key. A new key may make a full table evict another run. */
  set(key: string, run: Run): void {
    const known = this.#entries.get(key);
    if (known !== undefined) {
      known.run = run;
      known.order.touch(known);
      return;
    }
    this.#insertionsSinceSweep += 1;
    if (this.#insertionsSinceSweep >= this.size * SWEEP_SHARE) this.#sweep();
    this.#evict();
    // With all members from the start, so that all entries have one hidden class.
    const order = this.#order.of(this.#options.isOwned?.(run) === true);
    const entry: RunEntry<Run> = { key, run, order, older: undefined, newer: undefined };
    this.#entries.set(key, entry);
    order.touch(entry);
  }

  delete(key: string): void {
    const entry = this.#entries.get(key);
    if (entry !== undefined) this.#remove(entry);
  }

  /** All runs that have not expired. This does not count as a use. */
  *entries(): Generator<readonly [key: string, run: Run]> {
    const now = this.#options.now();
    for (const { key, run } of this.#entries.values()) if (run.expiresAt > now) yield [key, run];
  }

  #sweep(): void {
    this.#insertionsSinceSweep = 0;
    const now = this.#options.now();
    for (const entry of this.#entries.values()) if (entry.run.expiresAt <= now) this.#remove(entry);
  }

  /** A pinned run counts as used. If it finds only pinned runs, the table grows for now. */
  #evict(): void {
    const { maxRuns, now, isPinned } = this.#options;
    for (const order of this.#order.inTurn) {
      for (let looks = 0; looks < LOOKS && this.size >= maxRuns; looks += 1) {
        const { oldest } = order;
        if (oldest === undefined) break;
        if (isPinned(oldest.run, now())) order.touch(oldest);
        else this.#remove(oldest);
      }
    }
  }

  #remove(entry: RunEntry<Run>): void {
    this.#entries.delete(entry.key);
    entry.order.remove(entry);
  }
}
