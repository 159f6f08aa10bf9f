import { randomUUID } from 'node:crypto';
import type {
  CallNote,
  ClaimRequest,
  ClaimResult,
  ClaimView,
  CommitRequest,
  CommitResult,
  FsmSnapshot,
  RecordRequest,
  RecordResult,
  ReleaseOptions,
  RenewOptions,
  RunKey,
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
  /** When its session ends without further use; then, until when the run can be read. */
  expiresAt: number;
  /** Whether its session has ended before that time. */
  sessionEnded?: boolean;
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
  readonly until: number;
  /** Why the step is held, where a renewal said so. */
  readonly kind?: string | undefined;
  /** What the trail says of the call, if another claim takes this one over. */
  readonly entry?: CallNote | undefined;
}

/** How many the contract asks for. */
const KEPT = { settled: 16, unsettled: 16, trail: 50, evidenceMs: 24 * 60 * 60 * 1000 };

export function workflowOf(run: Run | null, name: string): Workflow | undefined {
  return run?.workflows.find(([each]) => each === name)?.[1];
}

/** Whether the run is there: its session, its evidence, or a step of it at work. */
export function isKnown(run: Run, now: number): boolean {
  return run.expiresAt > now || isNeeded(run, now);
}

/** Whether a `hold` step has a claim in it: then nothing takes the run away. */
export function isPinned({ workflows }: Run): boolean {
  return workflows.some(([, { claim }]) => claim?.uncertain === 'hold');
}

/** Whether the run stays though its session ends. */
function isNeeded(run: Run, now: number): boolean {
  return isPinned(run) || run.workflows.some(([, { claim }]) => claim && claim.until > now);
}

function hasSessionEnded(run: Run, now: number): boolean {
  return run.sessionEnded === true || run.expiresAt <= now;
}

/** The tests of the contract, in its order; then the lease. */
export function claimStep(run: Run, request: ClaimRequest, now: number): ClaimResult {
  const { token, step, states, create } = request;
  const workflow = workflowOf(run, request.workflow) ?? newWorkflow(request, now);
  const { snapshot, claim } = workflow;
  const isOwn = claim?.token === token;

  if (!create && !isOwn && hasSessionEnded(run, now)) return { status: 'unknown' };
  if (create) revive(run, now);
  if (workflow.settled.some(([spent]) => spent === token))
    return { status: 'state', snapshot, now };
  if (claim && !isOwn && claim.until > now)
    return { status: 'busy', snapshot, now, remainingMs: claim.until - now };
  if (claim && !isOwn && claim.uncertain === 'hold')
    return { status: 'held', snapshot, now, claim: viewOf(claim, now) };
  if (states && !states.includes(snapshot.state)) return { status: 'state', snapshot, now };

  const others = workflow.unsettled.filter((each) => !claim || !isSameStep(each, claim));
  const unsettled = claim && !isOwn ? [...others, claim] : workflow.unsettled;
  const before = isOwn ? claim : unsettled.find((each) => isSameStep(each, step));
  if (!before && step.uncertain === 'retry' && unsettled.length >= KEPT.unsettled)
    return { status: 'unsettled', snapshot, now };

  put(run, request, workflow);
  workflow.unsettled = unsettled;
  if (claim?.entry && !isOwn) {
    const unknown = { outcome: 'unknown', kind: 'taken_over', ...claim.entry } as const;
    addEntry(workflow, { from: snapshot.state, event: null, ...unknown }, now);
  }
  const idempotencyKey = before?.idempotencyKey ?? randomUUID();
  workflow.claim = {
    ...(isOwn ? claim : { ...step, since: now, entry: request.entry }),
    token,
    idempotencyKey,
    until: now + request.leaseMs,
  };
  return { status: 'claimed', snapshot, now, idempotencyKey };
}

export function commitStep(run: Run, request: CommitRequest, now: number): CommitResult {
  const { token, as = token, from } = request;
  const workflow = workflowOf(run, request.workflow);
  const before = workflow?.settled.find(([settled]) => settled === as)?.[1];
  if (typeof before === 'number') return { status: 'committed', version: before, repeated: true };
  if (workflow?.claim?.token !== token) return { status: 'lost' };
  const { snapshot } = workflow;
  if (from !== undefined && from !== (snapshot.version ?? 0))
    return { status: 'moved', snapshot, now };

  const version = move(workflow, request, now);
  workflow.ended = request.ended ?? false;
  if (as !== token) spend(workflow, as, version);
  settle(run, workflow, token, as === token ? version : null, request.settles, now);
  return { status: 'committed', version };
}

/** As a commit, but beside the claim of another step, which stays. */
export function recordStep(run: Run, request: RecordRequest, now: number): RecordResult {
  const { token, from, create } = request;
  const workflow = workflowOf(run, request.workflow) ?? newWorkflow(request, now);
  if (!create && hasSessionEnded(run, now)) return { status: 'unknown' };
  if (create) revive(run, now);
  const before = workflow.settled.find(([settled]) => settled === token)?.[1];
  if (typeof before === 'number') return { status: 'recorded', version: before, repeated: true };
  const { snapshot } = workflow;
  if (from !== (snapshot.version ?? 0)) return { status: 'moved', snapshot, now };

  put(run, request, workflow);
  const version = move(workflow, request, now);
  spend(workflow, token, version);
  return { status: 'recorded', version };
}

export function releaseStep(
  run: Run,
  workflow: Workflow,
  token: string,
  { settles, entry }: ReleaseOptions,
  now: number,
): void {
  if (workflow.settled.some(([settled]) => settled === token)) return;
  const isOwn = workflow.claim?.token === token;
  settle(run, workflow, token, null, settles, now);
  if (isOwn && entry) addEntry(workflow, entry, now);
}

function newWorkflow({ initial }: Pick<ClaimRequest, 'initial'>, now: number): Workflow {
  return { snapshot: { ...initial, updatedAt: now }, unsettled: [], settled: [], trail: [] };
}

function put(run: Run, { workflow: name }: RunKey, workflow: Workflow): void {
  if (workflowOf(run, name) === undefined) run.workflows.push([name, workflow]);
}

/** The next snapshot with its entry; gives its version. */
function move(
  workflow: Workflow,
  { snapshot, trail }: Pick<CommitRequest, 'snapshot' | 'trail'>,
  now: number,
): number {
  const version = (workflow.snapshot.version ?? 0) + 1;
  addEntry(workflow, trail, now);
  workflow.snapshot = { ...snapshot, updatedAt: now, version };
  return version;
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

function spend(workflow: Workflow, token: string, version: number | null): void {
  const settled: Workflow['settled'] = [...workflow.settled, [token, version]];
  workflow.settled = settled.slice(-KEPT.settled);
}

/**
 * The token is spent. Where the claim is its own, the claim is gone. So is the idempotency key of a
 * step that it settles. What is left of an ended session can be read for a day then.
 */
function settle(
  run: Run,
  workflow: Workflow,
  token: string,
  version: number | null,
  settles: CommitRequest['settles'] = true,
  now: number,
): void {
  const { claim } = workflow;
  spend(workflow, token, version);
  if (claim?.token !== token) return;
  if (settles === 'all') workflow.unsettled = [];
  else if (settles)
    workflow.unsettled = workflow.unsettled.filter((each) => !isSameStep(each, claim));
  workflow.claim = undefined;
  if (hasSessionEnded(run, now)) {
    run.sessionEnded = true;
    run.expiresAt = now + KEPT.evidenceMs;
  }
}

export function renewStep(
  run: Run,
  name: string,
  token: string,
  until: number,
  { hold: kind }: RenewOptions,
  now: number,
): boolean {
  const workflow = workflowOf(run, name);
  if (workflow?.claim?.token !== token) return false;
  const held = kind === undefined ? {} : { uncertain: 'hold' as const, kind };
  workflow.claim = { ...workflow.claim, ...held, until };
  keepAlive(run, 0, now);
  return true;
}

/** The session is over. Gives whether the run stays, as evidence or for a step at work. */
export function endSession(run: Run, now: number): boolean {
  if (run.sessionEnded) return true;
  run.sessionEnded = true;
  run.expiresAt = Math.min(run.expiresAt, now);
  return isNeeded(run, now);
}

function revive(run: Run, now: number): void {
  if (hasSessionEnded(run, now)) run.expiresAt = now + 1;
  run.sessionEnded = false;
}

/**
 * Moves the expiry, but not for a change of less than a tenth: so a look at a run rarely has to be
 * written down. A look at an ended workflow does not move it. No run expires before a claim of it,
 * nor earlier than it would have while a key is unsettled. A session that has ended stays so.
 */
export function keepAlive(run: Run, ttlMs: number, now: number, about?: string): void {
  if (hasSessionEnded(run, now)) return;
  const { expiresAt } = run;
  const isAboutEnded = about !== undefined && workflowOf(run, about)?.ended === true;
  const wanted = ttlMs === 0 || isAboutEnded ? expiresAt : now + ttlMs;
  if (expiresAt < wanted - ttlMs / 10 || (expiresAt > wanted && !hasKeys(run)))
    run.expiresAt = wanted;
  for (const [, { claim }] of run.workflows)
    run.expiresAt = Math.max(run.expiresAt, claim?.until ?? 0);
}

function hasKeys({ workflows }: Run): boolean {
  return workflows.some(
    ([, { claim, unsettled }]) => claim?.uncertain === 'retry' || unsettled.length > 0,
  );
}

export function recordOf(run: Run, now: number): RunRecord {
  const { session, workflows } = run;
  const records = workflows.map(([name, { snapshot, claim, ended }]) => {
    const record = {
      snapshot,
      ...(claim && { claim: viewOf(claim, now) }),
      ...(ended !== undefined && { ended }),
    };
    return [name, record] as const;
  });
  const isOver = hasSessionEnded(run, now);
  return {
    session,
    workflows: Object.fromEntries(records),
    now,
    ...(isOver && { sessionEnded: true }),
  };
}

function viewOf({ entry, kind, ...claim }: Claim, now: number): ClaimView {
  return { ...claim, live: claim.until > now, ...(entry && { entry }), ...(kind && { kind }) };
}

function isSameStep(a: Pick<Claim, 'tool' | 'digest'>, b: Pick<Claim, 'tool' | 'digest'>): boolean {
  return a.tool === b.tool && a.digest === b.digest;
}
