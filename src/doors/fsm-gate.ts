/**
 * The door of a gate: its options with their defaults, and what all of its requests share. Hides
 * how the options become the config that the rooms below read.
 */
import * as z from 'zod/mini';
import { type Clock, Reported, systemClock } from '../basics/clock.ts';
import { atCaller, configError, type InterlockError } from '../basics/errors.ts';
import { rightNames } from '../basics/names.ts';
import {
  integerOption,
  lazily,
  lazyOptions,
  optionalFunction,
  parseOptions,
  showValue,
} from '../basics/options.ts';
import { observeAll, observeCall, WatchedRequest, type WatchNotes } from '../follow/watch.ts';
import {
  type GateConfig,
  ListedNames,
  ListedTools,
  noteMounted,
  type TrailOptions,
} from '../gate/config.ts';
import { enterGate } from '../gate/gate-filter.ts';
import { assertTogether, availabilityNotes, passGate } from '../gate/gates.ts';
import { ListCache, type ListCacheOptions } from '../gate/list-cache.ts';
import { type Enforced, enforces, passesAll } from '../gate/mode.ts';
import { Aliases } from '../gate/replies.ts';
import { type StatusToolOptions, statusToolOf, statusToolOption } from '../gate/status-tool.ts';
import {
  ListingClients,
  noteListing,
  type Visibility,
  type VisibilityOf,
} from '../gate/visibility.ts';
import { insideStep } from '../session/current-step.ts';
import { type Admission, admissionOf } from '../session/run.ts';
import type { Sessions } from '../session/sessions.ts';
import type { Begin } from '../step/claim.ts';
import type { WhenEnded } from '../step/outcome.ts';
import { type Enter, Exchange, type Observers } from '../wire/exchange.ts';
import { PageMemory } from '../wire/pages.ts';
import type { ErrorAnswer } from '../wire/rejections.ts';
import { after, type MaybePromise } from '../wire/task-line.ts';
import { assertGate, type StateMachineGate } from '../workflow/gate.ts';
import type { Workflow } from '../workflow/workflow.ts';
import {
  type CommonOptions,
  commonShape,
  inheriting,
  type Middleware,
  type MountedStage,
  mount,
  observersOf,
  stageWith,
} from './middleware.ts';
import { createSessions } from './session-store.ts';

export type { AnsweredError, ErrorAnswer } from '../wire/rejections.ts';

/** Options of {@link fsmGate}. */
export interface FsmGateOptions extends CommonOptions {
  /**
   * Whether the result of a call that moved the run ends with what is available now, in words: for
   * clients that never list again. Default: where `visibility` is `auto` or a function, and chose
   * `stable` for the session's client.
   */
  announce?: boolean | undefined;
  /**
   * `hide` lists only what is available in the run's state. `stable` lists every tool, and says
   * where each gated one is available: for clients that never list again, and for models' prompt
   * caches. `auto` is `stable` since MCP 2026-07-28, where a list must not vary as a side effect of
   * other requests. Where there are sessions it is `hide`, and `stable` for clients whose names are
   * known for not listing again. It goes by no name where `refusal` or `visible` keeps tools
   * secret. A function says it by the name and version that the client gives. Default `auto`.
   */
  visibility?: Visibility | VisibilityOf | undefined;
  /**
   * Keeps lists of tools, and answers with them without the upstream. `true` keeps the list of each
   * session, and in the stateless era of each principal, for the upstream's `ttlMs` or else five
   * seconds. `false` keeps none. Default: keeps what a stateless-era upstream calls `public`, for
   * its `ttlMs`. See docs/build/eras.md, "Lists that are kept".
   */
  listCache?: boolean | ListCacheOptions | undefined;
  /**
   * How the gate refuses a call out of order. `explain` says what is available and how to get
   * there. `unknown-tool` answers for a hidden tool as the upstream does for one that it does not
   * have. Each call of a bound tool then costs one more read of the store. Default `explain`.
   */
  refusal?: 'explain' | 'unknown-tool' | undefined;
  /**
   * `false`: the gate observes. Lists, calls and answers are the server's own, and the gate judges
   * each call behind it. What it would have refused, it reports by events and in reports. A list of
   * names and globs: these tools are enforced, and the other ones observed. A run keeps what held
   * at its first call. What an operator says by `runs.observe()` or `runs.enforce()` wins. Default
   * `true`. See docs/operate/roll-out.md.
   */
  enforce?: boolean | readonly string[] | undefined;
  /**
   * What becomes of a tool that no gate of the route binds. `allow`: it is listed and called in
   * every state. `refuse`: it is left out of each list, and each call of it is refused with the
   * reason `unbound`. That also goes for tools that a later version of the server adds. Status
   * tools, and the tools that begin runs by handles, pass. Only the last gate of a route may
   * refuse; else its requests are answered 500, and `onError` is called. Default `allow`.
   */
  unbound?: 'allow' | 'refuse' | undefined;
  /**
   * What becomes of a run in a final state. `keep`: it stays there, and the gate refuses each call
   * that is not bound to that state. `restart`: lists and refusals are those of the initial state,
   * and the next call that it allows begins the run again. Default: `restart` for runs of
   * principals, who have no other run; `keep` for those of sessions and handles.
   */
  whenEnded?: WhenEnded | undefined;
  /**
   * Gives the shared data that a run begins with; for a statechart its context. By `beginIn()` it
   * also gives the state, which must be one of the gate's `starts`. The gate calls `begin` before
   * the run's first call, and before it begins again. Guards see the data, and the first move saves
   * it. Where `begin` throws, or takes longer than 5 seconds, the call is refused as `unavailable`,
   * and `onError` gets the error. It may be called several times for one run, so it should change
   * nothing. Default: the machine's own data, in its initial state.
   */
  begin?: Begin | undefined;
  /**
   * What the trail keeps beside an entry for each forwarded call: refused calls, arguments, and why
   * a call failed. Functions of yours choose what of the last two. Default: none of them.
   */
  trail?: TrailOptions | undefined;
  /**
   * Says of an HTTP answer of 300 to 498 that nothing of its call ran, as a limiter's 429 does. The
   * gate knows the answers of the official transports itself. It holds each other answer without a
   * result back until it is whole, and asks this function. By anything but `true`, and where it
   * throws, the outcome is unknown. Default: knows no other answer.
   */
  neverRan?: ((answer: ErrorAnswer) => boolean) | undefined;
  /**
   * Adds a tool by which a model finds out how to go on. It says where the run stands, what the
   * model can call, what the run waits for, and what happened last. Give its name, or an object
   * with its name. Gates of one route that give the same name share the tool. Not together with
   * `refusal: 'unknown-tool'`. Default: none.
   */
  statusTool?: string | StatusToolOptions | undefined;
  /**
   * How long a call waits for another one of the same run, in milliseconds. Keep it below what
   * clients (60 s in the official SDKs) and your proxies wait in silence. Default 40,000.
   */
  waitMs?: number | undefined;
  /**
   * The most calls that wait for one run in this process. The gate refuses the next as `busy`.
   * Default 100.
   */
  maxWaiting?: number | undefined;
  /** As {@link maxWaiting}, in bytes of their request bodies. Default 8 MiB. */
  maxWaitingBytes?: number | undefined;
  /**
   * How long a claim lives without a renewal, in milliseconds. Keep it shorter than `waitMs`: then
   * a waiting call outlives the claim of a process that died. Default 8,000.
   */
  leaseMs?: number | undefined;
  /**
   * The longest that a step may run, in milliseconds. Then its outcome is unknown, and its upstream
   * sees that the client left. Default 10 minutes.
   */
  maxStepMs?: number | undefined;
  /**
   * How long the client of a cancelled step waits for its outcome, in milliseconds. A later outcome
   * is saved, unless the run was resolved or taken over before. Default 5,000.
   */
  cancelGraceMs?: number | undefined;
  /** Time, for tests. Default: the system's. */
  clock?: Clock | undefined;
}

const millis = lazily(() => z.number().check(z.positive()));
const VISIBILITIES: readonly Visibility[] = ['hide', 'stable', 'auto'];
const optionsSchema = lazyOptions(() => ({
  announce: z.optional(z.boolean()),
  visibility: z._default(
    z.custom<Visibility | VisibilityOf>(
      (value) => typeof value === 'function' || VISIBILITIES.some((each) => each === value),
      "expected 'hide', 'stable', 'auto' or a function of the client",
    ),
    'auto',
  ),
  listCache: z.optional(
    z.union([
      z.boolean(),
      z.strictObject({
        ttlMs: z.optional(millis()),
        vary: optionalFunction<NonNullable<ListCacheOptions['vary']>>(),
        shared: z.optional(z.boolean()),
      }),
    ]),
  ),
  refusal: z._default(z.enum(['explain', 'unknown-tool']), 'explain'),
  enforce: z._default(
    z.union([z.boolean(), z.array(z.string()).check(z.minLength(1))]) as z.ZodMiniType<Enforced>,
    true,
  ),
  unbound: z._default(z.enum(['allow', 'refuse']), 'allow'),
  whenEnded: z.optional(z.enum(['keep', 'restart'])),
  begin: optionalFunction<Begin>(),
  trail: z._default(
    z.strictObject({
      refusals: z.optional(z.boolean()),
      args: optionalFunction<NonNullable<TrailOptions['args']>>(),
      errors: optionalFunction<NonNullable<TrailOptions['errors']>>(),
    }),
    {},
  ),
  neverRan: optionalFunction<(answer: ErrorAnswer) => boolean>(),
  statusTool: statusToolOption(),
  waitMs: z._default(millis(), 40_000),
  maxWaiting: z._default(integerOption(0), 100),
  maxWaitingBytes: z._default(integerOption(0), 8 * 1024 * 1024),
  leaseMs: z._default(millis(), 8_000),
  maxStepMs: z._default(millis(), 10 * 60 * 1000),
  cancelGraceMs: z._default(millis(), 5_000),
  clock: z._default(
    z.custom<Clock>((value) => typeof value === 'object' && value !== null, 'expected a clock'),
    () => systemClock,
  ),
  ...commonShape(),
}));

/**
 * Shows a client only the tools that are available in its run's state, and refuses every other
 * gated call. A call that succeeds moves the run, and the client is notified that its list changed.
 *
 * The gate is a template: each run has its own position, and `gate.currentState` never moves. Mount
 * it after `sessionStore()`. Without one, this process keeps the runs in its memory.
 *
 * @example
 * ```ts
 * const rules = { checkout: {}, pay: { after: 'checkout' } };
 * const gate = StateMachineGate.fromOrder(rules, { id: 'shop' });
 * app.all('/mcp', sessionStore(), fsmGate(gate, { statusTool: 'status' }), handler);
 * ```
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`
 */
export function fsmGate<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  options?: FsmGateOptions,
): Middleware {
  return atCaller(fsmGate, () => mount([gateStage('fsmGate()', gate, options)]));
}

/** The stage of one gate. */
export function gateStage<S extends string, E extends string>(
  what: string,
  gate: StateMachineGate<S, E>,
  options: FsmGateOptions | undefined,
): MountedStage {
  assertGate(what, gate);
  const parsed = parseOptions(what, optionsSchema, options);
  const {
    onError,
    onWarning,
    onEvent,
    clock,
    announce,
    visibility,
    listCache,
    refusal,
    enforce,
    unbound,
    whenEnded,
    begin,
    trail,
    neverRan,
    statusTool,
    maxWaiting,
    maxWaitingBytes,
    waitMs,
    leaseMs,
    maxStepMs,
    cancelGraceMs,
  } = parsed;
  const workflow = gate.compile();
  noteMounted(workflow, { begin, enforce });
  assertEnforced(what, workflow, enforce);
  noteListing(workflow, visibility);
  for (const warning of workflow.warnings) observersOf(parsed).onWarning(warning);
  const shared = {
    workflow,
    listed: new ListedTools(workflow),
    listedPrompts: new ListedNames(workflow.id, workflow.reads.promptNames),
    pages: new PageMemory(),
    lists: ListCache.of(listCache, clock),
    notes: availabilityNotes(workflow),
    times: { waitMs, leaseMs, maxStepMs, cancelGraceMs },
    waiting: { maxWaiting, maxWaitingBytes },
    clock,
    announce,
    visibility,
    clients: new ListingClients(),
    refusal,
    enforce,
    observe: observeCall,
    unbound,
    aliases: new Aliases(),
    whenEnded,
    begin,
    trail,
    neverRan,
    status: statusToolOf(statusTool, workflow, refusal),
  };
  // A config per observers, which differ with the `sessionStore()` in front. `passGate()`
  // compares configs, so each stays the same object. Weak: the gate may outlive that
  // `sessionStore()`.
  const configs = new WeakMap<Observers, GateConfig>();
  const configOf = (observers: Observers): GateConfig => {
    const known = configs.get(observers);
    if (known !== undefined) return known;
    const reported = new Reported();
    const warnOnce = (warning: string): void => {
      if (reported.isNew(warning)) observers.onWarning(warning);
    };
    const config = { ...shared, ...observers, warnOnce };
    configs.set(observers, config);
    return config;
  };
  let ownSessions: Sessions | undefined;
  const behind = inheriting(parsed);

  const join: Enter = (exchange, observers) => {
    const config = configOf(observers);
    if (!passGate(exchange, config)) return true;
    const enter = (admission: Admission): MaybePromise<boolean> => {
      const sessions = admission.owner as Sessions;
      const fault = sessions.faultOf(workflow);
      return after(passesAll(enforce, sessions.config.store, workflow), (passes) => {
        if (!passes && fault !== undefined) throw fault;
        if (!passes) return enterGate(config, exchange, admission);
        if (fault === undefined) observeAll(config, exchange, admission);
        else reportOnce(fault, config);
        return true;
      });
    };
    const admission = admissionOf(exchange);
    if (admission !== undefined) return enter(admission);
    return after(
      ownSessionsNow().enter(exchange),
      (admitted) => admitted !== undefined && enter(admitted),
    );
  };
  const ownSessionsNow = (): Sessions => {
    ownSessions ??= createSessions(what, { onError, onWarning, onEvent, clock }).sessions;
    return ownSessions;
  };
  return stageWith(parsed, join, {
    ...(enforce === false && {
      watches: ({ req, notes }) => {
        const { sessions } = notes as WatchNotes;
        // Where another gate of the route enforces, this one joins its exchange.
        const isJoined = Exchange.known(req)?.admission !== undefined;
        if (sessions === undefined && isJoined) return false;
        return passesAll(enforce, (sessions ?? ownSessionsNow()).config.store, workflow);
      },
      watch: ({ notes }, see) => {
        const known = notes as WatchNotes;
        const sessions = known.sessions ?? ownSessionsNow();
        const config = configOf(behind(sessions.config));
        const fault = sessions.faultOf(workflow);
        // A gate that only observes changes nothing, and so refuses nothing.
        if (fault !== undefined) return reportOnce(fault, config);
        if (known.watched !== undefined) {
          known.watched.add(config);
          return;
        }
        return see(config.onError, (seen, watch) => {
          known.watched = new WatchedRequest(sessions, seen, watch);
          known.watched.add(config);
        });
      },
    }),
    forward: insideStep,
    gate: shared,
    assertBehind: (earlier) =>
      assertTogether([...earlier.flatMap((stage) => stage.gate ?? []), shared]),
  });
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG` for a name or a glob of no bound tool */
function assertEnforced(what: string, { id, toolNames }: Workflow, enforce: Enforced): void {
  if (typeof enforce === 'boolean') return;
  const wrong = enforce.find((each) => !toolNames.some((tool) => enforces([each], tool)));
  if (wrong === undefined) return;
  throw configError(
    `${what}: enforce: ${showValue(wrong)} matches no tool that "${id}" binds, ` +
      rightNames(wrong, toolNames),
  );
}

const reported = new WeakSet<InterlockError>();

/** Reports why a gate that observes judges no call. */
function reportOnce(fault: InterlockError, { onError }: Observers): void {
  if (!reported.has(fault)) onError(fault);
  reported.add(fault);
}
