import type {
  CallNote,
  ClaimRequest,
  ClaimResult,
  ClaimView,
  CommitRequest,
  CommitResult,
  FsmSnapshot,
  OpenResult,
  ReleaseOptions,
  RunRecord,
  SessionRecord,
  StepDescription,
  TrailDraft,
  TrailEntry,
  WorkflowRecord,
} from './store.ts';
import {
  copyJson,
  firstHash,
  orderedNote,
  stampEntry,
  type TrailHead,
  takenOver,
} from './trail.ts';

/**
 * One workflow of a run, as it is kept in this process. Never changed in place: each operation
 * makes the next one.
 */
export interface WorkflowState {
  readonly snapshot: FsmSnapshot;
  readonly claim: Claim | undefined;
  /** As {@link WorkflowRecord.ended}. */
  readonly ended?: boolean | undefined;
  /** Steps whose outcome nobody saw, oldest first. */
  readonly unsettled: readonly Unsettled[];
  /** Tokens that were committed or released, oldest first. */
  readonly settled: readonly SettledToken[];
  readonly trail: readonly TrailEntry[];
  readonly head: TrailHead;
}

interface Claim extends StepDescription {
  readonly token: string;
  readonly idempotencyKey: string;
  readonly since: number;
  readonly leaseEnd: number;
  readonly entry: CallNote | undefined;
}

type Unsettled = Pick<Claim, 'tool' | 'digest' | 'idempotencyKey'>;

interface SettledToken {
  readonly token: string;
  /**
   * What was answered: the version where the token committed, `undefined` where it was released.
   */
  readonly version?: number;
}

/** A run with its workflows, as a store holds it for the length of one operation. */
export interface RunState {
  readonly session: SessionRecord;
  /** The token that opened it, where one did. */
  readonly openedBy: string | undefined;
  readonly workflows: ReadonlyMap<string, WorkflowState>;
  /** Milliseconds since the epoch, on the store's clock. */
  readonly expiresAt: number;
}

type Workflows = Pick<RunState, 'workflows'>;

/** What an operation answers, and the workflow after it where anything changed. */
interface Operated<Result> {
  readonly result: Result;
  readonly next?: WorkflowState;
}

/** A share of a time to live: while more remains, a store may leave the expiry as it is. */
const FRESH_ENOUGH = 0.9;

const TRAIL_KEPT = 50;
/** The contract's 16, with room for tokens that were released without ever claiming. */
const TOKENS_KEPT = 32;
const KEYS_KEPT = 16;

/** What opening a run is answered that is there already. */
export function openedAgain(
  { openedBy }: Pick<RunState, 'openedBy'>,
  token: string | undefined,
): OpenResult {
  return { status: token !== undefined && token === openedBy ? 'opened' : 'taken' };
}

/** One for all runs, most of which never have a step of unknown outcome. */
const NONE: readonly never[] = Object.freeze([]);

/** Where every trail begins, so one for all. */
const NEW_TRAIL: TrailHead = Object.freeze({ seq: 0, attempts: 0 });
const NEW_CHAIN: TrailHead = Object.freeze({ seq: 0, attempts: 0, hash: firstHash(true) });

/** A workflow of which no claims and no trail are known. */
export function workflowAt(
  snapshot: FsmSnapshot,
  ended?: boolean,
  isChained = false,
): WorkflowState {
  return {
    snapshot: copySnapshot(snapshot),
    claim: undefined,
    ended,
    unsettled: NONE,
    settled: NONE,
    trail: NONE,
    head: isChained ? NEW_CHAIN : NEW_TRAIL,
  };
}

/** Also how long the run is to live on for the sake of this claim: {@link newExpiry} takes it. */
export function claimStep(
  { workflows }: Workflows,
  request: ClaimRequest,
  now: number,
  newKey: () => string,
  isChained = false,
): Operated<ClaimResult> & { readonly ttlMs: number | undefined } {
  const workflow =
    workflows.get(request.workflow) ??
    workflowAt({ ...request.initial, updatedAt: now }, undefined, isChained);
  const ttlMs = workflow.ended ? undefined : request.ttlMs;
  return { ...claimWorkflow(workflow, request, now, newKey), ttlMs };
}

function claimWorkflow(
  workflow: WorkflowState,
  request: ClaimRequest,
  now: number,
  newKey: () => string,
): Operated<ClaimResult> {
  const { snapshot, claim } = workflow;
  const { token, states, step } = request;
  const refuse = (result: ClaimResult) => ({ result });

  if (findSettled(workflow, token)) return refuse({ status: 'state', snapshot, now });
  if (claim && claim.token !== token) {
    if (isLive(claim, now)) {
      return refuse({ status: 'busy', snapshot, now, remainingMs: claim.leaseEnd - now });
    }
    if (claim.uncertain === 'hold') {
      return refuse({ status: 'held', snapshot, now, claim: viewOf(claim, now) });
    }
  }
  const isOwn = claim?.token === token;
  if (states && !states.includes(snapshot.state)) return refuse({ status: 'state', snapshot, now });

  const unsettled = claim && !isOwn ? remember(workflow.unsettled, claim) : workflow.unsettled;
  const idempotencyKey = isOwn ? claim.idempotencyKey : (findKey(unsettled, step) ?? newKey());
  const leaseEnd = now + request.leaseMs;
  const { tool, digest, uncertain } = step;
  const entry = request.entry && orderedNote(request.entry);
  const taken = isOwn
    ? { ...claim, leaseEnd }
    : {
        token,
        tool,
        digest,
        uncertain,
        idempotencyKey,
        since: now,
        leaseEnd,
        entry,
      };
  // The outcome of the claim that gives way stays unknown.
  const left =
    isOwn || claim?.entry === undefined
      ? workflow
      : withEntry(workflow, takenOver(snapshot.state, claim.entry), now);
  return {
    result: { status: 'claimed', snapshot, now, idempotencyKey },
    next: { ...left, claim: taken, unsettled },
  };
}

export function commitStep(
  { workflows }: Workflows,
  request: CommitRequest,
  now: number,
): Operated<CommitResult> {
  const workflow = workflows.get(request.workflow);
  const { token, as = token, ended = false } = request;
  const before = workflow && findSettled(workflow, as);
  if (before?.version !== undefined)
    return { result: { status: 'committed', version: before.version, repeated: true } };
  if (workflow?.claim?.token !== token) return { result: { status: 'lost' } };

  const version = (workflow.snapshot.version ?? 0) + 1;
  const snapshot = copySnapshot({ ...request.snapshot, updatedAt: now, version });
  const { trail, head } = withEntry(workflow, request.trail, now);
  const left = letGo(workflow, as === token ? { token, version } : { token }, request.settles);
  const settled = as === token ? left.settled : spend(left.settled, { token: as, version });
  const next = { ...left, settled, snapshot, trail, head, ended };
  return { result: { status: 'committed', version }, next };
}

/** The workflow with the lease moved, or `undefined` where the claim is not the token's. */
export function renewStep(
  { workflows }: Workflows,
  name: string,
  token: string,
  leaseEnd: number,
): WorkflowState | undefined {
  const workflow = workflows.get(name);
  if (workflow?.claim?.token !== token) return undefined;
  return { ...workflow, claim: { ...workflow.claim, leaseEnd } };
}

/** The workflow without the claim and with the token spent; `undefined` where nothing changes. */
export function releaseStep(
  { workflows }: Workflows,
  name: string,
  token: string,
  { settles, entry }: ReleaseOptions,
  now: number,
): WorkflowState | undefined {
  const workflow = workflows.get(name);
  if (workflow?.claim?.token === token) {
    const left = letGo(workflow, { token }, settles);
    return entry === undefined ? left : withEntry(left, entry, now);
  }
  if (workflow === undefined || findSettled(workflow, token)) return undefined;
  return { ...workflow, settled: spend(workflow.settled, { token }) };
}

/** The run as readers see it; `seenAt` is when it was found, if that was after `now`. */
export function recordOf(
  { session, workflows }: Pick<RunState, 'session' | 'workflows'>,
  now: number,
  seenAt = now,
): RunRecord {
  // Without a prototype, so that a workflow may be called `__proto__`.
  const records: Record<string, WorkflowRecord> = Object.create(null);
  for (const [name, workflow] of workflows) records[name] = workflowRecord(workflow, now);
  return { session, workflows: records, now: seenAt };
}

/** One workflow as readers see it. */
export function workflowRecord(
  { snapshot, claim, ended }: Pick<WorkflowState, 'snapshot' | 'claim' | 'ended'>,
  now: number,
): WorkflowRecord {
  return {
    snapshot,
    ...(claim && { claim: viewOf(claim, now) }),
    ...(ended !== undefined && { ended }),
  };
}

/** How long a look at a run keeps it: no longer than before if it is about an ended workflow. */
export function ttlOfLook(
  { workflows }: Workflows,
  ttlMs: number,
  about: string | undefined,
): number | undefined {
  return about !== undefined && workflows.get(about)?.ended === true ? undefined : ttlMs;
}

/**
 * When the run is to expire from now on; `undefined` where that may stay as it is, so that most
 * looks at a run write nothing. Without a time to live it stays, unless a claim lives longer.
 *
 * @param enough the share of the time to live that is as good as all of it
 */
export function newExpiry(
  { expiresAt, workflows }: Pick<RunState, 'expiresAt' | 'workflows'>,
  now: number,
  ttlMs: number | undefined,
  enough = FRESH_ENOUGH,
): number | undefined {
  const claimed = liveUntil(workflows.values(), now);
  const isKept = ttlMs === undefined || isFresh(expiresAt, now, ttlMs, enough);
  if (isKept && expiresAt >= claimed) return undefined;
  return Math.max(ttlMs === undefined ? expiresAt : now + ttlMs, claimed);
}

/** Whether an expiry is near enough to that of a run that is used now. */
export function isFresh(
  expiresAt: number,
  now: number,
  ttlMs: number,
  enough = FRESH_ENOUGH,
): boolean {
  return expiresAt >= now + ttlMs * enough && expiresAt <= now + ttlMs;
}

/** When the last lease ends that is running, or `now` where none is. */
export function liveUntil(workflows: Iterable<WorkflowState>, now: number): number {
  let end = now;
  for (const { claim } of workflows) end = Math.max(end, claim?.leaseEnd ?? now);
  return end;
}

/** The newest entries, oldest first; none where the workflow was never claimed. */
export function lastEntries(workflow: WorkflowState | undefined, limit: number): TrailEntry[] {
  const trail = workflow?.trail ?? [];
  return trail.slice(Math.max(0, trail.length - limit));
}

/**
 * A frozen copy, as other stores would give it back: what JSON cannot say is lost or throws here
 * too.
 */
export function copySnapshot({ state, updatedAt, version = 0, context }: FsmSnapshot): FsmSnapshot {
  const copied = context === undefined ? undefined : copyJson(context);
  return Object.freeze({
    state,
    updatedAt,
    version,
    ...(copied !== undefined && { context: copied }),
  });
}

/** The workflow with one entry more in its trail, and nothing else changed. */
export function withEntry(workflow: WorkflowState, draft: TrailDraft, now: number): WorkflowState {
  const { trail, head, snapshot } = workflow;
  const entry = stampEntry(head, snapshot, draft, now);
  const { seq, hash, to, attempt } = entry;
  return {
    ...workflow,
    trail: appended(trail, entry, TRAIL_KEPT),
    head: { seq, attempts: to === undefined ? attempt : 0, ...(hash !== undefined && { hash }) },
  };
}

function letGo(
  workflow: WorkflowState,
  token: SettledToken,
  settles: CommitRequest['settles'] = true,
): WorkflowState {
  const { claim, unsettled, settled } = workflow;
  const isLeft = (step: Unsettled): boolean =>
    !settles || (settles !== 'all' && claim !== undefined && !isSameStep(step, claim));
  const left = unsettled.length === 0 ? NONE : unsettled.filter(isLeft);
  return { ...workflow, unsettled: left, settled: spend(settled, token), claim: undefined };
}

function spend(settled: readonly SettledToken[], token: SettledToken): readonly SettledToken[] {
  return appended(settled, token, TOKENS_KEPT);
}

/** Newest first, and by hand: each step looks twice, and mostly finds nothing. */
function findSettled({ settled }: WorkflowState, token: string): SettledToken | undefined {
  for (let at = settled.length - 1; at >= 0; at--)
    if (settled[at]?.token === token) return settled[at];
  return undefined;
}

function remember(unsettled: readonly Unsettled[], claim: Claim): readonly Unsettled[] {
  const { tool, digest, idempotencyKey } = claim;
  const others = unsettled.filter((step) => !isSameStep(step, claim));
  return appended(others, { tool, digest, idempotencyKey }, KEYS_KEPT);
}

function findKey(unsettled: readonly Unsettled[], step: StepDescription): string | undefined {
  return unsettled.find((each) => isSameStep(each, step))?.idempotencyKey;
}

function isSameStep(a: Pick<Claim, 'tool' | 'digest'>, b: Pick<Claim, 'tool' | 'digest'>): boolean {
  return a.tool === b.tool && a.digest === b.digest;
}

function viewOf(claim: Claim, now: number): ClaimView {
  const { token, tool, digest, uncertain, idempotencyKey, since, leaseEnd: until, entry } = claim;
  const view = { token, tool, digest, uncertain, idempotencyKey, since, until };
  return { ...view, live: isLive(claim, now), ...(entry !== undefined && { entry }) };
}

function isLive({ leaseEnd }: Claim, now: number): boolean {
  return now < leaseEnd;
}

/**
 * With the value at the end, and only the last `count` of them. Not by `push()` or a spread, whose
 * arrays keep room for 16 more: a process holds two of these for each run.
 */
function appended<T extends object>(values: readonly T[], value: T, count: number): readonly T[] {
  return values.slice(Math.max(0, values.length + 1 - count)).concat([value]);
}
