import { atCaller } from '../basics/errors.ts';
import type { EventDraft } from '../basics/events.ts';
import { isSession, newToken, principalText } from '../basics/names.ts';
import type { Observed } from '../follow/observations.ts';
import { observationsOf } from '../follow/observer.ts';
import { boundLists, readLists } from '../gate/list-changes.ts';
import {
  eventOfHeld,
  expireFromOutside,
  failureOfHeld,
  freezeFromOutside,
  moveFromOutside,
  moveOfHeld,
  notifyMovedOutside,
  notifyResolved,
  outsideBeginning,
  overdueRuns,
  ruledCallOfHeld,
  stateAfterStep,
  switchOf,
} from '../gate/outside.ts';
import { isFromOutside, storedIn } from '../gate/standing.ts';
import { isStableEverywhere } from '../gate/visibility.ts';
import { ownStep } from '../session/current-step.ts';
import { ownerOf } from '../session/run-key.ts';
import { ANEW, restartOf } from '../step/claim.ts';
import { moveTo, reportSaved } from '../step/outcome.ts';
import { listStopped, type Stopped } from '../step/switch.ts';
import { reportIfHeld } from '../step/unknown-outcome.ts';
import type { Json, KeysPage, TrailDraft, TrailEntry, WorkflowRecord } from '../stores/store.ts';
import { assertGate, type StateMachineGate } from '../workflow/gate.ts';
import type { StateExpression } from '../workflow/position.ts';
import { BEGIN } from '../workflow/stored.ts';
import type { Beginning, Workflow } from '../workflow/workflow.ts';
import { eraseOf, oneByOne, resolveHeld, runUnder, stepToResolve } from './many-runs.ts';
import {
  countInStore,
  heldRuns,
  indexOf,
  stuckRuns,
  unsettledRuns,
  viewOfRun,
} from './run-views.ts';
import { keptBy, MOVER, type RunsMover } from './runs-mover.ts';
import {
  type AllFrozen,
  type AllUnfrozen,
  assertChange,
  assertRuns,
  type BeginOptions,
  type Begun,
  type CountOptions,
  type Deleted,
  type EnforceOptions,
  type Erased,
  type EraseOptions,
  type FreezeAllOptions,
  type FreezeOptions,
  type Frozen,
  type ListOptions,
  type ModeSet,
  type PageOptions,
  parseBegin,
  parseEnforce,
  parseErase,
  parseFreeze,
  parseFreezeAll,
  parseHeldName,
  parseInside,
  parseQuery,
  parseRequest,
  parseResolve,
  parseResolveAll,
  type Resolution,
  type ResolveAllOptions,
  type ResolvedAll,
  type ResolveOptions,
  type Restarted,
  type RunsOptions,
  type RunsUnderWay,
  type RunView,
  type RunViews,
  type SendOptions,
  type Sent,
  type StuckOptions,
  type Unfrozen,
  type Updated,
  type WorkflowMode,
} from './runs-options.ts';
import { sendTo } from './sending.ts';
import { letAllGoOn, setMode, stopAll } from './switches.ts';
import { type CheckedRuns, type CheckRunsOptions, checkRuns } from './trial.ts';

/**
 * The runs of one gate, outside of any request. Made by {@link runsOf}. Each method rejects where
 * the store cannot be asked. `E` are the events, and `Q` is what may be asked of a run's state.
 */
export class Runs<E extends string = string, Q = StateExpression> {
  readonly #workflow: Workflow;
  readonly #mover: RunsMover;
  /** The gate that {@link runsOf} was given. */
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

  /**
   * Whether this process receives from its bus at the moment, as `workflowHealth()` says it.
   * `undefined` where the runs are not of sessions with a bus.
   */
  get hearsBus(): boolean | undefined {
    return this.#mover.sessions?.receivesOthers;
  }

  /** The gate's id. */
  get workflow(): string {
    return this.#workflow.id;
  }

  /** Where the run stands, or `undefined` where there is no such run. */
  async read(run: string): Promise<RunView | undefined> {
    const found = await this.#look(run);
    if (found === undefined) return undefined;
    const { record, now } = found;
    const { workflow } = this.#mover;
    if (record !== undefined)
      reportIfHeld({ key: { run, workflow: workflow.id }, ...record, now }, this.#mover);
    return viewOfRun(this.#mover, { run, ...found, ...record }, found.principal, now);
  }

  /** What the store has of the run; `undefined` where there is none. */
  async #look(run: string): Promise<Stored | undefined> {
    const { store, ttlOf, clock, workflow } = this.#mover;
    const found = await store.read(run, ttlOf(run), workflow.id);
    if (found === undefined || found.sessionEnded === 'evicted') return undefined;
    const { session, sessionEnded, now = clock.now() } = found;
    const record = storedIn(found, workflow.id);
    const { principal } = session;
    return { principal, record, now, ...(sessionEnded && { sessionEnded }) };
  }

  /**
   * The held runs, each with the step whose outcome is unknown; a person must resolve them. The
   * longest held come first. A list keeps no run alive.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where the store keeps no index of its runs, such
   * as one with only `load` and `save`
   */
  async held(options?: PageOptions): Promise<RunViews> {
    return heldRuns(this.#mover, parseQuery.held(options));
  }

  /**
   * The runs with unsettled steps: calls of unknown outcome that may be repeated, and that rules
   * count until one of them succeeds or `resolve()` settles it. The oldest come first.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` as {@link held}
   */
  async unsettled(options?: PageOptions): Promise<RunViews> {
    return unsettledRuns(this.#mover, parseQuery.held(options));
  }

  /**
   * The runs that have not ended, and have not moved for `forMs`. The oldest come first. It goes by
   * the saved state: `sweep()` before, where states have deadlines. Where the gate has a `migrate`,
   * a part may have fewer runs than `limit` although there is a `next`.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` for a state or tag that the workflow does not
   * have, `ERR_INTERLOCK_STORE` as {@link held}
   */
  async stuck(options: StuckOptions<NoInfer<Q>>): Promise<RunViews> {
    return stuckRuns(this.#mover, parseQuery.stuck(options));
  }

  /**
   * How many runs have not ended, by state, and how many are held, running and stuck.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` as {@link held}
   */
  async count(options?: CountOptions): Promise<RunsUnderWay> {
    const counted = await countInStore(this.#mover, parseQuery.count(options));
    // A person may only ask for the number, so the first held runs are reported as events.
    if (counted.held > 0) await heldRuns(this.#mover, { limit: 100 });
    return counted;
  }

  /**
   * Tries this gate on the runs that live, before it is deployed. It says which of them it can
   * read, and what each may do before and after. It names the running and held steps whose tool the
   * gate does not bind. It reads all runs, by parts, and changes nothing: it takes no claim, sends
   * no event and keeps no run alive.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` as {@link held}; `ERR_INTERLOCK_CONFIG`
   */
  check(options?: CheckRunsOptions): Promise<CheckedRuns> {
    return checkRuns(this.#mover, options);
  }

  /**
   * The keys of a principal's runs in all workflows: of sessions, of handles, and of the principal.
   * For `delete()`, where an app must erase a person's data.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` as {@link held}
   */
  async list(options: ListOptions): Promise<KeysPage> {
    const { principal, ...page } = parseQuery.list(options);
    const { list } = indexOf(this.#mover, 'list()');
    return list({ principal: principalText(principal), ...page });
  }

  /**
   * Deletes a run with all its workflows, its data and its trail, unless it is pinned. It does not
   * stop a running `retry` step, whose outcome is then not saved: its client reads that it could
   * not be recorded. PostgreSQL keeps the trail in a table of its own.
   */
  async delete(run: string): Promise<Deleted> {
    const result = await this.#mover.store.delete(run);
    if (result === 'pinned') return { deleted: false, reason: result };
    if (result === 'deleted') this.#gone(run);
    else this.#mover.sessions?.forgetRun(run);
    return result === 'deleted' ? { deleted: true } : { deleted: false, reason: 'unknown-run' };
  }

  /** Reports that there is no run under the key any more. */
  #gone(run: string): void {
    const { sessions, notify, events } = this.#mover;
    sessions?.forgetRun(run);
    if (events.isOn) events.publish({ type: 'run.ended', cause: 'deleted', runKey: run });
    // A session's client has lost its session; other clients begin a new run.
    if (sessions !== undefined && !isSession(run) && !isStableEverywhere(this.#workflow))
      notify(run, ['tools', ...readLists(this.#workflow)]);
  }

  /** The newest `limit` entries of the run's trail, the oldest of them first. Default 50. */
  history(run: string, limit?: number): Promise<TrailEntry[]> {
    return this.#mover.store.history({ run, workflow: this.#workflow.id }, limit);
  }

  /**
   * Moves a run by an event that no call sends: an approval, a webhook, a timer of the app. It
   * waits for a running step, and then commits as a step does. It adds an entry to the trail, and
   * the run's clients are notified.
   *
   * What the rules' `outside` names waits for nothing: it is added beside a step that is running or
   * held, also inside that step. It makes the run of a principal or a handle where there is none.
   *
   * @throws InterlockError `ERR_INTERLOCK_EVENT` unless the event is a non-empty string, and where
   * what comes from outside lacks a value that a `same` compares. Error
   * inside a step of the same run, since it would wait for itself: bind the event to the call's
   * outcome instead. A handler must give `{ step }`, unless the app imports `mcp-interlock/ambient`
   */
  send(run: string, event: E, options?: SendOptions): Promise<Sent> {
    return sendTo(this.#mover, run, event, options);
  }

  /**
   * Changes a run's shared data, which guards and functions of bindings read; for a statechart it
   * is the context. `change` is given the data and returns the new data, at once. No other change
   * comes in between. Inside a step of the run, given as `{ step }`, the change is saved with the
   * step's outcome.
   *
   * @throws what `change` throws; then nothing is changed
   */
  async update(
    run: string,
    change: (context: Json | undefined) => Json | undefined,
    options?: Pick<SendOptions, 'actor' | 'step'>,
  ): Promise<Updated> {
    assertChange(change);
    const { actor, step } = parseInside('update()', options);
    const own = ownStep('update()', run, step, this.#mover);
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
   * Begins a run before its first call: saves its first data and state, with an entry in the
   * trail. Where a call or a second `begin()` comes at the same time, the first one begins the run.
   * It makes the run of a principal or a handle where there is none. Only its client makes a
   * session's run.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` where the data are not JSON, or no run begins in
   * that state. Also what the gate's `begin` throws, where it is called
   */
  async begin(run: string, options?: BeginOptions): Promise<Begun> {
    const { actor, ...asked } = parseBegin(options);
    const workflow = this.#workflow;
    const given = workflow.beginningFrom(asked, run, this.#mover.clock.now());
    const ask = given === undefined ? outsideBeginning(this.#mover, run) : async () => given;
    let beginning: Beginning = {};
    const begin = async (): Promise<Beginning> => {
      beginning = (await ask?.()) ?? {};
      return beginning;
    };
    const what = { name: 'begin', begins: true, create: ownerOf(run), begin };
    const moved = await moveFromOutside(this.#mover, run, what, (position, isFirst) => {
      if (!isFirst) return undefined;
      // A state that the app gives is not entered from the machine's first ones.
      const actions = workflow.dueActions(beginning.state === undefined);
      const entry = { event: BEGIN, ...said({ actor }) };
      const move = moveTo(workflow, position, { position, actions }, entry);
      // The run's lists may have shown what it would have begun with.
      const isPlaced = workflow.starts.length > 0 || beginning.calls !== undefined;
      return isPlaced ? { ...move, lists: boundLists(workflow) } : move;
    });
    if (moved === 'unchanged') return { begun: false, reason: 'begun' };
    if (typeof moved === 'string') return { begun: false, reason: moved };
    const context = workflow.dataOf(moved.snapshot);
    return { begun: true, state: moved.trail.to, context };
  }

  /**
   * Begins a run again from any state. Its data are the first ones again; its version and its trail
   * go on. It does not wait: while a step is running or held, it does nothing and says `busy`.
   */
  async restart(run: string, options?: Pick<SendOptions, 'actor'>): Promise<Restarted> {
    const { actor } = parseRequest('restart()', options);
    const begin = outsideBeginning(this.#mover, run);
    // The run leaves its first data behind, so the app need not give them.
    const what = { name: 'restart', waitMs: 0, ...ANEW, begin: async () => ({}) };
    const moved = await moveFromOutside(this.#mover, run, what, async (from) =>
      restartOf(this.#workflow, from, actor, await begin?.()),
    );
    if (typeof moved === 'object') return { restarted: true, state: moved.trail.to };
    return { restarted: false, reason: moved === 'unchanged' ? 'busy' : moved };
  }

  /**
   * Stops a run at once. From now on each call, prompt and resource that is bound is refused as
   * `frozen`, and so are `send()`, `update()` and `restart()`. No deadline takes effect. A step
   * that is running is saved, and `freeze()` waits for it for at most 10 s. A held run is stopped
   * too. It makes the run of a principal or a handle where there is none. No expiry takes a frozen
   * run away.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` without `actor` and `note`
   */
  async freeze(run: string, options: FreezeOptions): Promise<Frozen> {
    const by = parseFreeze('freeze()', options);
    // Its clients have seen that it left a state whose deadline has passed. An app that fails to
    // begin it, or a store, must not keep an operator from stopping it.
    await expireFromOutside(this.#mover, run).catch(this.#mover.onError);
    const frozen = await freezeFromOutside(this.#mover, run, by, by, ownerOf(run));
    if (frozen === 'unknown-run') return { frozen: false, reason: frozen };
    if (!frozen.isChanged) return { frozen: false, reason: 'frozen' };
    return { frozen: true, state: (await stateAfterStep(this.#mover, run)) ?? frozen.state };
  }

  /**
   * Lets a run go on that `freeze()` has stopped. A deadline that has passed meanwhile takes effect
   * with it.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` without `actor` and `note`
   */
  async unfreeze(run: string, options: FreezeOptions): Promise<Unfrozen> {
    const by = parseFreeze('unfreeze()', options);
    const thawed = await freezeFromOutside(this.#mover, run, undefined, by);
    if (thawed === 'unknown-run') return { unfrozen: false, reason: thawed };
    if (!thawed.isChanged) return { unfrozen: false, reason: 'not-frozen' };
    const expiring = expireFromOutside(this.#mover, run);
    const view = await expiring
      .then((isExpired) => (isExpired ? this.read(run) : undefined))
      // It goes on all the same.
      .catch((error: unknown) => void this.#mover.onError(error));
    return { unfrozen: true, state: view?.state ?? thawed.state };
  }

  /**
   * Stops all calls of a tool, or of all bound tools, in all runs. Within a second after this
   * resolves, no instance forwards another one that a binding matches. Of an instance that cannot
   * ask the store, what it knew last holds. Calls that were forwarded before go on, and what
   * they come to is saved. Without a `tool`, `send()`, `update()`, `begin()` and
   * `restart()` answer `frozen` too. `resolve()` works. Lists, prompts and resources stay as they
   * are.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` without `actor` and `note`, or for a tool that is
   * not bound; `ERR_INTERLOCK_STORE` where the store keeps no switches
   */
  async freezeAll(options: FreezeAllOptions): Promise<AllFrozen> {
    return stopAll(this.#mover, parseFreezeAll('freezeAll()', options, this.#workflow));
  }

  /**
   * Lets go on what `freezeAll()` has stopped: a tool, or all of them. All of them go on without a
   * `tool`, also those that were stopped one by one. A frozen run stays frozen.
   *
   * @throws InterlockError as {@link freezeAll}, but for a tool that is bound no more
   */
  async unfreezeAll(options: FreezeAllOptions): Promise<AllUnfrozen> {
    return letAllGoOn(this.#mover, parseFreezeAll('unfreezeAll()', options));
  }

  /**
   * What `freezeAll()` has stopped, as the store has it now. Empty where all goes on.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where the store keeps no switches
   */
  async frozen(): Promise<readonly Stopped[]> {
    return listStopped(await switchOf(this.#mover).read());
  }

  /**
   * Has the workflow's gates observe: from now on they enforce no run, also none that lives. Within
   * a second after this resolves, each instance does so. Of an instance that cannot ask the store,
   * what it knew last holds. A run that is observed once stays observed until it ends or restarts.
   * What was frozen stays frozen, and a held run held, but its calls pass.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG` without `actor` and `note`;
   * `ERR_INTERLOCK_STORE` where the store keeps no switches
   */
  async observe(options: FreezeOptions): Promise<ModeSet> {
    return setMode(this.#mover, false, { ...parseFreeze('observe()', options), living: false });
  }

  /**
   * Has the workflow's gates enforce, also where their option `enforce` is `false`. They do so in
   * runs that begin from now on and in those of principals. With `living` they do so in all that
   * were observed before, but for those that strayed. Gates whose option names tools enforce these.
   *
   * @throws InterlockError as {@link observe}
   */
  async enforce(options: EnforceOptions): Promise<ModeSet> {
    return setMode(this.#mover, true, parseEnforce(options));
  }

  /**
   * What an operator has said by `observe()` or `enforce()`, as the store has it now.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where the store keeps no switches
   */
  async mode(): Promise<WorkflowMode> {
    return { ...(await switchOf(this.#mover).read()).mode };
  }

  /**
   * What the tool of a call answered though the run has no outcome of it, such as where the store
   * failed. `undefined` where this process received no such answer: no store could keep it.
   */
  answered(idempotencyKey: string): 'succeeded' | 'failed' | 'input_required' | undefined {
    return this.#mover.events.answers.get(idempotencyKey);
  }

  /**
   * What this process has observed of the workflow's runs, and not enforced, since it began.
   * `undefined` where there was nothing.
   */
  get observed(): Observed | undefined {
    return observationsOf(this.#workflow).report;
  }

  /**
   * Ends the wait of a held run, once a person knows the outcome of its step. It settles an
   * unsettled step too, which holds no run. `succeeded` moves the
   * run as the call's success would have. `failed` moves it as the failure would have, or not at
   * all where no failure event is bound. Where the step commits late, the first of the two decides.
   *
   * @param held the run's key. Or the step's idempotency key, for a provider's webhook that knows
   * no session: it is looked for among the held runs and those with unsettled steps. Where none has
   * it, the answer is `not-held`: the step may still be running, so the webhook should come again.
   * @throws InterlockError `ERR_INTERLOCK_EVENT` where the event depends on the call, so that it
   * must be given; `ERR_INTERLOCK_CONFIG` for another outcome; `ERR_INTERLOCK_STORE` as {@link
   * held} for an idempotency key
   */
  async resolve(
    held: string | { readonly idempotencyKey: string },
    outcome: 'succeeded' | 'failed',
    options?: ResolveOptions<E>,
  ): Promise<Resolution> {
    const name = parseHeldName(held);
    const request = parseResolve(outcome, options);
    if (typeof name === 'string') return this.#resolve(name, outcome, request);
    const { idempotencyKey } = name;
    const run = await runUnder(this.#mover, idempotencyKey);
    if (run === undefined) return { resolved: false, reason: 'not-held' };
    return this.#resolve(run, outcome, { ...request, idempotencyKey });
  }

  /**
   * Resolves all held runs of one tool, such as after a night on which its upstream was away. It
   * resolves the step that it found, and never a later one of the same run.
   *
   * @throws InterlockError `ERR_INTERLOCK_CONFIG`; `ERR_INTERLOCK_STORE` as {@link held};
   * `ERR_INTERLOCK_EVENT` as {@link resolve}
   */
  async resolveAll(options: ResolveAllOptions): Promise<ResolvedAll> {
    const asked = parseResolveAll(options);
    const { actor, note } = asked;
    return resolveHeld(this.#mover, asked, ({ run, claim: { token } }, outcome) =>
      this.#resolve(run, outcome, { actor, note, token }),
    );
  }

  /**
   * Erases all runs of a principal, in all workflows: their data, their trails, and what the
   * backend keeps of them for audits. Where a step that must not be repeated is running or held, it
   * names the run and leaves it. To keep none of their names, give `{ held: 'anonymize' }`.
   *
   * @param principal what `sessionStore({ principal })` returns for the person. Without that
   * option, issuer and subject.
   * @throws InterlockError `ERR_INTERLOCK_CONFIG`; `ERR_INTERLOCK_STORE` as {@link held}
   */
  async erase(principal: ListOptions['principal'], options?: EraseOptions): Promise<Erased> {
    const asked = parseErase(principal, options);
    return eraseOf(this.#mover, asked.principal, asked, {
      remove: (run) => this.delete(run),
      leave: (run) => this.#gone(run),
    });
  }

  /**
   * Removes what is left of runs that have expired, where the backend does not forget them by
   * itself. For a job: each new run removes only two. Resolves to how many.
   */
  async purge(): Promise<number> {
    return (await this.#mover.store.purge?.()) ?? 0;
  }

  async #resolve(
    run: string,
    outcome: 'succeeded' | 'failed',
    asked: ReturnType<typeof parseResolve> & { readonly idempotencyKey?: string },
  ): Promise<Resolution> {
    const { event: chosen, ...request } = asked;
    const found = await this.#look(run);
    if (found === undefined) return { resolved: false, reason: 'unknown-run' };
    const { record } = found;
    const claim = record === undefined ? 'not-held' : stepToResolve(record, asked);
    if (record === undefined || typeof claim === 'string')
      return { resolved: false, reason: typeof claim === 'string' ? claim : 'not-held' };
    const { snapshot } = record;
    const token = 'token' in claim ? claim.token : undefined;
    const { store, ttlOf } = this.#mover;
    const key = { run, workflow: this.#workflow.id };
    const { updatedAt, version = 0 } = snapshot;
    const stored = { ...this.#workflow.stand(snapshot), updatedAt, version };
    const counted =
      chosen === undefined && outcome === 'failed'
        ? failureOfHeld(this.#workflow, claim.tool, stored)
        : undefined;
    const decided = counted ? null : chosen;
    const event =
      decided === undefined ? eventOfHeld(this.#workflow, claim, stored.state, outcome) : decided;
    const { actor, note } = request;
    const tool = isFromOutside(claim) ? undefined : claim.tool;
    const { actor: calledBy, ...called } = ('entry' in claim && claim.entry) || { tool };
    const entry = {
      ...called,
      actor,
      calledBy,
      outcome,
      kind: 'resolved',
      payload: request.payload,
      note,
    };
    const now = found.now ?? this.#mover.clock.now();
    const call = ruledCallOfHeld(this.#workflow, claim, outcome, now, stored, {
      run,
      result: request.result,
    });
    const isMove = outcome === 'succeeded' || event !== null || counted || call;
    if (!isMove && token !== undefined) {
      await store.release(key, token, {
        entry: { ...entry, from: stored.state, event: null },
      });
      const { state } = viewOfRun(this.#mover, { run, ...found.record }, undefined, found.now);
      this.#notifyResolved(run, { tool: claim.tool, outcome, state, actor, note });
      notifyResolved(this.#mover, run);
      return { resolved: true, state };
    }
    const begun = stored.version === 0 ? await outsideBeginning(this.#mover, run)?.() : undefined;
    const held = counted ?? stored;
    // A step of a run that begins in a state of the app's is claimed once that is saved.
    const from = { ...held, ...this.#workflow.begunWith(held, { data: begun?.data }) };
    const move = moveOfHeld(this.#workflow, from, event, entry, call, now);
    const { actions, ...saved } = move;
    const own = newToken();
    const next = { ...key, ...saved, from: stored.version, ttlMs: ttlOf(run) };
    const { idempotencyKey } = claim;
    const result =
      token !== undefined
        ? await store.commit({ ...next, token, as: own })
        : await store.record({
            ...next,
            token: own,
            initial: snapshot,
            settlesKey: idempotencyKey,
          });
    // A call was recorded since, and must not be lost. Or the step was settled, or is tried again.
    if (result.status === 'moved')
      return this.#resolve(run, outcome, { ...asked, idempotencyKey, ...(token && { token }) });
    if (result.status !== 'committed' && result.status !== 'recorded') {
      return { resolved: false, reason: result.status === 'unknown' ? 'unknown-run' : 'not-held' };
    }
    const { to: state } = move.trail;
    this.#notifyResolved(run, { tool: claim.tool, outcome, state, actor, note });
    reportSaved(this.#mover, move, run, stored.version === 0);
    notifyMovedOutside(this.#mover, run, { ...move, lists: ['tools'] });
    return { resolved: true, state };
  }

  #notifyResolved(
    runKey: string,
    said: Omit<Extract<EventDraft, { type: 'run.resolved' }>, 'type' | 'runKey' | 'workflow'>,
  ): void {
    const { events } = this.#mover;
    if (!events.isOn) return;
    events.publish({ type: 'run.resolved', workflow: this.#workflow.id, runKey, ...said });
  }

  /**
   * Moves the runs whose state's deadline (`after`) has passed: these runs, or all that the store
   * finds. It may find a run later that was saved again within its state. A run that cannot be
   * moved is reported to `onError`, and the others are moved. Resolves to how many have moved.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where no runs are given, and the store cannot list
   * any
   */
  async sweep(runs?: Iterable<string> | AsyncIterable<string>): Promise<number> {
    assertRuns(runs);
    let moved = 0;
    const attempt = oneByOne(this.#mover);
    for await (const run of runs ?? overdueRuns(this.#mover))
      if (await attempt(() => expireFromOutside(this.#mover, run))) moved++;
    return moved;
  }
}

/** What the store has of a run for one workflow. */
interface Stored {
  /** As {@link RunView.sessionEnded}. */
  readonly sessionEnded?: true;
  readonly principal: string | undefined;
  /** Absent where no call has claimed the workflow yet. */
  readonly record: WorkflowRecord | undefined;
  /** The time, by the clock that stamps the run. */
  readonly now: number;
}

function said({ actor, payload }: SendOptions): Pick<TrailDraft, 'actor' | 'payload'> {
  return { ...(actor !== undefined && { actor }), ...(payload !== undefined && { payload }) };
}

/**
 * The runs of a gate, for the app's own pages, webhooks and jobs. It says where they stand and what
 * moved them, moves them without a call, and resolves held runs.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG`, `ERR_INTERLOCK_STORE`
 */
export function runsOf<S extends string, E extends string, T extends string, C extends string, X>(
  gate: StateMachineGate<S, E, T, C, X>,
  options: RunsOptions,
): Runs<E, StateExpression<S, T> | C> {
  return atCaller(runsOf, () => {
    assertGate('runsOf()', gate);
    return new Runs(gate, keptBy(gate.compile(), options));
  });
}
