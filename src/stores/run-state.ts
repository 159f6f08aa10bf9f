/** What each operation of a store does to a run: pure, and once for all stores. */
import { createHash } from 'node:crypto';
import {
  type Claim,
  hasBegun,
  hasSessionEnded,
  isEvicted,
  isNeeded,
  isPinned,
  type Life,
  type LivingRun,
  liveUntil,
  newLife,
  type ReleasedToken,
  type RunState,
  type SettledToken,
  settledLife,
  type WorkflowState,
  type Workflows,
} from './run-life.ts';
import type {
  ClaimRequest,
  ClaimResult,
  ClaimView,
  CommitRequest,
  CommitResult,
  EndOptions,
  EndResult,
  FreezeRequest,
  FreezeResult,
  FsmSnapshot,
  Json,
  OpenResult,
  RecordRequest,
  RecordResult,
  ReleaseOptions,
  RenewOptions,
  RunKey,
  RunRecord,
  TrailDraft,
  TrailEntry,
  UnsettledStep,
  WorkflowRecord,
} from './store.ts';
import { anchorOf, copyJson, orderedNote, stampEntry, type TrailHead, takenOver } from './trail.ts';

/** An operation's answer, and what of the run has changed. */
export interface Operated<Result> {
  readonly result: Result;
  /** The workflow afterwards. */
  readonly next?: WorkflowState | undefined;
  /** As {@link RunState.released}, where that has changed. */
  readonly released?: readonly ReleasedToken[] | undefined;
  /** How long the run lives from now on. */
  readonly life?: Life | undefined;
}

const TRAIL_KEPT = 50;
/** How many settled tokens each workflow of a run remembers. */
export const TOKENS_KEPT = 32;
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

/** All trails begin here that are not chained, and share it. */
const NEW_TRAIL: TrailHead = Object.freeze({ seq: 0, attempts: 0 });

function newTrail(key: RunKey, isChained: boolean): TrailHead {
  return isChained ? { seq: 0, attempts: 0, hash: anchorOf(key) } : NEW_TRAIL;
}

/** A workflow without claims and without a trail. */
export function workflowAt(
  snapshot: FsmSnapshot,
  ended?: boolean,
  head: TrailHead = NEW_TRAIL,
): WorkflowState {
  return {
    snapshot: copySnapshot(snapshot),
    claim: undefined,
    frozen: undefined,
    ended,
    unsettled: NONE,
    settled: NONE,
    trail: NONE,
    head,
  };
}

/** What an operation goes by that may make a workflow. */
export interface MakingRules {
  /** Whether new trails are chained by hashes. */
  readonly isChained: boolean;
  /** As in {@link Use}. */
  readonly enough: number | undefined;
  /** Makes idempotency keys. */
  readonly newKey: () => string;
}

export function claimStep(
  run: LivingRun,
  request: ClaimRequest,
  now: number,
  { isChained, enough, newKey }: MakingRules,
): Operated<ClaimResult> {
  if (isEvicted(run)) return { result: { status: 'unknown' } };
  const known = run.workflows.get(request.workflow);
  const isOwn = known?.claim?.token === request.token;
  const isOver = request.create === undefined && hasSessionEnded(run, now);
  if (isOver && !isOwn) return { result: { status: 'unknown' } };
  const workflow = knownOrNew(run, request, now, isChained);
  const { result, next } = claimWorkflow(workflow, request, now, newKey);
  if (isOver) return { result, next };
  const keyMs = next?.claim?.uncertain === 'retry' ? request.keyMs : undefined;
  const ttlMs = workflow.ended ? undefined : request.ttlMs;
  return { result, next, life: newLife(run, now, { ttlMs, keyMs, next, enough, revives: true }) };
}

function claimWorkflow(
  workflow: WorkflowState,
  request: ClaimRequest,
  now: number,
  newKey: () => string,
): Operated<ClaimResult> {
  const { snapshot, claim, frozen } = workflow;
  const { token, states, step } = request;
  const isOwn = claim?.token === token;
  const unsettled = isOwn ? workflow.unsettled : unsettledIn(workflow, now);
  const seen = { snapshot, now, ...(unsettled.length > 0 && { unsettled: [...unsettled] }) };
  if (findSettled(workflow, token)) return refuse({ status: 'state', ...seen });
  if (frozen && !isOwn) return refuse({ status: 'frozen', freeze: frozen, ...seen });
  if (claim && !isOwn) {
    if (isLive(claim, now))
      return refuse({ status: 'busy', remainingMs: claim.leaseEnd - now, ...seen });
    if (claim.uncertain === 'hold')
      return refuse({ status: 'held', claim: viewOf(claim, now), ...seen });
  }
  if (states && !states.includes(snapshot.state)) return refuse({ status: 'state', ...seen });

  const known = isOwn
    ? claim.idempotencyKey
    : unsettled.find((each) => isSameStep(each, step))?.idempotencyKey;
  if (known === undefined && step.uncertain === 'retry' && unsettled.length >= KEYS_KEPT)
    return refuse({ status: 'unsettled', ...seen });
  const idempotencyKey = known ?? newKey();
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
        use: step.use === undefined ? undefined : copyJson(step.use),
        idempotencyKey,
        since: now,
        leaseEnd,
        entry,
      };
  // The outcome of the claim that is taken over stays unknown.
  const { ended, settled, trail, head } =
    isOwn || claim?.entry === undefined
      ? workflow
      : withTrailEntry(workflow, takenOver(snapshot.state, claim.entry), now);
  return {
    result: { status: 'claimed', idempotencyKey, ...seen },
    next: { snapshot, claim: taken, frozen, ended, unsettled, settled, trail, head },
  };
}

function refuse(result: ClaimResult): Operated<ClaimResult> {
  return { result };
}

/** @param enough as in {@link newLife} */
export function commitStep(
  run: LivingRun,
  request: CommitRequest,
  now: number,
  enough?: number,
): Operated<CommitResult> {
  if (isEvicted(run)) return { result: { status: 'unknown' } };
  const workflow = run.workflows.get(request.workflow);
  const { token, as = token, ended = false, ttlMs } = request;
  const before = workflow && findSettled(workflow, as);
  if (before?.version !== undefined) {
    const result = { status: 'committed', version: before.version, repeated: true } as const;
    return { result, life: newLife(run, now, { ttlMs, enough }) };
  }
  if (workflow?.claim?.token !== token)
    return { result: { status: 'lost' }, life: newLife(run, now, { ttlMs, enough }) };

  const { snapshot } = workflow;
  if (request.from !== undefined && request.from !== snapshot.version)
    return { result: { status: 'moved', snapshot, now } };
  const version = (snapshot.version ?? 0) + 1;
  const { state, context } = request.snapshot;
  const entry = stampEntry(workflow.head, snapshot, request.trail, now);
  const spent = as === token ? workflow.settled : spend(workflow.settled, token);
  // All members at once: a copy of a copy for each of them costs more than the rest of a commit.
  const next: WorkflowState = {
    snapshot: copySnapshot({ state, updatedAt: now, version, context }),
    claim: undefined,
    frozen: workflow.frozen,
    ended,
    unsettled: stillUnsettled(workflow, request.settles),
    settled: spend(spent, as, version),
    trail: appended(workflow.trail, entry, TRAIL_KEPT),
    head: headAt(entry),
  };
  const use = { ttlMs, next, replaces: workflow, enough };
  const life = settledLife(run, now) ?? newLife(run, now, use);
  return { result: { status: 'committed', version }, next, life };
}

export function recordStep(
  run: LivingRun,
  request: RecordRequest,
  now: number,
  { isChained, enough }: MakingRules,
): Operated<RecordResult> {
  if (isEvicted(run) || (request.create === undefined && hasSessionEnded(run, now)))
    return { result: { status: 'unknown' } };
  const workflow = knownOrNew(run, request, now, isChained);
  const { snapshot, ended } = workflow;
  const { token, from, snapshot: made, trail, ended: ends = ended, settlesKey } = request;
  const ttlMs = ended ? undefined : request.ttlMs;
  const life = newLife(run, now, { ttlMs, enough, revives: true });
  const before = findSettled(workflow, token)?.version;
  if (before !== undefined)
    return { result: { status: 'recorded', version: before, repeated: true }, life };
  const unsettled = withoutKey(workflow, settlesKey);
  if (from !== snapshot.version || unsettled === undefined)
    return { result: { status: 'moved', snapshot, now }, life };
  const version = from + 1;
  const entry = stampEntry(workflow.head, snapshot, trail, now);
  const next: WorkflowState = {
    ...workflow,
    snapshot: copySnapshot({ ...made, updatedAt: now, version }),
    ended: ends,
    unsettled,
    settled: spend(workflow.settled, token, version),
    trail: appended(workflow.trail, entry, TRAIL_KEPT),
    head: headAt(entry),
  };
  return { result: { status: 'recorded', version }, next, life };
}

/** The workflow frozen, or let go on, beside the claim that it may have. */
export function freezeStep(
  run: LivingRun,
  request: FreezeRequest,
  now: number,
  { isChained, enough }: MakingRules,
): Operated<FreezeResult> {
  if (isEvicted(run)) return { result: { status: 'unknown' } };
  const { token, freeze, create, entry } = request;
  const workflow = knownOrNew(run, request, now, isChained);
  // Also after a thaw that was the last to need a run whose session is over.
  const isRepeated = findSettled(workflow, token) !== undefined;
  const isOver = create === undefined && hasSessionEnded(run, now);
  if (isOver && !isRepeated && !isNeeded(run, now)) return { result: { status: 'unknown' } };
  const { snapshot, ended } = workflow;
  const isChange = !isRepeated && (workflow.frozen === undefined) !== (freeze === undefined);
  const frozen = isChange
    ? freeze && Object.freeze({ actor: freeze.actor, note: freeze.note })
    : workflow.frozen;
  const status = isChange || isRepeated ? 'changed' : 'unchanged';
  const result: FreezeResult = { status, ...(frozen && { frozen }), snapshot, now };
  const use = { ttlMs: ended ? undefined : request.ttlMs, enough, revives: true };
  const life = isOver ? undefined : newLife(run, now, use);
  if (!isChange) return { result, life };
  const settled = spend(workflow.settled, token);
  const next = withTrailEntry({ ...workflow, frozen, settled }, entry, now);
  return { result, next, life: isOver && !frozen ? settledLife(run, now) : life };
}

function knownOrNew(
  { workflows, released }: Workflows,
  request: RunKey & Pick<ClaimRequest, 'initial'>,
  now: number,
  isChained: boolean,
): WorkflowState {
  const known = workflows.get(request.workflow);
  if (known !== undefined) return known;
  const made = workflowAt(
    { ...request.initial, updatedAt: now },
    undefined,
    newTrail(request, isChained),
  );
  const own = released?.filter(({ workflow }) => workflow === request.workflow) ?? NONE;
  const settled = own.reduce<WorkflowState['settled']>((all, { token }) => spend(all, token), NONE);
  return own.length === 0 ? made : { ...made, settled };
}

/** The workflow with a later end of its lease; `false` where the claim is not the token's. */
export function renewStep(
  run: LivingRun,
  name: string,
  token: string,
  leaseMs: number,
  { hold: kind }: RenewOptions,
  now: number,
): Operated<boolean> {
  const workflow = run.workflows.get(name);
  if (workflow?.claim?.token !== token) return { result: false };
  const { claim } = workflow;
  const held = kind === undefined ? {} : { uncertain: 'hold' as const, kind };
  const next = { ...workflow, claim: { ...claim, ...held, leaseEnd: now + leaseMs } };
  return { result: true, next, life: newLife(run, now, { next }) };
}

/**
 * The workflow without the claim and with the token spent. So a claim with it that was refused, or
 * that arrives only now, is never granted.
 */
export function releaseStep(
  run: LivingRun,
  name: string,
  token: string,
  { settles, entry }: ReleaseOptions,
  now: number,
): Operated<void> {
  const workflow = run.workflows.get(name);
  if (workflow?.claim?.token === token) {
    const left: WorkflowState = {
      ...workflow,
      claim: undefined,
      unsettled: stillUnsettled(workflow, settles),
      settled: spend(workflow.settled, token),
    };
    const next = entry === undefined ? left : withTrailEntry(left, entry, now);
    return { result: undefined, next, life: settledLife(run, now) };
  }
  if (workflow === undefined) {
    const known = run.released ?? NONE;
    if (known.some((each) => each.token === token && each.workflow === name))
      return { result: undefined };
    const released = appended(known, { workflow: name, token }, TOKENS_KEPT);
    return { result: undefined, released };
  }
  if (findSettled(workflow, token)) return { result: undefined };
  return {
    result: undefined,
    next: { ...workflow, settled: spend(workflow.settled, token) },
  };
}

/**
 * How a session ends. Without a `life` in the answer `ended`, the run is gone with its session, but
 * for what an eviction `made` in its place.
 */
export function endSession(
  run: LivingRun,
  { ifUnclaimed = false, evict }: EndOptions,
  now: number,
): Operated<Exclude<EndResult, 'unknown'>> & { readonly made?: RunState } {
  if (ifUnclaimed || evict !== undefined)
    for (const { claim, frozen } of run.workflows.values())
      if (claim || frozen) return { result: 'claimed' };
  const { expiresAt, sessionEnded } = run;
  if (evict !== undefined && hasBegun(run))
    return evict === 'any' ? { result: 'ended', made: tombstone(expiresAt) } : { result: 'begun' };
  // It was ended before, and its last step is settled: it can still be read.
  if (sessionEnded) return { result: 'ended', life: { expiresAt, sessionEnded } };
  return isNeeded(run, now)
    ? { result: 'ended', life: { expiresAt: Math.min(expiresAt, now), sessionEnded: true } }
    : { result: 'ended' };
}

/** What an evicted run leaves, which names no person, until the run would have expired. */
export function tombstone(expiresAt: number): RunState {
  const sessionEnded = 'evicted';
  return { session: {}, openedBy: undefined, workflows: new Map(), expiresAt, sessionEnded };
}

/** A held run under another key, without what names a person; `undefined` where it is not held. */
export function anonymized(
  { workflows }: Workflows,
  run: string,
  now: number,
): Omit<RunState, 'expiresAt'> | undefined {
  if (!isPinned({ workflows }) || liveUntil(workflows.values(), now) > now) return undefined;
  const unnamed = new Map<string, WorkflowState>();
  for (const [name, { claim, head, ...workflow }] of workflows) {
    unnamed.set(name, {
      ...workflow,
      claim: claim && { ...claim, entry: undefined },
      frozen: undefined,
      trail: NONE,
      head: newTrail({ run, workflow: name }, head.hash !== undefined),
    });
  }
  const unowned = { session: {}, openedBy: undefined, released: undefined };
  return { ...unowned, workflows: unnamed, sessionEnded: true };
}

/** The run as a caller sees it; `seenAt` is when the store found it, if that was after `now`. */
export function recordOf(run: RunState, now: number, seenAt = now): RunRecord {
  const { session, workflows } = run;
  // Without a prototype, so that a workflow may be called `__proto__`.
  const records: Record<string, WorkflowRecord> = Object.create(null);
  for (const [name, workflow] of workflows) records[name] = workflowRecord(workflow, now);
  const record = { session, workflows: records, now: seenAt };
  if (isEvicted(run)) return { ...record, sessionEnded: 'evicted' };
  return hasSessionEnded(run, now) ? { ...record, sessionEnded: true } : record;
}

/** One workflow as a caller sees it. */
export function workflowRecord(workflow: WorkflowState, now: number): WorkflowRecord {
  const { snapshot, claim, frozen, ended } = workflow;
  const unsettled = unsettledIn(workflow, now);
  return {
    snapshot,
    ...(claim && { claim: viewOf(claim, now) }),
    ...(unsettled.length > 0 && { unsettled: [...unsettled] }),
    ...(frozen && { frozen }),
    ...(ended !== undefined && { ended }),
  };
}

/** The newest entries, oldest first; none without a workflow. */
export function lastEntries(workflow: WorkflowState | undefined, limit: number): TrailEntry[] {
  const trail = workflow?.trail ?? [];
  return trail.slice(Math.max(0, trail.length - limit));
}

/** A frozen copy. What JSON cannot say is lost or throws, as in the stores on a server. */
function copySnapshot({
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
export function withTrailEntry(
  workflow: WorkflowState,
  draft: TrailDraft,
  now: number,
): WorkflowState {
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
): readonly UnsettledStep[] {
  if (unsettled.length === 0) return NONE;
  if (!settles) return unsettled;
  return unsettled.filter(
    (step) => settles !== 'all' && claim !== undefined && !isSameStep(step, claim),
  );
}

function spend(
  settled: readonly SettledToken[],
  token: string,
  version?: number,
): readonly SettledToken[] {
  const id = idOfToken(token);
  return appended(settled, version === undefined ? { id } : { id, version }, TOKENS_KEPT);
}

/** In characters of base64url: 72 bits of a digest. */
const ID_LENGTH = 12;

function idOfToken(token: string): string {
  return createHash('sha256').update(token, 'utf16le').digest('base64url').slice(0, ID_LENGTH);
}

/** A plain loop, newest first: each step asks twice, and mostly there is no such token. */
function findSettled({ settled }: WorkflowState, token: string): SettledToken | undefined {
  if (settled.length === 0) return undefined;
  const id = idOfToken(token);
  for (let at = settled.length - 1; at >= 0; at--) if (settled[at]?.id === id) return settled[at];
  return undefined;
}

/** Without the step of that key; `undefined` where there is none, or a claim has the key. */
function withoutKey(
  { claim, unsettled }: WorkflowState,
  key: string | undefined,
): readonly UnsettledStep[] | undefined {
  if (key === undefined) return unsettled;
  const left = unsettled.filter(({ idempotencyKey }) => idempotencyKey !== key);
  const isThere = left.length < unsettled.length && claim?.idempotencyKey !== key;
  return isThere ? left : undefined;
}

/** The steps of unknown outcome that may be repeated, with a claim whose lease has ended. */
export function unsettledIn(
  { claim, unsettled }: Pick<WorkflowState, 'claim' | 'unsettled'>,
  now: number,
): readonly UnsettledStep[] {
  const isOver = claim?.uncertain === 'retry' && !isLive(claim, now);
  return isOver ? remember(unsettled, claim) : unsettled;
}

/**
 * From when on a run has been among those with unsettled steps, or will be where nothing comes of
 * its claim; `undefined` for neither.
 */
export function unsettledSince({
  claim,
  unsettled: [oldest],
}: Pick<WorkflowState, 'claim' | 'unsettled'>): number | undefined {
  return oldest?.since ?? (claim?.uncertain === 'retry' ? claim.leaseEnd : undefined);
}

function remember(unsettled: readonly UnsettledStep[], claim: Claim): readonly UnsettledStep[] {
  const { tool, digest, idempotencyKey, since, use } = claim;
  const others = unsettled.filter((step) => !isSameStep(step, claim));
  const step = { tool, digest, idempotencyKey, since, ...(use !== undefined && { use }) };
  return appended(others, Object.freeze(step), KEYS_KEPT);
}

function isSameStep(a: Pick<Claim, 'tool' | 'digest'>, b: Pick<Claim, 'tool' | 'digest'>): boolean {
  return a.tool === b.tool && a.digest === b.digest;
}

function viewOf(claim: Claim, now: number): ClaimView {
  const { token, tool, digest, uncertain, idempotencyKey, since, leaseEnd: until } = claim;
  const { use, entry, kind } = claim;
  return {
    ...{ token, tool, digest, uncertain, idempotencyKey, since, until },
    live: isLive(claim, now),
    ...(use !== undefined && { use }),
    ...(entry !== undefined && { entry }),
    ...(kind !== undefined && { kind }),
  };
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
