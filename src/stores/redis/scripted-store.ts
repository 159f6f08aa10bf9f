/**
 * The state store of any server that runs Redis' Lua: one script, and so one atomic round trip, for
 * each operation on a run. Hides what the scripts are given.
 */
import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import type {
  AtomicStateStore,
  ClaimRequest,
  CommitRequest,
  FsmSnapshot,
  RunKey,
  SessionRecord,
  TrailDraft,
} from '../store.ts';
import { draftText, noteText } from '../trail.ts';
import {
  expectStatus,
  Keys,
  keptKey,
  parseClaimResult,
  parseCommit,
  parseReply,
  parseRun,
  parseTrail,
  principalScore,
  type Reply,
} from './format.ts';
import { RunIndex, type RunIndexOptions } from './run-index.ts';
import * as scripts from './run-scripts.ts';
import { duration, type Script } from './scripts.ts';

/**
 * Has the server run a script by its digest, or by its text where `bySource` says so. One round
 * trip.
 */
export type Evaluate = (
  script: Script,
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
  /**
   * Chains the trail of each run by SHA-1 hashes, which `verifyTrail()` checks. Default `false`.
   */
  readonly chainTrail?: boolean | undefined;
}

/** What the stores of both kinds of client can do. */
export type ScriptedStateStore = Required<AtomicStateStore> & {
  /**
   * Makes the index anew, after keys of it were evicted or deleted: `held`, `stuck`, `count`,
   * `list` and `runs` reject until it is complete, and steps go on. Goes through all keys of the
   * server, on a cluster once for each of its servers. Resolves to how many runs it found.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where it meets a run of a newer format.
   */
  rebuildIndex(): Promise<number>;
};

export const scriptedStoreOptions = {
  prefix: z._default(
    z.string().check(z.regex(/^[^{}]*$/, 'expected a prefix without braces')),
    'interlock',
  ),
  trailLimit: z._default(z.int().check(z.minimum(50)), 1000),
  chainTrail: z._default(z.boolean(), false),
};

interface ScriptedStoreSettings extends RunIndexOptions {
  readonly trailLimit: number;
  readonly chainTrail: boolean;
}

export function scriptedStore(
  evaluate: Evaluate,
  settings: ScriptedStoreSettings,
): ScriptedStateStore {
  const keys = new Keys(settings.prefix);
  const common = [String(settings.trailLimit), settings.chainTrail ? '1' : '0'];

  async function ask(script: Script, keys: string[], args: string[]): Promise<Reply> {
    try {
      return parseReply(await evaluate(script, false, keys, args));
    } catch (error) {
      if (!isNoScript(error)) throw error;
      return parseReply(await evaluate(script, true, keys, args));
    }
  }

  /** The workflow is `undefined` where the operation is about the whole run. */
  function run(
    script: Script,
    run: string,
    workflow: string | undefined,
    args: readonly string[] = [],
  ): Promise<Reply> {
    const { name, keys: itsKeys } = keys.of(run);
    const about = workflow === undefined ? '' : JSON.stringify(workflow);
    return ask(script, [...itsKeys], [name, about, ...common, ...args]);
  }

  const index = new RunIndex(ask, keys, settings);
  return {
    async open(runKey, session, ttlMs, token = randomUUID()) {
      const args = [
        sessionText(session, token),
        duration(ttlMs),
        keptKey(runKey),
        scoreOf(session),
      ];
      const reply = await run(scripts.OPEN, runKey, undefined, args);
      return { status: expectStatus('open', reply, 'opened', 'taken') };
    },

    async read(runKey, ttlMs, about) {
      const reply = await run(scripts.READ, runKey, about, [duration(ttlMs)]);
      return expectStatus('read', reply, 'run', 'unknown') === 'run' ? parseRun(reply) : undefined;
    },

    async claim(request) {
      const args = claimArguments(request);
      return parseClaimResult(await run(scripts.CLAIM, request.run, request.workflow, args));
    },

    async commit(request) {
      const args = commitArguments(request);
      return parseCommit(await run(scripts.COMMIT, request.run, request.workflow, args));
    },

    async renew({ run: runKey, workflow }, token, leaseMs) {
      const args = [JSON.stringify(token), duration(leaseMs)];
      const reply = await run(scripts.RENEW, runKey, workflow, args);
      return expectStatus('renew', reply, 'renewed', 'lost') === 'renewed';
    },

    async release({ run: runKey, workflow }, token, { settles, entry } = {}) {
      const args = [JSON.stringify(token), settling(settles), ...entryArguments(entry)];
      expectStatus('release', await run(scripts.RELEASE, runKey, workflow, args), 'ok');
    },

    async append({ run: runKey, workflow }, entry) {
      const reply = await run(scripts.APPEND, runKey, workflow, entryArguments(entry));
      expectStatus('append', reply, 'ok');
    },

    async delete(runKey) {
      expectStatus('delete', await run(scripts.DELETE, runKey, undefined), 'ok');
    },

    async history({ run: runKey, workflow }: RunKey, limit = 50) {
      const args = [duration(Math.max(0, limit))];
      return parseTrail(await run(scripts.HISTORY, runKey, workflow, args));
    },

    runs: (query) => index.standing(query),
    held: (query) => index.held(query),
    stuck: (query) => index.stuck(query),
    count: (query) => index.count(query),
    list: (query) => index.owned(query),
    rebuildIndex: () => index.rebuild(),
  };
}

function claimArguments(request: ClaimRequest): string[] {
  const { step, states, create, initial, entry } = request;
  return [
    JSON.stringify(request.token),
    JSON.stringify([step.tool, step.digest]),
    step.uncertain,
    randomUUID(),
    duration(request.leaseMs),
    duration(request.ttlMs),
    create === undefined ? '' : sessionText(create),
    keptKey(request.run),
    scoreOf(create),
    entry === undefined ? '' : noteText(entry),
    JSON.stringify(initial.state),
    optionalJson(initial.context),
    String(initial.version ?? 0),
    states === undefined ? 'any' : 'one of',
    ...(states ?? []).map((state) => JSON.stringify(state)),
  ];
}

function commitArguments(request: CommitRequest): string[] {
  const { state, context } = request.snapshot;
  const { token, as = token } = request;
  return [
    JSON.stringify(token),
    JSON.stringify(state),
    optionalJson(context),
    draftText(request.trail),
    duration(request.ttlMs),
    settling(request.settles),
    JSON.stringify(as),
    request.ended === true ? '1' : '0',
  ];
}

/** The draft, and what kind it is. */
function entryArguments(entry: TrailDraft | undefined): [draft: string, kind: string] {
  if (entry === undefined) return ['', ''];
  return [draftText(entry), entry.outcome === 'refused' ? 'refused' : 'attempt'];
}

function settling(settles: CommitRequest['settles']): string {
  if (settles === 'all') return settles;
  return settles === false ? 'unsettled' : 'settled';
}

/**
 * A driver that asks twice sends the same text, and nobody else does: of a run that is opened the
 * token is in it.
 */
function sessionText({ principal, minted }: SessionRecord, openedBy?: string): string {
  return JSON.stringify({ principal, minted, openedBy });
}

function scoreOf(session: SessionRecord | undefined): string {
  return session?.principal === undefined ? '' : principalScore(session.principal);
}

/** Absent is not the same as `null`, and no JSON text is empty. */
function optionalJson(value: FsmSnapshot['context']): string {
  return value === undefined ? '' : JSON.stringify(value);
}

/**
 * Only the beginning counts: some drivers append the command, and with it the caller's own texts.
 */
function isNoScript(error: unknown): boolean {
  return error instanceof Error && /^(Command failed: )?NOSCRIPT\b/.test(error.message);
}
