import { randomUUID } from 'node:crypto';
import type {
  AtomicStateStore,
  ClaimRequest,
  CommitRequest,
  FsmSnapshot,
  ReleaseOptions,
  RunKey,
  SessionRecord,
} from '../store.ts';
import { runKeys } from './keys.ts';
import {
  parseClaim,
  parseCommit,
  parseReply,
  parseRun,
  parseTrail,
  type Reply,
  unexpected,
} from './replies.ts';
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

export interface ScriptedStoreOptions {
  /** Before every key of the store. */
  readonly prefix: string;
  /** How many trail entries each workflow of a run keeps. */
  readonly trailLimit: number;
}

/**
 * The state store of any server that runs Redis' Lua: one script, and so one atomic round trip, for
 * each operation.
 */
export function scriptedStore(evaluate: Evaluate, options: ScriptedStoreOptions): AtomicStateStore {
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
