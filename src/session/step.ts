import type {
  CommitRequest,
  CommitResult,
  FsmSnapshot,
  ReleaseOptions,
  RunKey,
  StepDescription,
  Uncertain,
} from '../stores/store.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import type { Clock } from './clock.ts';
import type { GuardedStore } from './guarded-store.ts';
import { persist } from './persist.ts';
import { releaseClaim } from './release-claim.ts';
import type { Turn } from './turns.ts';
import { UNBEGUN } from './unbegun.ts';

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

/** What a step is made of once its claim was granted. */
export interface StepParts {
  readonly key: RunKey;
  readonly token: string;
  readonly description: StepDescription;
  readonly snapshot: FsmSnapshot;
  /** What time it was for the store when the claim was granted. */
  readonly now: number;
  /**
   * What time it was here when the claim was asked for: its lease began no earlier. Default: now.
   */
  readonly askedAt?: number;
  readonly idempotencyKey: string;
  readonly store: GuardedStore;
  readonly ttlMs: number;
  readonly times: StepTimes;
  readonly clock: Clock;
  /**
   * The run's turn in this process; none where another process had it when the call was forwarded.
   */
  readonly turn: Turn | undefined;
  /** Frees the request's id. */
  readonly endRequest: () => void;
  readonly onError: (error: unknown) => void;
  /**
   * Whether another process has the claim's token as well, and may have saved the outcome. Default
   * `false`.
   */
  readonly isShared?: boolean;
}

/** As much of a commit as a move says. */
export type Saving = Pick<CommitRequest, 'snapshot' | 'trail' | 'ended'>;

/** What became of a commit. `repeated`: it was saved and told before. */
export type Saved = CommitResult['status'] | 'repeated';

/**
 * Where a step is in its life.
 *
 * - `claimed`: it holds the run, and renews its lease.
 * - `unsettled`: its outcome is unknown, and its lease runs out. An outcome that comes late is
 *   saved, unless a person has resolved the run or another call has taken it over.
 * - `saving`: the store is asked to save what it came to, or to let the run go.
 * - `saved`, `released`, `lost`: it is over. `lost`: another process or a person settled it.
 */
export type StepState = 'claimed' | 'unsettled' | 'saving' | 'saved' | 'released' | 'lost';

/** One call that holds its run's claim, from before it is forwarded until its outcome is saved. */
export class Step {
  readonly key: RunKey;
  /** The claim's: whoever has it can settle the step. */
  readonly token: string;
  readonly tool: string;
  /** Of the call's arguments. */
  readonly digest: string;
  /** The position that the call was tested against. */
  readonly snapshot: FsmSnapshot;
  /** What time it was then, on the clock that stamped it. */
  readonly now: number;
  /** The same for every try of one step whose outcome was unknown. */
  readonly idempotencyKey: string;
  /** What may happen where nobody learns its outcome. */
  readonly uncertain: Uncertain;
  /** Called when no answer of the call is waited for any more, and where one comes all the same. */
  onForgotten: (() => void) | undefined;
  readonly #parts: StepParts;
  #state: StepState = 'claimed';
  #overran = false;
  #isShared: boolean;
  /** What time it was here when its lease was last asked for. */
  #leasedAt: number;
  /**
   * Whether something was saved from here, or may have been: then a commit that the store knows
   * already is our own.
   */
  #mayHaveSaved = false;
  #onTaken: (() => void) | undefined;
  #stopRenewing: () => void = () => {};
  #stopLimit: () => void = () => {};

  /** `onTooLong` is called once, if no answer has come after `maxStepMs`. */
  constructor(parts: StepParts, onTooLong: () => void) {
    this.#parts = parts;
    this.#isShared = parts.isShared === true;
    this.#leasedAt = parts.askedAt ?? parts.clock.now();
    this.key = parts.key;
    this.token = parts.token;
    this.tool = parts.description.tool;
    this.digest = parts.description.digest;
    this.uncertain = parts.description.uncertain;
    this.snapshot = parts.snapshot;
    this.now = parts.now;
    this.idempotencyKey = parts.idempotencyKey;
    this.#stopLimit = parts.clock.after(parts.times.maxStepMs, () => {
      this.#overran = true;
      onTooLong();
    });
    this.#renewLater();
  }

  get state(): StepState {
    return this.#state;
  }

  /** Whether nothing of the run was committed before. */
  get isFirst(): boolean {
    return (this.snapshot.version ?? 0) === 0;
  }

  /** Whether nothing that it comes to can be saved any more. */
  get isOver(): boolean {
    return this.#state !== 'claimed' && this.#state !== 'unsettled';
  }

  /** Whether it took longer than a step may. */
  get overran(): boolean {
    return this.#overran;
  }

  /**
   * Whether it may be forwarded: the claim is still its own, and the lease leaves time to. Where
   * renewals are overdue the store is asked, and the lease begins anew. A process that stood still
   * may have missed its end, and that another call has taken the run over or a person resolved it.
   */
  confirm(): MaybePromise<boolean> {
    if (this.#state !== 'claimed') return this.#state !== 'unsettled';
    const { clock, times } = this.#parts;
    const age = clock.now() - this.#leasedAt;
    // A clock that was set back says nothing.
    return (age >= 0 && age <= times.leaseMs / 2) || this.#renew();
  }

  /**
   * Goes on after its call was answered, for another `limitMs`, and calls back once: where that is
   * over, or where the claim turns out to have been settled or taken elsewhere. From now on other
   * processes may have the token.
   */
  goOn(limitMs: number, onOver: () => void, onTaken: () => void): void {
    if (this.#state !== 'claimed') return;
    this.#isShared = true;
    this.#parts.turn?.outlive();
    this.#onTaken = onTaken;
    this.#stopLimit();
    // A process that stood still may have missed the end: it asks before it says that there was
    // none.
    this.#stopLimit = this.#parts.clock.after(limitMs, async () => {
      await this.#renew();
      if (this.#state === 'claimed') onOver();
    });
  }

  /**
   * Saves the move, also of an unsettled step. A store that fails is asked again for as long as a
   * lease lasts, which the claim's token makes harmless. Rejects if all of that failed: the step is
   * unsettled then, and can be saved later.
   *
   * The first answer to a commit may be lost, and the next one says `repeated`, as it does where a
   * driver asks twice. Such a commit is this step's own, and what depends on it has still to be
   * told. Only where others have the token may it be theirs.
   */
  async commit(move: Saving, options: Pick<CommitRequest, 'settles'> = {}): Promise<Saved> {
    if (this.isOver) return this.#state === 'saved' ? 'repeated' : 'lost';
    const { store, key, token, ttlMs, clock, times, onError } = this.#parts;
    this.#become('saving');
    try {
      const request = { ...key, ...move, token, ttlMs, ...options };
      const onFailure = (error: unknown): void => {
        this.#mayHaveSaved = true;
        onError(error);
      };
      const insisting = { clock, forMs: times.leaseMs, onError: onFailure };
      const result = await persist(() => store.commit(request), insisting);
      this.#become(result.status === 'committed' ? 'saved' : 'lost');
      const isTheirs = this.#isShared && !this.#mayHaveSaved;
      return result.status === 'committed' && result.repeated && isTheirs
        ? 'repeated'
        : result.status;
    } catch (error) {
      this.#become('unsettled');
      this.#forgetCall();
      throw error;
    }
  }

  /**
   * The same where the call is not forwarded. If it cannot be saved the claim is let go, since
   * nothing ran whose outcome could be unknown.
   */
  async commitUnforwarded(
    move: Saving,
    options: Pick<CommitRequest, 'settles'> = UNBEGUN,
  ): Promise<Saved> {
    try {
      return await this.commit(move, options);
    } catch (error) {
      this.#become('released');
      void releaseClaim(this.#parts, UNBEGUN, 1);
      throw error;
    }
  }

  /**
   * Saves the move in a transaction that the handler has open. The step goes on: the middleware's
   * own commit, which comes with the result, finds it done.
   */
  async commitIn(client: unknown, move: Saving): Promise<CommitResult['status'] | 'unsupported'> {
    const { store, key, token, ttlMs } = this.#parts;
    if (store.commitIn === undefined) return 'unsupported';
    if (this.isOver) return 'lost';
    this.#mayHaveSaved = true;
    return (await store.commitIn(client, { ...key, ...move, token, ttlMs })).status;
  }

  /**
   * Lets the run go without a move: nothing happened, or nothing that moves it. An unsettled step
   * may turn out so too. Does not wait for a store that fails.
   */
  async release(options: ReleaseOptions = {}): Promise<void> {
    if (this.isOver) return;
    this.#become('saving');
    try {
      await releaseClaim(this.#parts, options);
    } finally {
      this.#become('released');
    }
  }

  /**
   * Makes it unsettled: the claim stands until its lease ends. `mayCome`: the response may still
   * bring the outcome, so the request's id stays in flight until then, at most for `maxStepMs`.
   * Returns whether it was claimed until now.
   */
  giveUp(mayCome = false): boolean {
    const waited = this.#state === 'claimed';
    if (waited) this.#become('unsettled');
    if (!mayCome && this.#state === 'unsettled') this.#forgetCall();
    return waited;
  }

  /**
   * The only place where the state changes. It ends the turn, and the clocks that the state needs
   * no more.
   */
  #become(state: StepState): void {
    this.#state = state;
    this.#stopRenewing();
    if (state === 'saving') return;
    this.#parts.turn?.end();
    if (state !== 'unsettled') this.#forgetCall();
  }

  /** No answer of the call is waited for any more. */
  #forgetCall(): void {
    this.#stopLimit();
    this.#parts.endRequest();
    this.onForgotten?.();
  }

  #renewLater(): void {
    const { clock, times } = this.#parts;
    this.#stopRenewing = clock.after(times.leaseMs / 3, async () => {
      await this.#renew();
      if (this.#state === 'claimed') this.#renewLater();
    });
  }

  /** Whether the store said that the claim is still its own. */
  async #renew(): Promise<boolean> {
    const { store, key, token, times, clock, onError } = this.#parts;
    const askedAt = clock.now();
    const isOurs = await store.renew(key, token, times.leaseMs).catch(onError);
    if (isOurs === true) this.#leasedAt = askedAt;
    // A step whose answer is still to come finds that out when it commits.
    if (isOurs === false && this.#onTaken !== undefined && this.#state === 'claimed') {
      this.#become('lost');
      this.#onTaken();
    }
    return isOurs === true;
  }
}
