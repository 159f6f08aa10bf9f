import type { EventDraft } from './events.ts';
import { isStableEverywhere } from './gate/config.ts';
import { readLists } from './gate/list-changes.ts';
import {
  eventOfHeld,
  expireFromOutside,
  failureOfHeld,
  moveFromOutside,
  moveOfHeld,
  outsideBeginning,
  overdueRuns,
  tellMovedOutside,
} from './gate/outside.ts';
import { storedIn } from './gate/stands.ts';
import { isSession, newToken } from './names.ts';
import {
  countRuns,
  heldRuns,
  indexOf,
  type StandingRun,
  standingRun,
  stuckRuns,
} from './run-views.ts';
import {
  assertChange,
  assertRuns,
  type BeginOptions,
  type Begun,
  type CountOptions,
  keptBy,
  type ListOptions,
  MOVER,
  type PageOptions,
  parseBegin,
  parseInside,
  parseQuery,
  parseRequest,
  parseResolve,
  type Resolution,
  type ResolveOptions,
  type Restarted,
  type RunsMover,
  type RunsOptions,
  type RunsUnderWay,
  type RunView,
  type RunViews,
  type SendOptions,
  type Sent,
  type StuckOptions,
  type Updated,
} from './runs-options.ts';
import { type CurrentStep, mayBeInside, openStepOf } from './session/current-step.ts';
import { ownerOf, principalText } from './session/run-key.ts';
import { ANEW, begunWith, restartOf } from './step/claim.ts';
import { moveTo, takeEffect, tellIfHeld } from './step/outcome.ts';
import type { Json, KeysPage, TrailDraft, TrailEntry } from './stores/store.ts';
import { parseEvent } from './workflow/binding.ts';
import { assertGate, type StateMachineGate } from './workflow/gate.ts';
import { BEGIN } from './workflow/stored.ts';
import type { Workflow } from './workflow/workflow.ts';

/**
 * The runs of one gate, seen from outside of any request. Made by {@link runsOf}. All of it rejects
 * where the store cannot be asked.
 */
export class Runs<E extends string = string> {
  readonly #workflow: Workflow;
  readonly #mover: RunsMover;
  /** The gate that they were asked for with. */
  readonly gate: StateMachineGate;

  /** @internal */
  constructor(gate: StateMachineGate, mover: RunsMover) {
    this.gate = gate;
    this.#workflow = mover.workflow;
    this.#mover = mover;
  }

  /**
   * For `workflowHealth()`.
   *
   * @internal
   */
  get [MOVER](): RunsMover {
    return this.#mover;
  }

  /** The gate's id. */
  get workflow(): string {
    return this.#workflow.id;
  }

  /** Where the run stands, or `undefined` where there is no such run. */
  async read(run: string): Promise<RunView | undefined> {
    const found = await this.#look(run);
    if (found === undefined) return undefined;
    const { view, stored: snapshot, now } = found;
    const key = { run, workflow: this.#workflow.id };
    tellIfHeld({ key, snapshot, claim: view.claim, now }, this.#mover);
    return view;
  }

  async #look(run: string): Promise<StandingRun | undefined> {
    const { store, ttlMs, clock, onError } = this.#mover;
    const workflow = this.#workflow;
    const record = await store.read(run, ttlMs, workflow.id);
    if (record === undefined) return undefined;
    const seen = { workflow, run, principal: record.session.principal, onError };
    return standingRun(seen, storedIn(record, workflow.id), record.now ?? clock.now());
  }

  /**
   * The runs that are held, each until a person resolves it, with the step whose outcome is
   * unknown. The longest held come first. Being listed keeps no run alive.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where the store keeps no index of its runs, as
   * those of `load` and `save` do not
   */
  async held(options?: PageOptions): Promise<RunViews> {
    return heldRuns(this.#mover, parseQuery.held(options));
  }

  /**
   * The runs that have not ended, and have not moved for `forMs`. The oldest come first. A run is
   * listed by the state that was saved: `sweep()` first, where states have deadlines. Where the
   * gate has a `migrate`, a part may have fewer runs than `limit` although there is a `next`.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` for a state or tag that the workflow does not
   * have, `ERR_INTERLOCK_STORE` as {@link held}
   */
  async stuck(options: StuckOptions): Promise<RunViews> {
    return stuckRuns(this.#mover, parseQuery.stuck(options));
  }

  /**
   * How many runs have not ended, by state, and how many are held, running and stuck.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` as {@link held}
   */
  async count(options?: CountOptions): Promise<RunsUnderWay> {
    const counted = await countRuns(this.#mover, parseQuery.count(options));
    // A person learns of held runs by their number too, so the first of them are told of.
    if (counted.held > 0) await heldRuns(this.#mover, { limit: 100 });
    return counted;
  }

  /**
   * The keys of a principal's runs, of all workflows: sessions, handles, and the run that is the
   * principal's own. For `delete()`, where a person must be erased.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` as {@link held}
   */
  async list(options: ListOptions): Promise<KeysPage> {
    const { principal, ...page } = parseQuery.list(options);
    const { list } = indexOf(this.#mover, 'list()');
    return list({ principal: principalText(principal), ...page });
  }

  /**
   * Ends a run with all its workflows, its data and its trail, whatever goes on in it; nothing
   * where there is no such run. A step that is running is not stopped, and nothing of it is saved:
   * its client is told that its outcome could not be recorded. PostgreSQL keeps the trail in a
   * table of its own.
   */
  async delete(run: string): Promise<void> {
    const { sessions, store, tell } = this.#mover;
    if (sessions === undefined) return store.delete(run);
    await sessions.close({ run });
    // A session has ended; who has another kind of run begins another one.
    if (!isSession(run) && !isStableEverywhere(this.#workflow))
      tell(run, ['tools', ...readLists(this.#workflow)]);
  }

  /** What moved the run, oldest first: the newest `limit` entries, by default 50. */
  history(run: string, limit?: number): Promise<TrailEntry[]> {
    return this.#mover.store.history({ run, workflow: this.#workflow.id }, limit);
  }

  /**
   * Moves a run by an event that no call sends: an approval, a webhook, a timer of the app's own.
   * It waits for the step that is under way, commits as a step does, leaves its entry in the trail,
   * and has the run's clients told.
   *
   * @throws InterlockError `ERR_INTERLOCK_EVENT` unless the event is a non-empty string; Error
   * inside of a step of the same run, which would wait for itself: bind the event to the call's
   * outcome there. A handler says so by `{ step }`, unless `mcp-interlock/ambient` is imported
   */
  async send(run: string, event: E, options?: SendOptions): Promise<Sent> {
    const name = parseEvent('send()', event);
    const { actor, payload, step } = parseInside('send()', options);
    if (this.#ownStep('send()', run, step) !== undefined)
      throw new Error(
        'send() inside of a step of the same run; bind the event to the outcome of its call',
      );
    const workflow = this.#workflow;
    const moved = await moveFromOutside(
      this.#mover,
      run,
      { name: `send ${name}`, payload },
      (from, isFirst) => {
        const { position, handled, actions } = workflow.next(from, name, payload);
        if (!handled) return undefined;
        const due = workflow.dueActions(isFirst);
        const reached = { position, actions: [...due, ...actions] };
        return moveTo(workflow, from, reached, { event: name, ...said({ actor, payload }) });
      },
    );
    if (moved === 'unchanged') return { sent: false, reason: 'unhandled' };
    if (typeof moved === 'string') return { sent: false, reason: moved };
    const { from, to } = moved.trail;
    return { sent: true, changed: from !== to, state: to };
  }

  /**
   * Changes a run's shared data, which guards and functions of bindings read; of a statechart it is
   * the context. `change` is given what is there and returns what is to be there, at once and
   * without a race. Inside of a step of the run, given as `{ step }`, it takes part in that: saved
   * with its outcome.
   *
   * @throws whatever `change` throws; then nothing is changed
   */
  async update(
    run: string,
    change: (context: Json | undefined) => Json | undefined,
    options?: Pick<SendOptions, 'actor' | 'step'>,
  ): Promise<Updated> {
    assertChange(change);
    const { actor, step } = parseInside('update()', options);
    const own = this.#ownStep('update()', run, step);
    if (own !== undefined) return { updated: true, context: own.update(change) };
    const workflow = this.#workflow;
    const moved = await moveFromOutside(this.#mover, run, { name: 'update' }, (from, isFirst) => {
      const position = workflow.withData(from, change(workflow.dataOf(from)));
      const actions = workflow.dueActions(isFirst);
      return moveTo(workflow, from, { position, actions }, { event: null, ...said({ actor }) });
    });
    if (moved === 'unchanged') return { updated: false, reason: 'busy' };
    if (typeof moved === 'string') return { updated: false, reason: moved };
    return { updated: true, context: workflow.dataOf(moved.snapshot) };
  }

  /**
   * Begins a run that has not begun: its first data are saved, with an entry of the trail, before
   * any call of it. Safe against its first call and against a second `begin()`: whoever comes first
   * begins it. The run of a principal or a handle is made where there is none; that of a session is
   * made by its client alone.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` where the data are no JSON; and whatever the
   * gate's `begin` throws, where it is asked
   */
  async begin(run: string, options?: BeginOptions): Promise<Begun> {
    const { data, actor } = parseBegin(options);
    const workflow = this.#workflow;
    const what = {
      name: 'begin',
      create: ownerOf(run),
      ...(data !== undefined && { begin: async () => data }),
    };
    const moved = await moveFromOutside(this.#mover, run, what, (position, isFirst) => {
      if (!isFirst) return undefined;
      const reached = { position, actions: workflow.dueActions(true) };
      return moveTo(workflow, position, reached, { event: BEGIN, ...said({ actor }) });
    });
    if (moved === 'unchanged') return { begun: false, reason: 'begun' };
    if (typeof moved === 'string') return { begun: false, reason: moved };
    const context = workflow.dataOf(moved.snapshot);
    return { begun: true, state: moved.trail.to, context };
  }

  /**
   * Begins a run anew, whichever state it is in: its data are the first ones again, its version and
   * its trail go on. Not while a step of it is running or held, which is found out at once.
   */
  async restart(run: string, options?: Pick<SendOptions, 'actor'>): Promise<Restarted> {
    const { actor } = parseRequest('restart()', options);
    const begin = outsideBeginning(this.#mover, run);
    // What it has begun with is left behind, so the app need not be asked for it.
    const what = { name: 'restart', waitMs: 0, ...ANEW, begin: async () => undefined };
    const moved = await moveFromOutside(this.#mover, run, what, async (from) =>
      restartOf(this.#workflow, from, actor, await begin?.()),
    );
    if (typeof moved === 'object') return { restarted: true, state: moved.trail.to };
    return { restarted: false, reason: moved === 'unchanged' ? 'busy' : moved };
  }

  /**
   * Ends the wait of a held run, once somebody knows what its step came to: `succeeded` moves it as
   * the call's success would have, `failed` as its failure would, which is not at all where no
   * failure event is bound. Safe against the step's own late commit: whoever comes first decides.
   *
   * @throws InterlockError `ERR_INTERLOCK_EVENT` where the event cannot be told from the tool and
   * must be given, `ERR_INTERLOCK_CONFIG` for any other outcome
   */
  async resolve(
    run: string,
    outcome: 'succeeded' | 'failed',
    options?: ResolveOptions<E>,
  ): Promise<Resolution> {
    const { event: chosen, token, ...request } = parseResolve(outcome, options);
    const found = await this.#look(run);
    if (found === undefined) return { resolved: false, reason: 'unknown-run' };
    const { view, stored } = found;
    const { claim } = view;
    if (claim === undefined || (token !== undefined && token !== claim.token))
      return { resolved: false, reason: 'not-held' };
    if (claim.live) return { resolved: false, reason: 'running' };
    const { store, ttlMs } = this.#mover;
    const key = { run, workflow: this.#workflow.id };
    const counted =
      chosen === undefined && outcome === 'failed'
        ? failureOfHeld(this.#workflow, claim.tool, stored)
        : undefined;
    const event = counted
      ? null
      : (chosen ?? eventOfHeld(this.#workflow, claim.tool, stored.state, outcome));
    const { actor, note } = request;
    const { actor: calledBy, ...called } = claim.entry ?? { tool: claim.tool };
    const entry = {
      ...called,
      actor,
      calledBy,
      outcome,
      kind: 'resolved',
      payload: request.payload,
      note,
    };
    if (outcome === 'failed' && event === null && counted === undefined) {
      await store.release(key, claim.token, {
        entry: { ...entry, from: stored.state, event: null },
      });
      const { state } = view.snapshot;
      this.#tellResolved(run, { tool: claim.tool, outcome, state, actor, note });
      return { resolved: true, state };
    }
    const data = stored.version === 0 ? await outsideBeginning(this.#mover, run)?.() : undefined;
    const held = counted ?? stored;
    const from = { ...held, ...begunWith(this.#workflow, held, data) };
    const move = moveOfHeld(this.#workflow, from, event, entry);
    const { actions, ...saved } = move;
    const result = await store.commit({
      ...key,
      ...saved,
      token: claim.token,
      as: newToken(),
      ttlMs,
    });
    if (result.status !== 'committed') {
      return { resolved: false, reason: result.status === 'unknown' ? 'unknown-run' : 'not-held' };
    }
    const { to: state } = move.trail;
    this.#tellResolved(run, { tool: claim.tool, outcome, state, actor, note });
    takeEffect(this.#mover, move, run, stored.version === 0);
    tellMovedOutside(this.#mover, run, move);
    return { resolved: true, state };
  }

  #tellResolved(
    runKey: string,
    said: Omit<Extract<EventDraft, { type: 'run.resolved' }>, 'type' | 'runKey' | 'workflow'>,
  ): void {
    const { events } = this.#mover;
    if (!events.isOn) return;
    events.publish({ type: 'run.resolved', workflow: this.#workflow.id, runKey, ...said });
  }

  /**
   * Applies the deadlines of states (`after`) that nobody has touched since: of these runs, or of
   * all that the store finds. One that was saved again within its state may be found later.
   * Resolves to how many runs moved.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where no runs are given and the store cannot list
   * any
   */
  async sweep(runs?: Iterable<string> | AsyncIterable<string>): Promise<number> {
    assertRuns(runs);
    let moved = 0;
    for await (const run of runs ?? overdueRuns(this.#mover))
      if (await expireFromOutside(this.#mover, run)) moved++;
    return moved;
  }

  /** The run's open step that the call is made in. It would wait for one that it does not know. */
  #ownStep(what: string, run: string, given: CurrentStep | undefined): CurrentStep | undefined {
    const { id } = this.#workflow;
    const own = openStepOf(run, id, given);
    if (own === undefined && given === undefined && !warned.has(this.#workflow)) {
      if (mayBeInside(run, id)) {
        warned.add(this.#workflow);
        this.#mover.onWarning(waitsForStep(what, id));
      }
    }
    return own;
  }
}

/** Of these it was said that a call waits for a step of the same run. */
const warned = new WeakSet<Workflow>();

function waitsForStep(what: string, workflow: string): string {
  return (
    `runs.${what} waits for a step of the same run, which is open in this process: of ` +
    `${JSON.stringify(workflow)}. If that step's own handler makes the call, they wait for each ` +
    'other. Give it { step: currentStep(extra) }, or import "mcp-interlock/ambient". Otherwise ' +
    'nothing is wrong'
  );
}

function said({ actor, payload }: SendOptions): Pick<TrailDraft, 'actor' | 'payload'> {
  return { ...(actor !== undefined && { actor }), ...(payload !== undefined && { payload }) };
}

/**
 * The runs of a gate, for pages, webhooks and jobs of the app's own: where they stand, what moved
 * them, moves that no call makes, and the way out for a run that is held.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_STORE`
 */
export function runsOf<S extends string, E extends string>(
  gate: StateMachineGate<S, E>,
  options: RunsOptions,
): Runs<E> {
  assertGate('runsOf()', gate);
  return new Runs<E>(gate, { workflow: gate.compile(), ...keptBy(options) });
}
