import { randomUUID } from 'node:crypto';
import type {
  ClaimRequest,
  ClaimResult,
  CommitRequest,
  CommitResult,
  FsmSnapshot,
  ReleaseOptions,
  RunRecord,
  SessionRecord,
  StepDescription,
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
  /** Steps whose outcome nobody saw: a new try of one gets its old idempotency key. */
  unsettled: Claim[];
  /** Tokens that were committed, with the version that they made, or released, with `null`. */
  settled: [token: string, version: number | null][];
  trail: TrailEntry[];
}

interface Claim extends StepDescription {
  readonly token: string;
  readonly idempotencyKey: string;
  leaseEnd: number;
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
  if (claim && !isOwn && claim.leaseEnd > now)
    return { status: 'busy', snapshot, now, remainingMs: claim.leaseEnd - now };
  if (claim && !isOwn && claim.uncertain === 'hold')
    return { status: 'held', snapshot, now, claim: viewOf(claim, now) };
  if (states && !states.includes(snapshot.state)) return { status: 'state', snapshot, now };

  if (!known) run.workflows.push([request.workflow, workflow]);
  if (claim && !isOwn) {
    const others = workflow.unsettled.filter((each) => !isSameStep(each, claim));
    workflow.unsettled = [...others, claim].slice(-KEPT.unsettled);
  }
  const before = isOwn ? claim : workflow.unsettled.find((each) => isSameStep(each, step));
  const idempotencyKey = before?.idempotencyKey ?? randomUUID();
  workflow.claim = {
    ...(isOwn ? claim : step),
    token,
    idempotencyKey,
    leaseEnd: now + request.leaseMs,
  };
  return { status: 'claimed', snapshot, now, idempotencyKey };
}

export function commitStep(workflow: Workflow, request: CommitRequest, now: number): CommitResult {
  const { token, as = token, trail } = request;
  const before = workflow.settled.find(([settled]) => settled === as)?.[1];
  if (typeof before === 'number') return { status: 'committed', version: before, repeated: true };
  if (workflow.claim?.token !== token) return { status: 'lost' };

  const version = (workflow.snapshot.version ?? 0) + 1;
  workflow.snapshot = { ...request.snapshot, updatedAt: now, version };
  workflow.trail = [...workflow.trail, { ...trail, version, at: now }].slice(-KEPT.trail);
  workflow.ended = request.ended ?? false;
  if (as !== token) settle(workflow, as, version);
  settle(workflow, token, as === token ? version : null, request.settles);
  return { status: 'committed', version };
}

export function releaseStep(
  workflow: Workflow,
  token: string,
  { settles }: ReleaseOptions = {},
): void {
  const isSpent = workflow.settled.some(([settled]) => settled === token);
  if (!isSpent) settle(workflow, token, null, settles);
}

/**
 * The token is spent; where the claim is its own, the claim is gone, and so is the idempotency key
 * of a step that is settled by it.
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
  leaseEnd: number,
): boolean {
  if (workflow?.claim?.token !== token) return false;
  workflow.claim.leaseEnd = leaseEnd;
  run.expiresAt = Math.max(run.expiresAt, leaseEnd);
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
    run.expiresAt = Math.max(run.expiresAt, claim?.leaseEnd ?? 0);
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

function viewOf({ leaseEnd, ...claim }: Claim, now: number) {
  return { ...claim, live: leaseEnd > now };
}

function isSameStep(a: Pick<Claim, 'tool' | 'digest'>, b: Pick<Claim, 'tool' | 'digest'>): boolean {
  return a.tool === b.tool && a.digest === b.digest;
}
