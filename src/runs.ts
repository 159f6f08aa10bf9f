import { InterlockError } from './errors.ts';
import {
  eventOfHeld,
  expireFromOutside,
  moveFromOutside,
  moveOfHeld,
  overdueRuns,
  tellMovedOutside,
} from './gate/outside.ts';
import { storedIn } from './gate/stands.ts';
import { newToken } from './ids.ts';
import { showValue } from './options.ts';
import {
  assertChange,
  assertRuns,
  keptBy,
  parseInside,
  parseRequest,
  parseResolve,
  type Resolution,
  type ResolveOptions,
  type Restarted,
  type RunsMover,
  type RunsOptions,
  type RunView,
  type SendOptions,
  type Sent,
  type Updated,
} from './runs-options.ts';
import { type CurrentStep, mayBeInside, openStepOf } from './session/current-step.ts';
import { ANEW, restartOf } from './step/ends.ts';
import { moveTo, takeEffect } from './step/move.ts';
import { tellIfHeld } from './step/unknown-outcome.ts';
import type { ClaimView, FsmSnapshot, Json, TrailDraft, TrailEntry } from './stores/store.ts';
import { parseEvent } from './workflow/binding.ts';
import { StateMachineGate } from './workflow/gate.ts';
import type { Workflow } from './workflow/workflow.ts';

/**
 * The runs of one gate, seen from outside of any request. Made by {@link runsOf}. All of it rejects
 * where the store cannot be asked.
 */
export class Runs<E extends string = string> {
  readonly #workflow: Workflow;
  readonly #mover: RunsMover;

  constructor(mover: RunsMover) {
    this.#workflow = mover.workflow;
    this.#mover = mover;
  }

  /** Where the run stands, or `undefined` where there is no such run. */
  async read(run: string): Promise<RunView | undefined> {
    const view = (await this.#look(run))?.view;
    tellIfHeld({ run, workflow: this.#workflow.id }, view?.claim, this.#mover);
    return view;
  }

  /**
   * The same, with the position that was saved: its state's time may be over by now, but no step in
   * it is cut short.
   */
  async #look(
    run: string,
  ): Promise<{ readonly view: RunView; readonly stored: FsmSnapshot } | undefined> {
    const { store, ttlMs } = this.#mover;
    const record = await store.read(run, ttlMs, this.#workflow.id);
    if (record === undefined) return undefined;
    const { id, start } = this.#workflow;
    const entry = storedIn(record, id);
    if (entry === undefined) {
      const stored = { ...start, updatedAt: 0 };
      return { stored, view: this.#view(stored, 'idle') };
    }
    const { claim } = entry;
    const { updatedAt, version = 0 } = entry.snapshot;
    const known = { ...this.#workflow.adopt(entry.snapshot), updatedAt, version };
    const next = this.#workflow.overdue(known, record.now ?? this.#mover.clock.now());
    const snapshot = next === undefined ? known : { ...next.position, updatedAt, version };
    // A step that may be repeated holds nobody up once its lease is over.
    const isIdle = claim === undefined || (!claim.live && claim.uncertain === 'retry');
    const view = this.#view(snapshot, isIdle ? 'idle' : claim.live ? 'running' : 'held', claim);
    return { stored: { ...this.#workflow.stand(entry.snapshot), updatedAt, version }, view };
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
        return moveTo(workflow, from.state, reached, { event: name, ...said({ actor, payload }) });
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
      return moveTo(
        workflow,
        from.state,
        { position, actions },
        { event: null, ...said({ actor }) },
      );
    });
    if (moved === 'unchanged') return { updated: false, reason: 'busy' };
    if (typeof moved === 'string') return { updated: false, reason: moved };
    return { updated: true, context: workflow.dataOf(moved.snapshot) };
  }

  /**
   * Begins a run anew, whichever state it is in: its data are the first ones again, its version and
   * its trail go on. Not while a step of it is running or held, which is found out at once.
   */
  async restart(run: string, options?: Pick<SendOptions, 'actor'>): Promise<Restarted> {
    const { actor } = parseRequest('restart()', options);
    const what = { name: 'restart', waitMs: 0, ...ANEW };
    const moved = await moveFromOutside(this.#mover, run, what, (from) =>
      restartOf(this.#workflow, from.state, actor),
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
    const { event: chosen, ...request } = parseResolve(outcome, options);
    const found = await this.#look(run);
    if (found === undefined) return { resolved: false, reason: 'unknown-run' };
    const { view, stored } = found;
    const { claim } = view;
    if (claim === undefined) return { resolved: false, reason: 'not-held' };
    if (claim.live) return { resolved: false, reason: 'running' };
    const { store, ttlMs } = this.#mover;
    const key = { run, workflow: this.#workflow.id };
    const event = chosen ?? eventOfHeld(this.#workflow, claim.tool, stored.state, outcome);
    if (outcome === 'failed' && event === null) {
      await store.release(key, claim.token);
      return { resolved: true, state: view.snapshot.state };
    }
    const move = moveOfHeld(
      this.#workflow,
      stored,
      event,
      { tool: claim.tool, ...said(request) },
      request.payload,
    );
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
    takeEffect(this.#mover, move, run);
    tellMovedOutside(this.#mover, run, move);
    return { resolved: true, state: move.trail.to };
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

  #view(snapshot: FsmSnapshot, status: RunView['status'], claim?: ClaimView): RunView {
    const context = this.#workflow.dataOf(snapshot);
    return {
      snapshot,
      status,
      ended: this.#workflow.hasEnded(snapshot.state),
      ...(context !== undefined && { context }),
      ...(claim && { claim }),
    };
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
  if (!(gate instanceof StateMachineGate)) {
    throw new InterlockError(
      'ERR_INTERLOCK_CONFIG',
      `runsOf(): the first argument must be a StateMachineGate, got ${showValue(gate)}`,
    );
  }
  return new Runs<E>({
    workflow: gate.compile(),
    ...keptBy(options),
  });
}
