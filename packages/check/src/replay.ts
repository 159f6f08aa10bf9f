/**
 * Plays recorded calls through a gate, without a server. Hides in which order the lines of several
 * processes happened, and which runs have to be in memory.
 */
import {
  byTime,
  callIn,
  type EndLine,
  FollowedRun,
  type FollowedStep,
  type FollowedVerdict,
  NotRecorded,
  type Outcome,
  parseCallLine,
  partsToReport,
  RecordedArguments,
  type RecordedLine,
  RecordedReader,
  type StandingRules,
  type StartLine,
  ToolQuestion,
  type Workflow,
} from '../../../src/internal.ts';

/** Options of `replayCalls()`. */
export interface ReplayOptions {
  /**
   * Gives the lines of the recording, from the start each time. It is asked twice, so that a run
   * can be forgotten once its last line is played.
   */
  readonly lines: () => AsyncIterable<string> | Iterable<string>;
  /** Called now and then with the number of lines read, in both readings together. */
  readonly onProgress?: ((lines: number) => void) | undefined;
}

/** The runs that meet the same first refusal. */
export interface ReplayedRefusal {
  readonly tool: string;
  readonly reason: string;
  /** The state in which the run is then. */
  readonly state: string;
  /** What the parts of its rule say. */
  readonly says: readonly string[];
  readonly runs: number;
  /** The commonest ways there, the first one first: which tools were called before. */
  readonly histories: readonly ReplayedHistory[];
}

export interface ReplayedHistory {
  /** The calls before it, as `search ×3`. The last ones, where they are many. */
  readonly calls: readonly string[];
  readonly runs: number;
  /** One of the runs, by its digest. */
  readonly run: string;
}

/** What the recording does not say. */
export interface ReplayedDoubt {
  readonly tool: string;
  /** `guard`: a guard is asked. `values`: values that are not in clear. `outcome`: what follows. */
  readonly why: string;
  readonly calls: number;
  /** One of the runs, by its digest. */
  readonly run: string;
}

/** What a gate would have made of recorded calls. */
export interface Replay {
  /** The workflow's id. */
  readonly workflow: string;
  /** The calls of runs, bound or not. */
  readonly calls: number;
  readonly runs: number;
  /** The runs that would have met a refusal. */
  readonly refused: number;
  /** The other runs of which a call would have waited for another one. */
  readonly waited: number;
  /** The other runs of which the recording leaves something open. */
  readonly unknown: number;
  /** How many runs come to an end of the workflow. */
  readonly ended: number;
  /** The calls that would have waited for another one, in all runs. */
  readonly waits: number;
  /** By first refusals. What follows one is another run than the recorded one. */
  readonly refusals: readonly ReplayedRefusal[];
  readonly doubts: readonly ReplayedDoubt[];
  /** The bound tools that were called, and of which no call was refused. */
  readonly neverRefused: readonly string[];
  /** The bound tools that were never called. */
  readonly neverCalled: readonly string[];
  /** The calls that name no run. They are not judged. */
  readonly withoutRun: number;
  /** The lines that are none, and those that the recorder dropped. */
  readonly unreadable: number;
  readonly dropped: number;
}

/** The runs on which two gates differ. */
export interface ReplayDifference {
  /** What the other gate, and this one, say first. `undefined`: no refusal. */
  readonly before: FirstRefusal | undefined;
  readonly after: FirstRefusal | undefined;
  readonly runs: number;
  /** One of the runs, by its digest. */
  readonly run: string;
}

export interface FirstRefusal {
  readonly tool: string;
  readonly reason: string;
  readonly state: string;
}

const HISTORIES = 3;
const LONGEST_HISTORY = 12;
/** Beyond that, rare rows and histories are counted together. */
const MOST_ROWS = 1_000;
const PROGRESS_EACH = 10_000;

/**
 * @param other a gate to compare with
 * @throws what `lines` throws
 */
export async function replay(
  workflow: Workflow,
  { lines, onProgress }: ReplayOptions,
  other?: Workflow,
): Promise<{ readonly replay: Replay; readonly differences: readonly ReplayDifference[] }> {
  let read = 0;
  const progress = (): void => {
    if (++read % PROGRESS_EACH === 0) onProgress?.(read);
  };
  const left = new Lines();
  for await (const text of lines()) {
    progress();
    left.add(text);
  }
  const player = new Player(workflow, other, left);
  for await (const line of inOrder(lines(), left.instances, progress)) player.play(line);
  return player.finish();
}

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

type AnyLine = ReturnType<typeof parseCallLine>;

/** How many lines each run has: after the last one it can be forgotten. */
class Lines {
  readonly #runs = new Map<string, number>();
  readonly #open = new Map<string, string>();
  readonly #instances = new Set<string>();
  #read = 0;

  add(text: string): void {
    const line = parseCallLine(text, ++this.#read);
    if (line.type !== 'start' && line.type !== 'end') return;
    this.#instances.add(line.instance);
    const call = callIn(line);
    if (line.type === 'start' && line.run !== undefined) this.#open.set(call, line.run);
    const run = this.#open.get(call);
    if (run === undefined) return;
    if (line.type === 'end') this.#open.delete(call);
    this.#runs.set(run, (this.#runs.get(run) ?? 0) + 1);
  }

  /** How many processes wrote the recording. */
  get instances(): number {
    return this.#instances.size;
  }

  /** Takes one line of a run away; `true` where it was its last one. */
  take(run: string): boolean {
    const left = (this.#runs.get(run) ?? 1) - 1;
    if (left > 0) this.#runs.set(run, left);
    else this.#runs.delete(run);
    return left === 0;
  }
}

/** So many lines are sorted at once: processes write their lines in batches. */
const SORTED_AT_ONCE = 20_000;

/** The lines as they happened. Those of one process are in order already. */
async function* inOrder(
  texts: AsyncIterable<string> | Iterable<string>,
  instances: number,
  progress: () => void,
): AsyncGenerator<AnyLine> {
  let number = 0;
  let waiting: RecordedLine[] = [];
  for await (const text of texts) {
    progress();
    const line = parseCallLine(text, ++number);
    if (line.type === 'unreadable' || instances < 2) yield line;
    else {
      waiting.push(line);
      if (waiting.length < SORTED_AT_ONCE) continue;
      waiting.sort(byTime);
      yield* waiting.slice(0, SORTED_AT_ONCE / 2);
      waiting = waiting.slice(SORTED_AT_ONCE / 2);
    }
  }
  yield* waiting.sort(byTime);
}

/** One run as it is played. */
interface PlayedRun {
  readonly digest: string;
  readonly followed: FollowedRun;
  readonly other: FollowedRun | undefined;
  readonly calls: string[];
  first: FirstRefusal | undefined;
  firstOfOther: FirstRefusal | undefined;
  hasWaited: boolean;
  hasDoubt: boolean;
}

class Player {
  readonly #workflow: Workflow;
  readonly #other: Workflow | undefined;
  readonly #lines: Lines;
  readonly #runs = new Map<string, PlayedRun>();
  readonly #open = new Map<string, { readonly number: number; readonly run: PlayedRun }>();
  readonly #refusals = new Rows<Omit<ReplayedRefusal, 'histories' | 'runs'>>();
  readonly #doubts = new Map<string, Mutable<ReplayedDoubt>>();
  readonly #differences = new Map<string, Mutable<ReplayDifference>>();
  readonly #called = new Set<string>();
  readonly #wereRefused = new Set<string>();
  #number = 0;
  readonly #counts = {
    ...{ calls: 0, runs: 0, refused: 0, waited: 0, unknown: 0, ended: 0, waits: 0 },
    ...{ withoutRun: 0, unreadable: 0, dropped: 0 },
  };

  constructor(workflow: Workflow, other: Workflow | undefined, lines: Lines) {
    this.#workflow = workflow;
    this.#other = other;
    this.#lines = lines;
  }

  play(line: AnyLine): void {
    switch (line.type) {
      case 'start':
        if (line.run === undefined) this.#counts.withoutRun += 1;
        else this.#start(line, line.run);
        return;
      case 'end':
        this.#end(line);
        return;
      case 'dropped':
        this.#counts.dropped += line.lines;
        return;
      case 'unreadable':
        this.#counts.unreadable += 1;
    }
  }

  #start(line: StartLine, digest: string): void {
    const run = this.#runs.get(digest) ?? this.#begin(line, digest);
    const number = ++this.#number;
    const { tool, at } = line;
    this.#counts.calls += 1;
    this.#open.set(callIn(line), { number, run });
    if (this.#workflow.isBound(tool)) this.#called.add(this.#workflow.keyOf(tool));
    const verdict = run.followed.started(number, callOf(this.#workflow, line, digest), at);
    this.#note(run, tool, verdict);
    if (run.other !== undefined && this.#other !== undefined) {
      const said = run.other.started(number, callOf(this.#other, line, digest), at);
      run.firstOfOther ??= refusalOf(tool, said);
    }
    run.calls.push(tool);
    if (run.calls.length > 4 * LONGEST_HISTORY) run.calls.splice(0, run.calls.length / 2);
    this.#played(digest);
  }

  #end(line: EndLine): void {
    const name = callIn(line);
    const open = this.#open.get(name);
    if (open === undefined) return;
    this.#open.delete(name);
    const { number, run } = open;
    for (const followed of [run.followed, run.other]) {
      if (followed === undefined) continue;
      const reader = new RecordedReader(line.result);
      if (line.outcome === 'refused') followed.dropped(number);
      else followed.ended(number, outcomeOf(line, reader), line.at, () => reader.hasDoubt);
    }
    this.#played(run.digest);
  }

  #begin({ isPrincipal = false }: StartLine, digest: string): PlayedRun {
    const viewpoint = { run: digest, actor: undefined };
    const follow = (workflow: Workflow): FollowedRun => {
      const followed = new FollowedRun(rulesOf(workflow, isPrincipal), viewpoint);
      // No recording has what came from outside.
      for (const name of workflow.outside.keys()) followed.doubt(name);
      return followed;
    };
    const run: PlayedRun = {
      digest,
      followed: follow(this.#workflow),
      other: this.#other && follow(this.#other),
      calls: [],
      ...{ first: undefined, firstOfOther: undefined, hasWaited: false, hasDoubt: false },
    };
    this.#runs.set(digest, run);
    this.#counts.runs += 1;
    return run;
  }

  #note(run: PlayedRun, tool: string, verdict: FollowedVerdict): void {
    if (verdict.says === 'would-wait') {
      run.hasWaited = true;
      this.#counts.waits += 1;
    } else if (verdict.says === 'unknown') {
      const { why } = verdict;
      run.hasDoubt = true;
      const key = JSON.stringify([tool, why]);
      const row = this.#doubts.get(key) ?? { tool, why, calls: 0, run: run.digest };
      row.calls += 1;
      if (this.#doubts.size < MOST_ROWS) this.#doubts.set(key, row);
    } else if (verdict.says === 'refused') {
      this.#wereRefused.add(this.#workflow.keyOf(tool));
      if (run.first !== undefined) return;
      run.first = refusalOf(tool, verdict);
      const says = partsToReport(verdict.parts).map((each) => each.says);
      const { reason, state } = verdict;
      this.#refusals.add({ tool, reason, state, says }, shortened(run.calls), run.digest);
    }
  }

  #played(digest: string): void {
    if (!this.#lines.take(digest)) return;
    const run = this.#runs.get(digest);
    this.#runs.delete(digest);
    if (run === undefined) return;
    const { first, firstOfOther } = run;
    const counts = this.#counts;
    if (run.followed.hasEnded) counts.ended += 1;
    if (first !== undefined) counts.refused += 1;
    else if (run.hasDoubt) counts.unknown += 1;
    else if (run.hasWaited) counts.waited += 1;
    if (run.other === undefined) return;
    const key = JSON.stringify([firstOfOther ?? null, first ?? null]);
    if (JSON.stringify(firstOfOther) === JSON.stringify(first)) return;
    const row = this.#differences.get(key) ?? {
      ...{ before: firstOfOther, after: first, runs: 0, run: digest },
    };
    row.runs += 1;
    if (this.#differences.size < MOST_ROWS) this.#differences.set(key, row);
  }

  finish(): { replay: Replay; differences: readonly ReplayDifference[] } {
    for (const digest of [...this.#runs.keys()])
      while (this.#runs.has(digest)) this.#played(digest);
    const { toolNames, id } = this.#workflow;
    const replay: Replay = {
      workflow: id,
      ...this.#counts,
      refusals: this.#refusals.sorted(),
      doubts: [...this.#doubts.values()].sort((one, two) => two.calls - one.calls),
      neverRefused: toolNames.filter(
        (tool) => this.#called.has(tool) && !this.#wereRefused.has(tool),
      ),
      neverCalled: toolNames.filter((tool) => !this.#called.has(tool)),
    };
    const differences = [...this.#differences.values()].sort((one, two) => two.runs - one.runs);
    return { replay, differences };
  }
}

/** What standings take from a gate, where nothing of the app is there. */
function rulesOf(workflow: Workflow, isPrincipal: boolean): StandingRules {
  return { workflow, whenEnded: isPrincipal ? 'restart' : 'keep', onError: () => {} };
}

function refusalOf(tool: string, verdict: FollowedVerdict): FirstRefusal | undefined {
  if (verdict.says !== 'refused') return undefined;
  return { tool, reason: verdict.reason, state: verdict.state };
}

function callOf(workflow: Workflow, { tool, args: values }: StartLine, run: string): FollowedStep {
  const reader = new RecordedReader(values);
  const args = new RecordedArguments(reader);
  const question = new ToolQuestion({ workflow, onError: () => {} }, tool, args, {
    run,
    actor: undefined,
  });
  // Values that only later rules ask for leave this judgement as it is.
  question.note();
  const hasFactsInDoubt = reader.hasDoubt;
  reader.hasDoubt = false;
  const digest = JSON.stringify(values?.hmacs ?? {});
  return {
    question,
    digest,
    note: { tool, digest },
    args: { args: (args.whole as Readonly<Record<string, unknown>>) ?? NOT_IN_CLEAR },
    uncertain: 'hold',
    identity: reader,
    hasDoubt: (about) => (about === 'facts' ? hasFactsInDoubt : reader.hasDoubt),
  };
}

/** The arguments of a call, of which only rules can read something. */
const NOT_IN_CLEAR = new Proxy<Readonly<Record<string, unknown>>>(
  {},
  {
    get: notRecorded,
    has: notRecorded,
    ownKeys: notRecorded,
    getOwnPropertyDescriptor: notRecorded,
  },
);

function notRecorded(): never {
  throw new NotRecorded();
}

/** The outcome, with a result that only rules can read. */
function outcomeOf({ outcome, left }: EndLine, reader: RecordedReader): Outcome {
  if (left === 'input') return { kind: 'input_required', result: undefined, error: undefined };
  // How a task ends is not recorded.
  if (left === 'task' || outcome === 'unknown' || outcome === 'unanswered')
    return { kind: 'unknown', result: undefined, error: undefined };
  if (outcome === 'rpc_error') return { kind: 'failed', result: undefined, error: {} };
  const structuredContent = reader.whole;
  const result = new Proxy(
    {},
    {
      get(_, name) {
        if (name === 'structuredContent' && structuredContent !== undefined)
          return structuredContent;
        return notRecorded();
      },
    },
  );
  const kind = outcome === 'ok' ? 'succeeded' : 'failed';
  return { kind, result, error: undefined, read: reader.read };
}

/** `search ×3` for three calls in a row. */
function shortened(calls: readonly string[]): readonly string[] {
  const rows: [tool: string, times: number][] = [];
  for (const tool of calls) {
    const last = rows.at(-1);
    if (last?.[0] === tool) last[1] += 1;
    else rows.push([tool, 1]);
  }
  return rows
    .slice(-LONGEST_HISTORY)
    .map(([tool, times]) => (times === 1 ? tool : `${tool} ×${times}`));
}

/** First refusals, and the ways there. */
class Rows<Row extends object> {
  readonly #rows = new Map<
    string,
    { row: Row; runs: number; histories: Map<string, ReplayedHistory> }
  >();

  add(row: Row, calls: readonly string[], run: string): void {
    const key = JSON.stringify(row);
    let known = this.#rows.get(key);
    if (known === undefined) {
      known = { row, runs: 0, histories: new Map() };
      if (this.#rows.size < MOST_ROWS) this.#rows.set(key, known);
    }
    known.runs += 1;
    const way = calls.join(' ');
    const history = known.histories.get(way) ?? { calls, runs: 0, run };
    if (history.runs > 0 || known.histories.size < MOST_ROWS)
      known.histories.set(way, { ...history, runs: history.runs + 1 });
  }

  sorted(): (Row & { runs: number; histories: readonly ReplayedHistory[] })[] {
    const rows = [...this.#rows.values()].sort((one, two) => two.runs - one.runs);
    return rows.map(({ row, runs, histories }) => {
      const ways = [...histories.values()].sort((one, two) => two.runs - one.runs);
      return { ...row, runs, histories: ways.slice(0, HISTORIES) };
    });
  }
}
