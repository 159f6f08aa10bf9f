import { type Placed, type UseOrder, YieldOrder } from '../use-order.ts';

/** What the table has to know of a run. */
interface Expiring {
  /** Milliseconds since the epoch, on the table's clock. From then on the run is unknown. */
  readonly expiresAt: number;
}

interface RunTableOptions<Run> {
  /** How many runs are kept, as long as enough of them may be evicted. */
  readonly maxRuns: number;
  readonly now: () => number;
  /** A run that must not be evicted yet. */
  readonly isPinned: (run: Run, now: number) => boolean;
  /** Whether a run belongs to a principal: such runs are evicted last. Default: none does. */
  readonly isOwned?: (run: Run) => boolean;
}

interface RunEntry<Run> extends Placed<RunEntry<Run>> {
  readonly key: string;
  readonly order: UseOrder<RunEntry<Run>>;
  run: Run;
}

/** How many runs of each kind an insertion may look at to find one to evict. */
const LOOKS = 8;

/**
 * A sweep looks at every run, and comes once in so many insertions per run: each insertion pays for
 * four looks.
 */
const SWEEP_SHARE = 1 / 4;

/**
 * Runs by their key, and in the order of their last use. An expired run is not there; its memory is
 * freed by later insertions, so that no timer is needed.
 */
export class RunTable<Run extends Expiring> {
  readonly #entries = new Map<string, RunEntry<Run>>();
  readonly #options: RunTableOptions<Run>;
  readonly #order = new YieldOrder<RunEntry<Run>>();
  #insertionsSinceSweep = 0;

  constructor(options: RunTableOptions<Run>) {
    this.#options = options;
  }

  /** How many runs are in memory, expired ones that were not swept yet among them. */
  get size(): number {
    return this.#entries.size;
  }

  /**
   * The run, which is now the most recently used one, or `undefined` where it is unknown or has
   * expired.
   */
  get(key: string): Run | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (entry.run.expiresAt <= this.#options.now()) {
      this.#remove(entry);
      return undefined;
    }
    entry.order.touch(entry);
    return entry.run;
  }

  /**
   * Replaces what is under the key. A new key frees expired runs, and evicts another run where the
   * table is full.
   */
  set(key: string, run: Run): void {
    const known = this.#entries.get(key);
    if (known !== undefined) {
      known.run = run;
      known.order.touch(known);
      return;
    }
    this.#insertionsSinceSweep += 1;
    if (this.#insertionsSinceSweep >= this.size * SWEEP_SHARE) this.#sweep();
    this.#evict();
    // With all of its members from the start, so that every entry has one shape.
    const order = this.#order.of(this.#options.isOwned?.(run) === true);
    const entry: RunEntry<Run> = { key, run, order, older: undefined, newer: undefined };
    this.#entries.set(key, entry);
    order.touch(entry);
  }

  delete(key: string): void {
    const entry = this.#entries.get(key);
    if (entry !== undefined) this.#remove(entry);
  }

  /** All runs that have not expired. Being looked at so is no use of them. */
  *entries(): Generator<readonly [key: string, run: Run]> {
    const now = this.#options.now();
    for (const { key, run } of this.#entries.values()) if (run.expiresAt > now) yield [key, run];
  }

  #sweep(): void {
    this.#insertionsSinceSweep = 0;
    const now = this.#options.now();
    for (const entry of this.#entries.values()) if (entry.run.expiresAt <= now) this.#remove(entry);
  }

  /**
   * A pinned run counts as used. Where all that were looked at are pinned the table grows, until
   * later insertions.
   */
  #evict(): void {
    const { maxRuns, now, isPinned } = this.#options;
    for (const order of this.#order.inTurn) {
      for (let looks = 0; looks < LOOKS && this.size >= maxRuns; looks += 1) {
        const { oldest } = order;
        if (oldest === undefined) break;
        if (isPinned(oldest.run, now())) order.touch(oldest);
        else this.#remove(oldest);
      }
    }
  }

  #remove(entry: RunEntry<Run>): void {
    this.#entries.delete(entry.key);
    entry.order.remove(entry);
  }
}
