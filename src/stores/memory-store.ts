/**
 * The memory store, and the table in which it keeps runs. Hides their order of use, by which the
 * table makes room for new ones.
 */
import { type Placed, putNewest, UseOrder } from '../basics/clock.ts';
import { anonymousKey } from '../basics/names.ts';
import type { IndexPlace } from './document/documents.ts';
import { byPlace, entriesOf, type RunsFind } from './document/run-parts.ts';
import { type Operation, RulebookStore } from './rulebook.ts';
import { hasBegun, isEvicted, isNeeded, type RunState, type WorkflowState } from './run-life.ts';
import { type ListSource, listsOf, type SeenRun } from './run-lists.ts';
import { anonymized, lastEntries, tombstone } from './run-state.ts';
import type { RunKey, SwitchRecord, TrailEntry } from './store.ts';
import { copyJson } from './trail.ts';

/** How many evicted runs the store knows, for each run that it keeps. */
const EVICTED_SHARE = 10;

export interface MemoryStoreSettings {
  readonly maxRuns: number;
  readonly now: () => number;
  readonly chainTrail: boolean;
}

interface KeptRun extends RunState {
  readonly workflows: Map<string, WorkflowState>;
  released: RunState['released'];
  expiresAt: number;
  sessionEnded: RunState['sessionEnded'];
}

/** A run here always gets its whole time to live, since writing it costs nothing. */
const ALL = 1;

/** Each method does all of its work before it first yields, which is what makes it atomic. */
export class MemoryStore extends RulebookStore {
  readonly #runs: RunTable<KeptRun>;
  readonly #now: () => number;
  readonly #switches = new Map<string, SwitchRecord>();
  /** When each evicted run would have expired. */
  readonly #evicted = new Map<string, number>();
  readonly #mostEvicted: number;

  constructor({ maxRuns, now, chainTrail }: MemoryStoreSettings) {
    super(chainTrail, ALL);
    const onEvict = (key: string, run: KeptRun) => {
      // One that was opened never begins anew.
      if (run.openedBy === undefined && hasBegun(run)) this.#bury(key, run.expiresAt);
    };
    this.#runs = new RunTable({ maxRuns, now, isNeeded, rankOf, onEvict });
    this.#now = now;
    this.#mostEvicted = maxRuns * EVICTED_SHARE;
    const look = async (keys: readonly string[]) => keys.map((key) => this.#seen(key));
    const lists = { index: this.#index(), look, atOnce: Infinity, now: async () => this.#now() };
    Object.assign(this, listsOf(lists));
  }

  protected async change<Result>(key: string, operation: Operation<Result>): Promise<Result> {
    const known = this.#runs.get(key) ?? this.#buried(key);
    const changed = operation(known, this.#now());
    const { made, workflow, next, released, life } = changed;
    if (changed.isRemoved || made) {
      this.#runs.delete(key);
      this.#evicted.delete(key);
    }
    if (made && isEvicted(made)) {
      this.#bury(key, made.expiresAt);
      return changed.result;
    }
    const run = made ? this.#make(key, made) : known;
    if (run === undefined) return changed.result;
    if (next && workflow !== undefined) run.workflows.set(workflow, next);
    if (released) run.released = released;
    if (life) {
      run.expiresAt = life.expiresAt;
      run.sessionEnded = life.sessionEnded;
    }
    return changed.result;
  }

  async anonymize(key: string): Promise<string | undefined> {
    const run = this.#runs.get(key);
    const unnamed = anonymousKey();
    const now = this.#now();
    const changed = run && anonymized(run, unnamed, now);
    if (!changed) return undefined;
    this.#runs.delete(key);
    const workflows = new Map(changed.workflows);
    const life = { sessionEnded: true, expiresAt: now };
    this.#runs.set(unnamed, { ...run, ...changed, released: undefined, workflows, ...life });
    return unnamed;
  }

  async readSwitch(workflow: string): Promise<SwitchRecord | undefined> {
    return this.#switches.get(workflow);
  }

  async swapSwitch(
    workflow: string,
    expected: string | undefined,
    { value, revision }: SwitchRecord,
  ): Promise<boolean> {
    const known = this.#switches.get(workflow)?.revision;
    if (known !== expected) return known === revision;
    this.#switches.set(workflow, Object.freeze({ value: copyJson(value), revision }));
    return true;
  }

  async history({ run, workflow: name }: RunKey, limit = 50): Promise<TrailEntry[]> {
    return lastEntries(this.#runs.get(run)?.workflows.get(name), limit);
  }

  /** Goes through all runs, of which there are few. */
  #index(): ListSource['index'] {
    return {
      find: async (query) => {
        const { after, limit } = query;
        const places = this.#entries(query).filter(
          (place) => after === undefined || byPlace(after, place) < 0,
        );
        return places.sort(byPlace).slice(0, limit);
      },
      count: async ({ upTo, ...list }) => {
        const tallies = new Map<string, { label: string; entries: number; upTo: number }>();
        for (const { label, score } of this.#entries({ ...list, upTo: Infinity })) {
          const tally = tallies.get(label) ?? { label, entries: 0, upTo: 0 };
          tally.entries++;
          if (score <= upTo) tally.upTo++;
          tallies.set(label, tally);
        }
        return [...tallies.values()];
      },
      purge: async (principal) =>
        this.#runs.sweep(
          ({ session }) => principal === undefined || session.principal === principal,
        ),
    };
  }

  #entries({ kind, of, labels, upTo }: Pick<RunsFind, 'kind' | 'of' | 'labels' | 'upTo'>) {
    const places: (IndexPlace & { readonly label: string })[] = [];
    for (const [key, run] of this.#runs.entries())
      for (const { label, score } of entriesOf(run, { kind, of }))
        if (score <= upTo && (labels?.includes(label) ?? true)) places.push({ key, label, score });
    return places;
  }

  #seen(key: string): SeenRun {
    const kept = this.#runs.peek(key);
    const run = kept && { ...kept, run: key };
    return { run, isGone: kept === undefined, now: this.#now() };
  }

  #bury(key: string, expiresAt: number): void {
    putNewest(this.#evicted, key, expiresAt, this.#mostEvicted);
  }

  /** What is left of an evicted run, until it would have expired. */
  #buried(key: string): KeptRun | undefined {
    const expiresAt = this.#evicted.get(key);
    if (expiresAt === undefined) return undefined;
    if (expiresAt > this.#now())
      return {
        ...tombstone(expiresAt),
        ...{ workflows: new Map(), released: undefined, sessionEnded: 'evicted' },
      };
    this.#evicted.delete(key);
    return undefined;
  }

  #make(key: string, { session, openedBy, expiresAt }: RunState): KeptRun {
    const life = { expiresAt, sessionEnded: undefined };
    const run = { session, openedBy, workflows: new Map(), released: undefined, ...life };
    this.#runs.set(key, run);
    return run;
  }
}

/** Runs that the next call begins anew as they are make way first, and those of principals last. */
function rankOf(run: KeptRun): number {
  if (run.openedBy === undefined && !hasBegun(run)) return 0;
  return run.session.principal === undefined ? 1 : 2;
}

/** What the table needs of a run. */
interface Expiring {
  /** Milliseconds since the epoch, by the table's clock. From then on the run may be unknown. */
  readonly expiresAt: number;
}

interface RunTableOptions<Run> {
  /** How many runs the table keeps, as long as enough of them are not needed. */
  readonly maxRuns: number;
  readonly now: () => number;
  /** Whether the table must keep the run, though it has expired or should make way. */
  readonly isNeeded: (run: Run, now: number) => boolean;
  /** The table evicts runs of a higher rank later. Below {@link RANKS}. Default 0. */
  readonly rankOf?: (run: Run) => number;
  /** The run has made way for another one. */
  readonly onEvict?: (key: string, run: Run) => void;
}

interface RunEntry<Run> extends Placed<RunEntry<Run>> {
  readonly key: string;
  order: UseOrder<RunEntry<Run>>;
  run: Run;
}

const RANKS = 3;

/** How many runs of each rank an insertion looks at to find one that it may evict. */
const LOOKS = 8;

/**
 * A sweep looks at every run. It comes after so many insertions for each run in the table, so an
 * insertion costs four looks on average.
 */
const SWEEP_SHARE = 1 / 4;

/**
 * Runs by their key, and in the order of their last use. An expired run counts as absent. Later
 * insertions free its memory, so the table needs no timer.
 */
export class RunTable<Run extends Expiring> {
  readonly #entries = new Map<string, RunEntry<Run>>();
  readonly #options: RunTableOptions<Run>;
  /** By rank. */
  readonly #orders = Array.from({ length: RANKS }, () => new UseOrder<RunEntry<Run>>());
  #insertionsSinceSweep = 0;

  constructor(options: RunTableOptions<Run>) {
    this.#options = options;
  }

  /** How many runs are in memory, including expired ones that no sweep has removed yet. */
  get size(): number {
    return this.#entries.size;
  }

  /** The run, which becomes the most recently used one; `undefined` if unknown or expired. */
  get(key: string): Run | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (this.#isGone(entry.run, this.#options.now())) {
      this.#remove(entry);
      return undefined;
    }
    this.#place(entry);
    return entry.run;
  }

  /** The run, as {@link get} gives it. This does not count as a use. */
  peek(key: string): Run | undefined {
    const run = this.#entries.get(key)?.run;
    return run === undefined || this.#isGone(run, this.#options.now()) ? undefined : run;
  }

  /** Replaces the run under the key. A new key may make a full table evict another run. */
  set(key: string, run: Run): void {
    const known = this.#entries.get(key);
    if (known !== undefined) {
      known.run = run;
      this.#place(known);
      return;
    }
    this.#insertionsSinceSweep += 1;
    if (this.#insertionsSinceSweep >= this.size * SWEEP_SHARE) this.sweep();
    this.#evict();
    // With all members from the start, so that all entries have one hidden class.
    const order = this.#orderOf(run);
    const entry: RunEntry<Run> = { key, run, order, older: undefined, newer: undefined };
    this.#entries.set(key, entry);
    order.touch(entry);
  }

  delete(key: string): void {
    const entry = this.#entries.get(key);
    if (entry !== undefined) this.#remove(entry);
  }

  /** All runs that have not expired. This does not count as a use. */
  *entries(): Generator<readonly [key: string, run: Run]> {
    const now = this.#options.now();
    for (const { key, run } of this.#entries.values())
      if (!this.#isGone(run, now)) yield [key, run];
  }

  /** Frees the memory of expired runs, and gives their number. */
  sweep(isMeant: (run: Run) => boolean = () => true): number {
    this.#insertionsSinceSweep = 0;
    const now = this.#options.now();
    let swept = 0;
    for (const entry of this.#entries.values()) {
      if (!this.#isGone(entry.run, now) || !isMeant(entry.run)) continue;
      this.#remove(entry);
      swept++;
    }
    return swept;
  }

  #isGone(run: Run, now: number): boolean {
    return run.expiresAt <= now && !this.#options.isNeeded(run, now);
  }

  /** A run that is needed counts as used. If it finds only such runs, the table grows for now. */
  #evict(): void {
    const { maxRuns, now, isNeeded, onEvict } = this.#options;
    for (const order of this.#orders) {
      for (let looks = 0; looks < LOOKS && this.size >= maxRuns; looks += 1) {
        const { oldest } = order;
        if (oldest === undefined) break;
        if (this.#orderOf(oldest.run) !== order) this.#place(oldest);
        else if (isNeeded(oldest.run, now())) order.touch(oldest);
        else {
          this.#remove(oldest);
          onEvict?.(oldest.key, oldest.run);
        }
      }
    }
  }

  #orderOf(run: Run): UseOrder<RunEntry<Run>> {
    return this.#orders[this.#options.rankOf?.(run) ?? 0] as UseOrder<RunEntry<Run>>;
  }

  /** Makes it the newest of its rank, which may have changed. */
  #place(entry: RunEntry<Run>): void {
    entry.order.remove(entry);
    entry.order = this.#orderOf(entry.run);
    entry.order.touch(entry);
  }

  #remove(entry: RunEntry<Run>): void {
    this.#entries.delete(entry.key);
    entry.order.remove(entry);
  }
}
