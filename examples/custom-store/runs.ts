import { randomUUID } from 'node:crypto';
import type {
  CallNote,
  ClaimRequest,
  ClaimResult,
  ClaimView,
  CommitRequest,
  CommitResult,
  FsmSnapshot,
  ReleaseOptions,
  RunRecord,
  SessionRecord,
  StepDescription,
  TrailDraft,
  TrailEntry,
} from 'mcp-interlock';

/**
 * One run as it is kept: plain JSON. Workflows are a list of pairs, because one may be called
 * `__proto__`.
 */
export interface Run {
  readonly session: SessionRecord;
  /** The token that opened it, if one did. */
  readonly openedBy?: string | undefined;
  readonly workflows: [name: string, workflow: Workflow][];
  expiresAt: number;
}

interface Workflow {
  snapshot: FsmSnapshot;
  claim?: Claim | undefined;
  /** What the last commit said of its end. */
  ended?: boolean;
  /** Steps with an unknown outcome: a new try of one gets its old idempotency key. */
  unsettled: Claim[];
  /** Tokens that were committed, with the version that they made, or released, with `null`. */
  settled: [token: string, version: number | null][];
  trail: TrailEntry[];
}

interface Claim extends StepDescription {
  readonly token: string;
  readonly idempotencyKey: string;
  readonly since: number;
  until: number;
  /** What the trail says of the call, if another claim takes this one over. */
  readonly entry?: CallNote | undefined;
}

/** How many the contract asks for. */
const KEPT = { settled: 16, unsettled: 16, trail: 50 };

export function workflowOf(run: Run | null, name: string): Workflow | undefined {
  return run?.workflows.find(([each]) => each === name)?.[1];
}

/** The tests of the contract, in its order; then the lease. */
export function claimStep(run: Run, request: ClaimRequest, now: number): ClaimResult {
  const { token, step, states } = request;
  const known = workflowOf(run, request.workflow);
  const initial = { ...request.initial, updatedAt: now };
  const workflow: Workflow = known ?? { snapshot: initial, unsettled: [], settled: [], trail: [] };
  const { snapshot, claim } = workflow;
  const isOwn = claim?.token === token;

  if (workflow.settled.some(([spent]) => spent === token))
    return { status: 'state', snapshot, now };
  if (claim && !isOwn && claim.until > now)
    return { status: 'busy', snapshot, now, remainingMs: claim.until - now };
  if (claim && !isOwn && claim.uncertain === 'hold')
    return { status: 'held', snapshot, now, claim: viewOf(claim, now) };
  if (states && !states.includes(snapshot.state)) return { status: 'state', snapshot, now };

  if (!known) run.workflows.push([request.workflow, workflow]);
  if (claim && !isOwn) {
    const { entry, ...step } = claim;
    const others = workflow.unsettled.filter((each) => !isSameStep(each, claim));
    workflow.unsettled = [...others, step].slice(-KEPT.unsettled);
    const unknown = { outcome: 'unknown', kind: 'taken_over' } as const;
    if (entry) addEntry(workflow, { from: snapshot.state, event: null, ...unknown, ...entry }, now);
  }
  const before = isOwn ? claim : workflow.unsettled.find((each) => isSameStep(each, step));
  const idempotencyKey = before?.idempotencyKey ?? randomUUID();
  workflow.claim = {
    ...(isOwn ? claim : { ...step, since: now, entry: request.entry }),
    token,
    idempotencyKey,
    until: now + request.leaseMs,
  };
  return { status: 'claimed', snapshot, now, idempotencyKey };
}

export function commitStep(workflow: Workflow, request: CommitRequest, now: number): CommitResult {
  const { token, as = token, trail } = request;
  const before = workflow.settled.find(([settled]) => settled === as)?.[1];
  if (typeof before === 'number') return { status: 'committed', version: before, repeated: true };
  if (workflow.claim?.token !== token) return { status: 'lost' };

  const version = (workflow.snapshot.version ?? 0) + 1;
  addEntry(workflow, trail, now);
  workflow.snapshot = { ...request.snapshot, updatedAt: now, version };
  workflow.ended = request.ended ?? false;
  if (as !== token) settle(workflow, as, version);
  settle(workflow, token, as === token ? version : null, request.settles);
  return { status: 'committed', version };
}

export function releaseStep(
  workflow: Workflow,
  token: string,
  { settles, entry }: ReleaseOptions,
  now: number,
): void {
  const isOwn = workflow.claim?.token === token;
  const isSpent = workflow.settled.some(([settled]) => settled === token);
  if (!isSpent) settle(workflow, token, null, settles);
  if (isOwn && entry) addEntry(workflow, entry, now);
}

/** Each entry's numbers go on from those of the one before. */
export function addEntry(workflow: Workflow, draft: TrailDraft, now: number): void {
  const { trail, snapshot } = workflow;
  const last = trail.at(-1);
  const isMove = draft.to !== undefined;
  const version = (snapshot.version ?? 0) + (isMove ? 1 : 0);
  const attempts = last === undefined || last.to !== undefined ? 0 : last.attempt;
  const attempt = attempts + (isMove || draft.outcome !== 'refused' ? 1 : 0);
  const entry = { ...draft, seq: (last?.seq ?? 0) + 1, version, attempt, at: now };
  workflow.trail = [...trail, entry].slice(-KEPT.trail);
}

/**
 * The token is spent. Where the claim is its own, the claim is gone. So is the idempotency key of a
 * step that it settles.
 */
function settle(
  workflow: Workflow,
  token: string,
  version: number | null,
  settles: CommitRequest['settles'] = true,
): void {
  const { claim } = workflow;
  workflow.settled = [...workflow.settled, [token, version] as [string, number | null]].slice(
    -KEPT.settled,
  );
  if (claim?.token !== token) return;
  if (settles === 'all') workflow.unsettled = [];
  else if (settles)
    workflow.unsettled = workflow.unsettled.filter((each) => !isSameStep(each, claim));
  workflow.claim = undefined;
}

export function renewStep(
  run: Run,
  workflow: Workflow | undefined,
  token: string,
  until: number,
): boolean {
  if (workflow?.claim?.token !== token) return false;
  workflow.claim.until = until;
  run.expiresAt = Math.max(run.expiresAt, until);
  return true;
}

/**
 * Moves the expiry, but not for a change of less than a tenth: so a look at a run rarely has to be
 * written down. With 0 it stays, as for a look at what has ended; but no run expires before a claim
 * of it.
 */
export function keepAlive(run: Run, ttlMs: number, now: number): void {
  const wanted = ttlMs === 0 ? run.expiresAt : now + ttlMs;
  if (run.expiresAt > wanted || run.expiresAt < wanted - ttlMs / 10) run.expiresAt = wanted;
  for (const [, { claim }] of run.workflows)
    run.expiresAt = Math.max(run.expiresAt, claim?.until ?? 0);
}

export function recordOf({ session, workflows }: Run, now: number): RunRecord {
  const records = workflows.map(([name, { snapshot, claim, ended }]) => {
    const record = {
      snapshot,
      ...(claim && { claim: viewOf(claim, now) }),
      ...(ended !== undefined && { ended }),
    };
    return [name, record] as const;
  });
  return { session, workflows: Object.fromEntries(records), now };
}

function viewOf({ entry, ...claim }: Claim, now: number): ClaimView {
  return { ...claim, live: claim.until > now, ...(entry && { entry }) };
}

function isSameStep(a: Pick<Claim, 'tool' | 'digest'>, b: Pick<Claim, 'tool' | 'digest'>): boolean {
  return a.tool === b.tool && a.digest === b.digest;
}
