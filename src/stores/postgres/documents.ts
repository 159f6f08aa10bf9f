/**
 * What the process and the database's functions say to each other. Hides that names are encoded,
 * and that JSON travels as text, so that it comes back as it was.
 */
import { randomUUID } from 'node:crypto';
import { copySnapshot } from '../run-state.ts';
import { decodeText, encodeKey, encodeText, jsonOrNull, textOrNull } from '../sql-text.ts';
import type {
  CallNote,
  ClaimRequest,
  ClaimResult,
  ClaimView,
  ClientInfo,
  CommitRequest,
  CommitResult,
  CountQuery,
  Freeze,
  FreezeRequest,
  FreezeResult,
  FsmSnapshot,
  HeldQuery,
  Json,
  KeysPage,
  ListQuery,
  PageQuery,
  RecordRequest,
  RecordResult,
  ReleaseOptions,
  RenewOptions,
  RunKey,
  RunRecord,
  RunsCount,
  RunsPage,
  RunsQuery,
  SeenSnapshot,
  SessionRecord,
  StuckQuery,
  SwitchRecord,
  TrailDraft,
  TrailEntry,
  TrailOutcome,
  Uncertain,
  UnsettledStep,
  WorkflowRecord,
} from '../store.ts';
import { digestOfName } from '../trail.ts';

/** The argument of a function. Names are encoded, and JSON of the caller's is JSON text. */
export interface Document {
  readonly [member: string]: string | number | boolean | null | readonly string[] | Document;
}

/** Three thousand years, which PostgreSQL can still add to a timestamp. */
const LONGEST_MS = 1e14;

export function durationNumber(ms: number): number {
  return Math.min(ms, LONGEST_MS);
}

function runDocument(run: string, session: SessionRecord, ttlMs: number): Document {
  const { principal, minted, clientInfo } = session;
  const key = encodeKey(run);
  const wholeKey = encodeText(run);
  return {
    run: key,
    long_key: wholeKey === key ? null : wholeKey,
    principal: textOrNull(principal),
    minted: minted ?? null,
    client_info: clientInfo === undefined ? null : JSON.stringify(clientInfo),
    ttl_ms: durationNumber(ttlMs),
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

function stepDocument({ run, workflow }: RunKey, token: string): Document {
  return { run: encodeKey(run), workflow: encodeText(workflow), token: encodeText(token) };
}

/** A step of a workflow that may begin with it, in a run that may begin with it. */
function firstStepDocument(
  request: ClaimRequest | RecordRequest | FreezeRequest,
  isChained: boolean,
): Document {
  const { run, workflow, token, initial, create, ttlMs } = request;
  return {
    ...runDocument(run, create ?? {}, ttlMs),
    ...stepDocument(request, token),
    make_run: create !== undefined,
    initial_state: encodeText(initial.state),
    initial_context: jsonOrNull(initial.context),
    initial_version: initial.version ?? 0,
    run_digest: isChained ? digestOfName(run) : null,
    name_digest: isChained ? digestOfName(workflow) : null,
  };
}

export function renewDocument(
  key: RunKey,
  token: string,
  leaseMs: number,
  { hold }: RenewOptions = {},
): Document {
  return { ...stepDocument(key, token), lease_ms: durationNumber(leaseMs), hold: textOrNull(hold) };
}

export function releaseDocument(
  key: RunKey,
  token: string,
  { settles, entry }: ReleaseOptions = {},
): Document {
  const step = { ...stepDocument(key, token), settles: settles !== false };
  return entry === undefined ? step : { ...step, ...draftDocument(entry) };
}

export function appendDocument({ run, workflow }: RunKey, entry: TrailDraft): Document {
  return { run: encodeKey(run), workflow: encodeText(workflow), ...draftDocument(entry) };
}

/** An entry of the trail, without its absent members. */
function draftDocument(draft: TrailDraft): Document {
  const { from, to, event, outcome, kind, payload, errors, note, calledBy } = draft;
  return {
    ...noteDocument(draft),
    from_state: encodeText(from),
    event: textOrNull(event),
    ...(to !== undefined && { to_state: encodeText(to) }),
    ...(outcome !== undefined && { outcome }),
    ...(kind !== undefined && { kind: encodeText(kind) }),
    ...(payload !== undefined && { payload: JSON.stringify(payload) }),
    ...(errors !== undefined && { errors: JSON.stringify(errors) }),
    ...(note !== undefined && { note: encodeText(note) }),
    ...(calledBy !== undefined && { called_by: encodeText(calledBy) }),
  };
}

/** JSON is JSON text, since the value `null` is not the same as no value. */
function noteDocument(note: CallNote): Document {
  const { tool, digest, args, actor, requestId, workflowVersion } = note;
  return {
    ...(tool !== undefined && { tool: encodeText(tool) }),
    ...(digest !== undefined && { digest: encodeText(digest) }),
    ...(args !== undefined && { args: JSON.stringify(args) }),
    ...(actor !== undefined && { actor: encodeText(actor) }),
    ...(requestId !== undefined && { request_id: JSON.stringify(requestId) }),
    ...(workflowVersion !== undefined && { workflow_version: JSON.stringify(workflowVersion) }),
  };
}

export function claimDocument(request: ClaimRequest, isChained: boolean): Document {
  const { step, states, entry, leaseMs, keyMs } = request;
  return {
    ...firstStepDocument(request, isChained),
    tool: encodeText(step.tool),
    digest: encodeText(step.digest),
    uncertain: step.uncertain,
    ...(step.use !== undefined && { use: JSON.stringify(step.use) }),
    states: states?.map(encodeText) ?? null,
    new_key: randomUUID(),
    lease_ms: durationNumber(leaseMs),
    key_ms: keyMs === undefined ? null : durationNumber(keyMs),
    entry: entry === undefined ? null : noteDocument(entry),
  };
}

export function commitDocument(request: CommitRequest): Document {
  return {
    ...stepDocument(request, request.token),
    ...moveDocument(request),
    from_version: request.from ?? null,
    ttl_ms: durationNumber(request.ttlMs),
    settles: request.settles !== false,
    settles_all: request.settles === 'all',
    settled_as: textOrNull(request.as),
    ended: request.ended === true,
  };
}

export function recordDocument(request: RecordRequest, isChained: boolean): Document {
  return {
    ...firstStepDocument(request, isChained),
    ...moveDocument(request),
    from_version: request.from,
    ended: request.ended ?? null,
  };
}

export function freezeDocument(request: FreezeRequest, isChained: boolean): Document {
  const { freeze, entry } = request;
  // These members alone, in this order.
  const frozen = freeze && { actor: freeze.actor, note: freeze.note };
  return {
    ...firstStepDocument(request, isChained),
    ...draftDocument(entry),
    frozen: jsonOrNull(frozen),
  };
}

export function switchDocument(
  workflow: string,
  expected: string | undefined,
  { value, revision }: SwitchRecord,
): Document {
  return {
    workflow: encodeKey(workflow),
    expected: textOrNull(expected),
    revision: encodeText(revision),
    value: JSON.stringify(value),
  };
}

function moveDocument({ snapshot, trail }: CommitRequest | RecordRequest): Document {
  return {
    state: encodeText(snapshot.state),
    context: jsonOrNull(snapshot.context),
    ...draftDocument(trail),
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
    for_ms: durationNumber(forMs),
    after_time: last?.updated_at ?? '-infinity',
    after_id: last?.id ?? 0,
  };
}

/** The page begins where the page before ended. */
export function pageDocument(query: HeldQuery | StuckQuery): Document {
  const [time, id] = parseCursor(query.after, 2) ?? ['-infinity', 0];
  const { states = null, forMs = 0 } = 'forMs' in query ? query : {};
  return {
    workflow: encodeText(query.workflow),
    states: states?.map(encodeText) ?? null,
    for_ms: durationNumber(forMs),
    at_most: query.limit + 1,
    after_time: time ?? null,
    after_id: id ?? null,
  };
}

export function countDocument({ workflow, forMs }: CountQuery): Document {
  return { workflow: encodeText(workflow), for_ms: durationNumber(forMs) };
}

export function listDocument({ principal, limit, after }: ListQuery): Document {
  const [run = null] = parseCursor(after, 1) ?? [];
  return { principal: encodeText(principal), at_most: limit + 1, after_run: run };
}

type Cursor = readonly (string | number)[];

function cursorAt(place: Cursor): string {
  return JSON.stringify(place);
}

function parseCursor(after: string | undefined, length: number): Cursor | undefined {
  if (after === undefined) return undefined;
  const place: unknown = JSON.parse(after);
  if (!Array.isArray(place) || place.length !== length) throw new TypeError(`no cursor: ${after}`);
  return place;
}

/** As the functions answer: names encoded, JSON as text, `null` for what is not there. */
interface WorkflowRow {
  readonly workflow: string;
  readonly state: string;
  readonly context: string | null;
  readonly version: number;
  readonly updatedAt: number;
  readonly ended: boolean | null;
  readonly frozen: string | null;
  readonly claim: ClaimRow | null;
}

interface ClaimRow {
  readonly token: string;
  readonly tool: string;
  readonly digest: string;
  readonly uncertain: Uncertain;
  readonly use: string | null;
  readonly idempotencyKey: string;
  /** How long the lease still lasts; zero or less once it has ended. */
  readonly remainingMs: number;
  readonly since: number;
  readonly until: number;
  readonly entry: NoteRow | null;
  readonly kind: string | null;
}

/** Has only the members that the note has. */
interface NoteRow {
  readonly tool?: string;
  readonly digest?: string;
  readonly args?: string;
  readonly actor?: string;
  readonly request_id?: string;
  readonly workflow_version?: string;
}

export interface RunRow {
  readonly principal: string | null;
  readonly minted: boolean | null;
  readonly clientInfo: ClientInfo | null;
  readonly sessionEnded: boolean;
  /** `null` where there are none. */
  readonly workflows: readonly WorkflowRow[] | null;
  readonly now: number;
}

export interface ClaimAnswer {
  readonly status: ClaimResult['status'];
  /** `null` where the workflow was never claimed. */
  readonly flow: WorkflowRow | null;
  readonly now: number;
  /** `null` where there are none. Absent where the claim is refused. */
  readonly unsettled?: readonly UnsettledRow[] | null;
}

interface UnsettledRow {
  readonly tool: string;
  readonly digest: string;
  readonly key: string;
  readonly since: number;
  readonly use?: string;
}

export type CommitAnswer = Exclude<CommitResult, { status: 'moved' }> | MovedAnswer;
export type RecordAnswer = Exclude<RecordResult, { status: 'moved' }> | MovedAnswer;

export type FreezeAnswer =
  | { readonly status: 'unknown' }
  | (Omit<MovedAnswer, 'status'> & { readonly status: 'changed' | 'unchanged' });

export interface SwitchRow {
  readonly value: string;
  readonly revision: string;
}

interface MovedAnswer {
  readonly status: 'moved';
  /** `null` where the workflow was never claimed. */
  readonly flow: WorkflowRow | null;
  readonly now: number;
}

export interface RunInState {
  readonly run: string;
  /** To the microsecond, so that the next page begins exactly behind it. */
  readonly updated_at: string;
  readonly id: number;
}

export interface EventRow {
  readonly seq: number;
  readonly version: number;
  readonly attempt: number;
  readonly at: number;
  readonly from: string;
  readonly to: string | null;
  readonly event: string | null;
  readonly outcome: TrailOutcome | null;
  readonly kind: string | null;
  readonly tool: string | null;
  readonly digest: string | null;
  readonly args: string | null;
  readonly actor: string | null;
  readonly requestId: string | null;
  readonly workflowVersion: string | null;
  readonly payload: string | null;
  readonly errors: string | null;
  readonly note: string | null;
  readonly calledBy: string | null;
  readonly previous: string | null;
  readonly hash: string | null;
}

interface FoundRow {
  readonly run: string;
  readonly sessionEnded: boolean;
  readonly flow: WorkflowRow;
  /** To the microsecond, so that the next page begins exactly behind it. */
  readonly time: string;
  readonly id: number;
}

export interface PageRow {
  /** One more than the caller asked for, where there is one. */
  readonly runs: readonly FoundRow[];
  readonly now: number;
}

export interface KeyRow {
  readonly run: string;
  /** The run key, where `run` is only its beginning and a digest. */
  readonly key: string;
}

/** What became of a batch of expired runs. */
export interface SweptRow {
  readonly looked: number;
  readonly removed: number;
}

export interface CountRow {
  readonly states: RunsCount['states'];
  readonly held: number;
  readonly running: number;
  readonly oldestClaim: number | null;
  readonly now: number;
}

export function toRunRecord(row: RunRow): RunRecord {
  const { principal, minted, clientInfo, sessionEnded, workflows, now } = row;
  return {
    session: {
      ...present('principal', principal, decodeText),
      ...(minted !== null && { minted }),
      ...(clientInfo !== null && { clientInfo }),
    },
    workflows: toWorkflows(workflows ?? []),
    ...(sessionEnded && { sessionEnded }),
    now,
  };
}

export function toClaimResult(
  { status, flow, now, unsettled }: ClaimAnswer,
  { initial }: ClaimRequest,
): ClaimResult {
  if (status === 'unknown') return { status };
  const seen = toSeen(flow, now, initial);
  if (status === 'state' || status === 'unsettled') return { status, ...seen };
  if (status === 'frozen') {
    if (!flow?.frozen) throw new TypeError('The database answered frozen without a freeze');
    return { status, ...seen, freeze: parseColumn(flow.frozen) };
  }
  const claim = flow?.claim;
  if (!claim) throw new TypeError(`The database answered ${status} without a claim`);
  if (status === 'claimed') {
    const granted = { status, ...seen, idempotencyKey: claim.idempotencyKey } as const;
    return unsettled ? { ...granted, unsettled: unsettled.map(toUnsettled) } : granted;
  }
  if (status === 'held') return { status, ...seen, claim: toClaimView(claim) };
  // The lease lived when the database judged the claim, and may have ended before the answer.
  return { status, ...seen, remainingMs: Math.max(1, claim.remainingMs) };
}

export function toCommitResult(answer: CommitAnswer): CommitResult {
  if (answer.status !== 'moved') return answer;
  const { status, flow, now } = answer;
  if (!flow) throw new TypeError('The database answered moved without a workflow');
  return { status, snapshot: toSnapshot(flow), now };
}

export function toRecordResult(answer: RecordAnswer, { initial }: RecordRequest): RecordResult {
  if (answer.status !== 'moved') return answer;
  return { status: answer.status, ...toSeen(answer.flow, answer.now, initial) };
}

export function toFreezeResult(answer: FreezeAnswer, { initial }: FreezeRequest): FreezeResult {
  if (answer.status === 'unknown') return answer;
  const { status, flow, now } = answer;
  return {
    status,
    ...present('frozen', flow?.frozen, parseColumn<Freeze>),
    ...toSeen(flow, now, initial),
  };
}

export function toSwitchRecord({ value, revision }: SwitchRow): SwitchRecord {
  return { value: parseColumn(value), revision: decodeText(revision) };
}

/** A workflow that was never claimed is seen where it would begin. */
function toSeen(flow: WorkflowRow | null, now: number, initial: FsmSnapshot): SeenSnapshot {
  return { snapshot: flow ? toSnapshot(flow) : copySnapshot({ ...initial, updatedAt: now }), now };
}

export function toTrailEntry(row: EventRow): TrailEntry {
  return {
    seq: row.seq,
    version: row.version,
    attempt: row.attempt,
    at: row.at,
    from: decodeText(row.from),
    ...present('to', row.to, decodeText),
    event: row.event === null ? null : decodeText(row.event),
    ...(row.outcome !== null && { outcome: row.outcome }),
    ...present('kind', row.kind, decodeText),
    ...present('tool', row.tool, decodeText),
    ...present('digest', row.digest, decodeText),
    ...present('args', row.args, parseColumn),
    ...present('actor', row.actor, decodeText),
    ...present('requestId', row.requestId, parseColumn<string | number>),
    ...present('workflowVersion', row.workflowVersion, parseColumn<number>),
    ...present('payload', row.payload, parseColumn),
    ...present('errors', row.errors, parseColumn<Json[]>),
    ...present('note', row.note, decodeText),
    ...present('calledBy', row.calledBy, decodeText),
    ...(row.previous !== null && { previous: row.previous }),
    ...(row.hash !== null && { hash: row.hash }),
  };
}

export function toRunsPage({ runs, now }: PageRow, { limit }: PageQuery): RunsPage {
  const given = runs.slice(0, limit);
  const last = runs.length > limit ? given.at(-1) : undefined;
  return {
    runs: given.map(({ run, flow, sessionEnded }) => ({
      run: decodeText(run),
      ...toWorkflow(flow),
      ...(sessionEnded && { sessionEnded }),
    })),
    ...(last && { next: cursorAt([last.time, last.id]) }),
    now,
  };
}

export function toKeysPage(rows: readonly KeyRow[], { limit }: PageQuery): KeysPage {
  const given = rows.slice(0, limit);
  const last = rows.length > limit ? given.at(-1) : undefined;
  return {
    runs: given.map(({ key }) => decodeText(key)),
    ...(last && { next: cursorAt([last.run]) }),
  };
}

export function toRunsCount({ states, oldestClaim, ...counts }: CountRow): RunsCount {
  return {
    states: states.map((each) => ({ ...each, state: decodeText(each.state) })),
    ...counts,
    ...(oldestClaim !== null && { oldestClaim }),
  };
}

/** Without a prototype, so that a workflow may be called `__proto__`. */
function toWorkflows(rows: readonly WorkflowRow[]): Record<string, WorkflowRecord> {
  const workflows: Record<string, WorkflowRecord> = Object.create(null);
  for (const row of rows) workflows[decodeText(row.workflow)] = toWorkflow(row);
  return workflows;
}

function toWorkflow(row: WorkflowRow): WorkflowRecord {
  return {
    snapshot: toSnapshot(row),
    ...(row.claim && { claim: toClaimView(row.claim) }),
    ...present('frozen', row.frozen, parseColumn<Freeze>),
    ...(row.ended !== null && { ended: row.ended }),
  };
}

function toSnapshot({ state, updatedAt, version, context }: WorkflowRow): FsmSnapshot {
  return {
    state: decodeText(state),
    updatedAt,
    version,
    ...present('context', context, parseColumn),
  };
}

function toUnsettled({ tool, digest, key, since, use }: UnsettledRow): UnsettledStep {
  return {
    tool: decodeText(tool),
    digest: decodeText(digest),
    idempotencyKey: key,
    since,
    ...present('use', use, parseColumn),
  };
}

function toClaimView({
  token,
  tool,
  digest,
  uncertain,
  use,
  idempotencyKey,
  remainingMs,
  since,
  until,
  entry,
  kind,
}: ClaimRow): ClaimView {
  return {
    token: decodeText(token),
    tool: decodeText(tool),
    digest: decodeText(digest),
    uncertain,
    idempotencyKey,
    live: remainingMs > 0,
    since,
    until,
    ...present('use', use, parseColumn),
    ...(entry !== null && { entry: toNote(entry) }),
    ...present('kind', kind, decodeText),
  };
}

function toNote({ tool, digest, args, actor, request_id, workflow_version }: NoteRow): CallNote {
  return {
    ...present('tool', tool, decodeText),
    ...present('digest', digest, decodeText),
    ...present('args', args, parseColumn),
    ...present('actor', actor, decodeText),
    ...present('requestId', request_id, parseColumn<string | number>),
    ...present('workflowVersion', workflow_version, parseColumn<number>),
  };
}

function parseColumn<T = Json>(text: string): T {
  return JSON.parse(text);
}

/** The property, or none where the column is null or missing. */
function present<Key extends string, Value>(
  key: Key,
  stored: string | null | undefined,
  read: (text: string) => Value,
): { [K in Key]?: Value } {
  return stored == null ? {} : ({ [key]: read(stored) } as { [K in Key]: Value });
}
