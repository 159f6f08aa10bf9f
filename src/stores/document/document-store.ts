/**
 * The rulebook on runs that can be compared and swapped. Hides which run a write goes by, what
 * becomes of lost answers and lost races, and what this process keeps.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { InterlockError } from '../../basics/errors.ts';
import { anonymousKey } from '../../basics/names.ts';
import { KeyedQueue } from '../keyed-queue.ts';
import { appending, type Guess, type Operation, RulebookStore } from '../rulebook.ts';
import { isKnown, type RunState } from '../run-life.ts';
import { listsOf, type SeenRun } from '../run-lists.ts';
import { anonymized } from '../run-state.ts';
import type {
  CommitRequest,
  CommitResult,
  RunKey,
  SwitchRecord,
  TrailDraft,
  TrailEntry,
} from '../store.ts';
import {
  type FoundParts,
  hasWritten,
  type KeptRun,
  type RunDocuments,
  type RunsIndex,
  type RunWrite,
  type TrailQuery,
  type WrittenRun,
} from './run-parts.ts';
import { newRevision, type RunOfText } from './run-text.ts';
import { BackendTime, WRONG_MS } from './time.ts';

/** How many bytes of runs a process keeps, to write their next revision without a read. */
const BYTES_KEPT = 32_000_000;

/** What a run takes in memory beside its texts. */
const BYTES_OF_RUN = 1_000;

/** How long before its expiry a run is read first, also where this process knows it. */
const NEAR_EXPIRY_MS = 60_000;

/** How many writes of others may come between before the backend counts as too busy. */
const MOST_TRIES = 100;

/** From which try on a process waits a moment, up to so many ms, before it tries again. */
const PAUSED_FROM = 3;
const LONGEST_PAUSE_MS = 50;

/** The same where each loss says what is there; and after how many of them comes a pause. */
const MOST_CHEAP_TRIES = 1_000;
const TRIES_AT_ONCE = 5;

/** How many runs a sweep over all of them reads together. */
const LISTED_AT_ONCE = 100;

/** What an operation goes by. */
interface Found {
  readonly kept: KeptRun | undefined;
  readonly broken?: FoundParts['broken'];
  readonly now: number;
  readonly entries?: FoundParts['entries'];
}

/** A write whose answer was lost, and whether it removes the run. */
interface Sent<Result> {
  readonly revision: string;
  readonly result: Result;
  readonly removes: boolean;
}

type Next = RunState & Partial<Pick<RunOfText, 'movesTo'>>;

export class DocumentStore extends RulebookStore {
  readonly #documents: RunDocuments;
  readonly #time: BackendTime;
  readonly #queue = new KeyedQueue();
  readonly #kept = new KeptRuns();
  /** Entries of refused calls that wait for their turn to be written, by run. */
  readonly #refused = new Map<string, Refused>();

  constructor(documents: RunDocuments, now: () => number, chainTrail: boolean) {
    super(chainTrail);
    this.#documents = documents;
    this.#time = new BackendTime({ now, monotonic: () => performance.now() });
    const { index } = documents;
    if (index === undefined) return;
    const look = (keys: readonly string[]) => this.#look(index, keys);
    Object.assign(this, listsOf({ index, look, atOnce: LISTED_AT_ONCE, now: () => this.#now() }));
  }

  protected async change<Result>(
    run: string,
    operation: Operation<Result>,
    guess: Guess,
  ): Promise<Result> {
    if (guess.isLook) {
      const { result, next } = made(await this.#find(this.#documents.keyOf(run)), operation);
      if (next === undefined) return result;
    }
    // The workflows of a run wait for each other only where they share one text.
    const own = this.#documents.isWhole ? undefined : guess.step?.workflow;
    const line = own === undefined ? run : JSON.stringify([run, own]);
    return this.#queue.run(line, () => this.#change(run, operation, guess));
  }

  /** Entries that come while another operation of the run is at work are written together. */
  override append({ run, workflow }: RunKey, entry: TrailDraft): Promise<void> {
    const waiting = this.#refused.get(run);
    if (waiting !== undefined) {
      waiting.entries.push([workflow, entry]);
      return waiting.written;
    }
    const entries: Refused['entries'] = [[workflow, entry]];
    const write = async (): Promise<void> => {
      this.#refused.delete(run);
      for (const name of new Set(entries.map(([each]) => each))) {
        const drafts = entries.filter(([each]) => each === name).map(([, draft]) => draft);
        for (let at = 0; at < drafts.length; at += APPENDED_AT_ONCE)
          await this.#change(run, appending(name, drafts.slice(at, at + APPENDED_AT_ONCE)), {});
      }
    };
    const written = this.#queue.run(run, write);
    // Only now, since the queue may be full.
    this.#refused.set(run, { entries, written });
    written.catch(() => this.#refused.delete(run));
    return written;
  }

  /**
   * Commits in a transaction of the app's. What it wrote may be rolled back, so this process keeps
   * nothing of it. It extends no life, whose row other workflows of the run would wait for.
   */
  async commitThrough(request: CommitRequest, swap: RunDocuments['swap']): Promise<CommitResult> {
    const { run, workflow, token } = request;
    const guess = { step: { workflow, token } };
    try {
      return await this.#change(run, this.committing(request), guess, swap);
    } finally {
      this.#kept.put(this.#documents.keyOf(run), undefined);
    }
  }

  async history({ run, workflow }: RunKey, limit = 50): Promise<TrailEntry[]> {
    const most = Math.max(0, Math.min(Math.trunc(limit), Number.MAX_SAFE_INTEGER));
    const found = await this.#find(this.#documents.keyOf(run), { workflow, limit: most });
    return knownOf(found) === undefined ? [] : [...(found.entries ?? [])];
  }

  /**
   * First a copy under a new key, then the old run goes. Until then the old one says where it
   * moves, so a second try after a crash makes no second copy.
   */
  anonymize(run: string): Promise<string | undefined> {
    const key = this.#documents.keyOf(run);
    return this.#queue.run(run, async () => {
      /** Which run moves, and to where. */
      let birth: string | undefined;
      let unnamed: string | undefined;
      let wasLost = false;
      /** Whether it is certain that it was done. */
      const certainly = async (done: () => Promise<boolean>): Promise<boolean> => {
        try {
          return await done();
        } catch (error) {
          if (wasLost || error instanceof InterlockError) throw error;
          wasLost = true;
          return false;
        }
      };
      const write = (name: string, found: Found, next: Next, isNew: boolean) =>
        certainly(async () => (await this.#write(name, found, next, { isNew })).swapped);
      for (let tries = 1; tries <= MOST_TRIES; tries++) {
        // Before the old run: while that is there, no person has resolved the copy.
        const copy =
          unnamed === undefined ? undefined : await this.#find(this.#documents.keyOf(unnamed));
        const found = await this.#find(key);
        const known = knownOf(found);
        if (known === undefined) await this.#clear(key, found.kept);
        // Another process was faster, or the answer was lost. The copy is all that is left.
        if (unnamed !== undefined && known?.birth !== birth) return unnamed;
        if (known === undefined) return undefined;
        const to = known.movesTo ?? anonymousKey();
        const unowned = anonymized(known, to, found.now);
        if (unowned === undefined) {
          if (unnamed !== undefined) await this.#clear(this.#documents.keyOf(unnamed), copy?.kept);
          return undefined;
        }
        if (known.movesTo === undefined) await write(run, found, { ...known, movesTo: to }, false);
        else if (unnamed === undefined) [birth, unnamed] = [known.birth, to];
        else {
          const next = { ...unowned, expiresAt: found.now };
          const before = { kept: copy?.kept, now: found.now };
          if (!(await write(to, before, next, true))) continue;
          if (await certainly(() => this.#clear(key, found.kept))) return to;
        }
      }
      throw outrun();
    });
  }

  readSwitch(workflow: string): Promise<SwitchRecord | undefined> {
    return this.#documents.readSwitch(workflow);
  }

  async swapSwitch(
    workflow: string,
    expected: string | undefined,
    next: SwitchRecord,
  ): Promise<boolean> {
    let failure: unknown;
    for (let tries = 1; tries <= MOST_TRIES; tries++) {
      const found = await this.readSwitch(workflow);
      if (found?.revision === next.revision) return true;
      const isOther = found?.revision !== expected;
      if (isOther && failure === undefined) return false;
      // It may have been there, before another write came.
      if (isOther) throw failure;
      try {
        if (await this.#documents.swapSwitch(workflow, expected, next)) return true;
      } catch (error) {
        // Once more, since the answer may have been lost. A second time the backend is away.
        if (failure !== undefined || error instanceof InterlockError) throw error;
        failure = error;
      }
    }
    throw outrun('switch');
  }

  /** The run under a key of documents, and the backend's time. */
  async #find(key: string, trail?: TrailQuery): Promise<Found> {
    const askedAt = this.#time.asked();
    const before = this.#kept.get(key);
    const found = await this.#documents.read(key, trail);
    if (found.broken) throw found.broken;
    // What a write has kept meanwhile is newer.
    if (this.#kept.get(key) === before) this.#kept.put(key, found.kept);
    return this.#seen(found, askedAt);
  }

  #seen({ kept, broken, now, entries }: FoundParts, askedAt: number): Found {
    const time = this.#time.given(now, askedAt);
    return { kept, broken, now: kept ? notBefore(time, kept.run) : time, entries };
  }

  /** Runs that an index names. */
  async #look(index: RunsIndex, keys: readonly string[]): Promise<SeenRun[]> {
    if (keys.length === 0) return [];
    const askedAt = this.#time.asked();
    const found = await index.readAll(keys);
    return found.map((each) => {
      const seen = this.#seen(each, askedAt);
      const { kept, broken, now } = seen;
      return { run: knownOf(seen), broken, isGone: !kept && !broken, now };
    });
  }

  /** What time it is for the backend. */
  async #now(): Promise<number> {
    const known = this.#time.estimate();
    if (known !== undefined) return known;
    const askedAt = this.#time.asked();
    return this.#time.given(await this.#documents.now(), askedAt);
  }

  /**
   * Writes what the operation makes of the run. It may begin with what this process has kept: the
   * write fails where that is no longer true. But no answer comes from it without a write of the
   * workflow, and none that turns on time.
   */
  async #change<Result>(
    run: string,
    operation: Operation<Result>,
    guess: Guess,
    swapIn?: RunDocuments['swap'],
  ): Promise<Result> {
    const key = this.#documents.keyOf(run);
    let sent: Sent<Result> | undefined;
    let wasLost = false;
    let isTimeWrong = false;
    let known = this.#guess(key, guess);
    let isGuess = known !== undefined;
    const most = this.#documents.isWhole ? MOST_TRIES : MOST_CHEAP_TRIES;
    for (let tries = 1; tries <= most; tries++) {
      const found = known ?? (await this.#find(key));
      const { kept, now } = found;
      // A driver that asked twice has read its own first write. And the backend may have forgotten
      // a removed run by now.
      const isGone = wasLost && sent?.removes === true && knownOf(found) === undefined;
      if (sent && (isGone || (kept && hasWritten(kept, sent.revision)))) {
        if (isGone) await this.#clear(key, kept);
        return sent.result;
      }
      const { result, next, isNew, isRemoved, flow, judgesAll } = made(found, operation);
      known = undefined;
      if (isGuess && flow === undefined && !isNew) {
        isGuess = false;
        continue;
      }
      isGuess = false;
      if (next === undefined && !isRemoved) return result;
      const revision = newRevision();
      sent = { revision, result, removes: isRemoved };
      let answer: WrittenRun;
      try {
        answer = next
          ? await this.#write(run, found, next, {
              ...{ guess, flow, isNew, revision },
              ...(swapIn ? { swapIn } : { judgesAll }),
            })
          : { swapped: kept === undefined || (await this.#clear(key, kept)) };
      } catch (error) {
        this.#kept.put(key, undefined);
        // Once more, since the answer may have been lost. A second time the backend is away.
        if (wasLost || swapIn || error instanceof InterlockError) throw error;
        wasLost = true;
        continue;
      }
      if (!answer.swapped) {
        // What is there now is known already: a pause would only make it old.
        const isCheap = answer.kept !== undefined;
        if (tries % TRIES_AT_ONCE !== 0 && answer.kept && answer.now !== undefined)
          known = { kept: answer.kept, now: notBefore(answer.now, answer.kept.run) };
        else if (tries >= PAUSED_FROM)
          await sleep(Math.random() * (isCheap ? 2 : Math.min(tries, LONGEST_PAUSE_MS)));
        continue;
      }
      // The lease would end by a time that is not the backend's: it begins again, with its token.
      if (guess.isLease && !isTimeWrong && Math.abs((answer.now ?? now) - now) > WRONG_MS) {
        isTimeWrong = true;
        sent = undefined;
        continue;
      }
      return result;
    }
    throw outrun();
  }

  /** What may be true of the run, where a write can go by it. */
  #guess(key: string, { isNew, step }: Guess): Found | undefined {
    const now = this.#time.estimate();
    const kept = this.#kept.get(key);
    if (now === undefined) return undefined;
    if (isNew) return kept === undefined ? { kept, now } : undefined;
    if (step === undefined || kept === undefined) return undefined;
    const { expiresAt, sessionEnded, workflows } = kept.run;
    if (sessionEnded || expiresAt < now + NEAR_EXPIRY_MS) return undefined;
    const token = workflows.get(step.workflow)?.claim?.token;
    if (token !== undefined && token !== step.token) return undefined;
    return { kept, now: notBefore(now, kept.run) };
  }

  async #write(
    run: string,
    found: Found,
    next: Next,
    how: {
      readonly guess?: Guess;
      /** The only workflow that changes. Absent: all of them may. */
      readonly flow?: string | undefined;
      readonly isNew?: boolean | undefined;
      readonly judgesAll?: boolean | undefined;
      readonly revision?: string;
      readonly swapIn?: RunDocuments['swap'] | undefined;
    },
  ): Promise<WrittenRun> {
    const { guess = {}, flow, isNew = knownOf(found) === undefined, swapIn } = how;
    const key = this.#documents.keyOf(run);
    const before = found.kept;
    const old = isNew ? undefined : before?.run;
    const { session, openedBy, workflows, released, sessionEnded, movesTo } = next;
    // JSON has no infinity.
    const expiresAt = Math.min(next.expiresAt, Number.MAX_SAFE_INTEGER);
    const birth = old?.birth ?? newRevision();
    const write: RunWrite = {
      ...{ key, before, isNew, revision: how.revision ?? newRevision() },
      next: {
        ...{ run, birth, session, openedBy, workflows, released },
        ...{ expiresAt, sessionEnded, movesTo },
      },
      life:
        (expiresAt !== old?.expiresAt && swapIn === undefined) ||
        sessionEnded !== old?.sessionEnded ||
        movesTo !== old?.movesTo ||
        released !== old?.released,
      flows: flow === undefined ? (old ? [] : [...workflows.keys()]) : [flow],
      // A look judges the life alone, which each claim extends for itself.
      judgesAll: how.judgesAll || (guess.step === undefined && !guess.isLook),
      isStep: guess.step !== undefined,
      isClaim: guess.step !== undefined && guess.isLease === true,
    };
    const askedAt = this.#time.asked();
    const answer = await (swapIn?.(write) ?? this.#documents.swap(write));
    if (answer.now !== undefined) this.#time.given(answer.now, askedAt);
    const current = this.#kept.get(key);
    const { kept } = answer;
    // An answer with the same life says nothing of other workflows, which have moved meanwhile.
    const isOlder = kept && current !== before && (answer.swapped || kept.life === before?.life);
    this.#kept.put(key, isOlder ? joined(current, kept, write) : kept);
    return answer;
  }

  /** Removes a run that is unknown from then on, with its trails. */
  async #clear(key: string, kept: KeptRun | undefined): Promise<boolean> {
    if (kept === undefined) return false;
    this.#kept.put(key, undefined);
    return this.#documents.remove(key, kept);
  }
}

/** No more than a trail keeps in memory, or the first ones would be lost. */
const APPENDED_AT_ONCE = 50;

/** Entries of refused calls of one run, by workflow. */
interface Refused {
  readonly entries: (readonly [workflow: string, entry: TrailDraft])[];
  readonly written: Promise<void>;
}

/** The runs that a process keeps, in the order of their last use. */
class KeptRuns {
  readonly #runs = new Map<string, { readonly kept: KeptRun; readonly bytes: number }>();
  #bytes = 0;

  get(key: string): KeptRun | undefined {
    return this.#runs.get(key)?.kept;
  }

  put(key: string, kept: KeptRun | undefined): void {
    this.#drop(key);
    if (kept === undefined) return;
    let bytes = BYTES_OF_RUN + kept.life.bytes;
    for (const flow of kept.flows.values()) bytes += flow.bytes;
    this.#runs.set(key, { kept, bytes });
    this.#bytes += bytes;
    for (const oldest of this.#runs.keys()) {
      if (this.#bytes <= BYTES_KEPT) return;
      this.#drop(oldest);
    }
  }

  #drop(key: string): void {
    const known = this.#runs.get(key);
    if (known === undefined) return;
    this.#bytes -= known.bytes;
    this.#runs.delete(key);
  }
}

/** The run that was found, where it is known. */
function knownOf({ kept, now }: Found): RunOfText | undefined {
  return kept !== undefined && isKnown(kept.run, now) ? kept.run : undefined;
}

/** What an operation makes of a run; `next` is there where something of it changed. */
function made<Result>(
  found: Found,
  operation: Operation<Result>,
): {
  readonly result: Result;
  readonly next?: Next;
  readonly flow?: string | undefined;
  /** Whether nothing of a known run stays; `undefined` where no operation said so. */
  readonly isNew?: true | undefined;
  readonly isRemoved: boolean;
  readonly judgesAll?: boolean | undefined;
} {
  const known = knownOf(found);
  const changed = operation(known, found.now);
  const { result, made: fresh, workflow, next, released, life, isRemoved, judgesAll } = changed;
  if (isRemoved) return { result, isRemoved };
  let run: Next | undefined = fresh ?? known;
  const flow = next && workflow;
  if (run && next && flow !== undefined)
    run = { ...run, workflows: new Map(run.workflows).set(flow, next) };
  if (run && released) run = { ...run, released };
  if (run && life) run = { ...run, ...life };
  const isSame = run === undefined || run === known;
  return isSame
    ? { result, isRemoved: false }
    : { result, next: run as Next, flow, isNew: fresh && true, isRemoved: false, judgesAll };
}

/** What this process wrote of one workflow, beside what it wrote of others meanwhile. */
function joined(
  current: KeptRun | undefined,
  written: KeptRun,
  { life, flows }: RunWrite,
): KeptRun | undefined {
  if (current === undefined || current.run.birth !== written.run.birth) return undefined;
  const marks = new Map(current.flows);
  const workflows = new Map(current.run.workflows);
  for (const name of flows) {
    const state = written.run.workflows.get(name);
    const mark = written.flows.get(name);
    if (state === undefined || mark === undefined) return undefined;
    workflows.set(name, state);
    marks.set(name, mark);
  }
  const base = life ? written : current;
  return { run: { ...base.run, workflows }, life: base.life, flows: marks };
}

/**
 * No snapshot is younger than now, though another process was a little fast. A clock that was set
 * back is none of that: leases would wait for it.
 */
function notBefore(now: number, { workflows }: RunState): number {
  let latest = now;
  for (const { snapshot } of workflows.values()) latest = Math.max(latest, snapshot.updatedAt);
  return latest - now < WRONG_MS ? latest : now;
}

function outrun(what: 'run' | 'switch' = 'run'): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    `documentStore(): other processes wrote the ${what} ${MOST_TRIES} times before this one could`,
  );
}
