import { randomUUID } from 'node:crypto';
import { encodeKey, encodeText } from '../sql-text.ts';
import type {
  ClaimRequest,
  CommitRequest,
  Json,
  ReleaseOptions,
  RunKey,
  RunsQuery,
  SessionRecord,
} from '../store.ts';
import type { RunInState } from './rows.ts';

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

function textOrNull(text: string | null | undefined): string | null {
  return text == null ? null : encodeText(text);
}

/**
 * JSON's own escapes make the text storable. No value is not the value `null`, whose text is
 * `'null'`.
 */
function jsonOrNull(value: Json | undefined): string | null {
  return value === undefined ? null : JSON.stringify(value);
}
