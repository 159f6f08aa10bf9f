/**
 * Judges the calls of runs that a gate does not enforce, behind them and never on their way. Hides
 * in which order they are judged, where a followed run is kept, and what is counted.
 */

import { newToken } from '../basics/names.ts';
import { isTable } from '../basics/options.ts';
import type { RefusalReason } from '../basics/reasons.ts';
import type { GateConfig } from '../gate/config.ts';
import { refusedByGuards, ToolQuestion } from '../gate/consult.ts';
import { markOf, modeSaid, type RunMark, withMark } from '../gate/mode.ts';
import { beginningOf, storedIn } from '../gate/standing.ts';
import type { CurrentStep, HandlersStep } from '../session/current-step.ts';
import type { Run } from '../session/run.ts';
import type { NoRun } from '../session/run-key.ts';
import { moveTo, type Outcome, type StepMove } from '../step/outcome.ts';
import type { ClaimView, FsmSnapshot, Json, RunKey, UnsettledStep } from '../stores/store.ts';
import type { Call } from '../wire/call.ts';
import { isObject, isRequestId } from '../wire/json-rpc.ts';
import { AskedArguments } from '../workflow/bound-tools.ts';
import { partsToReport } from '../workflow/rule-words.ts';
import type { Workflow } from '../workflow/workflow.ts';
import {
  type Followed,
  FollowedRun,
  type FollowedStep,
  type FollowedVerdict,
  type Guarded,
} from './followed-run.ts';
import { Observations } from './observations.ts';

/**
 * How many calls may wait to be judged, and how long they may be together. Others pass unjudged.
 */
const MOST_WAITING = 10_000;
const MOST_WAITING_CHARACTERS = 64 * 1024 * 1024;
/** How often a run that others move too is read again. */
const MOST_TRIES = 8;

const UNKNOWN = { kind: 'unknown', result: undefined, error: undefined } as const;

type DataChange = (context: Json | undefined) => Json | undefined;

/** A step that is only observed, as its handler sees it: what it says goes to the judge. */
export class ObservedStep implements HandlersStep {
  readonly key: RunKey;
  readonly isSavedByHandler = false;
  /** Whether the handler does not know its outcome. */
  isUnknown = false;
  isOver = false;
  readonly changes: DataChange[] = [];
  readonly #workflow: Workflow;
  readonly #tool: string;
  #facade: CurrentStep | undefined;

  constructor(workflow: Workflow, run: string, tool: string) {
    this.key = { run, workflow: workflow.id };
    this.#workflow = workflow;
    this.#tool = tool;
  }

  /** Most handlers never ask for it. */
  get facade(): CurrentStep {
    this.#facade ??= this.#makeFacade();
    return this.#facade;
  }

  #makeFacade(): CurrentStep {
    const { start } = this.#workflow;
    let context = this.#workflow.dataOf(start);
    return {
      ...this.key,
      ...{ tool: this.#tool, state: start.state, idempotencyKey: newToken() },
      get context() {
        return context;
      },
      update: (change) => {
        if (this.isOver) throw new Error('the step is over: a change of its data is not saved');
        context = change(context);
        this.changes.push(change);
        return context;
      },
      unknown: () => this.doubt(),
      commitIn: async () => {},
    };
  }

  get hasEnded(): boolean {
    return this.isOver;
  }

  /** Whether a call of the tool can be a step, so that its handler is shown it. */
  get isShown(): boolean {
    return this.#workflow.claiming.has(this.#workflow.keyOf(this.#tool));
  }

  doubt(): void {
    this.isUnknown = true;
  }
}

/** A call that is under way, for its end. */
export interface ObservedEnd {
  /** For `currentStep()`. */
  readonly step: ObservedStep;
  /**
   * @param outcome `undefined`: no answer was seen
   * @returns resolves once it is saved. Never rejects.
   */
  ended(outcome: Outcome | undefined): Promise<void>;
  /** The call was never forwarded. */
  dropped(): void;
}

/** What is kept beside the snapshot of a run that a gate does not enforce. */
interface Mark extends RunMark {
  readonly held?: ClaimView;
  readonly unsettled?: readonly UnsettledStep[];
}

/** One run while calls of it are judged. */
interface Entry {
  last: Promise<void> | undefined;
  /** The tasks that {@link last} ends. */
  queued: number;
  followed: FollowedRun | undefined;
  /** The version that the store has. */
  version: number;
  wasRefused: boolean;
  /** The tools of it that are enforced. */
  enforced: readonly string[];
  /** Whether the store knows that. */
  isRefusalSaved: boolean;
  /** Calls that were taken in, and are not over. */
  calls: number;
}

/** Judges the calls of one mounted gate. */
export class Observer {
  readonly seen: Observations;
  readonly #config: GateConfig;
  readonly #runs = new Map<string, Entry>();
  #waiting = 0;
  #length = 0;
  #number = 0;
  /** Random, so that a counter behind it makes tokens of its own. */
  readonly #tokens = newToken();
  #records = 0;

  constructor(config: GateConfig) {
    this.#config = config;
    this.seen = observationsOf(config.workflow, () => config.clock.now());
  }

  /** A call's step, as its handler sees it; `undefined` where the call is not judged. */
  stepOf({ named: tool }: Call, run: string): ObservedStep | undefined {
    const { workflow } = this.#config;
    if (typeof tool !== 'string' || !workflow.isBound(tool)) return undefined;
    return new ObservedStep(workflow, run, tool);
  }

  /** Takes in a call that has come. `undefined` where it is not judged. */
  started(
    incoming: Call,
    run: Run | NoRun,
    step = this.stepOf(incoming, 'run' in run ? run.run : ''),
  ): ObservedEnd | undefined {
    const { clock } = this.#config;
    const tool = incoming.named;
    if (typeof tool !== 'string' || step === undefined) return undefined;
    if (!('run' in run)) {
      this.seen.passed('no-run');
      return undefined;
    }
    const { length } = incoming.message.text;
    if (this.#waiting >= MOST_WAITING || this.#length + length > MOST_WAITING_CHARACTERS) {
      this.seen.passed('crowded');
      return undefined;
    }
    const number = ++this.#number;
    const entry = this.#entryOf(run.run);
    const now = clock.now();
    let isOver = false;
    entry.calls += 1;
    this.#length += length;
    void this.#queue(entry, run, async () => {
      await this.#start(entry, number, incoming, tool, run, now);
    }).then(() => {
      this.#length -= length;
    });
    const over = (task: () => Promise<void> | void): Promise<void> => {
      if (isOver) return entry.last ?? Promise.resolve();
      isOver = true;
      step.isOver = true;
      return this.#queue(entry, run, () => {
        entry.calls -= 1;
        return task();
      });
    };
    return {
      step,
      ended: (outcome) => {
        const at = clock.now();
        return over(() => this.#end(entry, number, run, outcome ?? UNKNOWN, step, at));
      },
      dropped: () => void over(() => entry.followed?.dropped(number)),
    };
  }

  /** Resolves once all calls that were taken in so far are judged. */
  async idle(): Promise<void> {
    while (this.#runs.size > 0) await Promise.all([...this.#runs.values()].map(({ last }) => last));
  }

  #entryOf(run: string): Entry {
    const known = this.#runs.get(run);
    if (known !== undefined) return known;
    const entry: Entry = {
      last: undefined,
      queued: 0,
      followed: undefined,
      version: 0,
      wasRefused: false,
      enforced: [],
      isRefusalSaved: false,
      calls: 0,
    };
    this.#runs.set(run, entry);
    return entry;
  }

  /** One after another for each run. Nothing waits for it, so it must not reject. */
  #queue(entry: Entry, run: Run, task: () => Promise<void> | void): Promise<void> {
    this.#waiting += 1;
    entry.queued += 1;
    entry.last = this.#perform(entry, run, task);
    return entry.last;
  }

  async #perform(entry: Entry, { run }: Run, task: () => Promise<void> | void): Promise<void> {
    await entry.last;
    try {
      await task();
    } catch (error) {
      this.seen.passed('unreadable');
      this.#config.onError(error);
    }
    this.#waiting -= 1;
    entry.queued -= 1;
    if (entry.queued === 0 && entry.calls === 0) this.#runs.delete(run);
  }

  async #start(
    entry: Entry,
    number: number,
    incoming: Call,
    tool: string,
    run: Run,
    now: number,
  ): Promise<void> {
    if (entry.followed === undefined || entry.followed.isIdle) {
      const found = await this.#read(run);
      if (found === undefined) {
        entry.followed = undefined;
        this.seen.passed('no-run');
        return;
      }
      entry.followed = new FollowedRun(this.#config, run, found.at);
      entry.version = found.at.snapshot.version ?? 0;
      entry.wasRefused = found.wasRefused;
      entry.isRefusalSaved = found.wasRefused;
      entry.enforced = this.#enforcedFrom(run, found);
      if (found.mark === undefined) this.seen.begun(now);
    }
    const { followed } = entry;
    const call = this.#callOf(incoming, tool, run);
    let guarded: Guarded | undefined;
    let verdict = followed.started(number, call, now, (given) => {
      guarded = given;
    });
    if (guarded !== undefined) {
      const { standing, binding } = guarded;
      const why = await refusedByGuards(
        this.#config,
        binding.guards,
        standing,
        call.question.asked,
      );
      if (why !== undefined) {
        followed.refusedByGuard(number);
        const reason = why.reason as RefusalReason;
        verdict = { says: 'refused', reason, state: standing.state, parts: [] };
      }
    }
    this.#report(entry, followed, verdict, incoming, tool, run, now);
  }

  #callOf(incoming: Call, tool: string, run: Run): FollowedStep {
    const { workflow, listed } = this.#config;
    const sent = AskedArguments.later(() => incoming.sentArguments);
    const question = new ToolQuestion(this.#config, tool, sent, run, incoming);
    const { args, roundedText, id } = incoming;
    const digest = workflow.renamings.digestOf(tool, incoming);
    const requestId = isRequestId(id) ? id : undefined;
    const note = { tool, digest, actor: run.actor, requestId, workflowVersion: workflow.version };
    return {
      question,
      digest,
      note,
      args: { args: isObject(args) ? args : {}, argsText: roundedText },
      uncertain: listed.uncertainOf(tool),
      identity: run.identity,
    };
  }

  #report(
    entry: Entry,
    followed: FollowedRun,
    verdict: FollowedVerdict,
    incoming: Call,
    tool: string,
    { run: runKey, actor }: Run,
    now: number,
  ): void {
    const { workflow, events } = this.#config;
    const { strayed } = followed.at;
    this.seen.judged(verdict, strayed);
    if (verdict.says !== 'refused') return;
    const { reason, state } = verdict;
    const parts = partsToReport(verdict.parts);
    this.seen.refused(
      { tool: workflow.keyOf(tool), reason, state, parts, at: now, runKey },
      {
        isFirst: !entry.wasRefused && !strayed,
        strayed,
      },
    );
    entry.wasRefused = true;
    if (!events.isOn) return;
    const { id: requestId, number: call } = incoming;
    const way = wayTo(workflow, followed, tool, incoming);
    const facts = { workflow: workflow.id, tool, reason, state, requestId, call, actor };
    events.publish({ type: 'call.refused', ...facts, runKey, enforced: false, way });
  }

  async #end(
    entry: Entry,
    number: number,
    run: Run,
    answered: Outcome,
    step: ObservedStep,
    now: number,
  ): Promise<void> {
    const { followed } = entry;
    const open = followed?.open(number);
    if (followed === undefined || open === undefined) return;
    // The handler of a call that is no step would have been shown none.
    const outcome = open.isStep && step.isUnknown ? UNKNOWN : answered;
    const changes = open.isStep ? step.changes : [];
    const { workflow, clock } = this.#config;
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const before = followed.at;
      const move = followed.ended(number, outcome, now);
      const isSame = followed.at === before && before.snapshot.version === entry.version;
      if (isSame && entry.isRefusalSaved === entry.wasRefused) return;
      const { snapshot } = followed.at;
      const position = changed(workflow, snapshot, changes);
      const sealed = withMark(position, markFrom(followed.at, entry));
      const answer = await run.store.record({
        run: run.run,
        workflow: workflow.id,
        token: this.#newToken(),
        from: entry.version,
        create: run.create,
        ttlMs: run.ttlMs,
        snapshot: sealed,
        ended: workflow.hasEnded(snapshot.state),
        initial: { ...workflow.start, updatedAt: clock.now() },
        trail: (move ?? stayed(workflow, before.snapshot, open.call.note, outcome)).trail,
      });
      if (answer.status === 'unknown') return;
      if (answer.status === 'recorded') {
        entry.version = answer.version;
        entry.isRefusalSaved = entry.wasRefused;
        const version = answer.version;
        followed.standAt({ ...followed.at, snapshot: { ...snapshot, ...sealed, version } });
        return;
      }
      // Another process has moved the run: the same again from where it stands now.
      followed.standAt(followedOf(answer.snapshot).at);
      entry.version = answer.snapshot.version ?? 0;
      followed.reopen(number, open);
    }
    throw new Error(`others moved the run ${MOST_TRIES} times meanwhile`);
  }

  #newToken(): string {
    this.#records += 1;
    return `${this.#tokens}.${this.#records}`;
  }

  /** What a run keeps of what is enforced: from its first call on that is not. */
  #enforcedFrom(run: Run, { at, mark }: Found): readonly string[] {
    if (mark !== undefined) return mark.enforced ?? [];
    const { enforce, workflow } = this.#config;
    const { version = 0 } = at.snapshot;
    const now = modeSaid(enforce, run.store.switchOf(workflow.id)?.known);
    return version > 0 || typeof now === 'boolean' ? [] : now;
  }

  /** The run as its store has it; `undefined` where there is none. */
  async #read(run: Run): Promise<Found | undefined> {
    const { workflow } = this.#config;
    const record = await run.store.read(run.run, run.ttlMs, workflow.id);
    if (record?.sessionEnded === 'evicted') return undefined;
    if ((record === undefined || record.sessionEnded) && run.create === undefined) return undefined;
    const stored = storedIn(record, workflow.id);
    if (stored !== undefined) {
      const found = followedOf(stored.snapshot);
      const { claim } = stored;
      // What was enforced and is held stays so.
      const isHeld = claim !== undefined && !claim.live && claim.uncertain === 'hold';
      return isHeld ? { ...found, at: { ...found.at, held: claim } } : found;
    }
    const beginning = await beginningOf(this.#config, run)?.();
    const start = workflow.begunWith(workflow.start, beginning ?? {});
    const at = { snapshot: { ...start, updatedAt: 0, version: 0 }, strayed: false, unsettled: [] };
    return { at, mark: undefined, wasRefused: false };
  }
}

/** A run as it was found. */
interface Found {
  readonly at: Followed;
  /** Absent where no process has observed it before. */
  readonly mark: RunMark | undefined;
  readonly wasRefused: boolean;
}

/** What a store has may be anything. */
function followedOf(snapshot: FsmSnapshot): Found {
  const mark = markOf(snapshot);
  const { strayed, held, unsettled, refused } = (mark ?? {}) as Mark;
  const at: Followed = {
    snapshot,
    strayed: strayed === true,
    ...(isTable(held) && { held }),
    unsettled: Array.isArray(unsettled) ? unsettled : [],
  };
  return { at, mark, wasRefused: refused === true };
}

function markFrom(
  { strayed, held, unsettled }: Followed,
  { wasRefused, enforced }: Pick<Entry, 'wasRefused' | 'enforced'>,
): Mark {
  const mark: { -readonly [Name in keyof Mark]: Mark[Name] } = {};
  if (enforced.length > 0) mark.enforced = enforced;
  if (strayed) mark.strayed = true;
  if (held !== undefined) mark.held = held;
  if (unsettled.length > 0) mark.unsettled = unsettled;
  if (wasRefused) mark.refused = true;
  return mark;
}

/** The snapshot with what its call's handler has changed. */
function changed(
  workflow: Workflow,
  snapshot: FsmSnapshot,
  changes: readonly DataChange[],
): Pick<FsmSnapshot, 'state' | 'context'> {
  return changes.reduce<Pick<FsmSnapshot, 'state' | 'context'>>(
    (at, change) => workflow.withData(at, change(workflow.dataOf(at))),
    snapshot,
  );
}

/** The trail's entry of a call after which the run stays where it is. */
function stayed(
  workflow: Workflow,
  snapshot: FsmSnapshot,
  note: FollowedStep['note'],
  { kind }: Outcome,
): StepMove {
  const said = { event: null, outcome: kind } as const;
  return moveTo(workflow, snapshot, { position: snapshot, actions: [] }, said, note);
}

/** The tools by which the call would have been allowed. */
function wayTo(
  workflow: Workflow,
  { at }: FollowedRun,
  tool: string,
  { args }: Call,
): readonly string[] | undefined {
  try {
    const binding = workflow.match(tool, args);
    return binding && workflow.wayTo(binding.states, at.snapshot).path;
  } catch {
    return undefined;
  }
}

const observations = new WeakMap<Workflow, Observations>();

/** What this process has observed of a workflow's runs. */
export function observationsOf(workflow: Workflow, now?: () => number): Observations {
  const known = observations.get(workflow);
  if (known !== undefined) return known;
  const made = new Observations(now ?? Date.now);
  observations.set(workflow, made);
  return made;
}
