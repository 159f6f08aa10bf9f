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
  SessionRecord,
  TrailDraft,
  TrailEntry,
} from 'mcp-interlock';
import type { Documents } from './documents.ts';
import {
  addEntry,
  claimStep,
  commitStep,
  keepAlive,
  type Run,
  recordOf,
  releaseStep,
  renewStep,
  workflowOf,
} from './runs.ts';

/** A run before an operation and after it; `null` where there is none. */
interface Slot {
  run: Run | null;
}

/**
 * Makes steps exact on any backend that can put a revision exactly once. Nothing is locked, so
 * nothing is left locked by a crash.
 */
export function documentStore(
  documents: Documents,
  now: () => number = Date.now,
): AtomicStateStore {
  return new DocumentStore(documents, now);
}

class DocumentStore implements AtomicStateStore {
  readonly #documents: Documents;
  readonly #now: () => number;

  constructor(documents: Documents, now: () => number) {
    this.#documents = documents;
    this.#now = now;
  }

  open(key: string, session: SessionRecord, ttlMs: number, openedBy?: string): Promise<OpenResult> {
    return this.#change(key, (slot, now): OpenResult => {
      const isOwn = openedBy !== undefined && slot.run?.openedBy === openedBy;
      if (slot.run !== null) return { status: isOwn ? 'opened' : 'taken' };
      slot.run = { session, openedBy, workflows: [], expiresAt: now + ttlMs };
      return { status: 'opened' };
    });
  }

  read(key: string, ttlMs: number, about?: string): Promise<RunRecord | undefined> {
    return this.#change(key, ({ run }, now) => {
      if (run === null) return undefined;
      keepAlive(run, about !== undefined && workflowOf(run, about)?.ended ? 0 : ttlMs, now);
      return recordOf(run, now);
    });
  }

  claim(request: ClaimRequest): Promise<ClaimResult> {
    return this.#change(request.run, (slot, now): ClaimResult => {
      if (slot.run === null && request.create === undefined) return { status: 'unknown' };
      slot.run ??= { session: request.create ?? {}, workflows: [], expiresAt: 0 };
      const result = claimStep(slot.run, request, now);
      const hasEnded = workflowOf(slot.run, request.workflow)?.ended;
      keepAlive(slot.run, hasEnded ? 0 : request.ttlMs, now);
      return result;
    });
  }

  commit(request: CommitRequest): Promise<CommitResult> {
    return this.#change(request.run, ({ run }, now): CommitResult => {
      if (run === null) return { status: 'unknown' };
      const workflow = workflowOf(run, request.workflow);
      const result = workflow ? commitStep(workflow, request, now) : ({ status: 'lost' } as const);
      keepAlive(run, request.ttlMs, now);
      return result;
    });
  }

  renew({ run: key, workflow }: RunKey, token: string, leaseMs: number): Promise<boolean> {
    return this.#change(key, ({ run }, now) => {
      return run !== null && renewStep(run, workflowOf(run, workflow), token, now + leaseMs);
    });
  }

  release(
    { run: key, workflow: name }: RunKey,
    token: string,
    options: ReleaseOptions = {},
  ): Promise<void> {
    return this.#change(key, ({ run }, now) => {
      const workflow = workflowOf(run, name);
      if (workflow) releaseStep(workflow, token, options, now);
    });
  }

  append({ run: key, workflow: name }: RunKey, entry: TrailDraft): Promise<void> {
    return this.#change(key, ({ run }, now) => {
      const workflow = workflowOf(run, name);
      if (workflow) addEntry(workflow, entry, now);
    });
  }

  delete(key: string): Promise<void> {
    return this.#change(key, (slot) => {
      slot.run = null;
    });
  }

  history({ run: key, workflow }: RunKey, limit = 50): Promise<TrailEntry[]> {
    return this.#change(key, ({ run }) => {
      const trail = workflowOf(run, workflow)?.trail ?? [];
      return trail.slice(Math.max(0, trail.length - limit));
    });
  }

  /**
   * Reads a run, lets the operation change it, and puts that as the next revision. Where another
   * process was faster, it begins again with what that one left: one of those who race always
   * succeeds. It writes nothing where nothing changed.
   */
  async #change<Result>(
    key: string,
    operation: (slot: Slot, now: number) => Result,
  ): Promise<Result> {
    for (;;) {
      const { number, text = 'null' } = await this.#documents.newest(key);
      const now = this.#now();
      const stored: Run | null = JSON.parse(text);
      const slot: Slot = { run: stored !== null && stored.expiresAt > now ? stored : null };
      const result = operation(slot, now);
      const next = JSON.stringify(slot.run);
      if (next === text || (await this.#documents.put(key, number + 1, next))) return result;
    }
  }
}
