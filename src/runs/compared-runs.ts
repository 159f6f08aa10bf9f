/**
 * Two gates, asked about the same runs: what each run may do before and after. Hides when a tool of
 * the one is a tool of the other, and what remains open where functions have a say.
 */
import { decide, type Sources } from '../gate/decide.ts';
import { Standing } from '../gate/standing.ts';
import type { FoundRun, FsmSnapshot } from '../stores/store.ts';
import { compareDecimals } from '../workflow/decimal.ts';
import type { CheckedLimit } from '../workflow/limits.ts';
import { limitNote } from '../workflow/rule-words.ts';
import { leavesOf } from '../workflow/rules.ts';
import { countedBy, type Tally } from '../workflow/verdict.ts';
import type { Workflow } from '../workflow/workflow.ts';

/** Some of the runs that a gate is asked about. */
export interface SomeRuns {
  readonly runs: number;
  /** Up to three of them: `runDigest()` of their keys, by which events name them too. */
  readonly such: readonly string[];
}

/** What two gates say of one tool, in all runs that both can read. */
export interface ComparedTool {
  /** Its name in the gate from before; of a tool that only the new gate binds, its name there. */
  readonly tool: string;
  /** Its name in the new gate, where that is another one. */
  readonly now?: string;
  /**
   * Which gate binds it. A tool that a gate does not bind may be called in any run, as far as that
   * gate is concerned.
   */
  readonly boundBy: 'both' | 'before' | 'after';
  /** In how many runs some call of it was allowed before. */
  readonly before: number;
  /** In how many runs some call of it is allowed after. */
  readonly after: number;
  /** The runs in which it was allowed before, and is not after. */
  readonly closed: SomeRuns;
  /** The runs in which it is allowed after, and was not before. */
  readonly opened: SomeRuns;
  /** The functions that have a say in it after and had none before, or the other way round. */
  readonly perhaps?: readonly string[];
}

/** A limit that does not go on with what it has counted. */
export interface ComparedLimit {
  /** The tool, as in {@link ComparedTool}. */
  readonly tool: string;
  /** The limit in words. */
  readonly limit: string;
  /**
   * `anew`: the new gate counts less than the one before, so that its calls have a larger budget.
   * `gone`: the new gate has no limit of that kind on the tool. `closed`: it must count calls whose
   * values are not known, and refuses each call until they are too old. `moved`: the new gate keeps
   * its calls under another old name. It counts them, and the gate from before, rolled back, does
   * not find them: its budget begins anew then.
   */
  readonly change: 'anew' | 'gone' | 'closed' | 'moved';
  readonly runs: SomeRuns;
}

/** What depends on the run's state and its calls. What is under way passes. */
const LASTING: Sources = ['state', 'rules', 'machine'];

const MOST_SUCH = 3;

/**
 * Where a run stands by a gate, also where it is held or frozen.
 *
 * @param read its snapshot, as the gate understands it
 * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where the gate does not understand the run
 */
export function standingBy(
  workflow: Workflow,
  { run, claim, unsettled }: FoundRun,
  read: FsmSnapshot,
  now: number,
): Standing {
  const { updatedAt, version = 0 } = read;
  const position = workflow.rules.standAt(read, now);
  const expiry = workflow.overdue({ ...position, updatedAt }, now);
  const rules = { workflow, whenEnded: undefined, onError: () => {} };
  const parts = { updatedAt, version, claim, unsettled, now, expiry };
  const stood = new Standing(rules, { run, actor: undefined }, position, parts);
  if (!workflow.hides) return stood;
  // The app's `visible` is about a client, and no client asks.
  const seen = workflow.available(stood.state);
  return new Standing(rules, stood.viewpoint, position, { ...parts, seen });
}

/** The runs of a list, as a gate from before and a new one take them. */
export class ComparedRuns {
  readonly #old: Workflow;
  readonly #new: Workflow;
  readonly #tools: ReadonlyMap<string, ToolRow>;
  readonly #limits = new Map<string, LimitRow>();

  constructor(old: Workflow, workflow: Workflow) {
    this.#old = old;
    this.#new = workflow;
    const rows = old.toolNames.map((tool) => this.#rowOf(tool));
    const known = new Set(rows.map(({ now, tool }) => now ?? tool));
    const added = workflow.toolNames.filter((tool) => !known.has(tool));
    this.#tools = new Map([
      ...rows.map((row) => [row.tool, row] as const),
      ...added.map((tool) => [tool, newRow(tool, 'after')] as const),
    ]);
  }

  /** @param run its digest */
  add(before: Standing, after: Standing, run: string): void {
    for (const row of this.#tools.values()) {
      const { tool, now = tool } = row;
      const [was, is] = [isAllowed(before, tool), isAllowed(after, now)];
      if (was) row.before++;
      if (is) row.after++;
      if (was && !is) addTo(row.closed, run);
      if (is && !was) addTo(row.opened, run);
      this.#compareLimits(tool, now, before, after, run);
    }
  }

  /** The tools of which anything is different, those of most runs first. */
  get tools(): readonly ComparedTool[] {
    const changed = ({ closed, opened }: ToolRow): number => closed.runs + opened.runs;
    return [...this.#tools.values()]
      .filter((row) => changed(row) > 0 || row.boundBy !== 'both' || row.perhaps !== undefined)
      .sort((a, b) => changed(b) - changed(a));
  }

  get limits(): readonly ComparedLimit[] {
    return [...this.#limits.values()].sort((a, b) => b.runs.runs - a.runs.runs);
  }

  #rowOf(tool: string): ToolRow {
    if (!this.#new.isBound(tool)) return newRow(tool, 'before');
    const now = this.#new.keyOf(tool);
    const [before, after] = [functionsOf(this.#old, tool), functionsOf(this.#new, now)];
    const differing = [
      ...before.filter((each) => !after.includes(each)),
      ...after.filter((each) => !before.includes(each)),
    ];
    return {
      ...newRow(tool, 'both'),
      ...(now !== tool && { now }),
      ...(differing.length > 0 && { perhaps: [...new Set(differing)] }),
    };
  }

  /** @param now the tool's name in the new gate */
  #compareLimits(
    tool: string,
    now: string,
    { past: before }: Standing,
    { past: after }: Standing,
    run: string,
  ): void {
    const olds = this.#old.isBound(tool) ? this.#old.rules.limitsOf(tool) : [];
    const news = this.#new.isBound(now) ? this.#new.rules.limitsOf(now) : [];
    const isMoved = this.#old.renamings.savedOf(tool) !== this.#new.renamings.savedOf(now);
    const note = (limit: CheckedLimit, change: ComparedLimit['change']): void => {
      const words = limitNote(limit);
      const key = JSON.stringify([tool, words, change]);
      const row = this.#limits.get(key) ?? { tool, limit: words, change, runs: noRuns() };
      this.#limits.set(key, row);
      addTo(row.runs, run);
    };
    for (const limit of olds) {
      const had = before && countedBy(limit, before);
      if (had === undefined || had.calls === 0) continue;
      if (isMoved) note(limit, 'moved');
      const alike = news.filter((each) => (each.sum === undefined) === (limit.sum === undefined));
      const has = alike.map((each) => after && countedBy(each, after));
      if (alike.length === 0) note(limit, 'gone');
      else if (has.every((each) => each === undefined || isLess(each, had))) note(limit, 'anew');
    }
    for (const limit of news) {
      if (limit.sum === undefined || after === undefined) continue;
      const { calls, amount } = countedBy(limit, after);
      if (calls === 0 || amount !== undefined) continue;
      const wasClosed = olds.some(
        (each) => each.sum && before && countedBy(each, before).amount === undefined,
      );
      if (!wasClosed) note(limit, 'closed');
    }
  }
}

type Mutable<Row> = { -readonly [Name in keyof Row]: Row[Name] };
interface CountedRuns extends SomeRuns {
  runs: number;
  readonly such: string[];
}
type ToolRow = Mutable<ComparedTool> & { readonly closed: CountedRuns; opened: CountedRuns };
type LimitRow = ComparedLimit & { readonly runs: CountedRuns };

function noRuns(): CountedRuns {
  return { runs: 0, such: [] };
}

function addTo(some: CountedRuns, run: string): void {
  some.runs++;
  if (some.such.length < MOST_SUCH) some.such.push(run);
}

function newRow(tool: string, boundBy: ComparedTool['boundBy']): ToolRow {
  return { tool, boundBy, before: 0, after: 0, closed: noRuns(), opened: noRuns() };
}

/** Whether some call of the tool goes on, as far as is known without its arguments. */
function isAllowed(standing: Standing, tool: string): boolean {
  const { workflow } = standing;
  return !workflow.isBound(tool) || decide(standing, { tool }, LASTING) === undefined;
}

/** Whether a limit counts less than another one. Amounts that are not known are no less. */
function isLess(one: Tally, other: Tally): boolean {
  if (one.calls === 0) return true;
  if (other.amount === undefined) return one.calls < other.calls;
  if (one.amount === undefined) return false;
  return compareDecimals(one.amount, other.amount) < 0;
}

/** The functions that have a say in a tool's calls beside what is known without their arguments. */
function functionsOf(workflow: Workflow, tool: string): readonly string[] {
  return workflow.bindingsOf(tool).flatMap(({ guard, visible, when, demands }) => {
    const { after, notAfter = [], limits = [] } = demands ?? {};
    const asked = [...leavesOf(after), ...notAfter, ...limits].map((each) => each.when?.said);
    const named = { guard, visible, when };
    return [
      ...Object.entries(named).flatMap(([place, each]) => (each ? [nameOf(place, each)] : [])),
      ...asked.flatMap((each) => (typeof each === 'function' ? [nameOf('when', each)] : [])),
    ];
  });
}

function nameOf(place: string, { name }: Pick<CallableFunction, 'name'>): string {
  return name === '' || name === place ? place : `${place} ${name}`;
}
