/**
 * The rulebook: each operation of the contract as a change of one run, once for all stores that
 * keep the rules in this process. Hides which rule an operation asks. A store adds how it changes
 * one run at a time.
 */
import { randomUUID } from 'node:crypto';
import { isPinned, newLife, type RunState, ttlOfLook } from './run-life.ts';
import {
  claimStep,
  commitStep,
  endSession,
  freezeStep,
  type MakingRules,
  type Operated,
  openedAgain,
  recordOf,
  recordStep,
  releaseStep,
  renewStep,
  withTrailEntry,
} from './run-state.ts';
import type {
  AtomicStateStore,
  ClaimRequest,
  ClaimResult,
  CommitRequest,
  CommitResult,
  DeleteResult,
  EndOptions,
  EndResult,
  FreezeRequest,
  FreezeResult,
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
} from './store.ts';

/** What an operation makes of a run. `next` and `life` come on top of what it `made`. */
export interface Change<Result> extends Operated<Result> {
  /** The run, where the operation makes it. Nothing of a known run stays beside it. */
  readonly made?: RunState | undefined;
  /** Which workflow `next` is. */
  readonly workflow?: string | undefined;
  /** Whether the run is gone now, or was unknown and nothing of it may stay. */
  readonly isRemoved?: boolean | undefined;
  /** Whether it turns on all workflows of the run. */
  readonly judgesAll?: boolean | undefined;
}

/**
 * A pure function, which a store may ask again where another process was faster. It gets the run,
 * or `undefined` where that is unknown, and the store's time.
 */
export type Operation<Result> = (run: RunState | undefined, now: number) => Change<Result>;

/** What a store may know of an operation before it reads the run. */
export interface Guess {
  /** The run is probably not there yet. */
  readonly isNew?: boolean;
  /** The caller makes a step of this workflow with this token. */
  readonly step?: { readonly workflow: string; readonly token: string };
  /** The operation grants a lease, which must end by the store's time. */
  readonly isLease?: boolean;
  /** The operation mostly changes nothing. */
  readonly isLook?: boolean;
}

const NO_GUESS: Guess = {};

export abstract class RulebookStore implements AtomicStateStore {
  readonly contract = 1;
  /** For operations that may make a workflow. */
  readonly #rules: MakingRules;

  /** @param enough the share of its time to live that a run has left where a use writes none */
  constructor(isChained: boolean, enough?: number) {
    this.#rules = { isChained, enough, newKey: randomUUID };
  }

  /** Changes one run as the operation says, atomically, and resolves to its result. */
  protected abstract change<Result>(
    run: string,
    operation: Operation<Result>,
    guess: Guess,
  ): Promise<Result>;

  abstract history(key: RunKey, limit?: number): Promise<TrailEntry[]>;

  open(run: string, session: SessionRecord, ttlMs: number, token?: string): Promise<OpenResult> {
    const open: Operation<OpenResult> = (known, now) =>
      known
        ? { result: openedAgain(known, token) }
        : { result: { status: 'opened' }, made: newRun(session, now + ttlMs, token ?? '') };
    return this.change(run, open, { isNew: true });
  }

  read(run: string, ttlMs: number, about?: string): Promise<RunRecord | undefined> {
    const look: Operation<RunRecord | undefined> = (known, now) => {
      if (!known) return { result: undefined };
      const use = { ttlMs: ttlOfLook(known, ttlMs, about), enough: this.#rules.enough };
      return { result: recordOf(known, now), life: newLife(known, now, use) };
    };
    return this.change(run, look, { isLook: true });
  }

  claim(request: ClaimRequest): Promise<ClaimResult> {
    const { run, workflow, token } = request;
    const claim = making<ClaimRequest, ClaimResult>(request, claimStep, this.#rules);
    return this.change(run, claim, { step: { workflow, token }, isLease: true });
  }

  commit(request: CommitRequest): Promise<CommitResult> {
    const { run, workflow, token } = request;
    return this.change(run, this.committing(request), { step: { workflow, token } });
  }

  protected committing(request: CommitRequest): Operation<CommitResult> {
    return (known, now) => {
      if (!known) return { result: { status: 'unknown' } };
      const { result, next, life } = commitStep(known, request, now, this.#rules.enough);
      // An earlier expiry must wait for the leases and keys of the other workflows.
      const judgesAll = now + request.ttlMs < known.expiresAt;
      return { result, workflow: request.workflow, next, life, judgesAll };
    };
  }

  record(request: RecordRequest): Promise<RecordResult> {
    const { run, workflow, token } = request;
    const record = making<RecordRequest, RecordResult>(request, recordStep, this.#rules);
    return this.change(run, record, { step: { workflow, token } });
  }

  freeze(request: FreezeRequest): Promise<FreezeResult> {
    const freeze = making<FreezeRequest, FreezeResult>(request, freezeStep, this.#rules);
    return this.change(request.run, freeze, NO_GUESS);
  }

  renew(
    { run, workflow }: RunKey,
    token: string,
    leaseMs: number,
    options: RenewOptions = {},
  ): Promise<boolean> {
    const renew: Operation<boolean> = (known, now) => {
      if (!known) return { result: false };
      const { result, next, life } = renewStep(known, workflow, token, leaseMs, options, now);
      return { result, workflow, next, life };
    };
    return this.change(run, renew, { step: { workflow, token }, isLease: true });
  }

  release({ run, workflow }: RunKey, token: string, options: ReleaseOptions = {}): Promise<void> {
    const release: Operation<void> = (known, now) => {
      if (!known) return { result: undefined };
      const changed = releaseStep(known, workflow, token, options, now);
      // A claim that comes meanwhile makes the workflow that is not there yet.
      return { workflow, ...changed, judgesAll: changed.released !== undefined };
    };
    return this.change(run, release, { step: { workflow, token } });
  }

  append({ run, workflow }: RunKey, entry: TrailDraft): Promise<void> {
    return this.change(run, appending(workflow, [entry]), NO_GUESS);
  }

  end(run: string, options: EndOptions = {}): Promise<EndResult> {
    const end: Operation<EndResult> = (known, now) => {
      if (!known) return { result: 'unknown', isRemoved: true };
      const { result, life, made } = endSession(known, options, now);
      const isRemoved = result === 'ended' && life === undefined && made === undefined;
      return { result, life, made, isRemoved };
    };
    return this.change(run, end, NO_GUESS);
  }

  delete(run: string): Promise<DeleteResult> {
    return this.change<DeleteResult>(run, deletion, NO_GUESS);
  }
}

/** An operation on a workflow, which makes the run where the request says whose it is. */
function making<Request extends Pick<ClaimRequest, 'workflow' | 'create' | 'ttlMs'>, Result>(
  request: Request,
  operate: (run: RunState, request: Request, now: number, rules: MakingRules) => Operated<Result>,
  rules: MakingRules,
): Operation<Result | { readonly status: 'unknown' }> {
  return (known, now) => {
    const { workflow, create, ttlMs } = request;
    const made = known || !create ? undefined : newRun(create, now + ttlMs);
    const on = known ?? made;
    if (!on) return { result: { status: 'unknown' } };
    const { result, next, life } = operate(on, request, now, rules);
    return { result, made, workflow, next, life };
  };
}

const deletion: Operation<DeleteResult> = (known) => {
  if (!known) return { result: 'unknown', isRemoved: true };
  return isPinned(known) ? { result: 'pinned' } : { result: 'deleted', isRemoved: true };
};

/** Adds entries of calls that no claim was granted for. */
export function appending(name: string, entries: readonly TrailDraft[]): Operation<void> {
  return (known, now) => {
    const workflow = known?.workflows.get(name);
    if (!workflow) return { result: undefined };
    const next = entries.reduce((each, entry) => withTrailEntry(each, entry, now), workflow);
    return { result: undefined, workflow: name, next };
  };
}

function newRun(
  { principal, minted, clientInfo }: SessionRecord,
  expiresAt: number,
  openedBy?: string,
): RunState {
  const session = Object.freeze({ principal, minted, clientInfo });
  return { session, openedBy, workflows: new Map(), expiresAt };
}
