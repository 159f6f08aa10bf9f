import type {
  AtomicStateStore,
  ClaimRequest,
  ClaimResult,
  CommitRequest,
  CommitResult,
  DeleteResult,
  EndResult,
  OpenResult,
  RecordRequest,
  RecordResult,
  ReleaseOptions,
  RenewOptions,
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
  endSession,
  isKnown,
  isPinned,
  keepAlive,
  type Run,
  recordOf,
  recordStep,
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
  readonly contract = 1;
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
      keepAlive(run, ttlMs, now, about);
      return recordOf(run, now);
    });
  }

  claim(request: ClaimRequest): Promise<ClaimResult> {
    return this.#change(request.run, (slot, now): ClaimResult => {
      const run = made(slot, request.create);
      if (run === null) return { status: 'unknown' };
      const result = claimStep(run, request, now);
      const { step, ttlMs, keyMs = 0, workflow } = request;
      const hasKey = result.status === 'claimed' && step.uncertain === 'retry';
      keepAlive(run, hasKey ? Math.max(ttlMs, keyMs) : ttlMs, now, workflow);
      return result;
    });
  }

  commit(request: CommitRequest): Promise<CommitResult> {
    return this.#change(request.run, ({ run }, now): CommitResult => {
      if (run === null) return { status: 'unknown' };
      const result = commitStep(run, request, now);
      keepAlive(run, request.ttlMs, now);
      return result;
    });
  }

  record(request: RecordRequest): Promise<RecordResult> {
    return this.#change(request.run, (slot, now): RecordResult => {
      const run = made(slot, request.create);
      if (run === null) return { status: 'unknown' };
      const result = recordStep(run, request, now);
      keepAlive(run, request.ttlMs, now, request.workflow);
      return result;
    });
  }

  renew(
    { run: key, workflow }: RunKey,
    token: string,
    leaseMs: number,
    options: RenewOptions = {},
  ): Promise<boolean> {
    return this.#change(key, ({ run }, now) => {
      return run !== null && renewStep(run, workflow, token, now + leaseMs, options, now);
    });
  }

  release(
    { run: key, workflow: name }: RunKey,
    token: string,
    options: ReleaseOptions = {},
  ): Promise<void> {
    return this.#change(key, ({ run }, now) => {
      const workflow = workflowOf(run, name);
      if (run && workflow) releaseStep(run, workflow, token, options, now);
    });
  }

  append({ run: key, workflow: name }: RunKey, entry: TrailDraft): Promise<void> {
    return this.#change(key, ({ run }, now) => {
      const workflow = workflowOf(run, name);
      if (workflow) addEntry(workflow, entry, now);
    });
  }

  end(key: string, options: { ifUnclaimed?: boolean | undefined } = {}): Promise<EndResult> {
    return this.#change(key, (slot, now): EndResult => {
      if (slot.run === null) return 'unknown';
      const isClaimed = slot.run.workflows.some(([, { claim }]) => claim);
      if (options.ifUnclaimed && isClaimed) return 'claimed';
      if (!endSession(slot.run, now)) slot.run = null;
      return 'ended';
    });
  }

  delete(key: string): Promise<DeleteResult> {
    return this.#change(key, (slot): DeleteResult => {
      if (slot.run === null) return 'unknown';
      if (isPinned(slot.run)) return 'pinned';
      slot.run = null;
      return 'deleted';
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
      const slot: Slot = { run: stored !== null && isKnown(stored, now) ? stored : null };
      const result = operation(slot, now);
      const next = JSON.stringify(slot.run);
      if (next === text || (await this.#documents.put(key, number + 1, next))) return result;
    }
  }
}

/** The run of a claim or a record, which makes a missing one where it says for whom. */
function made(slot: Slot, create: SessionRecord | undefined): Run | null {
  if (create) slot.run ??= { session: create, workflows: [], expiresAt: 0 };
  return slot.run;
}
