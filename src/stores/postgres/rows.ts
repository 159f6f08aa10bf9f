import { decodeText } from '../sql-text.ts';
import type {
  ClaimRequest,
  ClaimResult,
  ClaimView,
  FsmSnapshot,
  Json,
  RunRecord,
  TrailEntry,
  Uncertain,
  WorkflowRecord,
} from '../store.ts';
import { copySnapshot } from '../workflow-state.ts';

/**
 * What the database's functions answer: names encoded, JSON as text, `null` for what is not there.
 */
interface WorkflowRow {
  readonly workflow: string;
  readonly state: string;
  readonly context: string | null;
  readonly version: number;
  readonly updatedAt: number;
  readonly ended: boolean | null;
  readonly claim: ClaimRow | null;
}

interface ClaimRow {
  readonly token: string;
  readonly tool: string;
  readonly digest: string;
  readonly uncertain: Uncertain;
  readonly idempotencyKey: string;
  /** Until the lease ends; zero or less once it has. */
  readonly remainingMs: number;
}

export interface RunRow {
  readonly principal: string | null;
  readonly minted: boolean | null;
  /** `null` where there are none. */
  readonly workflows: readonly WorkflowRow[] | null;
  readonly now: number;
}

export interface ClaimAnswer {
  readonly status: ClaimResult['status'];
  /** `null` where the workflow was never claimed. */
  readonly flow: WorkflowRow | null;
  readonly now: number;
}

export interface RunInState {
  readonly run: string;
  /** In microseconds, so that it says exactly where to go on. */
  readonly updated_at: string;
  readonly id: number;
}

export interface EventRow {
  readonly version: number;
  readonly from: string;
  readonly to: string;
  readonly event: string | null;
  readonly tool: string | null;
  readonly actor: string | null;
  readonly payload: string | null;
  readonly at: number;
}

export function toRunRecord({ principal, minted, workflows, now }: RunRow): RunRecord {
  return {
    session: { ...present('principal', principal, decodeText), ...(minted !== null && { minted }) },
    workflows: toWorkflows(workflows ?? []),
    now,
  };
}

export function toClaimResult(
  { status, flow, now }: ClaimAnswer,
  { initial }: ClaimRequest,
): ClaimResult {
  if (status === 'unknown') return { status };
  const snapshot = flow ? toSnapshot(flow) : copySnapshot({ ...initial, updatedAt: now });
  const seen = { snapshot, now };
  if (status === 'state') return { status, ...seen };
  const claim = flow?.claim;
  if (!claim) throw new TypeError(`The database answered ${status} without a claim`);
  if (status === 'claimed') return { status, ...seen, idempotencyKey: claim.idempotencyKey };
  if (status === 'held') return { status, ...seen, claim: toClaimView(claim) };
  // The lease was alive when the claim was judged, and may have ended before the answer was
  // written.
  return { status, ...seen, remainingMs: Math.max(1, claim.remainingMs) };
}

export function toTrailEntry(row: EventRow): TrailEntry {
  return {
    version: row.version,
    from: decodeText(row.from),
    to: decodeText(row.to),
    event: row.event === null ? null : decodeText(row.event),
    ...present('tool', row.tool, decodeText),
    ...present('actor', row.actor, decodeText),
    ...present('payload', row.payload, parseJson),
    at: row.at,
  };
}

/** Without a prototype, so that a workflow may be called `__proto__`. */
function toWorkflows(rows: readonly WorkflowRow[]): Record<string, WorkflowRecord> {
  const workflows: Record<string, WorkflowRecord> = Object.create(null);
  for (const row of rows) {
    workflows[decodeText(row.workflow)] = {
      snapshot: toSnapshot(row),
      ...(row.claim && { claim: toClaimView(row.claim) }),
      ...(row.ended !== null && { ended: row.ended }),
    };
  }
  return workflows;
}

function toSnapshot({ state, updatedAt, version, context }: WorkflowRow): FsmSnapshot {
  return {
    state: decodeText(state),
    updatedAt,
    version,
    ...present('context', context, parseJson),
  };
}

function toClaimView({
  token,
  tool,
  digest,
  uncertain,
  idempotencyKey,
  remainingMs,
}: ClaimRow): ClaimView {
  return {
    token: decodeText(token),
    tool: decodeText(tool),
    digest: decodeText(digest),
    uncertain,
    idempotencyKey,
    live: remainingMs > 0,
  };
}

function parseJson(text: string): Json {
  return JSON.parse(text);
}

/** The property, or none at all where the column is null. */
function present<Key extends string, Value>(
  key: Key,
  stored: string | null,
  read: (text: string) => Value,
): { [K in Key]?: Value } {
  return stored === null ? {} : ({ [key]: read(stored) } as { [K in Key]: Value });
}
