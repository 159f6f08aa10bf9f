/**
 * One step's whole life: it waits for its run, claims it, is forwarded, and saves its outcome.
 * Hides the lease and its renewals, the store's failures, and the events of each stage.
 */
import type { Clock } from '../basics/clock.ts';
import type { Events } from '../basics/events.ts';
import { newToken } from '../basics/names.ts';
import type { RefusalReason } from '../basics/reasons.ts';
import type {
  CallNote,
  ClaimRequest,
  ClaimResult,
  ClaimView,
  CommitRequest,
  CommitResult,
  Freeze,
  FsmSnapshot,
  Json,
  ReleaseOptions,
  RunKey,
  SessionRecord,
  StepDescription,
  TrailDraft,
  Uncertain,
  UnsettledStep,
} from '../stores/store.ts';
import { after, isPromise, type MaybePromise } from '../wire/task-line.ts';
import type { Position } from '../workflow/position.ts';
import type { Understood, Workflow } from '../workflow/workflow.ts';
import {
  type Moves,
  type Outcome,
  reportSaved,
  type StepMove,
  shownPosition,
  UndecidedOutcome,
  type WhenEnded,
} from './outcome.ts';
import { STEP_LIFE, type StepState } from './step-life.ts';
import {
  callAgain,
  type GuardedStore,
  KEEPS_KEY,
  persist,
  type Releasing,
  releaseClaim,
  releaseUnanswered,
} from './store-calls.ts';
import { type QueuedRequest, type Turn, type Turns, turnKey, type WaitLimits } from './turns.ts';
import { type KnownOfUnknown, UnknownOutcome } from './unknown-outcome.ts';

/** How long a step may take, in milliseconds. */
export interface StepTimes {
  /** How long a call waits for its run, in this process and among others. */
  readonly waitMs: number;
  /** How long a claim lives without being renewed. */
  readonly leaseMs: number;
  /** After this long a step is given up on, and its upstream learns that its client left. */
  readonly maxStepMs: number;
  /** How long the gate waits for the outcome of a cancelled step. */
  readonly cancelGraceMs: number;
}

/** The share of its lease after which a step renews it. */
const RENEWED_AFTER = 1 / 3;
/** The share of its lease after which a step must renew it before its call is forwarded. */
const OVERDUE_AFTER = 1 / 2;

/** What all steps of one gate have in common. */
export interface StepRules {
  readonly workflow: Workflow;
  readonly whenEnded: WhenEnded | undefined;
  readonly times: StepTimes;
  /** How many calls may wait for one run; `undefined`: any number. */
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
  /** As {@link ClaimRequest.keyMs}. */
  readonly keyMs?: number | undefined;
  readonly turns: Turns;
  /** Makes the run where it does not exist yet. */
  readonly create: SessionRecord | undefined;
}

/** The call that is to become a step. */
export interface StepRequest {
  readonly description: StepDescription;
  /**
   * Gives what the claim is to save of the call, judged where the store has found its run. Default:
   * what the description has.
   */
  readonly grant?: ((step: Step) => Json | undefined) | undefined;
  /** Gives the digest that the others lack, once the store is asked: a large one takes time. */
  readonly digest?: (() => string) | undefined;
  /** What the trail says of the call; `undefined` for a move from outside, which has no call. */
  readonly note: CallNote | undefined;
  /** The number that joins the events of one call, where the app listens to events. */
  readonly number?: number | undefined;
  readonly request: QueuedRequest & {
    /** Keeps the request's id in flight until the returned function is called. */
    beginStep(mustEnd: boolean): () => void;
  };
  /** Called once, if the step is not over after `maxStepMs`. */
  readonly onTooLong: () => void;
  /** Notified where its caller has gone or its outcome is unknown, and once it is over. */
  readonly held?: { left(step: Step): void; settled(step: Step): void } | undefined;
}

/** How a call waits for its run. */
export interface Waiting {
  /** Whether it was refused before, and has waited for calls before it. Default `false`. */
  readonly isAgain?: boolean | undefined;
  /** How long it still waits, in milliseconds. Default: as the rules say. */
  readonly waitMs?: number | undefined;
}

/** Why a call does not go on. */
export interface Refused {
  readonly reason: RefusalReason | 'cancelled' | 'unknown';
  /** The position that the store tested the call against, if it did. */
  readonly snapshot?: FsmSnapshot | undefined;
  /** The steps of the run whose outcome is unknown, and that may be tried again. */
  readonly unsettled?: readonly UnsettledStep[] | undefined;
  /** The claim of the step whose outcome is unknown, where the run is held. */
  readonly held?: ClaimView | undefined;
  /** Who has stopped the run; else what operators have stopped of all runs. */
  readonly freeze?: Freeze | undefined;
  readonly stops?: 'workflow' | 'tool' | undefined;
  /** What time it is for the store, where it says so. */
  readonly now?: number | undefined;
  /** What the guard says; of `arguments`, what is wrong with them. */
  readonly words?: string | undefined;
  /** Why it is unavailable, where that is not the store's fault. */
  readonly cause?: string;
  /** What the app's `begin`, or the machine's own code, threw, for `onError`. */
  readonly fault?: unknown;
  /** A move that was saved although the call is refused. */
  readonly moved?: StepMove;
}

/**
 * What `settle()` came to. `unknown`: the outcome is unknown. `doubted`: the answer says one, but
 * the handler or the binding says that it is unknown. `unsaved`: the tool ran, and its outcome
 * could not be saved.
 */
export type Settled = 'settled' | 'unknown' | 'doubted' | 'unsaved';

/** Why an outcome is unknown though the call was answered. */
export interface StatedDoubt {
  readonly why: string;
  /** The handler's own words, for the model. */
  readonly words?: string | undefined;
}

/** Why a step leaves its claim in the store. */
interface Leaving extends Pick<KnownOfUnknown, 'cause'> {
  /** The claim's `kind` from now on. */
  readonly kind: 'undecided' | 'unknown';
  readonly why: string;
}

/** Called once for each move that is saved. `isLate`: after the call's response was sent. */
export type MoveListener = (move: StepMove, isLate: boolean) => void;

/** `repeated`: another process saved the move before, and reported it. */
type CommitStatus = CommitResult['status'] | 'repeated';

/** A commit's answer, where the move need not be made anew. */
type SettledCommit = Exclude<CommitResult, { status: 'moved' }>;

/** Makes a move anew, from where the step stands by now; nothing where it must not be saved. */
type Remake = (step: Step) => StepMove | undefined | Promise<StepMove | undefined>;

/** How often a move is made anew. Each time, another call was recorded in between. */
export const MOST_REMADE = 1_000;

/**
 * How often a claim is asked for until it saves what the call is granted. Each time, another
 * process moved the run in between.
 */
const MOST_GRANTS = 16;

const nothing = (): void => {};

const NONE: readonly never[] = Object.freeze([]);

/** For a step that no client waits for: a task taken up elsewhere, a move from outside. */
export const NO_REQUEST: StepRequest['request'] = {
  cancelled: false,
  bytes: 0,
  onCancel: () => nothing,
  beginStep: () => nothing,
};

/** One call that may move its run. It knows the store, and nothing of HTTP. */
export class Step {
  readonly key: RunKey;
  /** The claim's token. A process that has it can settle the step. */
  token: string;
  /** As in {@link StepRequest}, with the digest once the store is asked. */
  description: StepDescription;
  note: CallNote | undefined;

  // Set once the run is claimed.

  /** Where the call found the run. */
  snapshot: FsmSnapshot = { state: '', updatedAt: 0 };
  /** The store's time of the claim; this process's time, where the store says none. */
  grantedAt = 0;
  /** What the snapshot means to this deployment; `undefined` where it does not understand it. */
  understood: Understood | undefined;
  /** Why this deployment does not understand the snapshot. */
  fault: unknown;
  /** The same for every try of one step whose outcome was unknown. */
  idempotencyKey = '';
  /** Other steps of the run whose outcome is unknown, and that may be tried again. */
  unsettled: readonly UnsettledStep[] = NONE;

  // Set once the call is let through.

  /** Where its outcomes lead. Events report the step once this is set. */
  moves: Moves | undefined;
  /** Whether the call was counted, or its handler changed the run's data. */
  isUpdated = false;
  /** Whether its handler saved the success, in a transaction that it may still have rolled back. */
  savedByHandler = false;
  /** Whether its handler's `commitIn()` has not come to its end yet. */
  isCommitting = false;
  /** Set where its handler, or its binding, says that the outcome is unknown. */
  doubt: StatedDoubt | undefined;

  // Set once it is settled.

  /** Where its clients see the run afterwards. */
  leaves: Position | undefined;
  /** The state that it moved the run to, if it did. */
  movedTo: string | undefined;

  /** Called when the gate waits no more for an answer, and again if one comes all the same. */
  onForgotten: (() => void) | undefined;
  readonly #rules: StepRules;
  readonly #run: StepRun;
  #digest: StepRequest['digest'];
  readonly #grant: StepRequest['grant'];
  readonly #request: StepRequest['request'];
  readonly #onTooLong: () => void;
  readonly #held: StepRequest['held'];
  #state: StepState;
  #turn: Turn | undefined;
  #overran = false;
  readonly #number: number | undefined;
  /** When it asked for its turn, and when it asked for its claim, by this process's clock. */
  #askedAt = 0;
  #claimAskedAt = 0;
  #hasWaited = false;
  /** How long it waited for the store. Counted only where the app listens to events. */
  #storeMs = 0;
  #isEndReported = false;
  /** Whether another process has the token too, and may have saved the outcome. */
  #isShared = false;
  /** Whether this process may have saved something: then a repeated commit is its own. */
  #mayHaveSaved = false;
  /** When this process last asked for the lease. The lease began no earlier. */
  #leasedAt = 0;
  #onTaken: (() => void) | undefined;
  #stopRenewing = nothing;
  #stopLimit = nothing;
  /** Frees the request's id. */
  #endRequest = nothing;

  constructor(
    rules: StepRules,
    run: StepRun,
    call: StepRequest,
    token = newToken(),
    state: 'waiting' | 'forwarded' = 'waiting',
  ) {
    this.#state = state;
    this.#rules = rules;
    this.#run = run;
    this.#request = call.request;
    this.#onTooLong = call.onTooLong;
    this.#held = call.held;
    this.key = { run: run.run, workflow: rules.workflow.id };
    this.token = token;
    this.description = call.description;
    this.#digest = call.digest;
    this.#grant = call.grant;
    this.note = call.note;
    this.#number = call.number;
  }

  /** A step that goes on as a task, taken up by another process that was given its token. */
  static resumed(
    rules: StepRules,
    run: StepRun,
    kept: {
      readonly token: string;
      readonly idempotencyKey: string;
      readonly uncertain: Uncertain;
      readonly moves: Moves;
      /** The version of the snapshot from which it made its moves. */
      readonly version: number;
    },
  ): Step {
    const { tool, note } = kept.moves.origin;
    const description = { tool, digest: '', uncertain: kept.uncertain };
    const call = { description, note, request: NO_REQUEST, onTooLong: () => step.giveUp() };
    const step = new Step(rules, run, call, kept.token, 'forwarded');
    step.idempotencyKey = kept.idempotencyKey;
    step.snapshot = { ...kept.moves.current, updatedAt: 0, version: kept.version };
    step.moves = kept.moves;
    step.#isShared = true;
    step.#startClocks(rules.clock.now());
    return step;
  }

  get state(): StepState {
    return this.#state;
  }

  get tool(): string {
    return this.description.tool;
  }

  /** The digest of the call's arguments. */
  get digest(): string {
    return this.description.digest;
  }

  /** What happens where the outcome stays unknown. */
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

  /** Whether there is something to settle: it holds a claim, or its outcome is unknown. */
  get canSettle(): boolean {
    return this.hasClaim || this.#state === 'unsettled';
  }

  /** Whether its outcome is unknown, at least for now. */
  get isUnknown(): boolean {
    return this.#state === 'unsettled' || this.#state === 'left' || this.doubt !== undefined;
  }

  /** Whether it was let go before it could move its run. */
  get isWithdrawn(): boolean {
    return this.#state === 'released';
  }

  /** Whether it took longer than `maxStepMs`. */
  get overran(): boolean {
    return this.#overran;
  }

  // --- waiting --------------------------------------------------------------------------------

  /**
   * Waits for its turn in this process, and then for other processes, until the store grants the
   * claim. Resolves to why it was not granted, or to `undefined`.
   *
   * @param states in which the store may grant it; `undefined`: in any state
   */
  async claim(
    states: readonly string[] | undefined,
    { isAgain = false, waitMs = this.#rules.times.waitMs }: Waiting = {},
  ): Promise<Refused | undefined> {
    const { waiting, clock, events, onError } = this.#rules;
    const { turns } = this.#run;
    const request = this.#request;
    this.#askedAt = clock.now();
    const followed = isAgain ? undefined : this.tool;
    const deadline = this.#askedAt + waitMs;
    let leave: (() => void) | undefined;
    let hasAsked = false;
    let asksAgain = this.#grant === undefined ? 0 : MOST_GRANTS;
    try {
      const taken = turns.take(turnKey(this.key), followed, waitMs, request, waiting);
      this.#hasWaited = isPromise(taken);
      this.#turn = isPromise(taken) ? await taken : taken;
      if (this.#turn === undefined) return this.#refuse(this.#calledOff ?? { reason: 'busy' });
      for (let attempt = 0; !turns.isOff(request, waiting); attempt++) {
        const askedAt = clock.now();
        hasAsked = true;
        const result = await this.#run.store.claim(this.#claimOf(states, askedAt));
        if (events.isOn) this.#storeMs += clock.now() - askedAt;
        const isSaved = result.status !== 'claimed' || this.#standAt(result);
        hasAsked = false;
        if (result.status === 'claimed') {
          const isOff = turns.isOff(request, waiting);
          if (!isOff && isSaved) return this.#granted(askedAt);
          await releaseClaim(this.#ownClaim, KEEPS_KEY);
          if (isOff) break;
          // The store keeps what a claim was asked with: it is asked again, with the right grant.
          this.token = newToken();
          asksAgain--;
          if (asksAgain <= 0) return this.#refuse({ reason: 'busy', snapshot: result.snapshot });
        } else if (result.status === 'busy' && clock.now() < deadline) {
          leave ??= this.#turn.wait(request, waiting);
          if (leave === undefined) return this.#refuse(refusal(result));
          this.#hasWaited = true;
          await turns.backOff(attempt, result.remainingMs, request, waiting);
        } else if (!request.cancelled) return this.#refuse(refusal(result));
      }
      return this.#refuse(this.#calledOff ?? { reason: 'cancelled' });
    } catch (error) {
      // The store may have granted the claim, though its answer was lost.
      if (hasAsked) releaseUnanswered(this.#ownClaim, error);
      onError(error);
      return this.#refuse({ reason: 'unavailable' });
    } finally {
      leave?.();
    }
  }

  /** Lets the arguments go, once they are digested. */
  #addDigest(): void {
    if (this.#digest === undefined) return;
    const digest = this.#digest();
    this.#digest = undefined;
    this.description = { ...this.description, digest };
    this.note = this.note && { ...this.note, digest };
  }

  #claimOf(states: readonly string[] | undefined, askedAt: number): ClaimRequest {
    this.#addDigest();
    const { workflow, times } = this.#rules;
    const { create, ttlMs, keyMs } = this.#run;
    return {
      ...this.key,
      token: this.token,
      step: { ...this.description, tool: workflow.renamings.savedOf(this.tool) },
      entry: this.note,
      states,
      initial: { ...workflow.start, updatedAt: askedAt },
      create,
      leaseMs: times.leaseMs,
      ttlMs,
      keyMs,
    };
  }

  /** Whether the claim was asked with what it is to save of the call. */
  #standAt(claimed: Extract<ClaimResult, { status: 'claimed' }>): boolean {
    const { clock, workflow } = this.#rules;
    const { snapshot, idempotencyKey, unsettled, now } = claimed;
    this.snapshot = snapshot;
    this.idempotencyKey = idempotencyKey;
    // An earlier try under the same key is this very step.
    if (unsettled !== undefined)
      this.unsettled = unsettled.filter((each) => each.idempotencyKey !== idempotencyKey);
    this.grantedAt = now ?? clock.now();
    try {
      this.understood = workflow.understand(snapshot, this.grantedAt);
    } catch (error) {
      this.fault = error;
    }
    if (this.#grant === undefined) return true;
    const use = this.#grant(this);
    const isSaved = JSON.stringify(use) === JSON.stringify(this.description.use);
    if (!isSaved) this.description = { ...this.description, ...(use !== undefined && { use }) };
    return isSaved;
  }

  #granted(askedAt: number): undefined {
    if (this.#turn !== undefined) this.#turn.step = this;
    // The result may come on another stream: the request's id stays in flight until then.
    this.#endRequest = this.#request.beginStep(this.uncertain === 'hold');
    this.#become('claimed');
    if (this.#held !== undefined) this.#request.onCancel(() => this.#held?.left(this));
    this.#startClocks(askedAt);
    if (this.#hasWaited) this.#reportWaited(true, this.snapshot.state);
  }

  /** A move from outside waits even while the process ends. */
  get #calledOff(): Refused | undefined {
    const { waiting } = this.#rules;
    return calledOff(this.#request, waiting === undefined ? undefined : this.#run.turns);
  }

  #refuse(why: Refused): Refused {
    this.#become(why.reason === 'cancelled' ? 'released' : 'refused');
    if (this.#hasWaited) this.#reportWaited(false, why.snapshot?.state);
    return why;
  }

  // --- claimed and forwarded ------------------------------------------------------------------

  /** Renews the claim from now on, and calls `onTooLong` after `maxStepMs`. */
  #startClocks(askedAt: number): void {
    const { clock, times } = this.#rules;
    this.#leasedAt = askedAt;
    this.#claimAskedAt = askedAt;
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

  /** Resolves to whether the store said that the claim is still this step's. */
  async #renew(): Promise<boolean> {
    const { times, clock, onError } = this.#rules;
    const askedAt = clock.now();
    const isOurs = await this.#run.store
      .renew(this.key, this.token, times.leaseMs)
      .catch((error: unknown) => onError(error));
    if (isOurs === true) this.#leasedAt = askedAt;
    // Without `onTaken` the answer is still to come, and the commit will find the claim lost.
    if (isOurs === false && this.#onTaken !== undefined && this.hasClaim) {
      this.#become('lost');
      this.#onTaken();
    }
    return isOurs === true;
  }

  /**
   * Whether its call may be forwarded. An old lease is renewed first: this process may have stood
   * still past its end. Another call may have taken the run over then, or a person resolved it.
   */
  confirm(): MaybePromise<boolean> {
    if (!this.hasClaim) return false;
    const { clock, times } = this.#rules;
    const age = clock.now() - this.#leasedAt;
    // A negative age means that the clock was set back: then the store is asked.
    return (age >= 0 && age <= times.leaseMs * OVERDUE_AFTER) || this.#renew();
  }

  /** The gate lets its call through. */
  start(moves: Moves, isUpdated: boolean): void {
    this.moves = moves;
    this.isUpdated = isUpdated;
    const { events } = this.#rules;
    if (!events.isOn) return;
    const waitedMs = this.#claimAskedAt - this.#askedAt;
    events.publish({ type: 'step.started', ...this.#facts, waitedMs });
  }

  /** The upstream is given the call: from now on it may have its effect. */
  forward(): void {
    if (this.#state === 'claimed') this.#become('forwarded');
  }

  /** Changes the run's data. They are saved with each outcome, a failure too. */
  update(change: (context: Json | undefined) => Json | undefined): void {
    const { moves } = this;
    if (moves === undefined) return;
    const { workflow } = this.#rules;
    this.moves = moves.at(workflow.withData(moves.current, change(workflow.dataOf(moves.current))));
    this.isUpdated = true;
  }

  /**
   * Saves the success in the handler's open transaction. The step goes on until its result comes;
   * the gate then commits the same move again, which changes nothing.
   */
  async commitIn(client: unknown): Promise<CommitResult['status'] | 'unsupported'> {
    const { store } = this.#run;
    if (this.moves === undefined || store.commitIn === undefined) return 'unsupported';
    this.isCommitting = true;
    try {
      for (let remade = 0; ; remade++) {
        const move = this.moves.successWithoutResult();
        if (!this.canSettle) return 'lost';
        this.#mayHaveSaved = true;
        const result = await store.commitIn(client, this.#commitOf(move));
        if (result.status === 'committed') this.savedByHandler = true;
        if (result.status !== 'moved' || remade === MOST_REMADE) return result.status;
        this.#goOnFrom(result.snapshot);
      }
    } finally {
      this.isCommitting = false;
    }
  }

  /**
   * The call was answered with a task: the step goes on until the task ends, for at most another
   * `limitMs`. Other processes may have the token from now on.
   *
   * @param onOver called once when that time is over
   * @param onTaken called once if another process or a person has settled the step
   */
  goOn(limitMs: number, onOver: () => void, onTaken: () => void): void {
    if (!this.hasClaim) return;
    this.#isShared = true;
    this.#turn?.outlive();
    this.#onTaken = onTaken;
    this.#stopLimit();
    // A process that stood still may have missed the task's end, so the store is asked first.
    this.#stopLimit = this.#rules.clock.after(limitMs, async () => {
      await this.#renew();
      if (this.hasClaim) onOver();
    });
  }

  // --- its end --------------------------------------------------------------------------------

  /**
   * Saves what a forwarded call came to, or lets the run go where nothing moves. An outcome that
   * comes late is saved in the same way.
   *
   * @param isLast whether no later answer will show the outcome again. Then a save that failed is
   * tried again, for at most `maxStepMs`.
   */
  settle(came: Outcome, onMoved: MoveListener, isLast: boolean): MaybePromise<Settled> {
    const { moves, isUpdated, savedByHandler } = this;
    if (moves === undefined) return 'unknown';
    if (this.doubt !== undefined) return this.#leaveDoubted();
    let outcome: Outcome;
    let next: ReturnType<Moves['next']>;
    try {
      outcome = moves.judged(came);
      next = moves.next(outcome, isUpdated, savedByHandler);
    } catch (error) {
      if (!(error instanceof UndecidedOutcome)) throw error;
      return this.#leaveUndecided(error);
    }
    if (next === 'doubted') {
      this.doubt = { why: 'its binding says so of this error' };
      return this.#leaveDoubted();
    }
    if (next === 'unknown') {
      this.giveUp();
      return 'unknown';
    }
    // The client's next call answers the question and goes on with the step, under the same key.
    const options = outcome.kind === 'input_required' ? KEEPS_KEY : {};
    if (next !== 'release') {
      const remake = (): StepMove | undefined => {
        const anew = this.moves?.next(outcome, this.isUpdated, this.savedByHandler);
        return typeof anew === 'object' ? anew : undefined;
      };
      return this.#settleWith(next, remake, options, onMoved, isLast);
    }
    this.leaves = shownPosition(this.#rules, this.key.run, moves.current);
    const entry = moves.entryFor(outcome);
    return after(this.release({ ...options, entry }), () => 'settled' as const);
  }

  #leaveUndecided({ message: why, cause }: UndecidedOutcome): Promise<Settled> {
    return this.#leave({ kind: 'undecided', why, cause }).then(() => 'unsaved' as const);
  }

  #leaveDoubted(): Promise<Settled> {
    const why = this.doubt?.why ?? '';
    return this.#leave({ kind: 'unknown', why }).then(() => 'doubted' as const);
  }

  /**
   * Ends the step with an outcome that stays unknown, and its lease with it. An undecided one holds
   * its run, because a later try would be no clearer. So does any step that must not be repeated.
   * Else the next try may take the claim over, with its key.
   */
  async #leave({ kind, why, cause }: Leaving): Promise<void> {
    if (!this.canSettle) return;
    const { clock, times, events, onError } = this.#rules;
    if (kind === 'undecided') this.description = { ...this.description, uncertain: 'hold' };
    const options = this.uncertain === 'hold' ? { hold: kind } : {};
    const leave = async (): Promise<void> => {
      if (!this.canSettle) return;
      this.#become('settling');
      const ask = (): Promise<boolean> => this.#run.store.renew(this.key, this.token, 0, options);
      try {
        const isOurs = await persist(ask, { clock, forMs: times.leaseMs, onError });
        this.#become(isOurs ? 'left' : 'lost');
      } catch (error) {
        this.#become('unsettled');
        this.#forgetCall();
        throw error;
      }
    };
    const failed = (error: unknown): void => {
      onError(error);
      this.#tryLater(leave);
    };
    await leave().catch(failed);
    const said = { ran: kind === 'undecided', waits: this.#state !== 'lost', cause };
    if (events.noteUnknown(this.token) || (said.ran && !said.waits)) this.reportUnknown(why, said);
  }

  #settleWith(
    made: StepMove,
    remake: () => StepMove | undefined,
    options: ReleaseOptions,
    onMoved: MoveListener,
    isLast: boolean,
  ): Promise<Settled> {
    const isLate = this.#state === 'unsettled';
    const { outcome } = made.trail;
    const answered = isCommitted(outcome) ? outcome : undefined;
    let move = made;
    const commit = (isLate?: boolean): Promise<CommitStatus> => {
      const anew = (): StepMove | undefined => {
        const next = remake();
        if (next !== undefined) move = next;
        return next;
      };
      return this.#commit(move, anew, options, onMoved, isLate);
    };
    const unsaved = (status: CommitStatus | 'failed'): Settled => {
      // "failed" alone would read as what the tool came to.
      const made = status === 'failed' ? 'the store did not save it' : status;
      const why = isLate ? `its result came late: ${made}` : made;
      this.reportUnknown(why, { ran: true, waits: status === 'failed', answered });
      return 'unsaved';
    };
    return commit().then(
      (status) => {
        if (status !== 'committed' && status !== 'repeated') return unsaved(status);
        this.leaves = shownPosition(this.#rules, this.key.run, move.snapshot);
        if (move.trail.to !== move.trail.from) this.movedTo = move.trail.to;
        return 'settled';
      },
      (error) => {
        // Made anew from what was recorded meanwhile, the move cannot be reported any more.
        if (error instanceof UndecidedOutcome) return this.#leaveUndecided(error);
        this.#rules.onError(error);
        if (isLast) {
          const report = (status: CommitStatus): void => {
            if (status !== 'lost' && status !== 'unknown') return;
            const why = `its result came late: ${status}`;
            this.reportUnknown(why, { ran: true, waits: false, answered });
          };
          this.#tryLater(() => commit(true).then(report));
        }
        return unsaved('failed');
      },
    );
  }

  /**
   * The store may come back before a person resolves the run, so it is asked again, every
   * `leaseMs`. The client has read that the outcome could not be recorded.
   */
  #tryLater(save: () => Promise<void>): void {
    const { clock, times, onError } = this.#rules;
    const deadline = clock.now() + times.maxStepMs;
    const failed = (error: unknown): void => {
      onError(error);
      if (clock.now() < deadline) later();
    };
    const later = (): void =>
      void clock.after(times.leaseMs, () => void save().catch(failed).catch(onError));
    later();
  }

  /**
   * Saves a move though the call is not forwarded: a count, say, or a restart. Where the store
   * fails, `onError` is called, and the claim is released.
   */
  save(
    move: StepMove,
    options: Pick<CommitRequest, 'settles'> = KEEPS_KEY,
    remake?: Remake,
  ): Promise<CommitResult['status'] | 'failed'> {
    return this.saveOrThrow(move, options, remake).catch(() => 'failed' as const);
  }

  /** As {@link save}, but rejects where the store fails. */
  async saveOrThrow(
    move: StepMove,
    options: Pick<CommitRequest, 'settles'>,
    remake: Remake = () => undefined,
  ): Promise<CommitResult['status']> {
    const status = await this.#commit(move, remake, options);
    return status === 'repeated' ? 'lost' : status;
  }

  /**
   * Commits, and reports the move. A store that fails is asked again for as long as a lease lasts;
   * the claim's token makes that harmless. Rejects if the store failed each time.
   *
   * The store says `repeated` where it has the commit already: its first answer was lost, or the
   * driver asked twice. That commit was this step's own, and nothing has reported it yet. Only
   * where the token is shared may it be another process's, which has reported it.
   *
   * @param remake as in {@link #commitAnew}
   */
  #commit(
    move: StepMove,
    remake: Remake,
    options: Pick<CommitRequest, 'settles'>,
    onMoved?: MoveListener,
    isLate?: boolean,
  ): Promise<CommitStatus> {
    if (!this.canSettle) return Promise.resolve(this.#state === 'saved' ? 'repeated' : 'lost');
    const { clock, times, events } = this.#rules;
    const isForwarded = this.#state !== 'claimed';
    this.#become('settling');
    const askedAt = clock.now();
    const onSaved = (result: SettledCommit, saved: StepMove): CommitStatus => {
      if (events.isOn) this.#storeMs += clock.now() - askedAt;
      this.#become(result.status === 'committed' ? 'saved' : 'lost');
      if (result.status !== 'committed') return result.status;
      if (result.repeated && this.#isShared && !this.#mayHaveSaved) return 'repeated';
      this.#publish(saved, onMoved, isLate);
      return result.status;
    };
    const save = (made: StepMove): Promise<CommitResult> => {
      const request = this.#commitOf(made, options.settles);
      return this.#run.store
        .commit(request, this.snapshot)
        .catch((error) => this.#commitAgain(error, request, askedAt + times.leaseMs, isForwarded));
    };
    return save(move).then((result) =>
      result.status === 'moved'
        ? this.#commitAnew(result, remake, save, isForwarded).then((anew) =>
            anew === undefined ? 'moved' : onSaved(anew.result, anew.move),
          )
        : onSaved(result, move),
    );
  }

  /**
   * A call that runs beside others was recorded since the move was made. Makes the move anew from
   * there, so that nothing recorded is lost, and commits that. `undefined` where `remake` makes
   * none: then the claim is released.
   */
  async #commitAnew(
    moved: Extract<CommitResult, { status: 'moved' }>,
    remake: Remake,
    save: (move: StepMove) => Promise<CommitResult>,
    isForwarded: boolean,
  ): Promise<{ readonly result: SettledCommit; readonly move: StepMove } | undefined> {
    let made: StepMove | undefined;
    let { snapshot } = moved;
    try {
      for (let remade = 0; remade < MOST_REMADE; remade++) {
        this.#goOnFrom(snapshot);
        made = (await remake(this)) ?? undefined;
        if (made === undefined) break;
        const result = await save(made);
        if (result.status !== 'moved') return { result, move: made };
        snapshot = result.snapshot;
      }
      if (made !== undefined)
        throw new Error(`others moved the run ${MOST_REMADE} times meanwhile`);
    } catch (error) {
      // Where the store failed, the step is over already.
      if (this.#state === 'settling') this.#leaveUnsaved(isForwarded);
      throw error;
    }
    this.#leaveUnsaved(isForwarded);
    return undefined;
  }

  /** Goes on from a newer snapshot, to which calls that run beside others have added. */
  #goOnFrom(snapshot: FsmSnapshot): void {
    const position = this.#rules.workflow.stand(snapshot);
    this.snapshot = snapshot;
    this.understood = { position, expiry: undefined };
    this.moves = this.moves?.onto(position);
  }

  /** The store failed to commit: asks it again, until that time. */
  async #commitAgain(
    failure: unknown,
    request: CommitRequest,
    until: number,
    isForwarded: boolean,
  ): Promise<CommitResult> {
    const { clock, onError: report } = this.#rules;
    const onError = (error: unknown): void => {
      this.#mayHaveSaved = true;
      report(error);
    };
    const save = (): Promise<CommitResult> => this.#run.store.commit(request, this.snapshot);
    try {
      return await callAgain(failure, save, { clock, until, onError });
    } catch (error) {
      this.#leaveUnsaved(isForwarded);
      throw error;
    }
  }

  /** Its move is not saved: the outcome of a forwarded call is unknown, any other claim goes. */
  #leaveUnsaved(isForwarded: boolean): void {
    this.#become(isForwarded ? 'unsettled' : 'released');
    if (isForwarded) this.#forgetCall();
    else releaseUnanswered(this.#ownClaim, undefined);
  }

  #commitOf(
    { snapshot, trail, ended }: StepMove,
    settles?: CommitRequest['settles'],
  ): CommitRequest {
    const { token } = this;
    const { run, workflow } = this.key;
    const { version: from = 0 } = this.snapshot;
    const ttlMs = this.#rules.workflow.rules.lifeOf(run, this.#run.ttlMs, snapshot);
    return { run, workflow, token, from, snapshot, trail, ended, settles, ttlMs };
  }

  /** Reports a saved move: the step's end, and what it means for the run. */
  #publish(move: StepMove, onMoved?: MoveListener, isLate = false): void {
    const { events } = this.#rules;
    const { outcome, event, to } = move.trail;
    if (events.isOn && this.moves !== undefined && isCommitted(outcome))
      events.publish({ type: 'step.committed', ...this.#ending, outcome, event, to });
    reportSaved(this.#rules, move, this.key.run, this.moves?.origin.isFirst ?? this.isFirst);
    onMoved?.(move, isLate);
  }

  /**
   * Lets the run go without a move. Where the store fails, it is asked again in the background, and
   * this does not wait for it.
   */
  async release(options: ReleaseOptions = {}): Promise<void> {
    if (!this.canSettle) return;
    if (this.doubt !== undefined) return this.#leave({ kind: 'unknown', why: this.doubt.why });
    const { clock, events } = this.#rules;
    this.#become('settling');
    const isReported = events.isOn && this.moves !== undefined;
    const askedAt = isReported ? clock.now() : 0;
    try {
      await releaseClaim(this.#ownClaim, options);
    } finally {
      this.#become('released');
    }
    if (!isReported) return;
    this.#storeMs += clock.now() - askedAt;
    this.#reportReleased(events, options.entry);
  }

  #reportReleased(events: Events, entry: TrailDraft | undefined): void {
    if (entry?.outcome === 'failed') {
      const known = (['tool_error', 'not_ok', 'cancelled'] as const).find(
        (each) => each === entry.kind,
      );
      const kind = known ?? 'rpc_error';
      events.publish({ type: 'step.failed', ...this.#ending, kind });
      return;
    }
    const { outcome } = entry ?? {};
    const unsent = this.#request.cancelled ? 'cancelled' : 'withdrawn';
    // A call that was not forwarded has no entry.
    const why = outcome === 'input_required' || outcome === 'not_run' ? outcome : unsent;
    events.publish({ type: 'step.released', ...this.#ending, why });
  }

  /**
   * The call is not forwarded after all, or was forwarded and did not run.
   *
   * @param kind what the trail says of a call that was forwarded
   */
  withdraw(kind?: string): Promise<void> {
    const entry = kind ? this.moves?.attempted({ outcome: 'not_run', kind }) : undefined;
    return this.release(entry === undefined ? KEEPS_KEY : { ...KEEPS_KEY, entry });
  }

  /**
   * The outcome is unknown: the claim stands until its lease ends, and `onError` is called.
   *
   * @param isAwaited whether the gate still waits for the response. Then the request's id stays in
   * flight, for at most `maxStepMs`. A late outcome is saved either way.
   * @param why what `onError` and the events get
   */
  giveUp(isAwaited = false, why = 'no result came'): void {
    if (this.#state === 'claimed') void this.withdraw();
    const isNew = this.#state === 'forwarded';
    if (isNew) this.#become('unsettled');
    if (!isAwaited && this.#state === 'unsettled') this.#forgetCall();
    if (isNew) this.reportUnknown(this.doubt?.why ?? why, { ran: false, waits: true });
    // The handler is done, and no answer to come would count.
    if (!isAwaited && this.doubt !== undefined) void this.#leaveDoubted();
  }

  /** Reports to `onError` and the events that the outcome is unknown, or known and not recorded. */
  reportUnknown(why: string, said: KnownOfUnknown): void {
    const { events } = this.#rules;
    const { idempotencyKey, uncertain } = this;
    const isHeld = said.waits && uncertain === 'hold';
    // So that this process does not report it again when it finds the claim later.
    events.noteUnknown(this.token);
    if (said.answered !== undefined) events.noteAnswer(idempotencyKey, said.answered);
    events.fail(new UnknownOutcome(this, why, said), () => {
      const of = { ...this.#ending, why, isHeld, idempotencyKey };
      const { ran, answered } = said;
      if (!ran) return { type: 'step.unknown', ...of };
      return { type: 'step.unrecorded', ...of, ...(answered && { answered }) };
    });
  }

  #reportWaited(granted: boolean, state: string | undefined): void {
    const { events, clock } = this.#rules;
    // A move from outside waits too, but is no call.
    if (!events.isOn || this.note === undefined) return;
    const waitedMs = clock.now() - this.#askedAt;
    events.publish({ type: 'call.waited', ...this.#facts, state, waitedMs, granted });
  }

  /** What each of its events says. */
  get #facts() {
    const { run: runKey, workflow } = this.key;
    const { actor, requestId } = this.note ?? {};
    const { state } = this.snapshot;
    return { runKey, workflow, tool: this.tool, state, actor, requestId, call: this.#number };
  }

  /** What the event of its end says. A second end, after an unknown outcome, is late. */
  get #ending() {
    const isLate = this.#isEndReported;
    this.#isEndReported = true;
    const durationMs = this.#rules.clock.now() - this.#claimAskedAt;
    return { ...this.#facts, durationMs, storeMs: this.#storeMs, isLate };
  }

  /** The only place that changes the state. Ends the turn and the clocks that it needs no more. */
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
    if (state === 'unsettled' || state === 'left') this.#held?.left(this);
    // Of a claim that was not granted nothing is counted.
    else if (state !== 'refused') this.#held?.settled(this);
    if (state !== 'unsettled') this.#forgetCall();
  }

  /** The gate waits no more for an answer to the call. */
  #forgetCall(): void {
    this.#stopLimit();
    this.#endRequest();
    this.onForgotten?.();
  }

  get #ownClaim(): Releasing {
    const { clock, onError } = this.#rules;
    const { key, token } = this;
    return { store: this.#run.store, key, token, clock, onError };
  }
}

/** Why a call need not wait any longer: its client cancelled it, or this process ends. */
export function calledOff(
  { cancelled }: Pick<QueuedRequest, 'cancelled'>,
  turns: Pick<Turns, 'closed'> | undefined,
): Refused | undefined {
  if (cancelled) return { reason: 'cancelled' };
  if (turns?.closed !== true) return undefined;
  return { reason: 'unavailable', cause: 'the server is being restarted' };
}

function refusal(result: ClaimResult): Refused {
  if (result.status === 'unknown') return { reason: 'unknown' };
  const { status, snapshot, now, unsettled } = result;
  const seen = { snapshot, now, unsettled };
  if (status === 'held') return { reason: 'held', held: result.claim, ...seen };
  if (status === 'frozen') return { reason: 'frozen', freeze: result.freeze, ...seen };
  if (status === 'unsettled') return { reason: 'too-many-held', ...seen };
  return { reason: status === 'state' ? 'state' : 'busy', ...seen };
}

/** Whether that outcome ends a step: a move of a call that was not forwarded has no such one. */
function isCommitted(
  outcome: TrailDraft['outcome'],
): outcome is 'succeeded' | 'failed' | 'input_required' {
  return outcome === 'succeeded' || outcome === 'failed' || outcome === 'input_required';
}
