/**
 * What a run is during an operation, and how long it lives. Hides what keeps a run from going away:
 * its time to live, live leases, steps that must be resolved, freezes and evictions.
 */
import { LEAST_LEFT } from '../basics/clock.ts';
import type {
  CallNote,
  Freeze,
  FsmSnapshot,
  SessionRecord,
  StepDescription,
  TrailEntry,
  UnsettledStep,
} from './store.ts';
import type { TrailHead } from './trail.ts';

/**
 * One workflow of a run, in the memory of this process. Each operation makes a new one, and changes
 * none in place.
 */
export interface WorkflowState {
  readonly snapshot: FsmSnapshot;
  readonly claim: Claim | undefined;
  /** As {@link WorkflowRecord.frozen}. */
  readonly frozen?: Freeze | undefined;
  /** As {@link WorkflowRecord.ended}. */
  readonly ended?: boolean | undefined;
  /** Steps of unknown outcome, oldest first. */
  readonly unsettled: readonly UnsettledStep[];
  /** Tokens that were committed or released, oldest first. No operation changes one in place. */
  readonly settled: readonly SettledToken[];
  readonly trail: readonly TrailEntry[];
  readonly head: TrailHead;
}

export interface Claim extends StepDescription {
  readonly token: string;
  readonly idempotencyKey: string;
  readonly since: number;
  readonly leaseEnd: number;
  readonly entry: CallNote | undefined;
  readonly kind?: string | undefined;
}

export interface SettledToken {
  /** A digest of the token, which may be long. */
  readonly id: string;
  /** The version that the token committed; `undefined` where it was released. */
  readonly version?: number;
}

export interface ReleasedToken {
  readonly workflow: string;
  readonly token: string;
}

/** A run with its workflows during one operation. */
export interface RunState {
  readonly session: SessionRecord;
  /** The token that opened it, or none (`''`); `undefined` where a claim made it. */
  readonly openedBy: string | undefined;
  readonly workflows: ReadonlyMap<string, WorkflowState>;
  /** Tokens that were released in a workflow without any claim so far, oldest first. */
  readonly released?: readonly ReleasedToken[] | undefined;
  /**
   * When its session ends without further use or, once the session has ended, until when the run
   * can be read. Milliseconds since the epoch, by the store's clock.
   */
  readonly expiresAt: number;
  /**
   * Whether its session has ended before that time. `evicted`: it made way for other runs, and no
   * claim begins it anew before that time.
   */
  readonly sessionEnded?: boolean | 'evicted' | undefined;
}

export type Workflows = Pick<RunState, 'workflows' | 'released'>;

/** How long a run lives. */
export type Life = Pick<RunState, 'expiresAt' | 'sessionEnded'>;

/** What the operations go by: the workflows of a run, and how long it lives. */
export type LivingRun = Workflows & Life;

/** How long a run can be read whose session had ended when its last step was settled. */
const READABLE_MS = 24 * 3_600_000;

/** Whether a run had a move or a fact, or a call of unknown outcome: what a new run forgets. */
export function hasBegun({ workflows }: Workflows): boolean {
  for (const { snapshot, unsettled } of workflows.values())
    if ((snapshot.version ?? 0) > 0 || unsettled.length > 0) return true;
  return false;
}

export function isEvicted({ sessionEnded }: Pick<RunState, 'sessionEnded'>): boolean {
  return sessionEnded === 'evicted';
}

/** Whether a `hold` step has a claim in it: then nothing takes the run away. */
export function isPinned({ workflows }: Workflows): boolean {
  for (const { claim } of workflows.values()) if (claim?.uncertain === 'hold') return true;
  return false;
}

/** Whether no expiry takes the run away: it is pinned, or an operator has frozen it. */
export function neverExpires(run: Workflows): boolean {
  if (isPinned(run)) return true;
  for (const { frozen } of run.workflows.values()) if (frozen) return true;
  return false;
}

/** Whether the run stays though its session ends: it never expires, or a step of it runs. */
export function isNeeded(run: Workflows, now: number): boolean {
  return neverExpires(run) || liveUntil(run.workflows.values(), now) > now;
}

/** Whether the run is known. */
export function isKnown(run: LivingRun, now: number): boolean {
  return run.expiresAt > now || isNeeded(run, now);
}

/** Whether the session that named the run is over, by its end or for want of use. */
export function hasSessionEnded({ expiresAt, sessionEnded }: Life, now: number): boolean {
  return Boolean(sessionEnded) || expiresAt <= now;
}

/** The time to live that a read gives to a run: none if it is about an ended workflow. */
export function ttlOfLook(
  { workflows }: Workflows,
  ttlMs: number,
  about: string | undefined,
): number | undefined {
  return about !== undefined && workflows.get(about)?.ended === true ? undefined : ttlMs;
}

/** How an operation uses a run. */
export interface Use {
  /** How long the run lives from now on. Absent: as long as before. */
  readonly ttlMs?: number | undefined;
  /** As {@link ClaimRequest.keyMs}. */
  readonly keyMs?: number | undefined;
  /** The workflow as the operation leaves it, and as it was before where that counts no more. */
  readonly next?: WorkflowState | undefined;
  readonly replaces?: WorkflowState | undefined;
  /** The share of the time to live that counts as all of it, so that most reads write nothing. */
  readonly enough?: number | undefined;
  /** Whether the session lives again if it has ended. */
  readonly revives?: boolean;
}

/**
 * How long a run lives after a use; `undefined` where that stays as it is. The expiry never comes
 * before the end of a live lease. Only a commit moves it to an earlier time, and none does while a
 * key is unsettled: a clock that was set back and is right again would forget the run.
 */
export function newLife(
  run: LivingRun,
  now: number,
  { ttlMs, keyMs = 0, next, replaces, enough = LEAST_LEFT, revives = false }: Use,
): Life | undefined {
  const { expiresAt, workflows } = run;
  const isOver = hasSessionEnded(run, now);
  if (isEvicted(run) || (isOver && !revives)) return undefined;
  let least = now;
  let isKept = replaces === undefined;
  const consider = (workflow: WorkflowState): void => {
    if (workflow === replaces) return;
    const { claim, unsettled } = workflow;
    least = Math.max(least, claim?.leaseEnd ?? now);
    isKept ||= unsettled.length > 0 || claim?.uncertain === 'retry';
  };
  workflows.forEach(consider);
  if (next !== undefined) consider(next);
  let wanted = expiresAt;
  if (ttlMs !== undefined && !isFresh(expiresAt, now, Math.max(ttlMs, keyMs), enough))
    wanted = Math.max(now + Math.max(ttlMs, keyMs), isKept ? expiresAt : 0);
  wanted = Math.max(wanted, least);
  return wanted === expiresAt && !isOver ? undefined : { expiresAt: wanted, sessionEnded: false };
}

/** The life of a needed run that has expired: a sweep need not look at it for a while. */
function postponed(now: number): Life {
  return { expiresAt: now + READABLE_MS, sessionEnded: true };
}

/** How long a run can be read whose session has ended, once a step of it is settled. */
export function settledLife(run: LivingRun, now: number): Life | undefined {
  return hasSessionEnded(run, now) ? postponed(now) : undefined;
}

/** Whether an expiry is near enough to the one that a use of the run would set now. */
function isFresh(expiresAt: number, now: number, ttlMs: number, enough = LEAST_LEFT): boolean {
  return expiresAt >= now + ttlMs * enough && expiresAt <= now + ttlMs;
}

/** When the last live lease ends, or `now` where there is none. */
export function liveUntil(workflows: Iterable<WorkflowState>, now: number): number {
  let end = now;
  for (const { claim } of workflows) end = Math.max(end, claim?.leaseEnd ?? now);
  return end;
}
