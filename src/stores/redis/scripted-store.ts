/**
 * The state store on any server that runs Redis' Lua. Each operation on a run is one script, and so
 * one atomic round trip. Hides the arguments of the scripts.
 */
import { randomUUID } from 'node:crypto';
import * as z from 'zod/mini';
import { anonymousKey } from '../../names.ts';
import { lazily } from '../../options.ts';
import type {
  AtomicStateStore,
  ClaimRequest,
  CommitRequest,
  FreezeRequest,
  FsmSnapshot,
  RecordRequest,
  RunKey,
  SessionRecord,
  TrailDraft,
} from '../store.ts';
import { anchorOf, draftText, noteText } from '../trail.ts';
import {
  expectStatus,
  Keys,
  keptKey,
  parseClaimResult,
  parseCommit,
  parseFrozen,
  parseRecorded,
  parseReply,
  parseRun,
  parseSwitch,
  parseTrail,
  principalScore,
  type Reply,
} from './format.ts';
import { RunIndex, type RunIndexOptions } from './run-index.ts';
import * as scripts from './run-scripts.ts';
import { durationText, type Script } from './scripts.ts';

/** Lets the server run a script by its digest or, with `bySource`, by its text. One round trip. */
export type Evaluate = (
  script: Script,
  bySource: boolean,
  keys: string[],
  args: string[],
) => Promise<unknown>;

/** The options that both `redisStore()` and `upstashStore()` have. */
export interface ScriptedStoreOptions {
  /** Begins every key of the store; without braces. Default `'interlock'`. */
  readonly prefix?: string | undefined;
  /** How many trail entries each workflow of a run keeps, at least 50. Default 1,000. */
  readonly trailLimit?: number | undefined;
  /** Chains each run's trail by SHA-1 hashes, which `verifyTrail()` checks. Default `false`. */
  readonly chainTrail?: boolean | undefined;
}

/** The store of `redisStore()` and of `upstashStore()`. */
export type ScriptedStateStore = Required<Omit<AtomicStateStore, 'unsettled'>> & {
  /**
   * Makes the index anew, after its keys were evicted or deleted. Goes through all keys of the
   * server, and of each server of a cluster. Until the index is complete, steps go on, and `held`,
   * `stuck`, `count`, `list` and `runs` reject. Resolves to how many runs it found.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where it meets a run or an index of another
   * format.
   */
  rebuildIndex(): Promise<number>;
};

export const scriptedStoreOptions = lazily(() => ({
  prefix: z._default(
    z.string().check(z.regex(/^[^{}]*$/, 'expected a prefix without braces')),
    'interlock',
  ),
  trailLimit: z._default(z.int().check(z.minimum(50)), 1000),
  chainTrail: z._default(z.boolean(), false),
}));

interface ScriptedStoreSettings extends RunIndexOptions {
  readonly trailLimit: number;
  readonly chainTrail: boolean;
  readonly evictedKeys: Required<AtomicStateStore>['evictedKeys'];
}

export function scriptedStore(
  evaluate: Evaluate,
  settings: ScriptedStoreSettings,
): ScriptedStateStore {
  const keys = new Keys(settings.prefix);

  async function ask(script: Script, keys: string[], args: string[]): Promise<Reply> {
    try {
      return parseReply(await evaluate(script, false, keys, args));
    } catch (error) {
      if (!isNoScript(error)) throw error;
      return parseReply(await evaluate(script, true, keys, args));
    }
  }

  /** `workflow` is `undefined` where the operation concerns the whole run. */
  async function run(
    script: Script,
    run: string,
    workflow: string | undefined,
    args: readonly string[] = [],
    moreKeys: readonly string[] = [],
  ): Promise<Reply> {
    const { name, keys: itsKeys } = keys.of(run);
    const about = workflow === undefined ? '' : JSON.stringify(workflow);
    const isChained = settings.chainTrail && workflow !== undefined;
    const common = [String(settings.trailLimit), isChained ? anchorOf({ run, workflow }) : ''];
    const asked = () => ask(script, [...itsKeys, ...moreKeys], [name, about, ...common, ...args]);
    const reply = await asked();
    if (reply.status !== 'unnoted') return reply;
    // It would be the first run of the store.
    await index.note();
    return asked();
  }

  const index = new RunIndex(ask, keys, settings);
  return {
    contract: 1,
    evictedKeys: settings.evictedKeys,

    async open(runKey, session, ttlMs, token = randomUUID()) {
      const args = [
        sessionText(session, token),
        durationText(ttlMs),
        keptKey(runKey),
        scoreOf(session),
      ];
      const reply = await run(scripts.OPEN, runKey, undefined, args);
      return { status: expectStatus('open', reply, 'opened', 'taken') };
    },

    async read(runKey, ttlMs, about) {
      const reply = await run(scripts.READ, runKey, about, [durationText(ttlMs)]);
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

    async record(request) {
      const args = recordArguments(request);
      return parseRecorded(await run(scripts.RECORD, request.run, request.workflow, args));
    },

    async freeze(request) {
      const args = freezeArguments(request);
      return parseFrozen(await run(scripts.FREEZE, request.run, request.workflow, args));
    },

    async renew({ run: runKey, workflow }, token, leaseMs, { hold } = {}) {
      const args = [JSON.stringify(token), durationText(leaseMs), optionalJson(hold)];
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

    async end(runKey, { ifUnclaimed = false } = {}) {
      const reply = await run(scripts.END, runKey, undefined, [ifUnclaimed ? 'unclaimed' : 'any']);
      return expectStatus('end', reply, 'ended', 'claimed', 'unknown');
    },

    async delete(runKey) {
      const reply = await run(scripts.DELETE, runKey, undefined);
      return expectStatus('delete', reply, 'deleted', 'pinned', 'unknown');
    },

    async anonymize(runKey) {
      const { bucket } = keys.of(runKey);
      // One script can only write within a bucket.
      let unnamed = anonymousKey();
      while (keys.of(unnamed).bucket !== bucket) unnamed = anonymousKey();
      const { name, keys: newKeys } = keys.of(unnamed);
      const args = [name, keptKey(unnamed), sessionText({})];
      const reply = await run(scripts.ANONYMIZE, runKey, undefined, args, [newKeys[0]]);
      const status = expectStatus('anonymize', reply, 'anonymized', 'unknown');
      return status === 'anonymized' ? unnamed : undefined;
    },

    async history({ run: runKey, workflow }: RunKey, limit = 50) {
      const args = [durationText(Math.max(0, limit))];
      return parseTrail(await run(scripts.HISTORY, runKey, workflow, args));
    },

    async readSwitch(workflow) {
      const name = JSON.stringify(workflow);
      return parseSwitch(await ask(scripts.READ_SWITCH, [...keys.ofSwitch(workflow)], [name]));
    },

    async swapSwitch(workflow, expected, { value, revision }) {
      const args = [workflow, expected, revision, value].map(optionalJson);
      const reply = await ask(scripts.SWAP_SWITCH, [...keys.ofSwitch(workflow)], args);
      return expectStatus('switch', reply, 'swapped', 'kept') === 'swapped';
    },

    runs: (query) => index.standing(query),
    held: (query) => index.held(query),
    stuck: (query) => index.stuck(query),
    count: (query) => index.count(query),
    list: (query) => index.owned(query),
    purge: ({ principal } = {}) => index.purge(principal),
    rebuildIndex: () => index.rebuild(),
  };
}

function claimArguments(request: ClaimRequest): string[] {
  const { step, states, entry, ttlMs, keyMs = ttlMs } = request;
  return [
    JSON.stringify(request.token),
    JSON.stringify([step.tool, step.digest]),
    step.uncertain,
    randomUUID(),
    durationText(request.leaseMs),
    durationText(ttlMs),
    durationText(keyMs),
    ...enteringArguments(request),
    entry === undefined ? '' : noteText(entry),
    optionalJson(step.use),
    states === undefined ? 'any' : 'one of',
    ...(states ?? []).map((state) => JSON.stringify(state)),
  ];
}

function recordArguments(request: RecordRequest): string[] {
  const { state, context } = request.snapshot;
  return [
    JSON.stringify(request.token),
    JSON.stringify(state),
    optionalJson(context),
    draftText(request.trail),
    durationText(request.ttlMs),
    String(request.from),
    ...enteringArguments(request),
    request.ended === undefined ? '' : request.ended ? '1' : '0',
  ];
}

function freezeArguments(request: FreezeRequest): string[] {
  const { token, freeze, entry, ttlMs } = request;
  return [
    JSON.stringify(token),
    // These members alone, in this order.
    freeze === undefined ? '' : JSON.stringify({ actor: freeze.actor, note: freeze.note }),
    draftText(entry),
    durationText(ttlMs),
    ...enteringArguments(request),
  ];
}

/** What a run or a workflow begins with that an operation may make. */
function enteringArguments({
  run,
  create,
  initial: { state, context, version = 0 },
}: Pick<ClaimRequest, 'run' | 'create' | 'initial'>): string[] {
  return [
    create === undefined ? '' : sessionText(create),
    keptKey(run),
    scoreOf(create),
    JSON.stringify(state),
    optionalJson(context),
    String(version),
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
    durationText(request.ttlMs),
    settling(request.settles),
    JSON.stringify(as),
    request.ended === true ? '1' : '0',
    request.from === undefined ? '' : String(request.from),
  ];
}

/** The draft, and which kind of entry it is. */
function entryArguments(entry: TrailDraft | undefined): [draft: string, kind: string] {
  if (entry === undefined) return ['', ''];
  const isAttempt = entry.outcome !== undefined && entry.outcome !== 'refused';
  return [draftText(entry), isAttempt ? 'attempt' : 'note'];
}

function settling(settles: CommitRequest['settles']): string {
  if (settles === 'all') return settles;
  return settles === false ? 'unsettled' : 'settled';
}

/**
 * The token of an `open` is in the text. So only the same call, which a driver may repeat, sends
 * the same text.
 */
function sessionText({ principal, minted, clientInfo }: SessionRecord, openedBy?: string): string {
  return JSON.stringify({ principal, minted, clientInfo, openedBy });
}

function scoreOf(session: SessionRecord | undefined): string {
  return session?.principal === undefined ? '' : principalScore(session.principal);
}

/** Empty where there is no value, which is not the value `null`. */
function optionalJson(value: FsmSnapshot['context']): string {
  return value === undefined ? '' : JSON.stringify(value);
}

/** Looks at the beginning only: some drivers append the command, and so texts of the client's. */
function isNoScript(error: unknown): boolean {
  return error instanceof Error && /^(Command failed: )?NOSCRIPT\b/.test(error.message);
}
