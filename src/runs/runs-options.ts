import * as z from 'zod/mini';
import { configError, quoteNames } from '../basics/errors.ts';
import type { EventListener } from '../basics/events.ts';
import type { IssuedPrincipal } from '../basics/names.ts';
import {
  flagOption,
  integerOption,
  isTable,
  lazily,
  lazyOptions,
  type ParsedBy,
  parseOptions,
  showValue,
  textOption,
  uncheckedOption,
} from '../basics/options.ts';
import type { SessionMiddleware } from '../doors/session-store.ts';
import type { ObservedMark } from '../gate/mode.ts';
import type { NotMoved } from '../gate/outside.ts';
import { type CurrentStep, isCurrentStep } from '../session/current-step.ts';
import { type Begin, firstData } from '../step/claim.ts';
import type {
  ClaimView,
  Freeze,
  FsmSnapshot,
  Json,
  StateStore,
  UnsettledStep,
} from '../stores/store.ts';
import { parseEvent } from '../workflow/binding.ts';
import {
  type GivenBeginning,
  givenBeginningOptions,
  senderOption,
} from '../workflow/call-rules.ts';
import { parseExpression, type StateExpression } from '../workflow/position.ts';
import { jsonOf } from '../workflow/stored.ts';
import type { Workflow } from '../workflow/workflow.ts';

/** Where a run stands, for operators and the app's own pages. */
export interface RunView {
  /** The run's key. That of a session is a credential: show it to operators only, and log none. */
  readonly run: string;
  /** That of `snapshot`. */
  readonly state: string;
  /** Where it stands. Its context is the run's shared data, without what the gate keeps beside. */
  readonly snapshot: FsmSnapshot;
  /** The run's shared data; for a statechart its context. */
  readonly context?: Json | undefined;
  /**
   * `idle`: nothing is under way. `running`: a step is. `held`: a step ended with an unknown
   * outcome, and a person must resolve it.
   */
  readonly status: 'idle' | 'running' | 'held';
  /** Set where the run was observed when it was last saved. */
  readonly observed?: ObservedMark;
  /** Whether it is in a final state; in a statechart, in one of the machine itself. */
  readonly ended: boolean;
  /**
   * The bound tools that a list of what is available has, in binding order: those of the state of
   * `snapshot`. While the run is held, without those that move it; while it is frozen, none. While
   * a step is running, calls that move the run wait. A `visible` is given the run's principal; in
   * `held()` and `stuck()`, which do not know it, none.
   */
  readonly available: readonly string[];
  /**
   * Set once the session that named the run is over: it was ended, or was idle for too long. Its
   * client cannot go on. A held run stays until a person resolves it, and then for 24 hours.
   */
  readonly sessionEnded?: true;
  /** The step that is running or held. */
  readonly claim?: ClaimView;
  /**
   * The steps of unknown outcome that may be repeated, the oldest first. Until one succeeds or is
   * resolved, rules count what it would use. Absent where there are none, or the store cannot say.
   */
  readonly unsettled?: readonly UnsettledStep[];
  /** Who has stopped it by `freeze()`, and why. Absent where it goes on. */
  readonly frozen?: Freeze;
  /**
   * How long it has been held, in milliseconds. Absent where it is not, or the store cannot say.
   */
  readonly heldForMs?: number;
  /**
   * How long it has not moved, in milliseconds. Absent where it has ended, or no step of it was
   * ever claimed.
   */
  readonly unmovedForMs?: number;
  /**
   * Why this deployment cannot read the run, so that it refuses its calls as `unreadable`. The rest
   * is then as it is stored; what only a newer version understands is left out. Only in lists:
   * `read()` rejects instead.
   */
  readonly fault?: string;
}

/** A part of what `held()`, `unsettled()` and `stuck()` find. */
export interface RunViews {
  readonly runs: readonly RunView[];
  /** Give it as `after` to get the next part. Absent: there are no more. */
  readonly next?: string;
}

/** What `count()` counts: runs that have not ended, and the steps of all runs. */
export interface RunsUnderWay {
  readonly runs: number;
  /** By stored state. States without runs are left out. */
  readonly states: readonly {
    readonly state: string;
    readonly runs: number;
    /** How many of them have not moved for `forMs`. Absent where no `forMs` was given. */
    readonly stuck?: number;
  }[];
  /** The sum over all states. */
  readonly stuck?: number;
  /**
   * Runs that this deployment cannot read, so that it refuses their calls as `unreadable`. Counted
   * are those in a state that it does not have, or all that this process found in the last hour: it
   * looks at the 5,000 that have not moved for longest, once a minute. There may be more.
   */
  readonly unreadable: number;
  /**
   * Runs that are observed, at least in part, though the gate enforces: they began or strayed while
   * it observed. Counted are those among the same 5,000. Absent: none of them is.
   */
  readonly unenforced?: number;
  /** Those of them that strayed: they stay observed until `runs.restart()`. */
  readonly strayed?: number;
  /** Runs that a person must resolve. */
  readonly held: number;
  /** Runs with unsettled steps. Absent where the store cannot count them. */
  readonly unsettled?: number;
  /** Running steps. */
  readonly running: number;
  /** The age of the oldest claim, in milliseconds. */
  readonly oldestClaimMs?: number;
}

/** Which part of a list is asked for. */
export interface PageOptions {
  /** The most runs of a part, at most 1,000. Default 100. */
  readonly limit?: number | undefined;
  /** The `next` of the part before. Default: the first part. */
  readonly after?: string | undefined;
}

/** Which runs `stuck()` finds. `Q` is what may be asked of their state. */
export interface StuckOptions<Q = StateExpression> extends PageOptions {
  /** How long they have not moved at least, in milliseconds. */
  readonly forMs: number;
  /**
   * The state that they are in: its name, or its path in a statechart. Or an expression that is
   * true of it: `{ tag }`, `{ all }`, `{ any }`, `{ not }`. Runs in a state within it are found
   * too. Default: any state.
   */
  readonly state?: Q | undefined;
}

/** What `count()` also counts. */
export interface CountOptions {
  /** Also count the runs that have not moved for so long, in milliseconds. Default: do not. */
  readonly forMs?: number | undefined;
}

/** Whose runs `list()` finds. */
export interface ListOptions extends PageOptions {
  /**
   * What `sessionStore({ principal })` returns for the person. Without that option, issuer and
   * subject.
   */
  readonly principal: string | IssuedPrincipal;
}

/**
 * What `delete()` did. `pinned`: a step that must not be repeated is running or held. The run stays
 * until `resolve()` has settled it.
 */
export type Deleted =
  | { readonly deleted: true }
  | { readonly deleted: false; readonly reason: 'unknown-run' | 'pinned' };

/** How `erase()` treats held runs. */
export interface EraseOptions {
  /**
   * `anonymize`: a held run stays under a new random key, without an owner and without its trail.
   * `resolve({ idempotencyKey }, …)` finds it. The person's own key is free then, so the same
   * payment can be made again. Default: held runs stay as they are, and `pinned` names them.
   */
  readonly held?: 'anonymize' | undefined;
}

/** What `erase()` did. */
export interface Erased {
  readonly deleted: number;
  /** The held runs with their new keys, and the person's keys that are free now. */
  readonly anonymized: readonly { readonly run: string; readonly freed: string }[];
  /** The runs that are still the person's: a step that must not be repeated is running or held. */
  readonly pinned: readonly string[];
  /**
   * The runs that are still the person's since they could not be erased; `onError` gets the reason.
   * One that the store cannot read is named by what it is kept under. Absent where there are none.
   */
  readonly failed?: readonly string[];
}

/** A run with the step that a person must resolve. */
export type HeldRun = RunView & { readonly claim: ClaimView };

/** Which held runs `resolveAll()` settles, and how. */
export interface ResolveAllOptions {
  /** The tool whose outcome is unknown. */
  readonly tool: string;
  /** Only steps that began since then: milliseconds since the epoch. Default: all. */
  readonly since?: number | undefined;
  /**
   * What the steps came to. Or a function that finds it out for each of them, such as by asking the
   * payment provider for `claim.idempotencyKey`. Where it gives `undefined`, throws or rejects, the
   * run stays held; `onError` gets an error.
   */
  readonly outcome: Outcome | ((held: HeldRun) => Promise<Outcome | undefined>);
  /** For the trail: who settles them. */
  readonly actor: string;
  /** For the trail: where the outcome was looked up, for example. */
  readonly note: string;
  /** Whether to find the runs and ask for their outcomes, and change nothing. Default `false`. */
  readonly dryRun?: boolean | undefined;
}

type Outcome = 'succeeded' | 'failed';

/** A held run that `resolveAll()` found. */
export interface ResolvedRun {
  readonly run: string;
  readonly idempotencyKey: string;
  /** What the step came to; `undefined` where the app does not know. */
  readonly outcome: Outcome | undefined;
  /** What `resolve()` did. Absent with `dryRun`, and where the outcome is unknown. */
  readonly resolution?: Resolution;
}

/** What `resolveAll()` did. */
export interface ResolvedAll {
  /** How many runs it resolved. */
  readonly resolved: number;
  /** All held runs that it was asked for, the longest held first. */
  readonly runs: readonly ResolvedRun[];
}

/**
 * What `resolve()` did. `several`: the run has several unsettled steps, so name one by its
 * idempotency key.
 */
export type Resolution =
  | { readonly resolved: true; readonly state: string }
  | {
      readonly resolved: false;
      readonly reason: 'unknown-run' | 'not-held' | 'running' | 'several';
    };

/**
 * What `send()` did. `unhandled`: the run's state does not know the event. `lacks`: the values that
 * rules ask of such a call and were not given, such as `arguments.order_id`. It counts for no rule
 * that asks for one of them.
 */
export type Sent =
  | {
      readonly sent: true;
      readonly changed: boolean;
      readonly state: string;
      readonly lacks?: readonly string[];
    }
  | { readonly sent: false; readonly reason: NotMoved | 'unhandled' };

/**
 * What `begin()` did. `begun`: it had begun before. `busy`: a step of it took longer than the wait.
 */
export type Begun =
  | { readonly begun: true; readonly state: string; readonly context: Json | undefined }
  | { readonly begun: false; readonly reason: NotMoved | 'begun' };

/**
 * What a run begins with, and who begins it. Without `data`, `state` and `facts` it begins as the
 * gate's `begin` says.
 */
export interface BeginOptions extends GivenBeginning {
  /** For the trail: a user, a job, a webhook. */
  readonly actor?: string | undefined;
}

/** What `restart()` did. `busy`: a step of the run is running. */
export type Restarted =
  | { readonly restarted: true; readonly state: string }
  | { readonly restarted: false; readonly reason: NotMoved };

/** Who stops a run or lets it go on, and why. */
export interface FreezeOptions {
  /** For the trail, and for who looks at the run: a user, a job. */
  readonly actor: string;
  /** For the same: the reason, or where to ask. */
  readonly note: string;
}

/** What operators stop of a workflow or let go on, who does it, and why. */
export interface FreezeAllOptions extends FreezeOptions {
  /** A bound tool; or a glob as the gate binds it, for all that only it binds. Default: all. */
  readonly tool?: string | undefined;
}

/** Options of `enforce()`. */
export interface EnforceOptions extends FreezeOptions {
  /**
   * Whether the gates also enforce the runs that were observed before, but for those in which a
   * call ran that their state does not handle. Default `false`: only runs that begin from now on.
   */
  readonly living?: boolean | undefined;
}

/** What `observe()` or `enforce()` did. `same`: an operator has said so before. */
export type ModeSet =
  | { readonly changed: true }
  | { readonly changed: false; readonly reason: 'same' };

/** Whether the gates of a workflow enforce. */
export interface WorkflowMode {
  /** As an operator has said last. Absent where the option `enforce` of each gate counts. */
  readonly enforce?: boolean;
  readonly living?: boolean;
  readonly actor?: string;
  readonly note?: string;
  /** When that was said, in milliseconds since the epoch. */
  readonly at?: number;
}

/** What `freezeAll()` did. `frozen`: that was stopped before, and nothing has changed. */
export type AllFrozen =
  | { readonly frozen: true }
  | { readonly frozen: false; readonly reason: 'frozen' };

/** What `unfreezeAll()` did. `not-frozen`: that was not stopped. */
export type AllUnfrozen =
  | { readonly unfrozen: true }
  | { readonly unfrozen: false; readonly reason: 'not-frozen' };

/** What `freeze()` did. `frozen`: it was stopped before, and nothing has changed. */
export type Frozen =
  | { readonly frozen: true; readonly state: string }
  | { readonly frozen: false; readonly reason: Extract<NotMoved, 'unknown-run' | 'frozen'> };

/** What `unfreeze()` did. `not-frozen`: it was not stopped. */
export type Unfrozen =
  | { readonly unfrozen: true; readonly state: string }
  | { readonly unfrozen: false; readonly reason: Exclude<NotMoved, 'frozen'> | 'not-frozen' };

/** What `update()` did. */
export type Updated =
  | { readonly updated: true; readonly context: Json | undefined }
  | { readonly updated: false; readonly reason: NotMoved };

/** Who moves a run, and with what. */
export interface SendOptions {
  /** For the trail: a user, a job, a webhook. */
  readonly actor?: string | undefined;
  /** The event's payload. */
  readonly payload?: Json | undefined;
  /** For rules: the arguments of the call that happened elsewhere. Default: not known. */
  readonly arguments?: { readonly [name: string]: Json } | undefined;
  /** For rules: what that call answered, as its `structuredContent`. Default: not known. */
  readonly result?: Json | undefined;
  /**
   * For a fact from outside: who sent it, as `sessionStore({ principal })` names that person, or by
   * issuer and subject. It must come from your own authentication. Default: not known.
   */
  readonly by?: string | IssuedPrincipal | undefined;
  /**
   * The step whose handler makes the call, from `currentStep(extra)`; `undefined` outside a
   * handler. A handler must give it, unless the app imports `mcp-interlock/ambient`: a call that
   * does not know its own step waits for it.
   */
  readonly step?: CurrentStep | undefined;
}

/** What a person found out about a held step. */
export interface ResolveOptions<E extends string = string>
  extends Pick<SendOptions, 'actor' | 'payload'> {
  /**
   * The event to send; `null` for none, so that the run stays. Default: what the tool's success or
   * failure is bound to in the run's state.
   */
  readonly event?: E | null | undefined;
  /** For the trail: where the outcome was looked up, for example. */
  readonly note?: string | undefined;
  /**
   * For rules: what `structuredContent` of the lost answer had. Without it, a rule that asks for a
   * value of the result knows none.
   */
  readonly result?: Json | undefined;
  /**
   * The `token` of the claim that the person looked at. Where another claim holds the run, the
   * answer is `not-held`: the outcome may not be that of a later call. Default: any claim.
   */
  readonly token?: string | undefined;
}

/** Options of `runsOf()`: `sessions`, or else `store`. */
export interface RunsOptions {
  /**
   * What `sessionStore()` returned: its store, and its clients, which are notified when their run
   * moves.
   */
  sessions?: SessionMiddleware | undefined;
  /**
   * The store of `sessionStore({ store })`, in a process without that middleware. Clients learn of
   * a move when they list again.
   */
  store?: StateStore | undefined;
  /** As that of `sessionStore()`, beside `store`. Default: none. */
  service?: string | undefined;
  /**
   * How long a run lives after it was read, in milliseconds. Default: as in `sessions`, else 24
   * hours.
   */
  idleMs?: number | undefined;
  /**
   * Gives the first data of a run that is begun or moved here, as `fsmGate({ begin })` does for one
   * that its first call begins. Default: the gate's own, where this process mounts it.
   */
  begin?: Begin | undefined;
  /** The longest that a call to `store` may take, in milliseconds. Default 2,000. */
  storeDeadlineMs?: number | undefined;
  /**
   * Called for each failure whose reason no caller gets. Default: as in `sessions`, else
   * `console.error`.
   */
  onError?: ((error: unknown) => void) | undefined;
  /**
   * Called once for each likely mistake. Default: as in `sessions`, else `process.emitWarning`.
   */
  onWarning?: ((warning: string) => void) | undefined;
  /** Called for each event about these runs here. Default: as in `sessions`, else none. */
  onEvent?: EventListener | undefined;
}

const requestSchema = lazyOptions(() => ({
  actor: z.optional(z.string()),
  payload: z.optional(z.custom<Json>(() => true)),
}));
const insideSchema = lazily(() =>
  z.extend(requestSchema(), {
    step: z.optional(z.custom<CurrentStep>(isCurrentStep, 'expected what currentStep() returned')),
  }),
);
const sendSchema = lazily(() =>
  z.extend(insideSchema(), {
    arguments: z.optional(z.custom<{ [name: string]: Json }>(isTable, 'expected an object')),
    result: z.optional(z.custom<Json>(() => true)),
    by: senderOption(),
  }),
);
const freezeSchema = lazyOptions(() => ({
  actor: textOption(),
  note: textOption(),
}));
const freezeAllSchema = lazily(() => z.extend(freezeSchema(), { tool: z.optional(z.string()) }));
const enforceSchema = lazily(() => z.extend(freezeSchema(), { living: flagOption() }));
const beginSchema = lazyOptions(() => ({
  ...givenBeginningOptions(),
  actor: z.optional(z.string()),
}));
const resolveSchema = lazily(() =>
  z.extend(requestSchema(), {
    event: uncheckedOption(),
    note: z.optional(z.string()),
    result: z.optional(z.custom<Json>(() => true)),
    token: z.optional(z.string()),
  }),
);

/** The options of `restart()`. @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function parseRequest(what: 'restart()', options: unknown): ParsedBy<typeof requestSchema> {
  return withJson(what, parseOptions(what, requestSchema, options));
}

/**
 * The options of what a step's handler may call. @throws InterlockError `ERR_INTERLOCK_CONFIG`
 */
export function parseInside(
  what: 'send()' | 'update()',
  options: unknown,
): ParsedBy<typeof insideSchema> {
  return withJson(what, parseOptions(what, insideSchema, options));
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function parseSend(options: unknown): ParsedBy<typeof sendSchema> {
  const { arguments: args, result, ...sent } = parseOptions('send()', sendSchema, options);
  const given = { ...withJson('send()', sent) };
  return {
    ...given,
    ...(args !== undefined && { arguments: jsonIn('send()', args, 'arguments') as typeof args }),
    ...(result !== undefined && { result: jsonIn('send()', result, 'result') }),
  };
}

/** The options of `freeze()` and `unfreeze()`. @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function parseFreeze(what: string, options: unknown): FreezeOptions {
  return parseOptions(what, freezeSchema, options);
}

/** The options of `enforce()`. @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function parseEnforce(options: unknown): ParsedBy<typeof enforceSchema> {
  return parseOptions('enforce()', enforceSchema, options);
}

/**
 * The options of `freezeAll()` and `unfreezeAll()`.
 *
 * @param workflow where it must bind the tool; one that it bound once may be let go on
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`, also for a tool that is not bound
 */
export function parseFreezeAll(
  what: string,
  options: unknown,
  workflow?: Workflow,
): ParsedBy<typeof freezeAllSchema> {
  const parsed = parseOptions(what, freezeAllSchema, options);
  const { tool } = parsed;
  if (tool !== undefined && workflow?.isBound(tool) === false)
    throw configError(
      `${what}: ${workflow.id} binds no tool ${showValue(tool)}; it binds ` +
        quoteNames(workflow.toolNames),
    );
  return parsed;
}

/** The options of `begin()`. @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function parseBegin(options: unknown): ParsedBy<typeof beginSchema> {
  const { data, state, facts, actor } = parseOptions('begin()', beginSchema, options);
  return { actor, state, facts, ...(data !== undefined && { data: firstData(data) }) };
}

/** A payload must be JSON, as which it is stored. @throws InterlockError `ERR_INTERLOCK_CONFIG` */
function jsonIn(what: string, value: unknown, name: string): Json {
  try {
    return jsonOf(value, name);
  } catch (error) {
    throw configError(`${what}: ${(error as Error).message}`);
  }
}

function withJson<T extends { readonly payload?: Json | undefined }>(what: string, request: T): T {
  if (request.payload === undefined) return request;
  return { ...request, payload: jsonIn(what, request.payload, 'the payload') };
}

/**
 * An outcome that a person or the app names.
 *
 * @param others what may stand in its place
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`
 */
export function parseOutcome<T = never>(
  what: string,
  outcome: unknown,
  ...others: T[]
): Outcome | T {
  if (outcome === 'succeeded' || outcome === 'failed') return outcome;
  if (others.includes(outcome as T)) return outcome as T;
  throw configError(`${what}: expected "succeeded" or "failed", got ${showValue(outcome)}`);
}

/** The options of `resolveAll()`. @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function parseResolveAll(options: unknown): ResolveAllOptions {
  const parsed = parseOptions('resolveAll()', resolveAllSchema, options);
  if (typeof parsed.outcome !== 'function') parseOutcome('resolveAll(): outcome', parsed.outcome);
  return parsed as ResolveAllOptions;
}

/** The options of `erase()`. @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function parseErase(
  principal: unknown,
  options: unknown,
): EraseOptions & Pick<ListOptions, 'principal'> {
  const { held } = parseOptions('erase()', eraseSchema, options);
  return { held, ...parseOptions('erase()', ownedSchema, { principal }) };
}

/**
 * The run, or the idempotency key of its held step. @throws InterlockError `ERR_INTERLOCK_CONFIG`
 */
export function parseHeldName(run: unknown): string | { readonly idempotencyKey: string } {
  return typeof run === 'string' ? run : parseOptions('resolve()', keySchema, run);
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_EVENT` */
export function parseResolve(
  outcome: unknown,
  options: unknown,
): Omit<ParsedBy<typeof resolveSchema>, 'event'> & { readonly event?: string | null | undefined } {
  parseOutcome('resolve()', outcome);
  const { event, result, ...rest } = parseOptions('resolve()', resolveSchema, options);
  const answer = result === undefined ? {} : { result: jsonIn('resolve()', result, 'result') };
  const said = { ...withJson('resolve()', rest), ...answer };
  if (event === undefined) return said;
  return { ...said, event: event === null ? null : parseEvent('resolve()', event) };
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function assertChange(change: unknown): void {
  if (typeof change !== 'function')
    throw configError(`update(): expected a function, got ${showValue(change)}`);
}

const forMs = lazily(() => z.number().check(z.minimum(0)));
const pageShape = lazily(() => ({
  limit: z._default(integerOption(1, 1_000), 100),
  after: z.optional(z.string()),
}));
const pageSchema = lazily(() => z.strictObject(pageShape()));
const stuckSchema = lazyOptions(() => ({
  ...pageShape(),
  forMs: forMs(),
  state: z.optional(z.custom<StateExpression>()),
}));
const countSchema = lazyOptions(() => ({ forMs: z.optional(forMs()) }));
const owned = lazily(() => ({
  principal: z.union([textOption(), z.strictObject({ issuer: z.string(), subject: z.string() })]),
}));
const ownedSchema = lazily(() => z.strictObject(owned()));
const listSchema = lazyOptions(() => ({ ...pageShape(), ...owned() }));
const eraseSchema = lazyOptions(() => ({ held: z.optional(z.enum(['anonymize'])) }));
const keySchema = lazyOptions(() => ({ idempotencyKey: textOption() }));
const resolveAllSchema = lazyOptions(() => ({
  tool: textOption(),
  since: z.optional(z.number()),
  outcome: z.unknown(),
  actor: textOption(),
  note: textOption(),
  dryRun: z.optional(z.boolean()),
}));

/** The options of lists of runs. @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export const parseQuery = {
  held: (options: unknown) => parseOptions('held()', pageSchema, options),
  stuck: (options: unknown) => {
    const { state, ...page } = parseOptions('stuck()', stuckSchema, options);
    if (state === undefined) return page;
    return { ...page, state: parseExpression('stuck(): state', state, 'ERR_INTERLOCK_CONFIG') };
  },
  count: (options: unknown) => parseOptions('count()', countSchema, options),
  list: (options: unknown) => parseOptions('list()', listSchema, options),
};

/** A string is iterable too: by its letters. @throws InterlockError `ERR_INTERLOCK_CONFIG` */
export function assertRuns(runs: unknown): void {
  if (typeof runs === 'string')
    throw configError(`sweep(): expected a list of runs, got ${showValue(runs)}`);
}
