import { randomUUID } from 'node:crypto';
import { copySnapshot } from '../run-state.ts';
import { decodeText, encodeKey, encodeText, jsonOrNull, textOrNull } from '../sql-text.ts';
import type {
  ClaimRequest,
  ClaimResult,
  ClaimView,
  CommitRequest,
  FsmSnapshot,
  Json,
  ReleaseOptions,
  RunKey,
  RunRecord,
  RunsQuery,
  SessionRecord,
  TrailEntry,
  Uncertain,
  WorkflowRecord,
} from '../store.ts';

/**
 * What a function of the database is called with. Names are encoded, and what is JSON to the caller
 * is JSON text.
 */
export type Document = Readonly<
  Record<string, string | number | boolean | null | readonly string[]>
>;

/** Three thousand years, which can still be added to a timestamp. */
const LONGEST_MS = 1e14;

export function duration(ms: number): number {
  return Math.min(ms, LONGEST_MS);
}

function runDocument(run: string, session: SessionRecord, ttlMs: number): Document {
  const { principal, minted } = session;
  const key = encodeKey(run);
  const wholeKey = encodeText(run);
  return {
    run: key,
    long_key: wholeKey === key ? null : wholeKey,
    principal: textOrNull(principal),
    minted: minted ?? null,
    ttl_ms: duration(ttlMs),
  };
}

export function openDocument(
  run: string,
  session: SessionRecord,
  ttlMs: number,
  token: string,
): Document {
  return { ...runDocument(run, session, ttlMs), opened_by: encodeText(token) };
}

export function stepDocument({ run, workflow }: RunKey, token: string): Document {
  return { run: encodeKey(run), workflow: encodeText(workflow), token: encodeText(token) };
}

export function releaseDocument(
  key: RunKey,
  token: string,
  { settles }: ReleaseOptions = {},
): Document {
  return { ...stepDocument(key, token), settles: settles !== false };
}

export function claimDocument(request: ClaimRequest): Document {
  const { step, states, initial, create } = request;
  return {
    ...runDocument(request.run, create ?? {}, request.ttlMs),
    ...stepDocument(request, request.token),
    tool: encodeText(step.tool),
    digest: encodeText(step.digest),
    uncertain: step.uncertain,
    states: states?.map(encodeText) ?? null,
    state: encodeText(initial.state),
    context: jsonOrNull(initial.context),
    version: initial.version ?? 0,
    make_run: create !== undefined,
    new_key: randomUUID(),
    lease_ms: duration(request.leaseMs),
  };
}

export function commitDocument(request: CommitRequest): Document {
  const { snapshot, trail } = request;
  return {
    ...stepDocument(request, request.token),
    state: encodeText(snapshot.state),
    context: jsonOrNull(snapshot.context),
    from_state: encodeText(trail.from),
    to_state: encodeText(trail.to),
    event: textOrNull(trail.event),
    tool: textOrNull(trail.tool),
    actor: textOrNull(trail.actor),
    payload: jsonOrNull(trail.payload),
    ttl_ms: duration(request.ttlMs),
    settles: request.settles !== false,
    settles_all: request.settles === 'all',
    settled_as: textOrNull(request.as),
    ended: request.ended === true,
  };
}

/** The runs after `last`, or from the first one on. */
export function runsDocument(
  { workflow, state, forMs = 0 }: RunsQuery,
  last?: RunInState,
): Document {
  return {
    workflow: encodeText(workflow),
    state: encodeText(state),
    for_ms: duration(forMs),
    after_time: last?.updated_at ?? '-infinity',
    after_id: last?.id ?? 0,
  };
}

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
