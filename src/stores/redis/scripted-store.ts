import { createHash, randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import type {
  AtomicStateStore,
  ClaimRequest,
  ClaimResult,
  ClaimView,
  CommitRequest,
  CommitResult,
  FsmSnapshot,
  Json,
  ReleaseOptions,
  RunKey,
  RunRecord,
  SessionRecord,
  TrailDraft,
  TrailEntry,
  Uncertain,
  WorkflowRecord,
} from '../store.ts';

import * as scripts from './scripts.ts';

/**
 * Has the server run a script by its digest, or by its text where `bySource` says so. One round
 * trip.
 */
export type Evaluate = (
  script: scripts.Script,
  bySource: boolean,
  keys: string[],
  args: string[],
) => Promise<unknown>;

/** What the stores of both kinds of client let the caller choose. */
export interface ScriptedStoreOptions {
  /** Before every key of the store, without braces. Default `'interlock'`. */
  readonly prefix?: string | undefined;
  /** How many trail entries each workflow of a run keeps, at least 50. Default 1,000. */
  readonly trailLimit?: number | undefined;
}

export const scriptedStoreOptions = {
  prefix: z._default(
    z.string().check(z.regex(/^[^{}]*$/, 'expected a prefix without braces')),
    'interlock',
  ),
  trailLimit: z._default(z.int().check(z.minimum(50)), 1000),
};

/**
 * The state store of any server that runs Redis' Lua: one script, and so one atomic round trip, for
 * each operation.
 */
export function scriptedStore(
  evaluate: Evaluate,
  options: { readonly prefix: string; readonly trailLimit: number },
): AtomicStateStore {
  async function run(script: scripts.Script, runKey: string, args: string[]): Promise<Reply> {
    const keys = runKeys(options.prefix, runKey);
    try {
      return parseReply(await evaluate(script, false, keys, args));
    } catch (error) {
      if (!isNoScript(error)) throw error;
      return parseReply(await evaluate(script, true, keys, args));
    }
  }

  return {
    async open(runKey, session, ttlMs, token = randomUUID()) {
      const args = ['', sessionText(session, token), duration(ttlMs)];
      const reply = await run(scripts.OPEN, runKey, args);
      return { status: expectStatus('open', reply, 'opened', 'taken') };
    },

    async read(runKey, ttlMs, about) {
      const args = [about === undefined ? '' : JSON.stringify(about), duration(ttlMs)];
      const reply = await run(scripts.READ, runKey, args);
      return expectStatus('read', reply, 'run', 'unknown') === 'run' ? parseRun(reply) : undefined;
    },

    async claim(request) {
      return parseClaim(await run(scripts.CLAIM, request.run, claimArguments(request)));
    },

    async commit(request) {
      const args = commitArguments(request, options.trailLimit);
      return parseCommit(await run(scripts.COMMIT, request.run, args));
    },

    async renew(key, token, leaseMs) {
      const args = [JSON.stringify(key.workflow), JSON.stringify(token), duration(leaseMs)];
      const reply = await run(scripts.RENEW, key.run, args);
      return expectStatus('renew', reply, 'renewed', 'lost') === 'renewed';
    },

    async release(key: RunKey, token: string, options?: ReleaseOptions) {
      const args = [JSON.stringify(key.workflow), JSON.stringify(token), settling(options)];
      expectStatus('release', await run(scripts.RELEASE, key.run, args), 'ok');
    },

    async delete(runKey) {
      expectStatus('delete', await run(scripts.DELETE, runKey, ['']), 'ok');
    },

    async history(key, limit = 50) {
      const args = [JSON.stringify(key.workflow), duration(Math.max(0, limit))];
      return parseTrail(await run(scripts.HISTORY, key.run, args));
    },
  };
}

function claimArguments(request: ClaimRequest): string[] {
  const { step, states, create } = request;
  return [
    JSON.stringify(request.workflow),
    JSON.stringify(request.token),
    JSON.stringify([step.tool, step.digest]),
    step.uncertain,
    randomUUID(),
    duration(request.leaseMs),
    duration(request.ttlMs),
    create === undefined ? '' : sessionText(create),
    ...snapshotArguments(request.initial),
    states === undefined ? 'any' : 'one of',
    ...(states ?? []).map((state) => JSON.stringify(state)),
  ];
}

function commitArguments(request: CommitRequest, trailLimit: number): string[] {
  const { state, context } = request.snapshot;
  const { token, as = token } = request;
  return [
    JSON.stringify(request.workflow),
    JSON.stringify(token),
    JSON.stringify(state),
    optionalJson(context),
    JSON.stringify(request.trail),
    String(trailLimit),
    duration(request.ttlMs),
    settling(request),
    JSON.stringify(as),
    request.ended === true ? '1' : '0',
  ];
}

function settling({ settles }: Pick<CommitRequest, 'settles'> = {}): string {
  if (settles === 'all') return settles;
  return settles === false ? 'unsettled' : 'settled';
}

/** Without its time, which is the server's. */
function snapshotArguments({ state, context, version = 0 }: FsmSnapshot): string[] {
  return [JSON.stringify(state), optionalJson(context), String(version)];
}

/**
 * A driver that asks twice sends the same text, and nobody else does: of a run that is opened the
 * token is in it.
 */
function sessionText({ principal, minted }: SessionRecord, openedBy?: string): string {
  return JSON.stringify({ principal, minted, openedBy });
}

/** Absent is not the same as `null`, and no JSON text is empty. */
function optionalJson(value: FsmSnapshot['context']): string {
  return value === undefined ? '' : JSON.stringify(value);
}

/** Redis takes whole milliseconds, and no exponents. */
function duration(ms: number): string {
  return String(Math.min(Math.ceil(ms), Number.MAX_SAFE_INTEGER));
}

function expectStatus<Status extends string>(
  operation: string,
  reply: Reply,
  ...known: readonly Status[]
): Status {
  const status = known.find((each) => each === reply.status);
  if (status === undefined) throw unexpected(operation, reply);
  return status;
}

/**
 * Only the beginning counts: some drivers append the command, and with it the caller's own texts.
 */
function isNoScript(error: unknown): boolean {
  return error instanceof Error && /^(Command failed: )?NOSCRIPT\b/.test(error.message);
}

const READABLE = /^[\w.:-]{1,64}$/;

/**
 * The two keys of a run: its hash and its trail. What stands between the braces is all that Redis
 * Cluster looks at, so both are in one slot. A run key that is short and harmless stays readable;
 * any other is digested, over its UTF-16 units, because UTF-8 has no place for half a surrogate
 * pair.
 */
export function runKeys(prefix: string, run: string): [run: string, trail: string] {
  const name = READABLE.test(run) ? run : `#${digest(run)}`;
  const key = `${prefix}:{${name}}`;
  return [key, `${key}:trail`];
}

function digest(text: string): string {
  return createHash('sha256').update(text, 'utf16le').digest('base64url');
}

/** A script's reply: its first line says what it is, and every text below it is JSON. */
interface Reply {
  readonly status: string;
  readonly lines: readonly string[];
}

/**
 * Nothing but a text is a reply. A driver may hand out bytes instead; anything else is what a
 * driver makes up when it could not ask, and must not pass for an answer.
 */
function parseReply(raw: unknown): Reply {
  const text = Buffer.isBuffer(raw) ? raw.toString() : raw;
  if (typeof text !== 'string')
    throw new TypeError(`The store's script replied with ${typeof raw}, not with text`);
  const [status = '', ...lines] = text.split('\n');
  return { status, lines };
}

function unexpected(operation: string, reply: Reply): Error {
  return new Error(
    `The store's ${operation} script gave an unknown reply: ${JSON.stringify(reply.status.slice(0, 40))}`,
  );
}

function parseClaim(reply: Reply): ClaimResult {
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

function parseCommit(reply: Reply): CommitResult {
  const { status, lines } = reply;
  const [version, repeated] = lines;
  if (status === 'committed')
    return { status, version: Number(version), ...(repeated === 'repeated' && { repeated: true }) };
  if (status === 'lost' || status === 'unknown') return { status };
  throw unexpected('commit', reply);
}

/** The time, then name and value of each field in turn. */
function parseRun({ lines: [now, ...pairs] }: Reply): RunRecord {
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

function parseTrail({ status, lines }: Reply): TrailEntry[] {
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
