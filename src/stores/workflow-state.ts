import type {
  ClaimRequest,
  ClaimResult,
  ClaimView,
  CommitRequest,
  CommitResult,
  FsmSnapshot,
  Json,
  OpenResult,
  ReleaseOptions,
  StepDescription,
  TrailDraft,
  TrailEntry,
  WorkflowRecord,
} from './store.ts';

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
  readonly settled: readonly Settled[];
  readonly trail: readonly TrailEntry[];
}

interface Claim extends StepDescription {
  readonly token: string;
  readonly idempotencyKey: string;
  readonly leaseEnd: number;
}

type Unsettled = Pick<Claim, 'tool' | 'digest' | 'idempotencyKey'>;

interface Settled {
  readonly token: string;
  /**
   * What was answered: the version where the token committed, `undefined` where it was released.
   */
  readonly version?: number;
}

/** What an operation answers, and the workflow after it where anything changed. */
export interface Outcome<Result> {
  readonly result: Result;
  readonly next?: WorkflowState;
}

const TRAIL_KEPT = 50;
/** The contract's 16, with room for tokens that were released without ever claiming. */
const TOKENS_KEPT = 32;
const KEYS_KEPT = 16;

/** What opening a run is answered that is there already. */
export function openedAgain(
  { openedBy }: { readonly openedBy: string | undefined },
  token: string | undefined,
): OpenResult {
  return { status: token !== undefined && token === openedBy ? 'opened' : 'taken' };
}

/** A workflow as it is at its first claim. */
export function newWorkflow(initial: FsmSnapshot, now: number): WorkflowState {
  return workflowAt({ ...initial, updatedAt: now });
}

/** A workflow of which no claims and no trail are known. */
export function workflowAt(snapshot: FsmSnapshot, ended?: boolean): WorkflowState {
  return {
    snapshot: copySnapshot(snapshot),
    claim: undefined,
    ended,
    unsettled: [],
    settled: [],
    trail: [],
  };
}

export function claimStep(
  workflow: WorkflowState,
  request: ClaimRequest,
  now: number,
  newKey: () => string,
): Outcome<ClaimResult> {
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
  const { tool, digest, uncertain } = isOwn ? claim : step;
  const taken = { token, tool, digest, uncertain, idempotencyKey, leaseEnd: now + request.leaseMs };
  return {
    result: { status: 'claimed', snapshot, now, idempotencyKey },
    next: { ...workflow, claim: taken, unsettled },
  };
}

/** `workflow` is `undefined` where it was never claimed in this run. */
export function commitStep(
  workflow: WorkflowState | undefined,
  request: CommitRequest,
  now: number,
): Outcome<CommitResult> {
  const { token, as = token, ended = false } = request;
  const before = workflow && findSettled(workflow, as);
  if (before?.version !== undefined)
    return { result: { status: 'committed', version: before.version, repeated: true } };
  if (workflow?.claim?.token !== token) return { result: { status: 'lost' } };

  const version = (workflow.snapshot.version ?? 0) + 1;
  const snapshot = copySnapshot({ ...request.snapshot, updatedAt: now, version });
  const trail = appended(workflow.trail, entryOf(request.trail, version, now), TRAIL_KEPT);
  const left = letGo(workflow, as === token ? { token, version } : { token }, request.settles);
  const settled = as === token ? left.settled : spend(left.settled, { token: as, version });
  const next = { ...left, settled, snapshot, trail, ended };
  return { result: { status: 'committed', version }, next };
}

/** The workflow with the lease moved, or `undefined` where the claim is not the token's. */
export function renewStep(
  workflow: WorkflowState,
  token: string,
  leaseEnd: number,
): WorkflowState | undefined {
  const { claim } = workflow;
  return claim?.token === token ? { ...workflow, claim: { ...claim, leaseEnd } } : undefined;
}

export function releaseStep(
  workflow: WorkflowState,
  token: string,
  { settles }: ReleaseOptions = {},
): WorkflowState {
  if (workflow.claim?.token === token) return letGo(workflow, { token }, settles);
  return findSettled(workflow, token)
    ? workflow
    : { ...workflow, settled: spend(workflow.settled, { token }) };
}

/** Without a prototype, so that a workflow may be called `__proto__`. */
export function recordsOf(
  workflows: ReadonlyMap<string, WorkflowState>,
  now: number,
): Record<string, WorkflowRecord> {
  const records: Record<string, WorkflowRecord> = Object.create(null);
  for (const [name, { snapshot, claim, ended }] of workflows) {
    records[name] = {
      snapshot,
      ...(claim && { claim: viewOf(claim, now) }),
      ...(ended !== undefined && { ended }),
    };
  }
  return records;
}

/** Whether a look at a run is about a workflow that is known to have ended. */
export function hasEnded(
  { workflows }: { readonly workflows: ReadonlyMap<string, WorkflowState> },
  about: string | undefined,
): boolean {
  return about !== undefined && workflows.get(about)?.ended === true;
}

/** When the last lease ends that is running, or `now` where none is. */
export function liveUntil(workflows: Iterable<WorkflowState>, now: number): number {
  let end = now;
  for (const { claim } of workflows) end = Math.max(end, claim?.leaseEnd ?? now);
  return end;
}

export function lastEntries({ trail }: WorkflowState, limit: number): TrailEntry[] {
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

function entryOf(draft: TrailDraft, version: number, at: number): TrailEntry {
  const { from, to, event, tool, actor, payload } = draft;
  return Object.freeze({
    version,
    from,
    to,
    event,
    ...(tool !== undefined && { tool }),
    ...(actor !== undefined && { actor }),
    ...(payload !== undefined && { payload: copyJson(payload) }),
    at,
  });
}

function copyJson(value: Json): Json {
  if (typeof value !== 'object' || value === null) return value;
  const copy: Json = JSON.parse(JSON.stringify(value));
  freezeDeeply(copy);
  return copy;
}

function freezeDeeply(value: Json): void {
  if (typeof value !== 'object' || value === null) return;
  for (const inner of Object.values(value)) freezeDeeply(inner);
  Object.freeze(value);
}

function letGo(
  workflow: WorkflowState,
  token: Settled,
  settles: CommitRequest['settles'] = true,
): WorkflowState {
  const { claim, unsettled, settled } = workflow;
  const isLeft = (step: Unsettled): boolean =>
    !settles || (settles !== 'all' && claim !== undefined && !isSameStep(step, claim));
  const left = { unsettled: unsettled.filter(isLeft), settled: spend(settled, token) };
  return { ...workflow, ...left, claim: undefined };
}

function spend(settled: readonly Settled[], token: Settled): readonly Settled[] {
  return appended(settled, token, TOKENS_KEPT);
}

function findSettled({ settled }: WorkflowState, token: string): Settled | undefined {
  return settled.find((each) => each.token === token);
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
  const { token, tool, digest, uncertain, idempotencyKey } = claim;
  return { token, tool, digest, uncertain, idempotencyKey, live: isLive(claim, now) };
}

function isLive({ leaseEnd }: Claim, now: number): boolean {
  return now < leaseEnd;
}

/** With the value at the end, and only the last `count` of them. */
function appended<T>(values: readonly T[], value: T, count: number): readonly T[] {
  const kept = values.slice(Math.max(0, values.length + 1 - count));
  kept.push(value);
  return kept;
}
