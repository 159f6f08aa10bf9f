/**
 * The rulebook on documents that can be compared and swapped. Hides which document a write goes by,
 * what becomes of lost answers, and where older entries of a trail are.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { putNewest } from '../../clock.ts';
import { InterlockError } from '../../errors.ts';
import { anonymousKey } from '../../names.ts';
import { KeyedQueue } from '../keyed-queue.ts';
import { appending, type Guess, type Operation, RulebookStore } from '../rulebook.ts';
import { anonymized, isKnown, lastEntries, neverExpires, type RunState } from '../run-state.ts';
import type { RunKey, SwitchRecord, TrailDraft, TrailEntry } from '../store.ts';
import type { Documents, IndexEntry, NextDocument, Swapped } from './documents.ts';
import {
  indexOfRun,
  keyOfOlder,
  keyOfRun,
  keyOfSwitch,
  keysOfOlder,
  LISTS,
  NOTE,
  newRevision,
  OLDER,
  OLDER_AT_ONCE,
  type OlderEntries,
  ofThisLayout,
  olderOfText,
  partBefore,
  removableAt,
  removed,
  revised,
  runOfText,
  type StoredRun,
  switchOfText,
  TRAIL_FULL,
  textOfNote,
  textOfOlder,
  textOfRun,
  textOfSwitch,
} from './run-text.ts';
import { BackendTime, WRONG_MS } from './time.ts';

/** How many runs a process keeps, to write their next revision without reading them first. */
const RUNS_KEPT = 500;

/** How long before its expiry a run is read first, also where this process knows it. */
const NEAR_EXPIRY_MS = 60_000;

/** How many writes of others may come between before the backend counts as too busy. */
const MOST_TRIES = 100;

/** From which try on a process waits a moment, up to so many ms, before it tries again. */
const PAUSED_FROM = 3;
const LONGEST_PAUSE_MS = 50;

const DAY_MS = 24 * 3_600_000;

/** How long the backend keeps older entries beyond the run's expiry, and when it must get more. */
const OLDER_MS = 30 * DAY_MS;
const OLDER_SOON_MS = 15 * DAY_MS;

/** How much of the room a claim may fill, so that its commit finds some. */
const ROOM_OF_CLAIMS = 0.75;

/** A document as a process found or wrote it, and what it knows of the older entries. */
interface Kept {
  /** The backend's name of it. */
  readonly revision: string;
  readonly run: StoredRun;
  /** By workflow: the newest document of older entries that is there for certain. */
  readonly parts: Map<string, number>;
  /** Until when all of these documents are kept. */
  olderUntil: number;
}

/** What an operation goes by. */
export interface Found {
  readonly kept: Kept | undefined;
  readonly now: number;
}

/** One revision to write. */
interface Write {
  readonly key: string;
  readonly run: string;
  /** What it replaces. */
  readonly kept: Kept | undefined;
  /** Whether that is another run, which is unknown by now. */
  readonly isNew: boolean;
  /** Whether nothing of the run stays, not even its older entries. */
  readonly isRemoved?: boolean;
  readonly next: RunState & Partial<Pick<StoredRun, 'movesTo'>>;
  readonly revision: string;
  /** How many bytes the document may have. */
  readonly room: number;
}

export interface DocumentStoreSettings {
  readonly now: () => number;
  readonly maxBytes: number;
  readonly chainTrail: boolean;
  readonly trailLimit: number;
}

export class DocumentStore extends RulebookStore {
  readonly #documents: Documents;
  readonly #time: BackendTime;
  readonly #maxBytes: number;
  /** How many documents of older entries a trail has at most. */
  readonly #mostOlder: number;
  readonly #queue = new KeyedQueue();
  /** In the order of their last use. */
  readonly #kept = new Map<string, Kept>();
  /** Entries of refused calls that wait for their turn to be written, by run. */
  readonly #refused = new Map<string, Refused>();
  /** Whether the backend's note is known to name this layout. */
  #isNoted = false;
  /** Shared, since many first runs may come at once. */
  #noting: Promise<void> | undefined;

  constructor(documents: Documents, settings: DocumentStoreSettings) {
    const { now, maxBytes, chainTrail, trailLimit } = settings;
    super(chainTrail);
    this.#documents = documents;
    this.#maxBytes = maxBytes;
    this.#mostOlder = Math.ceil(trailLimit / OLDER_AT_ONCE);
    this.#time = new BackendTime({ now, monotonic: () => performance.now() });
  }

  protected async change<Result>(
    run: string,
    operation: Operation<Result>,
    guess: Guess,
  ): Promise<Result> {
    if (guess.isLook) {
      const { result, next } = made(await this.find(keyOfRun(run)), operation);
      if (next === undefined) return result;
    }
    return this.#queue.run(run, () => this.#change(run, operation, guess));
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
        await this.#change(run, appending(name, drafts), {});
      }
    };
    const written = this.#queue.run(run, write);
    // Only now, since the queue may be full.
    this.#refused.set(run, { entries, written });
    written.catch(() => this.#refused.delete(run));
    return written;
  }

  async history({ run, workflow: name }: RunKey, limit = 50): Promise<TrailEntry[]> {
    const found = await this.find(keyOfRun(run));
    const stored = knownOf(found);
    const workflow = stored?.workflows.get(name);
    if (stored === undefined || workflow === undefined) return [];
    const newest = partBefore(workflow);
    const wanted = Math.ceil((limit - workflow.trail.length) / OLDER_AT_ONCE);
    const count = Math.max(0, Math.min(wanted, this.#mostOlder, newest + 1));
    const parts = Array.from({ length: count }, (_, at) => newest - count + 1 + at);
    const older = await Promise.all(
      parts.map(async (part) => {
        const answer = await this.#documents.read(keyOfOlder(stored, name, part));
        return olderOfText(answer?.document)?.entries ?? [];
      }),
    );
    const trail = [...older.flat(), ...workflow.trail];
    return lastEntries({ ...workflow, trail }, limit);
  }

  /**
   * First a copy under a new key, then the old run goes. Until then the old one says where it
   * moves, so a second try after a crash makes no second copy.
   */
  anonymize(run: string): Promise<string | undefined> {
    const key = keyOfRun(run);
    return this.#queue.run(run, async () => {
      /** Which run moves, and to where. */
      let birth: string | undefined;
      let unnamed: string | undefined;
      let wasLost = false;
      /** Whether it is certain that it was written. */
      const write = async (next: Omit<Write, 'revision' | 'room'>): Promise<boolean> => {
        try {
          const revision = newRevision();
          return (await this.#write({ ...next, revision, room: this.#maxBytes })).swapped;
        } catch (error) {
          if (wasLost || error instanceof InterlockError) throw error;
          wasLost = true;
          return false;
        }
      };
      for (let tries = 1; tries <= MOST_TRIES; tries++) {
        // Before the old run: while that is there, no person has resolved the copy.
        const place = unnamed === undefined ? undefined : keyOfRun(unnamed);
        const copy = place === undefined ? undefined : (await this.find(place)).kept;
        const found = await this.find(key);
        const known = knownOf(found);
        if (known === undefined) await this.#clear(key, found.kept);
        // Another process was faster, or the answer was lost. The copy is all that is left.
        if (unnamed !== undefined && known?.birth !== birth) return unnamed;
        if (known === undefined) return undefined;
        const to = known.movesTo ?? anonymousKey();
        const unowned = anonymized(known, to, found.now);
        if (unowned === undefined) {
          if (place !== undefined) await this.#clear(place, copy);
          return undefined;
        }
        const old = { key, run, kept: found.kept, isNew: false };
        if (known.movesTo === undefined) await write({ ...old, next: { ...known, movesTo: to } });
        else if (place === undefined) [birth, unnamed] = [known.birth, to];
        else {
          const next = { ...unowned, expiresAt: found.now };
          if (!(await write({ key: place, run: to, kept: copy, isNew: true, next }))) continue;
          if (!(await write({ ...old, isRemoved: true, next: removed(known) }))) continue;
          await this.#clear(key, this.#kept.get(key));
          return to;
        }
      }
      throw outrun();
    });
  }

  async readSwitch(workflow: string): Promise<SwitchRecord | undefined> {
    return (await this.#switch(workflow)).found;
  }

  async swapSwitch(
    workflow: string,
    expected: string | undefined,
    next: SwitchRecord,
  ): Promise<boolean> {
    const document = textOfSwitch(workflow, next);
    this.#assertRoom(document, this.#maxBytes);
    const index = { index: [], put: [], drop: [] };
    let failure: unknown;
    for (let tries = 1; tries <= MOST_TRIES; tries++) {
      const { key, revision, found } = await this.#switch(workflow);
      if (found?.revision === next.revision) return true;
      const isOther = found?.revision !== expected;
      if (isOther && failure === undefined) return false;
      // It may have been there, before another write came.
      if (isOther) throw failure;
      const written = { document, revision: newRevision(), expiresAt: undefined, ...index };
      try {
        if (revision === undefined) await this.assertLayout(true);
        if (hasSwapped(await this.#documents.swap(key, revision, written))) return true;
      } catch (error) {
        // Once more, since the answer may have been lost. A second time the backend is away.
        if (failure !== undefined || error instanceof InterlockError) throw error;
        failure = error;
      }
    }
    throw outrun('switch');
  }

  async #switch(workflow: string): Promise<{
    readonly key: string;
    readonly revision?: string;
    readonly found?: SwitchRecord;
  }> {
    const key = keyOfSwitch(workflow);
    const { document, revision } = (await this.#documents.read(key)) ?? {};
    if (document === undefined || document === null) {
      // Another layout may keep its switches under other keys.
      await this.assertLayout();
      return { key };
    }
    if (typeof revision !== 'string') throw unnamed();
    return { key, revision, found: switchOfText(workflow, document) };
  }

  /** The run under a key of documents, and the backend's time. */
  protected async find(key: string): Promise<Found> {
    const askedAt = this.#time.asked();
    const before = this.#kept.get(key);
    const { document, revision, now: told } = (await this.#documents.read(key)) ?? {};
    const now = this.#time.told(told, askedAt);
    // What a write has kept meanwhile is newer.
    const isNewest = this.#kept.get(key) === before;
    if (document === undefined || document === null) {
      if (isNewest) this.#kept.delete(key);
      // Another layout may keep its runs under other keys.
      await this.assertLayout();
      return { kept: undefined, now };
    }
    if (typeof revision !== 'string') throw unnamed();
    const run = runOfText(key, document);
    const isSame = before?.run.birth === run.birth;
    const kept: Kept = {
      ...{ revision, run },
      parts: isSame ? before.parts : new Map(),
      olderUntil: Math.max(run.olderUntil, isSame ? before.olderUntil : 0),
    };
    if (isNewest) putNewest(this.#kept, key, kept, RUNS_KEPT);
    // Nothing writes a held or frozen run, but people look at it, as long as it takes.
    if (neverExpires(run) && isSoonOver(kept, now)) {
      await this.#prolongAll(kept, Math.ceil(now) + OLDER_MS).catch(() => {});
    }
    return { kept, now: notBefore(now, run) };
  }

  /** What time it is for the backend. */
  protected async now(): Promise<number> {
    return this.#time.estimate() ?? this.#readNote();
  }

  /**
   * All documents of a backend have one layout, which a note says. Processes of two layouts could
   * not share it: no list of either would be whole.
   *
   * @param notes whether to write the note where none is there, since a run is about to be made
   * @throws InterlockError `ERR_INTERLOCK_STORE` where the note names another layout
   */
  protected async assertLayout(notes = false): Promise<void> {
    if (this.#isNoted) return;
    if (notes) {
      this.#noting ??= this.#note().finally(() => {
        this.#noting = undefined;
      });
      await this.#noting;
    } else await this.#readNote();
  }

  async #note(): Promise<void> {
    await this.#readNote();
    if (this.#isNoted) return;
    const note = { document: textOfNote(), revision: newRevision(), expiresAt: undefined };
    const { swapped } = await this.#documents.swap(NOTE, undefined, { ...note, ...NO_INDEX });
    // Where another process was faster, its note counts.
    if (swapped) this.#isNoted = true;
    else await this.#readNote();
  }

  /** Reads the note, and with it the time. */
  async #readNote(): Promise<number> {
    const askedAt = this.#time.asked();
    const { document, now } = (await this.#documents.read(NOTE)) ?? {};
    if (typeof document === 'string') {
      ofThisLayout(document);
      this.#isNoted = true;
    }
    return this.#time.told(now, askedAt);
  }

  /** Removes a document of the list of removable ones; whether it was a run that is unknown. */
  protected async sweep(key: string): Promise<boolean> {
    if (key.startsWith(OLDER)) {
      const { document, revision } = (await this.#documents.read(key)) ?? {};
      const older = olderOfText(document);
      if (older && revision !== undefined && older.expiresAt <= (await this.now()))
        await this.#remove(key, OLDER_LISTS, revision);
      return false;
    }
    const found = await this.find(key);
    if (found.kept === undefined || knownOf(found) !== undefined) return false;
    return this.#clear(key, found.kept);
  }

  /**
   * Writes what the operation makes of the run. It may begin with what this process has kept: the
   * write fails where that is no longer true. But no answer comes from it without a write, and none
   * that turns on time.
   */
  async #change<Result>(run: string, operation: Operation<Result>, guess: Guess): Promise<Result> {
    const key = keyOfRun(run);
    const isClaim = guess.step !== undefined && guess.isLease === true;
    const room = this.#maxBytes * (isClaim ? ROOM_OF_CLAIMS : 1);
    /** A write whose answer was lost, and which run it removes, if it does. */
    let sent:
      | { readonly revision: string; readonly result: Result; readonly removes: Kept | undefined }
      | undefined;
    let guessed = this.#guess(key, guess);
    let isTimeWrong = false;
    for (let tries = 1; tries <= MOST_TRIES; tries++) {
      const found = guessed ?? (await this.find(key));
      const { kept, now } = found;
      const isUnknown = knownOf(found) === undefined;
      // The backend may have forgotten a removed run by now.
      const isGone = isUnknown && sent?.removes !== undefined;
      if (sent && (isGone || kept?.run.revisions.includes(sent.revision))) {
        if (isGone) await this.#clear(key, kept ?? sent.removes);
        return sent.result;
      }
      const { result, next, isRemoved = false } = made(found, operation);
      if (next === undefined) {
        if (guessed === undefined) {
          if (isRemoved) await this.#clear(key, kept);
          return result;
        }
        guessed = undefined;
        continue;
      }
      guessed = undefined;
      const revision = newRevision();
      let answer: Swapped;
      try {
        const write = { key, run, kept, isNew: isUnknown, isRemoved, next, revision, room };
        answer = await this.#write(write);
      } catch (error) {
        this.#kept.delete(key);
        // Once more, since the answer may have been lost. A second time the backend is away.
        if (sent !== undefined || error instanceof InterlockError) throw error;
        sent = { revision, result, removes: isRemoved ? kept : undefined };
        continue;
      }
      if (!answer.swapped) {
        if (tries >= PAUSED_FROM) await sleep(Math.random() * Math.min(tries, LONGEST_PAUSE_MS));
        continue;
      }
      if (isRemoved) await this.#clear(key, this.#kept.get(key));
      // The lease would end by a time that is not the backend's: it begins again, with its token.
      if (guess.isLease && !isTimeWrong && Math.abs((answer.now ?? now) - now) > WRONG_MS) {
        isTimeWrong = true;
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

  /** Writes the next revision, and beside it what leaves the document with a later one. */
  async #write(write: Write): Promise<Swapped> {
    const { key, run, kept, isNew, isRemoved = false, next, revision, room } = write;
    const before = isNew ? undefined : kept;
    const said = before && { ...before.run, olderUntil: before.olderUntil };
    const stored = revised(run, before ? shortened(next, before.parts) : next, said, revision);
    const expiresAt = removableAt(stored);
    const document = textOfRun(stored);
    this.#assertRoom(document, room);
    const index = indexOfRun(stored);
    const changes = changesOf(kept && indexOfRun(kept.run), index);
    if (isNew) await this.assertLayout(true);
    const askedAt = this.#time.asked();
    const [answer] = await Promise.all([
      this.#documents.swap(key, kept?.revision, { document, revision, expiresAt, ...changes }),
      before && !isRemoved && this.#age(before, stored.expiresAt),
    ]);
    const isWritten = hasSwapped(answer);
    if (answer.now !== undefined) this.#time.told(answer.now, askedAt);
    if (!isWritten) {
      this.#kept.delete(key);
      return answer;
    }
    const written: Kept = {
      ...{ revision: answer.revision ?? revision, run: stored },
      parts: before?.parts ?? new Map(),
      olderUntil: before?.olderUntil ?? 0,
    };
    putNewest(this.#kept, key, written, RUNS_KEPT);
    // They expire by themselves, if this fails.
    if (isNew && kept !== undefined) await this.#dropOlder(kept.run).catch(() => {});
    return answer;
  }

  /** @throws InterlockError `ERR_INTERLOCK_STORE` where the document has more bytes than `room` */
  #assertRoom(document: string, room: number): void {
    // A character has at most three bytes: most documents need no count.
    if (document.length * 3 <= room) return;
    const bytes = Buffer.byteLength(document);
    if (bytes > room) throw tooLarge(bytes, this.#maxBytes, room);
  }

  /**
   * Copies the oldest entries of full trails into documents of their own; the run's document drops
   * them once that is known. Failures do not count: the next write tries again.
   */
  async #age(kept: Kept, expiresAt: number): Promise<void> {
    const { run, parts } = kept;
    const until = Math.ceil(expiresAt) + OLDER_MS;
    const writes: Promise<void>[] = [];
    for (const [name, workflow] of run.workflows) {
      const part = partBefore(workflow) + 1;
      if (workflow.trail.length < TRAIL_FULL || parts.get(name) === part) continue;
      const entries = workflow.trail.filter(({ seq }) => seq <= OLDER_AT_ONCE * (part + 1));
      const older = { run: run.run, workflow: name, entries, expiresAt: until };
      const noted = this.#writeOlder(keyOfOlder(run, name, part), older).then(() => {
        parts.set(name, part);
        kept.olderUntil ||= until;
      });
      writes.push(noted);
      // Nothing waits for it: what stays expires by itself.
      const oldest = part - this.#mostOlder;
      if (oldest >= 0) this.#remove(keyOfOlder(run, name, oldest), OLDER_LISTS).catch(() => {});
    }
    if (isSoonOver(kept, expiresAt)) writes.push(this.#prolongAll(kept, until));
    await Promise.allSettled(writes);
  }

  async #writeOlder(key: string, older: OlderEntries): Promise<void> {
    const { swapped } = await this.#documents.swap(key, undefined, documentOfOlder(older));
    // The run drops them once they are kept, so it must be certain that they are.
    if (!swapped && !(await this.#prolongOlder(key, older.expiresAt)))
      throw faulty('older entries of a trail could not be written');
  }

  async #prolongAll(kept: Kept, until: number): Promise<void> {
    const keys = keysOfOlder(kept.run, this.#mostOlder);
    await Promise.all(keys.map((key) => this.#prolongOlder(key, until)));
    kept.olderUntil = until;
  }

  /** Whether there is such a document. */
  async #prolongOlder(key: string, expiresAt: number): Promise<boolean> {
    const { document, revision } = (await this.#documents.read(key)) ?? {};
    const older = olderOfText(document);
    if (older === undefined) return false;
    if (older.expiresAt >= expiresAt) return true;
    const next = documentOfOlder({ ...older, expiresAt });
    const { swapped } = await this.#documents.swap(key, revision, next);
    if (!swapped) throw faulty('older entries of a trail could not be kept for longer');
    return true;
  }

  async #dropOlder(run: StoredRun): Promise<void> {
    await Promise.all(
      keysOfOlder(run, this.#mostOlder).map((key) => this.#remove(key, OLDER_LISTS)),
    );
  }

  /**
   * Removes a document of this revision, or of any, and tries once more. Whether it did, as far as
   * it knows.
   */
  async #remove(key: string, lists: readonly string[], known?: string): Promise<boolean> {
    let wasLost = false;
    for (let tries = 1; tries <= 2; tries++) {
      const isFirst = tries === 1 && known !== undefined;
      const revision = isFirst ? known : (await this.#documents.read(key))?.revision;
      if (revision === undefined) return wasLost;
      if (known !== undefined && revision !== known) return false;
      try {
        if (await this.#documents.remove(key, revision, lists)) return true;
      } catch (error) {
        if (tries === 2) throw error;
        wasLost = true;
      }
    }
    return false;
  }

  /** Removes a run that is unknown by now, with the older entries of its trails. */
  async #clear(key: string, kept: Kept | undefined): Promise<boolean> {
    if (kept === undefined) return false;
    await this.#dropOlder(kept.run);
    this.#kept.delete(key);
    const lists = indexOfRun(kept.run).map(({ list }) => list);
    return this.#remove(key, lists, kept.revision);
  }
}

/** Entries of refused calls of one run, by workflow. */
interface Refused {
  readonly entries: (readonly [workflow: string, entry: TrailDraft])[];
  readonly written: Promise<void>;
}

/** The run that was found, where it is known. */
export function knownOf({ kept, now }: Found): StoredRun | undefined {
  return kept !== undefined && isKnown(kept.run, now) ? kept.run : undefined;
}

/** What an operation makes of a run; `next` is there where something of it changed. */
function made<Result>(
  found: Found,
  operation: Operation<Result>,
): { readonly result: Result; readonly next?: RunState; readonly isRemoved?: boolean } {
  const known = knownOf(found);
  const {
    result,
    made: fresh,
    workflow,
    next,
    life,
    isRemoved = false,
  } = operation(known, found.now);
  if (isRemoved) return known ? { result, next: removed(known), isRemoved } : { result, isRemoved };
  let run: RunState | undefined = fresh ?? known;
  if (run && next && workflow !== undefined)
    run = { ...run, workflows: new Map(run.workflows).set(workflow, next) };
  if (run && life) run = { ...run, ...life };
  return run === undefined || run === known ? { result } : { result, next: run };
}

/** Whether the older entries would go soon after that time. */
function isSoonOver({ olderUntil }: Kept, time: number): boolean {
  return olderUntil > 0 && olderUntil < time + OLDER_SOON_MS;
}

/** Without the entries that lie elsewhere for certain. */
function shortened(run: RunState, parts: ReadonlyMap<string, number>): RunState {
  if (parts.size === 0) return run;
  const workflows = new Map(run.workflows);
  for (const [name, part] of parts) {
    const workflow = workflows.get(name);
    if (workflow === undefined) continue;
    const trail = workflow.trail.filter(({ seq }) => seq > OLDER_AT_ONCE * (part + 1));
    workflows.set(name, { ...workflow, trail });
  }
  return { ...run, workflows };
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

const OLDER_LISTS = [LISTS.removable];

const NO_INDEX = { index: [], put: [], drop: [] };

function documentOfOlder(older: OlderEntries): NextDocument {
  const { expiresAt } = older;
  const index = [{ list: LISTS.removable, label: '', score: expiresAt }];
  const changes = { index, put: index, drop: [] };
  return { document: textOfOlder(older), revision: newRevision(), expiresAt, ...changes };
}

function changesOf(
  before: readonly IndexEntry[] = [],
  index: readonly IndexEntry[],
): Pick<NextDocument, 'index' | 'put' | 'drop'> {
  const put = index.filter((entry) => {
    const same = before.find(({ list }) => list === entry.list);
    return same?.score !== entry.score || same.label !== entry.label;
  });
  const dropped = before.filter(({ list }) => !index.some((entry) => entry.list === list));
  return { index, put, drop: dropped.map(({ list }) => list) };
}

function hasSwapped(answer: Swapped): boolean {
  if (typeof answer?.swapped !== 'boolean') throw faulty('swap() did not say whether it wrote');
  return answer.swapped;
}

function unnamed(): InterlockError {
  return faulty('read() gave a document without its revision');
}

function faulty(fault: string): InterlockError {
  return new InterlockError('ERR_INTERLOCK_STORE', `documentStore(): ${fault}`);
}

function outrun(what: 'run' | 'switch' = 'run'): InterlockError {
  return faulty(`other processes wrote the ${what} ${MOST_TRIES} times before this one could`);
}

function tooLarge(bytes: number, most: number, room: number): InterlockError {
  const rest = room < most ? `, of which a claim leaves a quarter to its commit` : '';
  return faulty(`the document has ${bytes} bytes, and maxBytes is ${most}${rest}`);
}
