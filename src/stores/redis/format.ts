/**
 * What this process and the scripts agree on: the keys of a run and the form of a reply. The keys
 * are a part of the format, so later versions must find existing runs under the same ones. The
 * first line of a reply is its status; the others are JSON text or numbers.
 */
import { createHash } from 'node:crypto';
import { InterlockError } from '../../errors.ts';
import type {
  CallNote,
  ClaimResult,
  ClaimView,
  CommitResult,
  Freeze,
  FreezeResult,
  FsmSnapshot,
  Json,
  RecordResult,
  RunRecord,
  SeenSnapshot,
  SessionRecord,
  SwitchRecord,
  TrailDraft,
  TrailEntry,
  Uncertain,
  UnsettledStep,
  WorkflowRecord,
} from '../store.ts';
import { REDIS_FORMAT } from './scripts.ts';

/**
 * Every run is in one bucket, together with that bucket's index. On Redis Cluster a bucket is in
 * one slot, so that one script can write both.
 */
export const BUCKETS = 64;

const READABLE = /^[\w.:-]{1,64}$/;

/** The keys of a bucket's index: the sorted set, and the hash of the numbers in its scores. */
export type IndexKeys = readonly [index: string, numbers: string];

/** A run's name in the scripts, and the keys that they need for it. */
export interface RunName {
  readonly name: string;
  readonly bucket: number;
  readonly keys: readonly [run: string, ...IndexKeys];
}

/** The keys of one store. It makes those of each index only once. */
export class Keys {
  readonly indexes: readonly IndexKeys[];
  readonly #prefixes: readonly string[];

  constructor(prefix: string) {
    this.#prefixes = Array.from({ length: BUCKETS }, (_, bucket) => bucketPrefix(prefix, bucket));
    this.indexes = this.#prefixes.map((start) => [`${start}index`, `${start}numbers`]);
  }

  of(run: string): RunName {
    return this.named(nameOf(run));
  }

  named(name: string): RunName {
    const bucket = bucketOf(name);
    return { name, bucket, keys: [`${this.#prefixes[bucket]}run:${name}`, ...this.index(bucket)] };
  }

  /** The key of a workflow's switch, and that of its bucket's numbers. */
  ofSwitch(workflow: string): readonly [key: string, numbers: string] {
    const name = nameOf(workflow);
    const bucket = bucketOf(name);
    return [`${this.#prefixes[bucket]}switch:${name}`, this.index(bucket)[1]];
  }

  index(bucket: number): IndexKeys {
    const keys = this.indexes[bucket];
    if (keys === undefined) throw new RangeError(`There is no bucket ${bucket}`);
    return keys;
  }
}

/** Redis Cluster hashes only the text in braces, so all keys of a bucket are in one slot. */
function bucketPrefix(prefix: string, bucket: number): string {
  return `${prefix}:{b${String(bucket).padStart(2, '0')}}:`;
}

/**
 * A short run key of harmless characters stays readable. Any other becomes a digest of its UTF-16
 * units, because UTF-8 cannot hold half a surrogate pair.
 */
function nameOf(run: string): string {
  return READABLE.test(run) ? run : `#${sha256(run).toString('base64url')}`;
}

/** The key that a run's hash must keep; empty where the run's name is the key. */
export function keptKey(run: string): string {
  return READABLE.test(run) ? '' : JSON.stringify(run);
}

/** Whether a run's name is its key. */
export function isKey(name: string): boolean {
  return !name.startsWith('#');
}

/** FNV-1a, folded: it spreads even names that only count up. */
function bucketOf(name: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < name.length; i += 1) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return ((hash >>> 16) ^ (hash >>> 8) ^ hash) & (BUCKETS - 1);
}

/** The score of a principal's runs in the index. Only such scores are negative. */
export function principalScore(principal: string): string {
  return `-${sha256(principal).readUIntBE(0, 6) + 1}`;
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text, 'utf16le').digest();
}

export interface Reply {
  readonly status: string;
  readonly lines: readonly string[];
}

/**
 * A reply is text, which some drivers give as bytes. Any other value comes from a driver that could
 * not ask the server, and must not count as an answer.
 *
 * @throws InterlockError `ERR_INTERLOCK_STORE` for a run or an index of another format.
 */
export function parseReply(raw: unknown): Reply {
  const text = Buffer.isBuffer(raw) ? raw.toString() : raw;
  if (typeof text !== 'string')
    throw new TypeError(`The store's script replied with ${typeof raw}, not with text`);
  const [status = '', ...lines] = text.split('\n');
  if (status === 'format') checkFormat(Number(lines[0]));
  return { status, lines };
}

/** @throws InterlockError `ERR_INTERLOCK_STORE` for another format than this version's. */
export function checkFormat(format: number): void {
  if (format === REDIS_FORMAT) return;
  throw new InterlockError(
    'ERR_INTERLOCK_STORE',
    `what Redis has under this prefix is in format ${format}, by another version of ` +
      `mcp-interlock; this version knows format ${REDIS_FORMAT} alone. All is left as it is: ` +
      'let processes of that version serve it, or give this one another prefix',
  );
}

export function expectStatus<Status extends string>(
  operation: string,
  reply: Reply,
  ...known: readonly Status[]
): Status {
  const status = known.find((each) => each === reply.status);
  if (status === undefined) throw unexpected(operation, reply);
  return status;
}

function unexpected(operation: string, reply: Reply): Error {
  const status = JSON.stringify(reply.status.slice(0, 40));
  return new Error(`The store's ${operation} script gave an unknown reply: ${status}`);
}

export function parseClaimResult(reply: Reply): ClaimResult {
  const { status, lines } = reply;
  if (status === 'unknown') return { status };
  const more = lines[5] ?? '';
  switch (status) {
    case 'claimed': {
      const granted = { status, ...parseSeen(reply), idempotencyKey: more } as const;
      if (lines.length === 6) return granted;
      return { ...granted, unsettled: lines.slice(6).map(parseUnsettled) };
    }
    case 'busy':
      return { status, ...parseSeen(reply), remainingMs: Number(more) };
    case 'held': {
      const seen = parseSeen(reply);
      return { status, ...seen, claim: parseClaim(more, seen.now) };
    }
    case 'frozen':
      return { status, ...parseSeen(reply), freeze: JSON.parse(more) as Freeze };
    case 'state':
    case 'unsettled':
      return { status, ...parseSeen(reply) };
    default:
      throw unexpected('claim', reply);
  }
}

export function parseCommit(reply: Reply): CommitResult {
  const { status, lines } = reply;
  const [version, repeated] = lines;
  if (status === 'committed')
    return { status, version: Number(version), ...(repeated === 'repeated' && { repeated: true }) };
  if (status === 'moved') return { status, ...parseSeen(reply) };
  if (status === 'lost' || status === 'unknown') return { status };
  throw unexpected('commit', reply);
}

export function parseRecorded(reply: Reply): RecordResult {
  const { status, lines } = reply;
  const [version, repeated] = lines;
  if (status === 'recorded')
    return { status, version: Number(version), ...(repeated === 'repeated' && { repeated: true }) };
  if (status === 'moved') return { status, ...parseSeen(reply) };
  if (status === 'unknown') return { status };
  throw unexpected('record', reply);
}

export function parseFrozen(reply: Reply): FreezeResult {
  const { status, lines } = reply;
  const frozen = lines[5] ?? '';
  if (status === 'unknown') return { status };
  if (status !== 'changed' && status !== 'unchanged') throw unexpected('freeze', reply);
  return { status, ...parseSeen(reply), ...parseFreeze(frozen) };
}

function parseFreeze(text: string): { readonly frozen?: Freeze } {
  return text === '' ? {} : { frozen: JSON.parse(text) as Freeze };
}

export function parseSwitch(reply: Reply): SwitchRecord | undefined {
  if (expectStatus('switch', reply, 'switch', 'none') === 'none') return undefined;
  const [revision = '', value = ''] = reply.lines;
  return { value: JSON.parse(value) as Json, revision: JSON.parse(revision) as string };
}

function parseSeen({ lines }: Reply): Required<Omit<SeenSnapshot, 'unsettled'>> {
  const [state = '', context = '', version, updatedAt, now] = lines;
  return { snapshot: snapshotOf(state, context, version, updatedAt), now: Number(now) };
}

/** The time, whether the session is over, the session, then six lines for each workflow. */
export function parseRun({ lines: [time, isOver, session = '', ...rest] }: Reply): RunRecord {
  const now = Number(time);
  // Without a prototype, so that a workflow may be called `__proto__`.
  const workflows: Record<string, WorkflowRecord> = Object.create(null);
  for (let i = 0; i + 5 < rest.length; i += 6) {
    const [name = '', ...fields] = rest.slice(i, i + 6);
    workflows[JSON.parse(name) as string] = parseWorkflow(fields, now);
  }
  const record = { session: parseSession(session), workflows, now };
  return isOver === '1' ? { ...record, sessionEnded: true } : record;
}

export function parseSession(text: string): SessionRecord {
  const { openedBy: _, ...record } = JSON.parse(text);
  return record;
}

/** Reads the lines of state, context, head, claim and freeze. */
export function parseWorkflow(
  [state = '', context = '', head = '', claim = '', frozen = '']: readonly string[],
  now: number,
): WorkflowRecord {
  const [version, updatedAt, ended] = head.split(' ');
  return {
    snapshot: snapshotOf(state, context, version, updatedAt),
    ...(claim !== '' && { claim: parseClaim(claim, now) }),
    ...parseFreeze(frozen),
    ...(ended !== '-' && { ended: ended === '1' }),
  };
}

function snapshotOf(
  state: string,
  context: string,
  version: string | undefined,
  updatedAt: string | undefined,
): FsmSnapshot {
  const position = {
    state: JSON.parse(state) as string,
    version: Number(version),
    updatedAt: Number(updatedAt),
  };
  return context === '' ? position : { ...position, context: JSON.parse(context) as Json };
}

function parseClaim(text: string, now: number): ClaimView {
  const [token = '', until, uncertain, idempotencyKey = '', since, step = '', ...rest] =
    text.split('\t');
  const [use = '', kind = '', entry = ''] = rest;
  const [tool, digest] = JSON.parse(step) as [string, string];
  return {
    token: JSON.parse(token) as string,
    tool,
    digest,
    uncertain: uncertain as Uncertain,
    idempotencyKey,
    since: Number(since),
    until: Number(until),
    live: Number(until) > now,
    ...parseUse(use),
    ...(entry !== '' && { entry: JSON.parse(entry) as CallNote }),
    ...(kind !== '' && { kind: JSON.parse(kind) as string }),
  };
}

function parseUnsettled(line: string): UnsettledStep {
  const [idempotencyKey = '', since, step = '', use = ''] = line.split('\t');
  const [tool, digest] = JSON.parse(step) as [string, string];
  return { tool, digest, idempotencyKey, since: Number(since), ...parseUse(use) };
}

function parseUse(text: string): { readonly use?: Json } {
  return text === '' ? {} : { use: JSON.parse(text) as Json };
}

export function parseTrail(reply: Reply): TrailEntry[] {
  expectStatus('history', reply, 'trail');
  return reply.lines.map((line) => {
    const [, seq, version, attempt, at, previous, hash = '', draft = ''] =
      /^(\d+) (\d+) (\d+) (\d+) (\S*) (\S*) (.*)$/su.exec(line) ?? [];
    return {
      seq: Number(seq),
      version: Number(version),
      attempt: Number(attempt),
      at: Number(at),
      ...(JSON.parse(draft) as TrailDraft),
      ...(hash !== '' && { previous, hash }),
    };
  });
}
