import { randomUUID } from 'node:crypto';
import * as z from 'zod';
import { functionOption, parseOptions } from '../options.ts';
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
import {
  claimStep,
  commitStep,
  hasEnded,
  lastEntries,
  liveUntil,
  newWorkflow,
  openedAgain,
  recordsOf,
  releaseStep,
  renewStep,
  type WorkflowState,
} from './workflow-state.ts';

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
  maxRuns: z.int().min(1).default(10_000),
  now: functionOption<() => number>().default(() => Date.now),
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

interface Run {
  readonly session: SessionRecord;
  /** The token that opened it, where one did. */
  readonly openedBy: string | undefined;
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
    keepAlive(run, now, hasEnded(run, about) ? undefined : ttlMs);
    return { session: run.session, workflows: recordsOf(run.workflows, now), now };
  }

  async claim(request: ClaimRequest): Promise<ClaimResult> {
    const now = this.#now();
    const known = this.#runs.get(request.run);
    if (!known && !request.create) return { status: 'unknown' };
    const run = known ?? this.#make(request.run, request.create ?? {}, now + request.ttlMs);
    const workflow = run.workflows.get(request.workflow) ?? newWorkflow(request.initial, now);
    const { result, next } = claimStep(workflow, request, now, randomUUID);
    if (next) run.workflows.set(request.workflow, next);
    keepAlive(run, now, workflow.ended ? undefined : request.ttlMs);
    return result;
  }

  async commit(request: CommitRequest): Promise<CommitResult> {
    const run = this.#runs.get(request.run);
    if (!run) return { status: 'unknown' };
    const now = this.#now();
    const { result, next } = commitStep(run.workflows.get(request.workflow), request, now);
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
    const workflow = run?.workflows.get(name);
    const leaseEnd = this.#now() + leaseMs;
    const renewed = workflow && renewStep(workflow, token, leaseEnd);
    if (!run || !renewed) return false;
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
    const workflow = run?.workflows.get(name);
    if (run && workflow) run.workflows.set(name, releaseStep(workflow, token, options));
  }

  async delete(run: string): Promise<void> {
    this.#runs.delete(run);
  }

  async history({ run, workflow: name }: RunKey, limit = 50): Promise<TrailEntry[]> {
    const workflow = this.#runs.get(run)?.workflows.get(name);
    return workflow ? lastEntries(workflow, limit) : [];
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

/** Without a time the run lives on for as long as it would have, and as a claim of it. */
function keepAlive(run: Run, now: number, ttlMs: number | undefined): void {
  const until = ttlMs === undefined ? run.expiresAt : now + ttlMs;
  run.expiresAt = Math.max(until, liveUntil(run.workflows.values(), now));
}
