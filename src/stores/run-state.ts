import type {
  CallNote,
  ClaimRequest,
  ClaimResult,
  ClaimView,
  CommitRequest,
  CommitResult,
  FsmSnapshot,
  Json,
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
 * One workflow of a run, in the memory of this process. Each operation makes a new one, and changes
 * none in place.
 */
export interface WorkflowState {
  readonly snapshot: FsmSnapshot;
  readonly claim: Claim | undefined;
  /** As {@link WorkflowRecord.ended}. */
  readonly ended?: boolean | undefined;
  /** Steps of unknown outcome, oldest first. */
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
  /** The version that the token committed; `undefined` where it was released. */
  readonly version?: number;
}

/** A run with its workflows during one operation. */
export interface RunState {
  readonly session: SessionRecord;
  /** The token that opened it; `undefined` where a claim made it. */
  readonly openedBy: string | undefined;
  readonly workflows: ReadonlyMap<string, WorkflowState>;
  /** Milliseconds since the epoch, by the store's clock. */
  readonly expiresAt: number;
}

type Workflows = Pick<RunState, 'workflows'>;

/** An operation's answer, and the workflow afterwards if it has changed. */
interface Operated<Result> {
  readonly result: Result;
  readonly next?: WorkflowState | undefined;
}

/** While a greater share of the time to live remains, a store may leave the expiry as it is. */
const FRESH_ENOUGH = 0.9;

const TRAIL_KEPT = 50;
/** The contract's 16, with room for tokens that were released without ever claiming. */
const TOKENS_KEPT = 32;
const KEYS_KEPT = 16;

/** The answer to opening a run that is there already. */
export function openedAgain(
  { openedBy }: Pick<RunState, 'openedBy'>,
  token: string | undefined,
): OpenResult {
  return { status: token !== undefined && token === openedBy ? 'opened' : 'taken' };
}

/** All runs share it, since most of them never have a step of unknown outcome. */
const NONE: readonly never[] = Object.freeze([]);

/** All trails begin here, and share it. */
const NEW_TRAIL: TrailHead = Object.freeze({ seq: 0, attempts: 0 });
const NEW_CHAIN: TrailHead = Object.freeze({ seq: 0, attempts: 0, hash: firstHash(true) });

/** A workflow without claims and without a trail. */
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

/** Also gives the time to live with which {@link newExpiry} keeps the run alive. */
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
  const { result, next } = claimWorkflow(workflow, request, now, newKey);
  return { result, next, ttlMs };
}

function claimWorkflow(
  workflow: WorkflowState,
  request: ClaimRequest,
  now: number,
  newKey: () => string,
): Operated<ClaimResult> {
  const { snapshot, claim } = workflow;
  const { token, states, step } = request;
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
  // The outcome of the claim that is taken over stays unknown.
  const { ended, settled, trail, head } =
    isOwn || claim?.entry === undefined
      ? workflow
      : withEntry(workflow, takenOver(snapshot.state, claim.entry), now);
  return {
    result: { status: 'claimed', snapshot, now, idempotencyKey },
    next: { snapshot, claim: taken, ended, unsettled, settled, trail, head },
  };
}

function refuse(result: ClaimResult): Operated<ClaimResult> {
  return { result };
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
  const { state, context } = request.snapshot;
  const entry = stampEntry(workflow.head, workflow.snapshot, request.trail, now);
  const spent = as === token ? workflow.settled : spend(workflow.settled, { token });
  // All members at once: a copy of a copy for each of them costs more than the rest of a commit.
  const next: WorkflowState = {
    snapshot: copySnapshot({ state, updatedAt: now, version, context }),
    claim: undefined,
    ended,
    unsettled: stillUnsettled(workflow, request.settles),
    settled: spend(spent, { token: as, version }),
    trail: appended(workflow.trail, entry, TRAIL_KEPT),
    head: headAt(entry),
  };
  return { result: { status: 'committed', version }, next };
}

/** The workflow with a later end of its lease; `undefined` where the claim is not the token's. */
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
    const left: WorkflowState = {
      ...workflow,
      claim: undefined,
      unsettled: stillUnsettled(workflow, settles),
      settled: spend(workflow.settled, { token }),
    };
    return entry === undefined ? left : withEntry(left, entry, now);
  }
  if (workflow === undefined || findSettled(workflow, token)) return undefined;
  return { ...workflow, settled: spend(workflow.settled, { token }) };
}

/** The run as a caller sees it; `seenAt` is when the store found it, if that was after `now`. */
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

/** One workflow as a caller sees it. */
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

/** The time to live that a read gives to a run: none if it is about an ended workflow. */
export function ttlOfLook(
  { workflows }: Workflows,
  ttlMs: number,
  about: string | undefined,
): number | undefined {
  return about !== undefined && workflows.get(about)?.ended === true ? undefined : ttlMs;
}

/**
 * When the run expires from now on; `undefined` where that may stay as it is, so that most reads
 * write nothing. Without a time to live it stays, unless a claim lives longer.
 *
 * @param enough the share of the time to live that counts as all of it
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

/** Whether an expiry is near enough to the one that a use of the run would set now. */
export function isFresh(
  expiresAt: number,
  now: number,
  ttlMs: number,
  enough = FRESH_ENOUGH,
): boolean {
  return expiresAt >= now + ttlMs * enough && expiresAt <= now + ttlMs;
}

/** When the last live lease ends, or `now` where there is none. */
export function liveUntil(workflows: Iterable<WorkflowState>, now: number): number {
  let end = now;
  for (const { claim } of workflows) end = Math.max(end, claim?.leaseEnd ?? now);
  return end;
}

/** The newest entries, oldest first; none without a workflow. */
export function lastEntries(workflow: WorkflowState | undefined, limit: number): TrailEntry[] {
  const trail = workflow?.trail ?? [];
  return trail.slice(Math.max(0, trail.length - limit));
}

/** A frozen copy. What JSON cannot say is lost or throws, as in the stores on a server. */
export function copySnapshot({
  state,
  updatedAt,
  version = 0,
  context,
}: Omit<FsmSnapshot, 'context'> & { readonly context?: Json | undefined }): FsmSnapshot {
  const copied = context === undefined ? undefined : copyJson(context);
  return Object.freeze(
    copied === undefined
      ? { state, updatedAt, version }
      : { state, updatedAt, version, context: copied },
  );
}

/** The workflow with one more entry in its trail. */
export function withEntry(workflow: WorkflowState, draft: TrailDraft, now: number): WorkflowState {
  const { trail, head, snapshot } = workflow;
  const entry = stampEntry(head, snapshot, draft, now);
  return { ...workflow, trail: appended(trail, entry, TRAIL_KEPT), head: headAt(entry) };
}

/** What the next entry follows on, after this one. */
function headAt({ seq, hash, to, attempt }: TrailEntry): TrailHead {
  const attempts = to === undefined ? attempt : 0;
  return hash === undefined ? { seq, attempts } : { seq, attempts, hash };
}

/** The steps whose outcome is unknown also after the claim has ended. */
function stillUnsettled(
  { claim, unsettled }: WorkflowState,
  settles: CommitRequest['settles'] = true,
): readonly Unsettled[] {
  if (unsettled.length === 0) return NONE;
  if (!settles) return unsettled;
  return unsettled.filter(
    (step) => settles !== 'all' && claim !== undefined && !isSameStep(step, claim),
  );
}

function spend(settled: readonly SettledToken[], token: SettledToken): readonly SettledToken[] {
  return appended(settled, token, TOKENS_KEPT);
}

/** A plain loop, newest first: each step asks twice, and mostly there is no such token. */
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
 * The values and one more, but only the last `count` of them. Not by `push()` or a spread: their
 * arrays keep room for 16 more, and a process has two of these arrays for each run.
 */
function appended<T extends object>(values: readonly T[], value: T, count: number): readonly T[] {
  const dropped = Math.max(0, values.length + 1 - count);
  const kept = new Array<T>(values.length - dropped + 1).fill(value);
  for (let at = dropped; at < values.length; at++) kept[at - dropped] = values[at] as T;
  return kept;
}
