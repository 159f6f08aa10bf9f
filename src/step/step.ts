import type { Clock } from '../clock.ts';
import type { Events } from '../events.ts';
import { newToken } from '../ids.ts';
import type {
  CallNote,
  ClaimRequest,
  ClaimResult,
  ClaimView,
  CommitRequest,
  CommitResult,
  FsmSnapshot,
  Json,
  ReleaseOptions,
  RunKey,
  SessionRecord,
  StepDescription,
  TrailDraft,
  Uncertain,
} from '../stores/store.ts';
import { after, isPromise, type MaybePromise } from '../wire/task-line.ts';
import type { Position } from '../workflow/position.ts';
import type { Understood, Workflow } from '../workflow/workflow.ts';
import {
  entryOf,
  type Moves,
  type Outcome,
  type StepMove,
  settle,
  shownPosition,
  takeEffect,
  UnknownOutcome,
  type WhenEnded,
} from './outcome.ts';
import {
  type GuardedStore,
  persist,
  type Releasing,
  releaseClaim,
  UNBEGUN,
} from './store-calls.ts';
import type { Turn, Turns, WaitingCall, WaitLimits } from './turns.ts';

/** How long a step may take, in milliseconds. */
export interface StepTimes {
  /** How long a call waits for its turn. */
  readonly waitMs: number;
  /** How long a claim lives without being renewed. */
  readonly leaseMs: number;
  /** After this long a step is given up on, and its upstream learns that its client left. */
  readonly maxStepMs: number;
  /** How long the outcome of a cancelled step is still waited for. */
  readonly cancelGraceMs: number;
}

/** The share of a lease after which it is renewed. */
const RENEWED_AFTER = 1 / 3;
/** The larger share after which a call is forwarded only once its lease was renewed. */
const OVERDUE_AFTER = 1 / 2;

/** What all steps of one gate have in common. */
export interface StepRules {
  readonly workflow: Workflow;
  readonly whenEnded: WhenEnded | undefined;
  readonly times: StepTimes;
  /** How many calls may wait for one run; without it a call waits however many others do. */
  readonly waiting: WaitLimits | undefined;
  readonly clock: Clock;
  readonly events: Events;
  readonly onError: (error: unknown) => void;
}

/** The run that a step is to move, and where it is kept. */
export interface StepRun {
  readonly run: string;
  readonly store: GuardedStore;
  readonly ttlMs: number;
  readonly turns: Turns;
  /** As in a claim: makes a run that does not exist yet. */
  readonly create: SessionRecord | undefined;
}

/** The call that is to become a step. */
export interface StepCall {
  readonly description: StepDescription;
  /** What the trail says of it; `undefined` where nothing is forwarded. */
  readonly note: CallNote | undefined;
  /** The number that events of the call have, where there are any. */
  readonly number?: number | undefined;
  readonly request: WaitingCall & {
    /**
     * Keeps its id in flight, also where its answer is not waited for, until what is returned is
     * called.
     */
    beginStep(mustEnd: boolean): () => void;
  };
  /** Called once, where the step is not over after `maxStepMs`. */
  readonly onTooLong: () => void;
}

/**
 * Why a call did not become a step. `snapshot` is the position that it was tested against, where
 * that is known.
 */
export interface NotClaimed {
  readonly reason: 'state' | 'busy' | 'held' | 'unavailable' | 'cancelled' | 'unknown';
  readonly snapshot?: FsmSnapshot | undefined;
  /** The claim of the step whose outcome is unknown, where the run is held. */
  readonly held?: ClaimView | undefined;
  /** What time it is for the store, where it says so. */
  readonly now?: number | undefined;
  /** Why it is unavailable, where the store has nothing to do with that. */
  readonly cause?: string;
}

/**
 * Where a step is in its life; docs/build/steps.md says what the store is asked, and what the client
 * sees.
 *
 * - `waiting`: for its run's turn, and for the store to grant the claim.
 * - `claimed`: it holds the run, renews its lease, and is not forwarded.
 * - `forwarded`: the same, and its call may have its effect.
 * - `settling`: the store is asked to save what it came to, or to let the run go.
 * - `unsettled`: its outcome is unknown, and its lease runs out. An outcome that comes late is
 *   saved, unless a person has resolved the run or another call has taken it over.
 * - `refused`, `released`, `saved`, `lost`: it is over. `lost`: another process or a person settled
 *   it.
 */
export type StepState =
  | 'waiting'
  | 'claimed'
  | 'forwarded'
  | 'settling'
  | 'unsettled'
  | 'refused'
  | 'released'
  | 'saved'
  | 'lost';

/** The states that may follow each other. */
export const STEP_LIFE: Readonly<Record<StepState, readonly StepState[]>> = {
  waiting: ['claimed', 'refused', 'released'],
  claimed: ['forwarded', 'settling'],
  forwarded: ['settling', 'unsettled', 'lost'],
  unsettled: ['settling'],
  settling: ['saved', 'released', 'unsettled', 'lost'],
  refused: [],
  released: [],
  saved: [],
  lost: [],
};

/**
 * What became of a settled step. `unknown`: the outcome is; `unsaved`: the tool ran, and what it
 * came to is not recorded.
 */
export type Settled = 'settled' | 'unknown' | 'unsaved';

/** Told of a move that was saved, once. `isLate`: the call's response has gone already. */
export type MoveListener = (move: StepMove, isLate: boolean) => void;

/** What became of a commit. `repeated`: it was saved and told before. */
type Saved = CommitResult['status'] | 'repeated';

const nothing = (): void => {};

/** What no client waits for: a task's end that another process sees, a move from outside. */
export const NO_REQUEST: StepCall['request'] = {
  cancelled: false,
  bytes: 0,
  onCancel: () => nothing,
  beginStep: () => nothing,
};

/**
 * One call that is to move its run: its whole life, from the wait for the run's turn until what it
 * came to is saved. It knows the store, and nothing of HTTP.
 */
export class Step {
  readonly key: RunKey;
  /** The claim's: who has it can settle the step. */
  readonly token: string;
  readonly description: StepDescription;
  /** As in {@link StepCall}. */
  readonly note: CallNote | undefined;
  /** Where the call found the run; set once it is claimed, as is what follows. */
  snapshot: FsmSnapshot = { state: '', updatedAt: 0 };
  /** What time it was then, on the clock that stamped it. */
  now = 0;
  /** Where that is for this deployment; `undefined` where it does not understand the snapshot. */
  understood: Understood | undefined;
  /** Why it does not. */
  fault: unknown;
  /** The same for every try of one step whose outcome was unknown. */
  idempotencyKey = '';
  /** Where its outcomes lead; set once its call is let through. From then on events tell of it. */
  moves: Moves | undefined;
  /** As in {@link Settling}. */
  isUpdated = false;
  /** As in {@link Settling}. */
  savedByHandler = false;
  /** Where it left the run, for its clients; set once that is known. */
  leaves: Position | undefined;
  /** The state that it moved the run to, if it did. */
  movedTo: string | undefined;
  /** Called when no answer of the call is waited for any more, and where one comes all the same. */
  onForgotten: (() => void) | undefined;
  readonly #rules: StepRules;
  readonly #run: StepRun;
  readonly #request: StepCall['request'];
  readonly #onTooLong: () => void;
  #state: StepState;
  #turn: Turn | undefined;
  #overran = false;
  readonly #number: number | undefined;
  /** What time it was here when its turn was asked for, and when the claim was. */
  #askedAt = 0;
  #claimedAt = 0;
  #hasWaited = false;
  /** How long the store was waited for. Only counted where something listens. */
  #storeMs = 0;
  /** Whether an end of it was told. */
  #isEndTold = false;
  /** Whether another process has the token too, and may have saved the outcome. */
  #isShared = false;
  /**
   * Whether this process saved something, or may have: then a commit that is repeated is our own.
   */
  #mayHaveSaved = false;
  /** What time it was here when the lease was last asked for: it began no earlier. */
  #leasedAt = 0;
  #onTaken: (() => void) | undefined;
  #stopRenewing = nothing;
  #stopLimit = nothing;
  /** Frees the request's id. */
  #endRequest = nothing;

  constructor(
    rules: StepRules,
    run: StepRun,
    call: StepCall,
    token = newToken(),
    state: 'waiting' | 'forwarded' = 'waiting',
  ) {
    this.#state = state;
    this.#rules = rules;
    this.#run = run;
    this.#request = call.request;
    this.#onTooLong = call.onTooLong;
    this.key = { run: run.run, workflow: rules.workflow.id };
    this.token = token;
    this.description = call.description;
    this.note = call.note;
    this.#number = call.number;
  }

  /** A step that a task carries, taken up in another process: who has its token can settle it. */
  static resumed(
    rules: StepRules,
    run: StepRun,
    kept: { readonly token: string; readonly idempotencyKey: string; readonly moves: Moves },
  ): Step {
    const { tool, note } = kept.moves.origin;
    const description = { tool, digest: '', uncertain: 'hold' } as const;
    const call = { description, note, request: NO_REQUEST, onTooLong: () => step.giveUp() };
    const step = new Step(rules, run, call, kept.token, 'forwarded');
    step.idempotencyKey = kept.idempotencyKey;
    step.snapshot = { ...kept.moves.from, updatedAt: 0 };
    step.moves = kept.moves;
    step.#isShared = true;
    step.#hold(rules.clock.now());
    return step;
  }

  get state(): StepState {
    return this.#state;
  }

  get tool(): string {
    return this.description.tool;
  }

  /** Of the call's arguments. */
  get digest(): string {
    return this.description.digest;
  }

  /** What may happen where the outcome stays unknown. */
  get uncertain(): Uncertain {
    return this.description.uncertain;
  }

  /** Whether nothing of the run was committed before. */
  get isFirst(): boolean {
    return (this.snapshot.version ?? 0) === 0;
  }

  /** Whether it holds its run's claim, as far as this process knows. */
  get hasClaim(): boolean {
    return this.#state === 'claimed' || this.#state === 'forwarded';
  }

  /** Whether nothing more can be saved of it, or something is being saved now. */
  get isOver(): boolean {
    return !this.hasClaim && this.#state !== 'unsettled';
  }

  /** Whether it took longer than a step may. */
  get overran(): boolean {
    return this.#overran;
  }

  // --- waiting --------------------------------------------------------------------------------

  /**
   * Waits for the run's turn, in this process and among others, and takes its claim. Resolves to
   * why not, where it was not granted.
   *
   * @param states in which the store may grant it; `undefined`: in each
   */
  async claim(states: readonly string[] | undefined): Promise<NotClaimed | undefined> {
    const { times, waiting, clock, events, onError } = this.#rules;
    const { turns } = this.#run;
    const request = this.#request;
    this.#askedAt = clock.now();
    const deadline = this.#askedAt + times.waitMs;
    let leave: (() => void) | undefined;
    let hasAsked = false;
    try {
      const taken = turns.take(turnKey(this.key), times.waitMs, request, waiting);
      this.#hasWaited = isPromise(taken);
      this.#turn = isPromise(taken) ? await taken : taken;
      if (this.#turn === undefined) return this.#refuse(this.#calledOff() ?? { reason: 'busy' });
      for (let attempt = 0; !turns.isOff(request, waiting); attempt++) {
        const askedAt = clock.now();
        hasAsked = true;
        const result = await this.#run.store.claim(this.#claimOf(states, askedAt));
        hasAsked = false;
        if (events.isOn) this.#storeMs += clock.now() - askedAt;
        if (result.status === 'claimed') {
          if (turns.isOff(request, waiting)) await releaseClaim(this.#claimed, UNBEGUN);
          else return this.#granted(result, askedAt);
        } else if (result.status === 'busy' && clock.now() < deadline) {
          leave ??= this.#turn.wait(request, waiting);
          if (leave === undefined) return this.#refuse(refusal(result));
          this.#hasWaited = true;
          await turns.backOff(attempt, result.remainingMs, request, waiting);
        } else if (!request.cancelled) return this.#refuse(refusal(result));
      }
      return this.#refuse(this.#calledOff() ?? { reason: 'cancelled' });
    } catch (error) {
      // The store may have granted it although it could not say so.
      if (hasAsked) void releaseClaim(this.#claimed, UNBEGUN, 1);
      onError(error);
      return this.#refuse({ reason: 'unavailable' });
    } finally {
      leave?.();
    }
  }

  #claimOf(states: readonly string[] | undefined, askedAt: number): ClaimRequest {
    const { workflow, times } = this.#rules;
    const { create, ttlMs } = this.#run;
    return {
      run: this.key.run,
      workflow: this.key.workflow,
      token: this.token,
      step: this.description,
      entry: this.note,
      states,
      initial: { ...workflow.start, updatedAt: askedAt },
      create,
      leaseMs: times.leaseMs,
      ttlMs,
    };
  }

  #granted(
    { snapshot, idempotencyKey, now }: Extract<ClaimResult, { status: 'claimed' }>,
    askedAt: number,
  ): undefined {
    const { clock, workflow } = this.#rules;
    this.snapshot = snapshot;
    this.idempotencyKey = idempotencyKey;
    this.now = now ?? clock.now();
    try {
      this.understood = workflow.understand(snapshot, this.now);
    } catch (error) {
      this.fault = error;
    }
    if (this.#turn !== undefined) this.#turn.step = this;
    // The request's id is in flight as long as the step, on whatever stream its result comes.
    this.#endRequest = this.#request.beginStep(this.uncertain === 'hold');
    this.#become('claimed');
    this.#hold(askedAt);
    if (this.#hasWaited) this.#tellWaited(true, snapshot.state);
  }

  #refuse(why: NotClaimed): NotClaimed {
    this.#become(why.reason === 'cancelled' ? 'released' : 'refused');
    if (this.#hasWaited) this.#tellWaited(false, why.snapshot?.state);
    return why;
  }

  /** Why a call waits no longer: its client called it off, or this process ends. */
  #calledOff(): NotClaimed | undefined {
    const request = this.#request;
    if (request.cancelled) return { reason: 'cancelled' };
    if (!this.#run.turns.isOff(request, this.#rules.waiting)) return undefined;
    return { reason: 'unavailable', cause: 'the server is being restarted' };
  }

  // --- claimed and forwarded ------------------------------------------------------------------

  /** Keeps the claim from now on, and says when that takes too long. */
  #hold(askedAt: number): void {
    const { clock, times } = this.#rules;
    this.#leasedAt = askedAt;
    this.#claimedAt = askedAt;
    this.#stopLimit = clock.after(times.maxStepMs, () => {
      this.#overran = true;
      this.#onTooLong();
    });
    this.#renewLater();
  }

  #renewLater(): void {
    const { clock, times } = this.#rules;
    this.#stopRenewing = clock.after(times.leaseMs * RENEWED_AFTER, async () => {
      await this.#renew();
      if (this.hasClaim) this.#renewLater();
    });
  }

  /** Whether the store said that the claim is still its own. */
  async #renew(): Promise<boolean> {
    const { times, clock, onError } = this.#rules;
    const askedAt = clock.now();
    const isOurs = await this.#run.store
      .renew(this.key, this.token, times.leaseMs)
      .catch((error: unknown) => onError(error));
    if (isOurs === true) this.#leasedAt = askedAt;
    // A step whose answer is still to come finds that out when it commits.
    if (isOurs === false && this.#onTaken !== undefined && this.hasClaim) {
      this.#become('lost');
      this.#onTaken();
    }
    return isOurs === true;
  }

  /**
   * Whether it may be forwarded: the claim is still its own, and the lease leaves time to. Where
   * renewals are overdue the store is asked, and the lease begins anew. A process that stood still
   * may have missed its end, and that another call has taken the run over or a person resolved it.
   */
  confirm(): MaybePromise<boolean> {
    if (!this.hasClaim) return false;
    const { clock, times } = this.#rules;
    const age = clock.now() - this.#leasedAt;
    // A clock that was set back says nothing.
    return (age >= 0 && age <= times.leaseMs * OVERDUE_AFTER) || this.#renew();
  }

  /** Its call is let through. `isUpdated`: as in {@link Settling}. */
  begin(moves: Moves, isUpdated: boolean): void {
    this.moves = moves;
    this.isUpdated = isUpdated;
    const { events } = this.#rules;
    if (!events.isOn) return;
    const waitedMs = this.#claimedAt - this.#askedAt;
    events.publish({ type: 'step.started', ...this.#facts, waitedMs });
  }

  /** It is handed to the upstream: from now on its call may have its effect. */
  forward(): void {
    if (this.#state === 'claimed') this.#become('forwarded');
  }

  /** Changes the run's data, which are saved with the outcome, whichever that is. */
  update(change: (context: Json | undefined) => Json | undefined): void {
    const { moves } = this;
    if (moves === undefined) return;
    const { workflow } = this.#rules;
    this.moves = moves.at(workflow.withData(moves.from, change(workflow.dataOf(moves.from))));
    this.isUpdated = true;
  }

  /**
   * Saves the success in a transaction that the handler has open. The step goes on: the gate's own
   * commit, which comes with the result, finds it done.
   */
  async commitIn(client: unknown): Promise<CommitResult['status'] | 'unsupported'> {
    const { store } = this.#run;
    if (this.moves === undefined || store.commitIn === undefined) return 'unsupported';
    const move = this.moves.succeedsAnyway();
    if (this.isOver) return 'lost';
    this.#mayHaveSaved = true;
    const { status } = await store.commitIn(client, this.#commitOf(move));
    if (status === 'committed') this.savedByHandler = true;
    return status;
  }

  /**
   * Goes on after its call was answered, for another `limitMs`, and calls back once: where that is
   * over, or where the claim turns out to have been settled or taken elsewhere. From now on other
   * processes may have the token.
   */
  goOn(limitMs: number, onOver: () => void, onTaken: () => void): void {
    if (!this.hasClaim) return;
    this.#isShared = true;
    this.#turn?.outlive();
    this.#onTaken = onTaken;
    this.#stopLimit();
    // A process that stood still may have missed the end: it asks before it says that there was
    // none.
    this.#stopLimit = this.#rules.clock.after(limitMs, async () => {
      await this.#renew();
      if (this.hasClaim) onOver();
    });
  }

  // --- its end --------------------------------------------------------------------------------

  /**
   * Saves what a forwarded call came to, or lets the run go where that moves nothing; also of an
   * unsettled step whose outcome comes late.
   *
   * @param isLast whether no other answer will show the outcome again: then a save that failed is
   * tried again for as long as a step may take
   * @throws Error as {@link settle}
   */
  settle(outcome: Outcome, onMoved: MoveListener, isLast: boolean): MaybePromise<Settled> {
    const { moves, isUpdated, savedByHandler } = this;
    if (moves === undefined) return 'unknown';
    const next = settle(outcome, { moves, isUpdated, savedByHandler });
    if (next === 'unsettled') {
      this.giveUp();
      return 'unknown';
    }
    // A step that asks for something goes on with the next call, and keeps its key for it.
    const options = outcome.kind === 'input_required' ? UNBEGUN : {};
    if (next !== 'release') return this.#settleBy(next, options, onMoved, isLast);
    this.leaves = shownPosition(this.#rules, this.key.run, moves.from);
    const entry = entryOf(outcome, moves);
    return after(this.release({ ...options, entry }), () => 'settled' as const);
  }

  #settleBy(
    move: StepMove,
    options: ReleaseOptions,
    onMoved: MoveListener,
    isLast: boolean,
  ): Promise<Settled> {
    const isLate = this.#state === 'unsettled';
    const unsaved = (status: Saved | 'failed'): Settled => {
      const why = isLate ? `its result came late: ${status}` : status;
      this.tellUnknown(why, status === 'failed');
      return 'unsaved';
    };
    return this.#commit(move, options, onMoved).then(
      (status) => {
        if (status !== 'committed' && status !== 'repeated') return unsaved(status);
        this.leaves = shownPosition(this.#rules, this.key.run, move.snapshot);
        if (move.trail.to !== move.trail.from) this.movedTo = move.trail.to;
        return 'settled';
      },
      (error) => {
        this.#rules.onError(error);
        if (isLast) this.#saveLater(() => this.#commit(move, options, onMoved, true));
        return unsaved('failed');
      },
    );
  }

  /**
   * The client was told that the outcome could not be recorded; but the store may come back before
   * a person resolves the run.
   */
  #saveLater(save: () => Promise<Saved>): void {
    const { clock, times, onError } = this.#rules;
    const deadline = clock.now() + times.maxStepMs;
    const tell = (status: Saved): void => {
      if (status === 'lost' || status === 'unknown')
        this.tellUnknown(`its result came late: ${status}`, false);
    };
    const failed = (error: unknown): void => {
      onError(error);
      if (clock.now() < deadline) later();
    };
    const later = (): void =>
      void clock.after(times.leaseMs, () => void save().then(tell, failed).catch(onError));
    later();
  }

  /**
   * Saves a move of a call that is not forwarded, and tells the app. Where the store fails,
   * `onError` knows, and the claim is let go: nothing ran.
   */
  save(
    move: StepMove,
    options: Pick<CommitRequest, 'settles'> = UNBEGUN,
  ): Promise<CommitResult['status'] | 'failed'> {
    return this.saveOrThrow(move, options).catch(() => 'failed' as const);
  }

  /** The same, and rejects where the store fails. */
  async saveOrThrow(
    move: StepMove,
    options: Pick<CommitRequest, 'settles'>,
  ): Promise<CommitResult['status']> {
    const status = await this.#commit(move, options);
    return status === 'repeated' ? 'lost' : status;
  }

  /**
   * A store that fails is asked again for as long as a lease lasts, which the claim's token makes
   * harmless. Rejects if all of that failed.
   *
   * The first answer to a commit may be lost, and the next one says `repeated`, as it does where a
   * driver asks twice. Such a commit is this step's own, and what depends on it has still to be
   * told. Only where others have the token may it be theirs.
   */
  #commit(
    move: StepMove,
    options: Pick<CommitRequest, 'settles'>,
    onMoved?: MoveListener,
    isLate?: boolean,
  ): Promise<Saved> {
    if (this.isOver) return Promise.resolve(this.#state === 'saved' ? 'repeated' : 'lost');
    const { clock, times, events, onError } = this.#rules;
    const isForwarded = this.#state !== 'claimed';
    this.#become('settling');
    const isTold = events.isOn;
    const askedAt = isTold ? clock.now() : 0;
    const request = this.#commitOf(move, options.settles);
    const onFailure = (error: unknown): void => {
      this.#mayHaveSaved = true;
      onError(error);
    };
    const insisting = { clock, forMs: times.leaseMs, onError: onFailure };
    return persist(() => this.#run.store.commit(request), insisting).then(
      (result) => {
        if (isTold) this.#storeMs += clock.now() - askedAt;
        this.#become(result.status === 'committed' ? 'saved' : 'lost');
        if (result.status !== 'committed') return result.status;
        if (result.repeated && this.#isShared && !this.#mayHaveSaved) return 'repeated';
        this.#publish(move, onMoved, isLate);
        return result.status;
      },
      (error) => {
        this.#become(isForwarded ? 'unsettled' : 'released');
        if (isForwarded) this.#forgetCall();
        else void releaseClaim(this.#claimed, UNBEGUN, 1);
        throw error;
      },
    );
  }

  #commitOf(
    { snapshot, trail, ended }: StepMove,
    settles?: CommitRequest['settles'],
  ): CommitRequest {
    const { token } = this;
    const { run, workflow } = this.key;
    return { run, workflow, token, snapshot, trail, ended, settles, ttlMs: this.#run.ttlMs };
  }

  /** Tells of a move that is saved: of the step, and of the run. */
  #publish(move: StepMove, onMoved?: MoveListener, isLate = false): void {
    const { events } = this.#rules;
    const { outcome, event, to } = move.trail;
    if (events.isOn && this.moves !== undefined && isCommitted(outcome))
      events.publish({ type: 'step.committed', ...this.#ending, outcome, event, to });
    takeEffect(this.#rules, move, this.key.run, this.moves?.origin.isFirst ?? this.isFirst);
    onMoved?.(move, isLate);
  }

  /**
   * Lets the run go without a move: nothing happened, or nothing that moves it. An unsettled step
   * may turn out so too. Does not wait for a store that fails.
   */
  async release(options: ReleaseOptions = {}): Promise<void> {
    if (this.isOver) return;
    const { clock, events } = this.#rules;
    this.#become('settling');
    const isTold = events.isOn && this.moves !== undefined;
    const askedAt = isTold ? clock.now() : 0;
    try {
      await releaseClaim(this.#claimed, options);
    } finally {
      this.#become('released');
    }
    if (!isTold) return;
    this.#storeMs += clock.now() - askedAt;
    this.#tellReleased(events, options.entry);
  }

  #tellReleased(events: Events, entry: TrailDraft | undefined): void {
    if (entry?.outcome === 'failed') {
      const kind =
        entry.kind === 'tool_error' || entry.kind === 'cancelled' ? entry.kind : 'rpc_error';
      events.publish({ type: 'step.failed', ...this.#ending, kind });
      return;
    }
    const { outcome } = entry ?? {};
    const unsent = this.#request.cancelled ? 'cancelled' : 'withdrawn';
    // What was not forwarded after all has no entry.
    const why = outcome === 'input_required' || outcome === 'not_run' ? outcome : unsent;
    events.publish({ type: 'step.released', ...this.#ending, why });
  }

  /**
   * The call is not forwarded after all, or nothing of it ran.
   *
   * @param kind what the trail says of a call that was forwarded; without it, it says nothing
   */
  withdraw(kind?: string): Promise<void> {
    const entry =
      kind === undefined ? undefined : this.moves?.attempted({ outcome: 'not_run', kind });
    return this.release(entry === undefined ? UNBEGUN : { ...UNBEGUN, entry });
  }

  /**
   * Its outcome is unknown: the claim stands until its lease ends, and `onError` is told.
   * `mayCome`: the response may still bring the outcome, so the request's id stays in flight until
   * then, at most for `maxStepMs`.
   */
  giveUp(mayCome = false): void {
    if (this.#state === 'claimed') void this.withdraw();
    const isNew = this.#state === 'forwarded';
    if (isNew) this.#become('unsettled');
    if (!mayCome && this.#state === 'unsettled') this.#forgetCall();
    if (isNew) this.tellUnknown('no result came', true);
  }

  /**
   * Says that its outcome is unknown. `waits`: its claim stays, so that a run whose step must not
   * be repeated waits to be resolved.
   */
  tellUnknown(why: string, waits: boolean): void {
    const { events } = this.#rules;
    const { idempotencyKey, uncertain } = this;
    const isHeld = waits && uncertain === 'hold';
    // The claim itself, if it is met later, says nothing new.
    events.noteUnknown(this.token);
    events.fail(new UnknownOutcome(this, why, waits), () => {
      return { type: 'step.unknown', ...this.#ending, why, isHeld, idempotencyKey };
    });
  }

  #tellWaited(granted: boolean, state: string | undefined): void {
    const { events, clock } = this.#rules;
    // A move from outside waits too, and is no call.
    if (!events.isOn || this.note === undefined) return;
    const waitedMs = clock.now() - this.#askedAt;
    events.publish({ type: 'call.waited', ...this.#facts, state, waitedMs, granted });
  }

  /** What all of its events say. */
  get #facts() {
    const { run: runKey, workflow } = this.key;
    const { actor, requestId } = this.note ?? {};
    const { state } = this.snapshot;
    return { runKey, workflow, tool: this.tool, state, actor, requestId, call: this.#number };
  }

  /** What an end of it says; the next one is late. */
  get #ending() {
    const isLate = this.#isEndTold;
    this.#isEndTold = true;
    const durationMs = this.#rules.clock.now() - this.#claimedAt;
    return { ...this.#facts, durationMs, storeMs: this.#storeMs, isLate };
  }

  /**
   * The only place where the state changes. It ends the turn, and the clocks that the state needs
   * no more.
   */
  #become(state: StepState): void {
    if (!STEP_LIFE[this.#state].includes(state))
      throw new Error(
        `a step of ${JSON.stringify(this.tool)} cannot go from ${this.#state} to ${state}`,
      );
    this.#state = state;
    if (state === 'claimed' || state === 'forwarded') return;
    this.#stopRenewing();
    if (state === 'settling') return;
    this.#turn?.end();
    if (state !== 'unsettled') this.#forgetCall();
  }

  /** No answer of the call is waited for any more. */
  #forgetCall(): void {
    this.#stopLimit();
    this.#endRequest();
    this.onForgotten?.();
  }

  get #claimed(): Releasing {
    const { clock, onError } = this.#rules;
    const { key, token } = this;
    return { store: this.#run.store, key, token, clock, onError };
  }
}

/** Names the turns of one workflow in one run. A workflow's id has no space in it. */
export function turnKey({ run, workflow }: RunKey): string {
  return `${workflow} ${run}`;
}

function refusal(result: ClaimResult): NotClaimed {
  if (result.status === 'unknown') return { reason: 'unknown' };
  const { status, snapshot } = result;
  if (status === 'held') return { reason: 'held', snapshot, held: result.claim, now: result.now };
  return { reason: status === 'state' ? 'state' : 'busy', snapshot };
}

/** Whether a commit ends the step with that; what a call that was not forwarded saves does not. */
function isCommitted(
  outcome: TrailDraft['outcome'],
): outcome is 'succeeded' | 'failed' | 'input_required' {
  return outcome === 'succeeded' || outcome === 'failed' || outcome === 'input_required';
}
