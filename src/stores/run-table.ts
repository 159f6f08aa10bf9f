/** What the table has to know of a run. */
export interface Expiring {
  /** Milliseconds since the epoch, on the table's clock. From then on the run is unknown. */
  readonly expiresAt: number;
}

export interface RunTableOptions<Run> {
  /** How many runs are kept, as long as enough of them may be evicted. */
  readonly maxRuns: number;
  readonly now: () => number;
  /** A run that must not be evicted yet. */
  readonly isPinned: (run: Run, now: number) => boolean;
}

/** A run between its neighbours in the order of use: the table's ring links the newest one to the oldest. */
interface Entry<Run> {
  readonly key: string;
  run: Run;
  older: Entry<Run>;
  newer: Entry<Run>;
}

/** How many runs an insertion may look at to find one to evict. */
const LOOKS = 8;

/** A sweep looks at every run, and comes once in so many insertions per run: each insertion pays for four looks. */
const SWEEP_SHARE = 1 / 4;

/**
 * Runs by their key, and in the order of their last use. An expired run is not there; its memory is freed by later
 * insertions, so that no timer is needed.
 *
 * The order is a linked ring, since the order of a `Map` costs a search through its deleted entries at each eviction.
 */
export class RunTable<Run extends Expiring> {
  readonly #entries = new Map<string, Entry<Run>>();
  readonly #options: RunTableOptions<Run>;
  #oldest: Entry<Run> | undefined;
  #insertionsSinceSweep = 0;

  constructor(options: RunTableOptions<Run>) {
    this.#options = options;
  }

  /** How many runs are in memory, expired ones that were not swept yet among them. */
  get size(): number {
    return this.#entries.size;
  }

  /** The run, which is now the most recently used one, or `undefined` where it is unknown or has expired. */
  get(key: string): Run | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (entry.run.expiresAt <= this.#options.now()) {
      this.#remove(entry);
      return undefined;
    }
    this.#touch(entry);
    return entry.run;
  }

  /** Replaces what is under the key. A new key frees expired runs, and evicts another run where the table is full. */
  set(key: string, run: Run): void {
    const known = this.#entries.get(key);
    if (known !== undefined) {
      known.run = run;
      this.#touch(known);
      return;
    }
    this.#insertionsSinceSweep += 1;
    if (this.#insertionsSinceSweep >= this.size * SWEEP_SHARE) this.#sweep();
    this.#evict();
    const entry = { key, run } as Entry<Run>;
    this.#entries.set(key, entry);
    this.#link(entry);
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

  /** A pinned run counts as used. Where all that were looked at are pinned the table grows, until later insertions. */
  #evict(): void {
    const { maxRuns, now, isPinned } = this.#options;
    for (let looks = 0; looks < LOOKS && this.size >= maxRuns; looks += 1) {
      const oldest = this.#oldest;
      if (oldest === undefined) return;
      if (isPinned(oldest.run, now())) this.#touch(oldest);
      else this.#remove(oldest);
    }
  }

  #remove(entry: Entry<Run>): void {
    this.#entries.delete(entry.key);
    this.#unlink(entry);
  }

  #touch(entry: Entry<Run>): void {
    this.#unlink(entry);
    this.#link(entry);
  }

  /** Makes the entry the newest one. */
  #link(entry: Entry<Run>): void {
    const oldest = this.#oldest ?? entry;
    const newest = this.#oldest?.older ?? entry;
    entry.newer = oldest;
    entry.older = newest;
    oldest.older = entry;
    newest.newer = entry;
    this.#oldest = oldest;
  }

  #unlink(entry: Entry<Run>): void {
    const { older, newer } = entry;
    older.newer = newer;
    newer.older = older;
    if (this.#oldest === entry) this.#oldest = newer === entry ? undefined : newer;
  }
}
