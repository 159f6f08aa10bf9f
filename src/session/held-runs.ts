/**
 * How many runs each caller has left with an unknown outcome, in this process. A caller makes such
 * runs at will, by hanging up. Hides by whom they are counted, and how a count that is out of date
 * is put right.
 */
import type { Step } from '../step/step.ts';
import type { GuardedStore } from '../step/store-calls.ts';
import type { ClaimView, RunKey } from '../stores/store.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import { type Owner, ownerKey } from './callers.ts';

export interface HeldLimits {
  /** The most held runs of one principal, or of one client without a principal. */
  readonly maxHeldPerCaller: number;
  /** The most of all callers. It bars only callers without a principal. */
  readonly maxHeld: number;
  readonly store: GuardedStore;
  readonly ttlOf: (run: string) => number;
  readonly onError: (error: unknown) => void;
}

interface CountedRun {
  readonly key: RunKey;
  readonly caller: string;
}

/** Callers that nothing distinguishes. They share one count, of at most half of all. */
const UNNAMED = '';

/** How many of the oldest held runs a call looks up that would be refused. */
const LOOKS = 4;

/** The held runs that a process made or found, by the tokens of their claims. */
export class HeldRuns {
  readonly #runs = new Map<string, CountedRun>();
  readonly #byCaller = new Map<string, Set<string>>();
  readonly #limits: HeldLimits;

  constructor(limits: HeldLimits) {
    this.#limits = limits;
  }

  /** The held runs of one caller. */
  of(owner: Owner): CallersHeld {
    return new CallersHeld(this, owner);
  }

  /**
   * Whether the caller may begin another step that could hold its run. Where it seems to have too
   * many, the store is asked about the oldest: another process may have settled them.
   */
  hasRoom(owner: Owner): MaybePromise<boolean> {
    return this.#crowd(owner) === undefined || this.#lookAgain(owner);
  }

  async #lookAgain(owner: Owner): Promise<boolean> {
    for (let looks = 0; looks < LOOKS; looks++) {
      const [token] = this.#crowd(owner) ?? [];
      if (token === undefined) return true;
      const held = this.#runs.get(token);
      if (held === undefined) return false;
      // The step may end while the store is asked.
      const isHeld = (await this.#isHeld(token, held.key)) && this.#runs.has(token);
      this.drop(token);
      // Behind the others, so that the next call looks at those.
      if (isHeld) this.#add(token, held);
    }
    return this.#crowd(owner) === undefined;
  }

  /** Whether the step with that token still has the run's claim; `true` where the store fails. */
  async #isHeld(token: string, { run, workflow }: RunKey): Promise<boolean> {
    const { store, ttlOf, onError } = this.#limits;
    try {
      const record = await store.read(run, ttlOf(run), workflow);
      return Object.entries(record?.workflows ?? {}).some(
        ([name, { claim }]) => name === workflow && claim?.token === token,
      );
    } catch (error) {
      onError(error);
      return true;
    }
  }

  /** The held runs that are too many, the oldest first; `undefined` where there is room. */
  #crowd(owner: Owner): Iterable<string> | undefined {
    const { maxHeld, maxHeldPerCaller } = this.#limits;
    const caller = ownerKey(owner) ?? UNNAMED;
    const own = this.#byCaller.get(caller);
    const most = caller === UNNAMED ? Math.floor(maxHeld / 2) : maxHeldPerCaller;
    if (own !== undefined && own.size >= most) return own;
    return owner.principal === undefined && this.#runs.size >= maxHeld
      ? this.#runs.keys()
      : undefined;
  }

  /** Counts a run by the token of its claim, once. */
  add(token: string, key: RunKey, owner: Owner): void {
    if (this.#runs.has(token)) return;
    this.#add(token, { key, caller: ownerKey(owner) ?? UNNAMED });
    // Principals are never barred by the others' number, so the oldest of all make way.
    const [oldest] = this.#runs.keys();
    if (this.#runs.size > 2 * this.#limits.maxHeld && oldest !== undefined) this.drop(oldest);
  }

  #add(token: string, held: CountedRun): void {
    this.#runs.set(token, held);
    const own = this.#byCaller.get(held.caller);
    if (own === undefined) this.#byCaller.set(held.caller, new Set([token]));
    else own.add(token);
  }

  drop(token: string): void {
    const held = this.#runs.get(token);
    if (held === undefined) return;
    this.#runs.delete(token);
    const own = this.#byCaller.get(held.caller);
    own?.delete(token);
    if (own?.size === 0) this.#byCaller.delete(held.caller);
  }
}

/** The held runs of one caller. */
export class CallersHeld {
  readonly #held: HeldRuns;
  readonly #owner: Owner;

  constructor(held: HeldRuns, owner: Owner) {
    this.#held = held;
    this.#owner = owner;
  }

  /** As {@link HeldRuns.hasRoom}. */
  hasRoom(): MaybePromise<boolean> {
    return this.#held.hasRoom(this.#owner);
  }

  /** The step's outcome is unknown, or its caller has gone while it is at work. */
  left({ token, key, canSettle, state }: Step): void {
    if (canSettle || state === 'left') this.#held.add(token, key, this.#owner);
  }

  /** The caller found the claim of such a step. */
  met({ token }: ClaimView, key: RunKey): void {
    this.#held.add(token, key, this.#owner);
  }

  settled({ token }: Step): void {
    this.#held.drop(token);
  }
}
