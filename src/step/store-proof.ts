/**
 * Whether a store takes writes at the moment. Hides what counts as evidence, and how a process
 * tries it out where it has none.
 */
import { randomBytes } from 'node:crypto';
import type { Clock } from '../basics/clock.ts';
import { newToken } from '../basics/names.ts';
import type { AtomicStateStore, CommitRequest, FsmSnapshot } from '../stores/store.ts';

/**
 * A store failed, or did not answer in time. Its own error is the `cause`, and no client sees it.
 */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
}

/** A claim was not sent, since the store takes no writes. */
export class ClaimWithheld extends StoreUnavailable {}

/** How long a write proves that the store takes more, in milliseconds. */
const PROOF_MS = 10_000;

/** How long a store that failed a trial is not tried again, in milliseconds. */
const AGAIN_MS = 1_000;

/** The run in which processes try a store. No client can name it, and no gate counts it. */
const TRIAL = { run: 'mcp-interlock probe', workflow: 'mcp-interlock probe' } as const;
const TRIAL_LEASE_MS = 5_000;
const TRIAL_LIFE_MS = 60_000;

/** The bytes that each trial writes at least. A lighter one fits where a step does not. */
const LEAST_BYTES = 4_096;

interface Trial {
  readonly answer: Promise<void>;
  failedAt?: number;
}

/**
 * Keeps the newest evidence, and tries the store where it is old or bad. After a commit has failed,
 * claims wait until a write as large succeeds: a step that cannot be saved must not run.
 */
export class StoreProof {
  readonly #store: Pick<AtomicStateStore, 'claim' | 'delete'>;
  readonly #clock: Clock;
  /** When the store last took a write. */
  #writtenAt = Number.NEGATIVE_INFINITY;
  /** Whether an operation has failed since. */
  #isDoubted = false;
  /** How many bytes a commit could not save. `undefined`: claims need not wait. */
  #unsaved: number | undefined;
  /** The largest document that the store is known to have taken. */
  #taken = LEAST_BYTES;
  #trial: Trial | undefined;

  /** @param store whose calls have deadlines */
  constructor(store: Pick<AtomicStateStore, 'claim' | 'delete'>, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
  }

  /** Whether claims wait for a write. */
  get isAwaited(): boolean {
    return this.#unsaved !== undefined;
  }

  /** An operation on a run failed. Which fault it was is not known: the store is tried. */
  doubt(): void {
    this.#isDoubted = true;
  }

  claimed(): void {
    if (!this.isAwaited) this.#wrote();
  }

  committed({ snapshot }: CommitRequest): void {
    // What is smaller may fit where the other document did not.
    if (this.#unsaved !== undefined && bytesOf(snapshot) < this.#unsaved) return;
    this.#unsaved = undefined;
    this.#wrote();
  }

  /**
   * A commit failed. Its document may be too large for any store, and then the others must not
   * wait. So a trial writes no more than what the store has taken before, as of this run.
   */
  uncommitted({ snapshot }: CommitRequest, before: FsmSnapshot | undefined): void {
    if (before !== undefined) this.#taken = Math.max(this.#taken, bytesOf(before));
    const bytes = Math.min(bytesOf(snapshot), this.#taken);
    this.#unsaved = Math.max(this.#unsaved ?? LEAST_BYTES, bytes);
  }

  /** Resolves once claims need not wait. Rejects if a trial fails. */
  async admit(): Promise<void> {
    try {
      // A larger commit may have failed meanwhile.
      while (this.isAwaited) await this.prove();
    } catch (cause) {
      throw new ClaimWithheld(
        'the store took no claim: it takes no writes since a commit failed, and is tried each second',
        { cause },
      );
    }
  }

  /**
   * Resolves if the store takes writes, and rejects if not. One of the last ten seconds is proof
   * enough, if nothing has failed since. Else this process makes one, once for all callers.
   */
  prove(): Promise<void> {
    const now = this.#clock.now();
    // A clock may go back.
    const isFresh = (at: number, forMs: number): boolean => Math.abs(now - at) < forMs;
    if (!this.isAwaited && !this.#isDoubted && isFresh(this.#writtenAt, PROOF_MS))
      return Promise.resolve();
    const last = this.#trial;
    if (last !== undefined && (last.failedAt === undefined || isFresh(last.failedAt, AGAIN_MS)))
      return last.answer;
    const trial: Trial = { answer: this.#try() };
    this.#trial = trial;
    trial.answer.then(
      () => {
        if (this.#trial === trial) this.#trial = undefined;
      },
      () => {
        trial.failedAt = this.#clock.now();
      },
    );
    return trial.answer;
  }

  /** Makes the run of processes anew, since a claim of one that is there may write little. */
  async #try(): Promise<void> {
    const bytes = this.#unsaved ?? LEAST_BYTES;
    await this.#store.delete(TRIAL.run);
    // Random, since a backend may compress it.
    const context = randomBytes(Math.ceil((bytes * 3) / 4)).toString('base64');
    const { status } = await this.#store.claim({
      ...{ ...TRIAL, token: newToken(), states: undefined, create: {} },
      step: { tool: '', digest: '', uncertain: 'retry' },
      initial: { state: '', context, updatedAt: 0 },
      ...{ leaseMs: TRIAL_LEASE_MS, ttlMs: TRIAL_LIFE_MS },
    });
    // Another process has just made it. That proves as much, but of its size nothing is known.
    const isOthers = status === 'busy' && !this.isAwaited;
    if (status !== 'claimed' && !isOthers)
      throw new StoreUnavailable(`the store answers a claim: ${status}`);
    this.#taken = Math.max(this.#taken, bytes);
    if (this.#unsaved !== undefined && bytes < this.#unsaved) return;
    this.#unsaved = undefined;
    this.#wrote();
  }

  #wrote(): void {
    this.#isDoubted = false;
    this.#writtenAt = this.#clock.now();
  }
}

function bytesOf(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}
