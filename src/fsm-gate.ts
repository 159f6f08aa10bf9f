import * as z from 'zod/mini';
import { type Clock, systemClock } from './clock.ts';
import {
  type GateConfig,
  ListedNames,
  ListedTools,
  noteMount,
  type TrailOptions,
  type Visibility,
} from './gate/config.ts';
import { enterGate } from './gate/gate-filter.ts';
import { assertTogether, passGate } from './gate/gates.ts';
import { ListCache, type ListCacheOptions } from './gate/list-cache.ts';
import { availabilityNotes } from './gate/lists.ts';
import { Aliases } from './gate/replies.ts';
import { type StatusToolOptions, statusToolOf, statusToolOption } from './gate/status-tool.ts';
import {
  type CommonOptions,
  commonShape,
  type Enter,
  type Middleware,
  observersOf,
  withExchange,
} from './middleware.ts';
import { functionOption, parseOptions } from './options.ts';
import { insideStep } from './session/current-step.ts';
import { admissionOf } from './session/run.ts';
import type { Sessions } from './session/sessions.ts';
import { createSessions } from './session-store.ts';
import type { Begin } from './step/claim.ts';
import type { WhenEnded } from './step/outcome.ts';
import type { Observers } from './wire/exchange.ts';
import { PageMemory } from './wire/pages.ts';
import { after } from './wire/task-line.ts';
import { assertGate, type StateMachineGate } from './workflow/gate.ts';

/** Options of {@link fsmGate}. */
export interface FsmGateOptions extends CommonOptions {
  /**
   * Also say in words, at the end of the result, what is available after a move: for clients that
   * never list again. Default `false`.
   */
  announce?: boolean | undefined;
  /**
   * `hide` lists only what is available in the run's state. `stable` lists every tool, and says of
   * each gated one where it is available: for clients that never list again, and for models' prompt
   * caches. Default: `hide` where there are sessions, `stable` since MCP 2026-07-28, where a list
   * must not vary as a side effect of other requests.
   */
  visibility?: Visibility | undefined;
  /**
   * Answers lists of tools without the upstream, for as long as they are good. `true` keeps each
   * session's list, and in the stateless era each principal's, for five seconds unless the upstream
   * gives a `ttlMs` of its own. Default: only what a stateless-era upstream calls `public`, for as
   * long as it says; `false` keeps nothing. See docs/build/eras.md, "Lists that are kept".
   */
  listCache?: boolean | ListCacheOptions | undefined;
  /**
   * How a call out of order is refused: `explain` says what is available and how to get there.
   * `unknown-tool` is answered as the upstream answers for a tool that it does not have, where the
   * list hides it; each call of a bound tool costs one read of the store more. Default `explain`.
   */
  refusal?: 'explain' | 'unknown-tool' | undefined;
  /**
   * What becomes of a run in a final state. `keep`: it stays there, and every call is refused that
   * its bindings do not allow there. `restart`: the next call that the initial state allows begins
   * it anew, and lists and refusals are the initial state's from the end on. Default: `restart` for
   * runs of principals, who have no other one; `keep` for those of sessions and handles.
   */
  whenEnded?: WhenEnded | undefined;
  /**
   * Gives the shared data that a run begins with, of a statechart its context: asked before the
   * first call of it, and where it begins anew, for at most 5 seconds. Guards see it, and it is
   * saved with the first move. Where it throws, the call is refused as `unavailable`, and `onError`
   * is told. It may be asked several times for one run, so let it change nothing. Default: the
   * machine's own data.
   */
  begin?: Begin | undefined;
  /**
   * What the trail keeps of calls, beside an entry of each one that was forwarded: refused calls,
   * and arguments as far as a function of yours lets them through. Default: neither.
   */
  trail?: TrailOptions | undefined;
  /**
   * Lists and answers a tool by which a model finds out how to go on: where the run stands, what it
   * can call, what is waited for and what happened last. Its name, or its name with more. Gates of
   * one route that give the same name share the tool. Not together with `refusal: 'unknown-tool'`.
   * Default: none.
   */
  statusTool?: string | StatusToolOptions | undefined;
  /** How long a call waits for another one of the same run, in milliseconds. Default 10,000. */
  waitMs?: number | undefined;
  /**
   * The most calls that wait for one run in this process; the next is refused as `busy`. Default
   * 100.
   */
  maxWaiting?: number | undefined;
  /**
   * The most bytes of request bodies that wait for one run, as {@link maxWaiting}. Default 8 MiB.
   */
  maxWaitingBytes?: number | undefined;
  /**
   * How long a claim lives without being renewed, in milliseconds. Default 8,000. Best shorter than
   * `waitMs`: then a call that waits outlives the claim of a process that died.
   */
  leaseMs?: number | undefined;
  /**
   * A step that runs longer is given up on: its outcome is unknown, and its upstream learns that
   * its client left. In milliseconds, default 10 minutes.
   */
  maxStepMs?: number | undefined;
  /**
   * How long the client of a cancelled step waits for its outcome, in milliseconds. Default 5,000.
   * An outcome that comes later is saved, unless the run was resolved or taken over before.
   */
  cancelGraceMs?: number | undefined;
  /** Time, for tests. Default: the system's. */
  clock?: Clock | undefined;
}

const millis = z.number().check(z.positive());
const optionsSchema = z.strictObject({
  announce: z._default(z.boolean(), false),
  visibility: z.optional(z.enum(['hide', 'stable'])),
  listCache: z.optional(
    z.union([
      z.boolean(),
      z.strictObject({
        ttlMs: z.optional(millis),
        vary: z.optional(functionOption<NonNullable<ListCacheOptions['vary']>>()),
        shared: z.optional(z.boolean()),
      }),
    ]),
  ),
  refusal: z._default(z.enum(['explain', 'unknown-tool']), 'explain'),
  whenEnded: z.optional(z.enum(['keep', 'restart'])),
  begin: z.optional(functionOption<Begin>()),
  trail: z._default(
    z.strictObject({
      refusals: z.optional(z.boolean()),
      args: z.optional(functionOption<NonNullable<TrailOptions['args']>>()),
    }),
    {},
  ),
  statusTool: statusToolOption,
  waitMs: z._default(millis, 10_000),
  maxWaiting: z._default(z.int().check(z.minimum(0)), 100),
  maxWaitingBytes: z._default(z.int().check(z.minimum(0)), 8 * 1024 * 1024),
  leaseMs: z._default(millis, 8_000),
  maxStepMs: z._default(millis, 10 * 60 * 1000),
  cancelGraceMs: z._default(millis, 5_000),
  clock: z._default(
    z.custom<Clock>((value) => typeof value === 'object' && value !== null, 'expected a clock'),
    () => systemClock,
  ),
  ...commonShape,
});

/**
 * Shows a client only the tools that are available in its run's state, refuses every other gated
 * call, moves the run on when a call succeeds, and tells the client that its list changed.
 *
 * The gate is a template: each run has a position of its own, and `gate.currentState` never moves.
 * Mount it after `sessionStore()`; without one, runs are kept in this process's memory.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`
 */
export function fsmGate<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  options?: FsmGateOptions,
): Middleware {
  assertGate('fsmGate()', gate);
  const parsed = parseOptions('fsmGate()', optionsSchema, options);
  const { maxBodyBytes, maxBatch, maxMessageBytes, onError, onWarning, onEvent, ...rest } = parsed;
  const {
    clock,
    announce,
    visibility,
    listCache,
    refusal,
    whenEnded,
    begin,
    trail,
    statusTool,
    maxWaiting,
    maxWaitingBytes,
    ...times
  } = rest;
  const workflow = gate.compile();
  noteMount(workflow, { visibility, begin });
  for (const warning of workflow.warnings) observersOf(parsed).onWarning(warning);
  const shared = {
    workflow,
    listed: new ListedTools(workflow),
    listedPrompts: new ListedNames(workflow.id, workflow.reads.promptNames),
    pages: new PageMemory(),
    lists: ListCache.of(listCache, clock),
    notes: availabilityNotes(workflow),
    times,
    waiting: { maxWaiting, maxWaitingBytes },
    clock,
    announce,
    visibility,
    refusal,
    aliases: new Aliases(),
    whenEnded,
    begin,
    trail,
    status: statusToolOf(statusTool, workflow, refusal),
  };
  const configs = new WeakMap<Observers, GateConfig>();
  const configOf = (observers: Observers): GateConfig => {
    const known = configs.get(observers);
    if (known !== undefined) return known;
    const config = { ...shared, ...observers, warnOnce: once(observers.onWarning) };
    configs.set(observers, config);
    return config;
  };
  let ownSessions: Sessions | undefined;

  const join: Enter = (exchange, observers) => {
    const config = configOf(observers);
    if (!passGate(exchange, config)) return true;
    ownSessions ??= createSessions('fsmGate()', { onError, onWarning, onEvent, clock }).sessions;
    const admission = admissionOf(exchange) ?? ownSessions.enter(exchange);
    return after(
      admission,
      (admitted) => admitted !== undefined && enterGate(config, exchange, admitted),
    );
  };
  return withExchange(parsed, join, {
    forward: insideStep,
    gate: shared,
    assertBehind: (earlier) =>
      assertTogether([...earlier.flatMap((stage) => stage.gate ?? []), shared]),
  });
}

function once(onWarning: (warning: string) => void): (warning: string) => void {
  const given = new Set<string>();
  return (warning) => {
    if (given.has(warning)) return;
    given.add(warning);
    onWarning(warning);
  };
}
