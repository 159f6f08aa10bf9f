/**
 * What the runs of a gate are moved with outside of any request. Hides whether that is shared with
 * the sessions of this process, or made for a store.
 */
import * as z from 'zod/mini';
import { DEFAULT_IDLE_MS, lifeOf, systemClock } from '../basics/clock.ts';
import { configError, type InterlockError } from '../basics/errors.ts';
import type { EventListener } from '../basics/events.ts';
import { isContainer, lazyOptions, optionalFunction, parseOptions } from '../basics/options.ts';
import { observersOf } from '../doors/middleware.ts';
import { type SessionMiddleware, sessionsOf } from '../doors/session-store.ts';
import type { OutsideMover } from '../gate/outside.ts';
import type { Sessions } from '../session/sessions.ts';
import type { Begin } from '../step/claim.ts';
import { guardStore } from '../step/store-calls.ts';
import { Turns } from '../step/turns.ts';
import { resolveStore } from '../stores/adapt.ts';
import { faultOfKeeping, inService, keepingOf } from '../stores/service.ts';
import type { StateStore } from '../stores/store.ts';
import { workflowId } from '../workflow/flat-machine.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { RunsOptions } from './runs-options.ts';

const optionsSchema = lazyOptions(() => ({
  sessions: z.optional(
    z.custom<SessionMiddleware>(
      (value) =>
        typeof value === 'function' && sessionsOf(value as SessionMiddleware) !== undefined,
      'expected what sessionStore() of this copy of mcp-interlock returned',
    ),
  ),
  store: z.optional(
    z.custom<StateStore>(isContainer, 'expected a store, such as redisStore({ client })'),
  ),
  service: z.optional(workflowId()),
  idleMs: z.optional(z.number().check(z.positive())),
  begin: optionalFunction<Begin>(),
  storeDeadlineMs: z._default(z.number().check(z.positive()), 2_000),
  onError: optionalFunction<(error: unknown) => void>(),
  onWarning: optionalFunction<(warning: string) => void>(),
  onEvent: optionalFunction<EventListener>(),
}));

/** Holds what runs are moved with, for `workflowHealth()`. */
export const MOVER: unique symbol = Symbol('mcp-interlock.mover');

/** What runs are moved with, and who gets the warnings of likely mistakes. */
export interface RunsMover extends OutsideMover {
  readonly onWarning: (warning: string) => void;
  /** The sessions, where this process serves them. */
  readonly sessions?: Sessions;
}

/** @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_STORE` */
export function keptBy(workflow: Workflow, given: RunsOptions): RunsMover {
  if (typeof given === 'function') throw neitherNorBoth();
  const options = parseOptions('runsOf()', optionsSchema, given);
  const { sessions: middleware, store: stores, service, idleMs, begin, ...more } = options;
  const { storeDeadlineMs: deadlineMs, ...own } = more;
  const sessions = middleware && sessionsOf(middleware);
  if ((sessions === undefined) === (stores === undefined)) throw neitherNorBoth();
  const { longestWindow } = workflow.rules;
  if (sessions !== undefined) {
    if (service !== undefined) throw configError('runsOf(): service: it is that of { sessions }');
    const { config, keeper } = sessions;
    const fault = sessions.faultOf(workflow);
    if (fault !== undefined) throw fault;
    assertNames(workflow, config.store.isMemory);
    return {
      workflow,
      store: config.store,
      ttlOf: (run) =>
        idleMs === undefined ? keeper.ttlOf(run) : lifeOf(run, idleMs, longestWindow),
      clock: config.clock,
      turns: keeper.turns,
      begin,
      ...observersOf(own, config),
      notify: (run, lists) => sessions.notifyListChanged(run, lists),
      sessions,
    };
  }
  const observers = observersOf(own);
  const { events, onWarning } = observers;
  const store = resolveStore(stores as StateStore, { deadlineMs, onWarning });
  const keeping = keepingOf(store);
  const fault = faultOfKeeping(workflow, keeping, onWarning);
  if (fault !== undefined) throw fault;
  const isMemory = keeping === 'memory';
  assertNames(workflow, isMemory);
  const kept = inService(store, service);
  return {
    workflow,
    store: guardStore(kept, deadlineMs, systemClock, events, isMemory),
    ttlOf: (run) => lifeOf(run, idleMs ?? DEFAULT_IDLE_MS, longestWindow),
    clock: systemClock,
    turns: new Turns(systemClock),
    begin,
    ...observers,
    notify: () => {},
  };
}

function neitherNorBoth(): InterlockError {
  return configError(
    'runsOf(): give either { sessions }, which sessionStore() returned, or { store }, and not both',
  );
}

/** Other processes take what a function of a rule says from the store, by the function's name. */
function assertNames({ id, rules }: Workflow, isMemory: boolean): void {
  const fault = isMemory ? undefined : rules.ledger?.faultOfNames();
  if (fault !== undefined) throw configError(`runsOf(): workflow "${id}": ${fault}`);
}
