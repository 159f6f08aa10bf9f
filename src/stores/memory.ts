import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import { functionOption, parseOptions } from '../options.ts';
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
import { RunTable } from './run-table.ts';
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

export interface MemoryStoreOptions {
  /**
   * How many runs are kept. Default 10,000. With one more, the least recently used run is evicted
   * as a whole and is unknown from then on: one without a principal, as long as there are any. A
   * run in which a claim lives is spared, and the limit exceeded where there are too many of them.
   */
  readonly maxRuns?: number | undefined;
  /** The clock, in milliseconds since the epoch. Default `Date.now`. */
  readonly now?: (() => number) | undefined;
  /** Chains the trail of each run by hashes, which `verifyTrail()` checks. Default `false`. */
  readonly chainTrail?: boolean | undefined;
}

const optionsSchema = z.strictObject({
  maxRuns: z._default(z.int().check(z.minimum(1)), 10_000),
  now: z._default(functionOption<() => number>(), () => Date.now),
  chainTrail: z._default(z.boolean(), false),
});

/**
 * Keeps runs in this process, and loses them with it: for one process and for tests. Steps are
 * exact between all users of one store object. Sets no timers.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown.
 */
export function memoryStore(options: MemoryStoreOptions = {}): AtomicStateStore {
  return new MemoryStore(parseOptions('memoryStore()', optionsSchema, options));
}

/**
 * Whether the store is one that loses its runs with this process, and shares them with no other.
 */
export function isMemoryStore(store: AtomicStateStore): boolean {
  return store instanceof MemoryStore;
}

interface KeptRun extends RunState {
  readonly workflows: Map<string, WorkflowState>;
  expiresAt: number;
}

/** Each method does all of its work before it first yields, which is what makes it atomic. */
class MemoryStore implements AtomicStateStore {
  readonly #runs: RunTable<KeptRun>;
  readonly #now: () => number;
  readonly #isChained: boolean;

  constructor({ maxRuns, now, chainTrail }: Required<z.output<typeof optionsSchema>>) {
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

  /** The runs that have a score, from the lowest one on, behind that of `after`. */
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

/** Where a page ended. */
function parsePlace(after: string): { readonly score: number; readonly run: string } {
  const [score, run] = JSON.parse(after) as [number, string];
  return { score, run };
}

/** To the millisecond, since writing costs nothing here. */
function keepAlive(run: KeptRun, now: number, ttlMs: number | undefined): void {
  run.expiresAt = newExpiry(run, now, ttlMs, 1) ?? run.expiresAt;
}
