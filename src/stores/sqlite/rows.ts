import { decodeText, encodeText } from '../sql-text.ts';
import type { Json, SessionRecord, TrailEntry } from '../store.ts';
import type { WorkflowState } from '../workflow-state.ts';
import type { SqliteValue } from './database.ts';

export interface RunRow {
  readonly principal: string | null;
  readonly minted: number | null;
  readonly opened_by: string | null;
  readonly expires_at: number;
}

export interface WorkflowRow {
  readonly workflow_type: string;
  readonly state: string;
  readonly context: string | null;
  readonly version: number;
  readonly updated_at: number;
  readonly claim: string | null;
  readonly ended: number | null;
  readonly unsettled: string;
  readonly settled: string;
}

export interface RunInState {
  readonly run: string;
  readonly updated_at: number;
}

export interface EventRow {
  readonly version: number;
  readonly from_state: string;
  readonly to_state: string;
  readonly event: string | null;
  readonly payload: string | null;
  readonly actor: string | null;
  readonly tool: string | null;
  readonly occurred_at: number;
}

export function toSession({ principal, minted }: RunRow): SessionRecord {
  return {
    ...(principal !== null && { principal: decodeText(principal) }),
    ...(minted !== null && { minted: minted !== 0 }),
  };
}

/** `principal` and `minted`. */
export function fromSession({ principal, minted }: SessionRecord): SqliteValue[] {
  return [textOrNull(principal), minted === undefined ? null : Number(minted)];
}

/** Without its trail, which stays in the table of events. */
export function toWorkflow(row: WorkflowRow): WorkflowState {
  const { version, updated_at: updatedAt, context, claim } = row;
  return {
    snapshot: {
      state: decodeText(row.state),
      updatedAt,
      version,
      ...(context !== null && { context: JSON.parse(context) as Json }),
    },
    claim: claim === null ? undefined : JSON.parse(claim),
    ended: row.ended === null ? undefined : row.ended !== 0,
    unsettled: JSON.parse(row.unsettled),
    settled: JSON.parse(row.settled),
    trail: [],
  };
}

/** `state`, `context`, `version`, `updated_at`, `claim`, `ended`, `unsettled` and `settled`. */
export function fromWorkflow({
  snapshot,
  claim,
  ended,
  unsettled,
  settled,
}: WorkflowState): SqliteValue[] {
  const { state, context, version = 0, updatedAt } = snapshot;
  return [
    encodeText(state),
    jsonOrNull(context),
    version,
    updatedAt,
    jsonOrNull(claim),
    ended === undefined ? null : Number(ended),
    JSON.stringify(unsettled),
    JSON.stringify(settled),
  ];
}

export function toTrailEntry(row: EventRow): TrailEntry {
  const { version, event, payload, actor, tool } = row;
  return {
    version,
    from: decodeText(row.from_state),
    to: decodeText(row.to_state),
    event: event === null ? null : decodeText(event),
    ...(tool !== null && { tool: decodeText(tool) }),
    ...(actor !== null && { actor: decodeText(actor) }),
    ...(payload !== null && { payload: JSON.parse(payload) as Json }),
    at: row.occurred_at,
  };
}

/** `version`, `from_state`, `to_state`, `event`, `payload`, `actor`, `tool` and `occurred_at`. */
export function fromTrailEntry({
  version,
  from,
  to,
  event,
  payload,
  actor,
  tool,
  at,
}: TrailEntry): SqliteValue[] {
  const texts = [encodeText(from), encodeText(to), textOrNull(event)];
  return [version, ...texts, jsonOrNull(payload), textOrNull(actor), textOrNull(tool), at];
}

export function textOrNull(text: string | null | undefined): string | null {
  return text == null ? null : encodeText(text);
}

/** No value is not the value `null`, whose text is `'null'`. */
function jsonOrNull(value: unknown): string | null {
  return value === undefined ? null : JSON.stringify(value);
}
