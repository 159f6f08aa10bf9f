import * as z from 'zod';
import { InterlockError } from './errors.ts';
import { parseOptions, showValue } from './options.ts';
import { systemClock } from './session/clock.ts';
import { guardStore } from './session/guarded-store.ts';
import { resolveStore } from './stores/adapt.ts';
import type {
  AtomicStateStore,
  ClaimView,
  FsmSnapshot,
  Json,
  StateStore,
  TrailEntry,
} from './stores/store.ts';
import { StateMachineGate } from './workflow/gate.ts';
import type { Workflow } from './workflow/workflow.ts';

/** Options of {@link runsOf}. */
export interface RunsOptions {
  /** The store that `sessionStore({ store })` was given. */
  store: StateStore;
  /** How long a run lives after it was looked at, in milliseconds: as in `sessionStore()`. Default one hour. */
  idleMs?: number | undefined;
  /** The longest that a call to the store may take, in milliseconds. Default 2,000. */
  storeDeadlineMs?: number | undefined;
}

/** Where a run stands, for operators and pages of the app's own. */
export interface RunView {
  readonly snapshot: FsmSnapshot;
  /** `idle`: nothing is under way. `running`: a step is. `held`: a step ended with an unknown outcome, and waits to be resolved. */
  readonly status: 'idle' | 'running' | 'held';
  /** The step that is running or held. */
  readonly claim?: ClaimView;
}

/** What {@link Runs.resolve} did. */
export type Resolution =
  | { readonly resolved: true; readonly state: string }
  | { readonly resolved: false; readonly reason: 'unknown-run' | 'not-held' | 'running' };

/** How a held step came out, as somebody found out. */
export interface ResolveOptions<E extends string = string> {
  /** The event to send. Default: the one that the tool's success or failure is bound to in the run's state. */
  readonly event?: E | undefined;
  /** What comes along with the event. */
  readonly payload?: Json | undefined;
  /** Who says so, for the trail. */
  readonly actor?: string | undefined;
}

const optionsSchema = z.strictObject({
  store: z.custom<StateStore>((value) => typeof value === 'object' && value !== null, 'expected a store'),
  idleMs: z
    .number()
    .positive()
    .default(60 * 60 * 1000),
  storeDeadlineMs: z.number().positive().default(2_000),
});

/** The runs of one gate, seen from outside of any request. Made by {@link runsOf}. */
export class Runs<E extends string = string> {
  readonly #workflow: Workflow;
  readonly #store: AtomicStateStore;
  readonly #idleMs: number;

  constructor(workflow: Workflow, store: AtomicStateStore, idleMs: number) {
    this.#workflow = workflow;
    this.#store = store;
    this.#idleMs = idleMs;
  }

  /** Where the run stands, or `undefined` where there is no such run. Rejects where the store cannot be asked. */
  async read(run: string): Promise<RunView | undefined> {
    const record = await this.#store.read(run, this.#idleMs);
    if (record === undefined) return undefined;
    const { id, start } = this.#workflow;
    const entry = Object.hasOwn(record.workflows, id) ? record.workflows[id] : undefined;
    if (entry === undefined) return { snapshot: { ...start, updatedAt: 0 }, status: 'idle' };
    const { claim } = entry;
    const { updatedAt, version = 0 } = entry.snapshot;
    const snapshot = { ...this.#workflow.adopt(entry.snapshot), updatedAt, version };
    if (claim === undefined) return { snapshot, status: 'idle' };
    // A step that may be repeated holds nobody up once its lease is over.
    if (!claim.live && claim.uncertain === 'retry') return { snapshot, status: 'idle', claim };
    return { snapshot, status: claim.live ? 'running' : 'held', claim };
  }

  /** What moved the run, oldest first: the newest `limit` entries, by default 50. */
  history(run: string, limit?: number): Promise<TrailEntry[]> {
    return this.#store.history({ run, workflow: this.#workflow.id }, limit);
  }

  /**
   * Ends the wait of a held run, once somebody knows what its step came to: `succeeded` moves it as the call's success would have,
   * `failed` as its failure would, which is not at all where no failure event is bound. Safe against the step's own late commit: whoever comes first decides.
   *
   * @throws InterlockError `ERR_INTERLOCK_EVENT` where the event cannot be told from the tool and must be given
   */
  async resolve(
    run: string,
    outcome: 'succeeded' | 'failed',
    options: ResolveOptions<E> = {},
  ): Promise<Resolution> {
    const view = await this.read(run);
    if (view === undefined) return { resolved: false, reason: 'unknown-run' };
    const { claim, snapshot } = view;
    if (claim === undefined) return { resolved: false, reason: 'not-held' };
    if (claim.live) return { resolved: false, reason: 'running' };
    const key = { run, workflow: this.#workflow.id };
    const { updatedAt: _, version = 0, ...position } = snapshot;
    const from = position.state;
    const event = options.event ?? this.#eventOf(claim.tool, from, outcome);
    if (outcome === 'failed' && event === null) {
      await this.#store.release(key, claim.token);
      return { resolved: true, state: from };
    }
    const next = event === null ? undefined : this.#workflow.next(position, event, options.payload);
    const reached = next?.position ?? position;
    const to = reached.state;
    const result = await this.#store.commit({
      ...key,
      token: claim.token,
      snapshot: { ...reached },
      trail: {
        from,
        to,
        event,
        tool: claim.tool,
        ...(options.actor === undefined ? {} : { actor: options.actor }),
        ...(options.payload === undefined ? {} : { payload: options.payload }),
      },
      ttlMs: this.#idleMs,
    });
    if (result.status !== 'committed') {
      return { resolved: false, reason: result.status === 'unknown' ? 'unknown-run' : 'not-held' };
    }
    const due = version === 0 ? this.#workflow.startActions : [];
    const actions = [...due, ...(next?.actions ?? [])];
    this.#workflow.act(actions, { run, event, from, to, context: this.#workflow.dataOf(reached) });
    this.#workflow.emit({
      changed: to !== from,
      previousState: from,
      currentState: to,
      event: event ?? '',
      run,
    });
    return { resolved: true, state: to };
  }

  #eventOf(tool: string, state: string, outcome: 'succeeded' | 'failed'): string | null {
    try {
      const binding = this.#workflow.match(tool, undefined);
      const source = binding?.eventIn(state, outcome === 'failed' ? 'failure' : 'success') ?? null;
      if (binding !== undefined && typeof source !== 'function') return source;
    } catch {
      // A `when` that needs the arguments, which nobody kept.
    }
    throw new InterlockError(
      'ERR_INTERLOCK_EVENT',
      `resolve(): which event a call of ${showValue(tool)} sends depends on its arguments or its result; give { event }`,
    );
  }
}

/**
 * The runs of a gate, for an operator's page or a job of the app's own: where they stand, what moved them, and the way out for a run that is held.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_STORE`
 */
export function runsOf<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  options: RunsOptions,
): Runs<E> {
  if (!(gate instanceof StateMachineGate)) {
    throw new InterlockError(
      'ERR_INTERLOCK_CONFIG',
      'runsOf(): the first argument must be a StateMachineGate',
    );
  }
  const { store, idleMs, storeDeadlineMs } = parseOptions('runsOf()', optionsSchema, options);
  return new Runs<E>(gate.compile(), guardStore(resolveStore(store), storeDeadlineMs, systemClock), idleMs);
}
