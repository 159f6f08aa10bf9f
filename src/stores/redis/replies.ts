import type {
  ClaimResult,
  ClaimView,
  CommitResult,
  FsmSnapshot,
  Json,
  RunRecord,
  SessionRecord,
  TrailDraft,
  TrailEntry,
  Uncertain,
  WorkflowRecord,
} from '../store.ts';

/** A script's reply: its first line says what it is, and every text below it is JSON. */
export interface Reply {
  readonly status: string;
  readonly lines: readonly string[];
}

/**
 * Nothing but a text is a reply. A driver may hand out bytes instead; anything else is what a
 * driver makes up when it could not ask, and must not pass for an answer.
 */
export function parseReply(raw: unknown): Reply {
  const text = Buffer.isBuffer(raw) ? raw.toString() : raw;
  if (typeof text !== 'string')
    throw new TypeError(`The store's script replied with ${typeof raw}, not with text`);
  const [status = '', ...lines] = text.split('\n');
  return { status, lines };
}

export function unexpected(operation: string, reply: Reply): Error {
  return new Error(
    `The store's ${operation} script gave an unknown reply: ${JSON.stringify(reply.status.slice(0, 40))}`,
  );
}

export function parseClaim(reply: Reply): ClaimResult {
  const { status } = reply;
  if (status === 'unknown') return { status };
  const seen = () => ({ snapshot: parseSnapshot(reply.lines), now: Number(reply.lines[4]) });
  const [first = '', ...more] = reply.lines.slice(5);
  switch (status) {
    case 'claimed':
      return { status, ...seen(), idempotencyKey: first };
    case 'busy':
      return { status, ...seen(), remainingMs: Number(first) };
    case 'held':
      return { status, ...seen(), claim: parseClaimView([first, ...more], false) };
    case 'state':
      return { status, ...seen() };
    default:
      throw unexpected('claim', reply);
  }
}

export function parseCommit(reply: Reply): CommitResult {
  const { status, lines } = reply;
  const [version, repeated] = lines;
  if (status === 'committed')
    return { status, version: Number(version), ...(repeated === 'repeated' && { repeated: true }) };
  if (status === 'lost' || status === 'unknown') return { status };
  throw unexpected('commit', reply);
}

/** The time, then name and value of each field in turn. */
export function parseRun({ lines: [now, ...pairs] }: Reply): RunRecord {
  let session: SessionRecord = {};
  const fieldsOf = new Map<string, Map<string, string>>();
  for (let i = 0; i + 1 < pairs.length; i += 2) {
    const [name = '', value = ''] = pairs.slice(i, i + 2);
    const colon = name.indexOf(':');
    if (colon < 0) {
      const { openedBy: _, ...record } = JSON.parse(value);
      session = record;
    } else {
      const workflow: string = JSON.parse(name.slice(colon + 1));
      const fields = fieldsOf.get(workflow) ?? new Map<string, string>();
      fieldsOf.set(workflow, fields.set(name.slice(0, colon), value));
    }
  }
  const workflows: Record<string, WorkflowRecord> = Object.create(null);
  for (const [workflow, fields] of fieldsOf) {
    if (fields.has('state')) workflows[workflow] = parseWorkflow(fields, Number(now));
  }
  return { session, workflows, now: Number(now) };
}

export function parseTrail({ status, lines }: Reply): TrailEntry[] {
  if (status !== 'trail') throw unexpected('history', { status, lines });
  return lines.map((line) => {
    const [, version, at, draft = ''] = /^(\d+) (\d+) (.*)$/su.exec(line) ?? [];
    return { ...(JSON.parse(draft) as TrailDraft), version: Number(version), at: Number(at) };
  });
}

function parseWorkflow(fields: ReadonlyMap<string, string>, now: number): WorkflowRecord {
  const text = (name: string) => fields.get(name) ?? '';
  const snapshot = parseSnapshot(['state', 'context', 'version', 'updated'].map(text));
  const ended = fields.has('ended') ? { ended: text('ended') === '1' } : {};
  if (!fields.has('token')) return { snapshot, ...ended };
  const claim = parseClaimView(
    ['token', 'key', 'step', 'uncertain'].map(text),
    Number(text('until')) > now,
  );
  return { snapshot, claim, ...ended };
}

function parseSnapshot([
  state = '',
  context = '',
  version,
  updatedAt,
]: readonly string[]): FsmSnapshot {
  const position = {
    state: JSON.parse(state) as string,
    version: Number(version),
    updatedAt: Number(updatedAt),
  };
  return context === '' ? position : { ...position, context: JSON.parse(context) as Json };
}

function parseClaimView(
  [token = '', key = '', step = '', uncertain = '']: readonly string[],
  live: boolean,
): ClaimView {
  const [tool, digest] = JSON.parse(step) as [string, string];
  return {
    token: JSON.parse(token) as string,
    idempotencyKey: key,
    tool,
    digest,
    uncertain: uncertain as Uncertain,
    live,
  };
}
