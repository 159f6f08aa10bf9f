/**
 * The memory store, and the table in which it keeps runs. Hides their order of use, by which the
 * table makes room for new ones.
 */
import { type Placed, putNewest, UseOrder } from '../basics/clock.ts';
import { anonymousKey } from '../basics/names.ts';
import { type Operation, RulebookStore } from './rulebook.ts';
import {
  hasBegun,
  hasSessionEnded,
  isEvicted,
  isNeeded,
  type RunState,
  type WorkflowState,
} from './run-life.ts';
import {
  anonymized,
  lastEntries,
  tombstone,
  unsettledIn,
  unsettledSince,
  workflowRecord,
} from './run-state.ts';
import type {
  CountQuery,
  HeldQuery,
  KeysPage,
  ListQuery,
  PageQuery,
  PurgeQuery,
  RunKey,
  RunsCount,
  RunsPage,
  RunsQuery,
  StuckQuery,
  SwitchRecord,
  TrailEntry,
} from './store.ts';
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

  async purge({ principal }: PurgeQuery = {}): Promise<number> {
    return this.#runs.sweep(
      ({ session }) => principal === undefined || session.principal === principal,
    );
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

  async *runs({ workflow: name, state, forMs = 0 }: RunsQuery): AsyncGenerator<string> {
    const latest = this.#now() - forMs;
    const found: { readonly key: string; readonly since: number }[] = [];
    for (const [key, { workflows }] of this.#runs.entries()) {
      const snapshot = workflows.get(name)?.snapshot;
      if (snapshot?.state !== state || snapshot.updatedAt > latest) continue;
      found.push({ key, since: snapshot.updatedAt });
    }
    for (const { key } of found.sort((a, b) => a.since - b.since)) yield key;
  }

  async held({ workflow, ...page }: HeldQuery): Promise<RunsPage> {
    const now = this.#now();
    return this.#page(page, now, workflow, ({ claim }) => {
      const isHeld = claim?.uncertain === 'hold' && claim.leaseEnd <= now;
      return isHeld ? claim.leaseEnd : undefined;
    });
  }

  async unsettled({ workflow, ...page }: HeldQuery): Promise<RunsPage> {
    const now = this.#now();
    return this.#page(page, now, workflow, (each) =>
      unsettledIn(each, now).length > 0 ? unsettledSince(each) : undefined,
    );
  }

  async stuck({ workflow, states, forMs, ...page }: StuckQuery): Promise<RunsPage> {
    const now = this.#now();
    return this.#page(page, now, workflow, ({ snapshot: { state, updatedAt }, ended }) => {
      const isStuck = !ended && updatedAt <= now - forMs && (states?.includes(state) ?? true);
      return isStuck ? updatedAt : undefined;
    });
  }

  async count({ workflow: name, forMs }: CountQuery): Promise<RunsCount> {
    const now = this.#now();
    const states = new Map<string, { runs: number; stuck: number }>();
    let held = 0;
    let unsettled = 0;
    let running = 0;
    let oldestClaim: number | undefined;
    for (const [, { workflows }] of this.#runs.entries()) {
      const workflow = workflows.get(name);
      if (workflow === undefined) continue;
      const { snapshot, claim, ended } = workflow;
      if (unsettledIn(workflow, now).length > 0) unsettled++;
      if (claim !== undefined) {
        if (claim.leaseEnd > now) running++;
        else if (claim.uncertain === 'hold') held++;
        oldestClaim = Math.min(oldestClaim ?? claim.since, claim.since);
      }
      if (ended) continue;
      const counted = states.get(snapshot.state) ?? { runs: 0, stuck: 0 };
      counted.runs++;
      if (snapshot.updatedAt <= now - forMs) counted.stuck++;
      states.set(snapshot.state, counted);
    }
    return {
      states: [...states].map(([state, counts]) => ({ state, ...counts })),
      held,
      unsettled,
      running,
      ...(oldestClaim !== undefined && { oldestClaim }),
      now,
    };
  }

  async list({ principal, limit, after }: ListQuery): Promise<KeysPage> {
    const runs: string[] = [];
    for (const [key, { session }] of this.#runs.entries())
      if (session.principal === principal && (after === undefined || key > after)) runs.push(key);
    const given = runs.sort().slice(0, limit);
    return { runs: given, ...(runs.length > limit && { next: given.at(-1) ?? '' }) };
  }

  /** A page of the runs that have a score, in the order of their scores. */
  #page(
    { limit, after }: PageQuery,
    now: number,
    name: string,
    scoreOf: (workflow: WorkflowState) => number | undefined,
  ): RunsPage {
    const found: {
      readonly score: number;
      readonly run: string;
      readonly workflow: WorkflowState;
      readonly isOver: boolean;
    }[] = [];
    for (const [run, kept] of this.#runs.entries()) {
      const workflow = kept.workflows.get(name);
      const score = workflow && scoreOf(workflow);
      const isOver = hasSessionEnded(kept, now);
      if (workflow !== undefined && score !== undefined)
        found.push({ score, run, workflow, isOver });
    }
    found.sort((a, b) => a.score - b.score || (a.run < b.run ? -1 : 1));
    const { score = Number.NEGATIVE_INFINITY, run = '' } =
      after === undefined ? {} : parsePlace(after);
    const rest = found.filter(
      (each) => each.score > score || (each.score === score && each.run > run),
    );
    const given = rest.slice(0, limit);
    const last = given.at(-1);
    return {
      runs: given.map(({ run: key, workflow, isOver }) => ({
        run: key,
        ...workflowRecord(workflow, now),
        ...(isOver && { sessionEnded: true as const }),
      })),
      ...(last !== undefined &&
        rest.length > limit && { next: JSON.stringify([last.score, last.run]) }),
      now,
    };
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

/** Where the page before ended. */
function parsePlace(after: string): { readonly score: number; readonly run: string } {
  const [score, run] = JSON.parse(after) as [number, string];
  return { score, run };
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
