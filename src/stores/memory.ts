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
} from './run-state.ts';
import { RunTable } from './run-table.ts';
import type {
  AtomicStateStore,
  ClaimRequest,
  ClaimResult,
  CommitRequest,
  CommitResult,
  OpenResult,
  ReleaseOptions,
  RunKey,
  RunRecord,
  RunsQuery,
  SessionRecord,
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
}

const optionsSchema = z.strictObject({
  maxRuns: z._default(z.int().check(z.minimum(1)), 10_000),
  now: z._default(functionOption<() => number>(), () => Date.now),
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

interface Run extends RunState {
  readonly workflows: Map<string, WorkflowState>;
  expiresAt: number;
}

/** Each method does all of its work before it first yields, which is what makes it atomic. */
class MemoryStore implements AtomicStateStore {
  readonly #runs: RunTable<Run>;
  readonly #now: () => number;

  constructor({ maxRuns, now }: Required<z.output<typeof optionsSchema>>) {
    const isPinned = ({ workflows }: Run, time: number) =>
      liveUntil(workflows.values(), time) > time;
    const isOwned = ({ session }: Run) => session.principal !== undefined;
    this.#runs = new RunTable({ maxRuns, now, isPinned, isOwned });
    this.#now = now;
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
    const { result, next, ttlMs } = claimStep(run, request, now, randomUUID);
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
    options?: ReleaseOptions,
  ): Promise<void> {
    const run = this.#runs.get(key);
    const released = run && releaseStep(run, name, token, options);
    if (released) run.workflows.set(name, released);
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

  #make(
    key: string,
    { principal, minted }: SessionRecord,
    expiresAt: number,
    openedBy?: string,
  ): Run {
    const run: Run = {
      session: Object.freeze({ principal, minted }),
      openedBy,
      workflows: new Map(),
      expiresAt,
    };
    this.#runs.set(key, run);
    return run;
  }
}

/** To the millisecond, since writing costs nothing here. */
function keepAlive(run: Run, now: number, ttlMs: number | undefined): void {
  run.expiresAt = newExpiry(run, now, ttlMs, 1) ?? run.expiresAt;
}
