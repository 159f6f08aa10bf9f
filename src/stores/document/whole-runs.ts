/**
 * A run as one document of a backend that knows no parts. Hides that documents have one layout,
 * how large they may be, and where older entries of a trail are.
 */
import { InterlockError } from '../../basics/errors.ts';
import type { RunState } from '../run-life.ts';
import { lastEntries } from '../run-state.ts';
import type { SwitchRecord, TrailEntry } from '../store.ts';
import type { Documents, IndexEntry, NextDocument, Swapped } from './documents.ts';
import {
  type FoundParts,
  foundIn,
  indexOfRun,
  type KeptRun,
  type RunDocuments,
  type RunIndexEntry,
  type RunsIndex,
  type RunWrite,
  type TrailQuery,
  type WrittenRun,
} from './run-parts.ts';
import {
  BrokenRun,
  digestOf,
  keyOfOlder,
  keyOfRun,
  keyOfSwitch,
  keysOfOlder,
  NOTE,
  newRevision,
  OLDER,
  OLDER_AT_ONCE,
  type OlderEntries,
  ofThisLayout,
  olderOfText,
  partBefore,
  type RunOfText,
  type RunText,
  removableAt,
  removed,
  runOfText,
  switchOfText,
  TRAIL_FULL,
  textOfNote,
  textOfOlder,
  textOfRun,
  textOfSwitch,
  withRevision,
} from './run-text.ts';

const DAY_MS = 24 * 3_600_000;

/** How long the backend keeps older entries beyond the run's expiry, and when it must get more. */
const OLDER_MS = 30 * DAY_MS;
const OLDER_SOON_MS = 15 * DAY_MS;

/** How much of the room a claim may fill, so that its commit finds some. */
const ROOM_OF_CLAIMS = 0.75;

const SWEPT_AT_ONCE = 100;

/** A document as a process found or wrote it, and what it knows of the older entries. */
interface KeptDocument extends KeptRun {
  readonly run: RunText;
  /** The backend's name of it. */
  readonly tag: string;
  /** By workflow: the newest document of older entries that is there for certain. */
  readonly parts: Map<string, number>;
  /** Until when all of these documents are kept. */
  olderUntil: number;
}

export interface WholeRunsSettings {
  readonly maxBytes: number;
  readonly trailLimit: number;
  /** The clock of this process, for a backend that has none. */
  readonly now: () => number;
}

export class WholeRuns implements RunDocuments {
  readonly isWhole = true;
  readonly index: RunsIndex | undefined;
  readonly #documents: Documents;
  readonly #maxBytes: number;
  readonly #now: () => number;
  /** How many documents of older entries a trail has at most. */
  readonly #mostOlder: number;
  /** Whether the backend's note is known to name this layout. */
  #isNoted = false;
  /** Shared, since many first runs may come at once. */
  #noting: Promise<void> | undefined;

  constructor(documents: Documents, { maxBytes, trailLimit, now }: WholeRunsSettings) {
    this.#documents = documents;
    this.#maxBytes = maxBytes;
    this.#now = now;
    this.#mostOlder = Math.ceil(trailLimit / OLDER_AT_ONCE);
    this.index = this.#indexOf(documents);
  }

  keyOf(run: string): string {
    return keyOfRun(run);
  }

  async read(key: string, trail?: TrailQuery): Promise<FoundParts> {
    const { document, revision, now } = (await this.#documents.read(key)) ?? {};
    if (document === undefined || document === null) {
      // Another layout may keep its runs under other keys.
      await this.#assertLayout();
      return { now };
    }
    if (typeof revision !== 'string') throw unnamed();
    const { kept, broken } = foundIn(key, () =>
      keptOf(runOfText(key, document), revision, document.length),
    );
    if (kept === undefined) return { broken, now };
    // No write renews a held or frozen run, but people look at it, as long as it takes.
    const time = Math.ceil(now ?? this.#now());
    if (removableAt(kept.run) === undefined && isSoonOver(kept, time))
      await this.#prolongAll(kept, time + OLDER_MS).catch(() => {});
    return { kept, now, ...(trail && { entries: await this.#trail(kept.run, trail) }) };
  }

  /** Writes the next revision, and beside it what leaves the document with a later one. */
  async swap(write: RunWrite): Promise<WrittenRun> {
    const { key, isNew, revision, isClaim } = write;
    const kept = write.before as KeptDocument | undefined;
    const before = isNew ? undefined : kept;
    // What was copied is known to the process alone, so one that reads anew each time copies first.
    const isLate = before !== undefined && isOverdue(before.run);
    if (isLate) await this.#age(before, write.next.expiresAt);
    const run = revised(
      before ? shortened(write.next, before.parts) : write.next,
      before,
      revision,
    );
    const document = textOfRun(run);
    this.#assertRoom(document, this.#maxBytes * (isClaim ? ROOM_OF_CLAIMS : 1));
    const changes = changesOf(kept && documentIndexOf(kept.run), documentIndexOf(run));
    if (isNew || kept === undefined) await this.#assertLayout(true);
    const next = { document, revision, expiresAt: removableAt(run), ...changes };
    const [answer] = await Promise.all([
      this.#documents.swap(key, kept?.tag, next),
      before && !isLate && this.#age(before, run.expiresAt),
    ]);
    const { now } = answer;
    if (!hasSwapped(answer)) return { swapped: false, now };
    // They expire by themselves, if this fails.
    if (isNew && kept !== undefined) await this.#dropOlder(kept.run).catch(() => {});
    const written = keptOf(run, answer.revision ?? revision, document.length, before);
    return { swapped: true, kept: written, now };
  }

  /**
   * First the run becomes unknown, in one write; then its older entries and its document go. A
   * second try after a crash finds the rest.
   */
  async remove(key: string, kept: KeptRun): Promise<boolean> {
    let { run, tag } = kept as KeptDocument;
    if (!isRemoved(run)) {
      const revision = newRevision();
      const gone = removed(revised(run, kept as KeptDocument, revision));
      const changes = changesOf(documentIndexOf(run), documentIndexOf(gone));
      const next = { document: textOfRun(gone), revision, expiresAt: 0, ...changes };
      const answer = await this.#documents.swap(key, tag, next);
      if (!hasSwapped(answer)) return false;
      [run, tag] = [gone, answer.revision ?? revision];
    }
    await this.#dropOlder(run);
    const lists = documentIndexOf(run).map(({ list }) => list);
    await this.#remove(key, lists, tag);
    return true;
  }

  async #trail(run: RunText, query: TrailQuery): Promise<readonly TrailEntry[]> {
    const workflow = run.workflows.get(query.workflow);
    if (workflow === undefined) return [];
    const newest = partBefore(workflow);
    const wanted = Math.ceil((query.limit - workflow.trail.length) / OLDER_AT_ONCE);
    const count = Math.max(0, Math.min(wanted, this.#mostOlder, newest + 1));
    const parts = Array.from({ length: count }, (_, at) => newest - count + 1 + at);
    const older = await Promise.all(
      parts.map(async (part) => {
        const answer = await this.#documents.read(keyOfOlder(run, query.workflow, part));
        return olderOfText(answer?.document)?.entries ?? [];
      }),
    );
    return lastEntries({ ...workflow, trail: [...older.flat(), ...workflow.trail] }, query.limit);
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
    const { key, revision, found } = await this.#switch(workflow);
    if (found?.revision !== expected) return false;
    if (revision === undefined) await this.#assertLayout(true);
    const written = { document, revision: newRevision(), expiresAt: undefined, ...NO_INDEX };
    return hasSwapped(await this.#documents.swap(key, revision, written));
  }

  /** Reads the note, and with it the time. */
  async now(): Promise<number | undefined> {
    const { document, now } = (await this.#documents.read(NOTE)) ?? {};
    if (typeof document === 'string') {
      ofThisLayout(document);
      this.#isNoted = true;
    }
    return now;
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
      await this.#assertLayout();
      return { key };
    }
    if (typeof revision !== 'string') throw unnamed();
    return { key, revision, found: switchOfText(workflow, document) };
  }

  /**
   * All documents of a backend have one layout, which a note says. Processes of two layouts could
   * not share it: no list of either would be whole.
   *
   * @param notes whether to write the note where none is there, since a run is about to be made
   * @throws InterlockError `ERR_INTERLOCK_STORE` where the note names another layout
   */
  async #assertLayout(notes = false): Promise<void> {
    if (this.#isNoted) return;
    if (!notes) {
      await this.now();
      return;
    }
    this.#noting ??= this.#note().finally(() => {
      this.#noting = undefined;
    });
    await this.#noting;
  }

  async #note(): Promise<void> {
    await this.now();
    if (this.#isNoted) return;
    const note = { document: textOfNote(), revision: newRevision(), expiresAt: undefined };
    const { swapped } = await this.#documents.swap(NOTE, undefined, { ...note, ...NO_INDEX });
    // Where another process was faster, its note counts.
    if (swapped) this.#isNoted = true;
    else await this.now();
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
  async #age(kept: KeptDocument, expiresAt: number): Promise<void> {
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
      if (oldest >= 0) this.#remove(keyOfOlder(run, name, oldest), [REMOVABLE]).catch(() => {});
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

  async #prolongAll(kept: KeptDocument, until: number): Promise<void> {
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

  async #dropOlder(run: RunOfText): Promise<void> {
    const keys = keysOfOlder(run, this.#mostOlder);
    await Promise.all(keys.map((key) => this.#remove(key, [REMOVABLE])));
  }

  /** Removes a document of this revision, or of any, and tries once more. */
  async #remove(key: string, lists: readonly string[], known?: string): Promise<void> {
    for (let tries = 1; tries <= 2; tries++) {
      const isFirst = tries === 1 && known !== undefined;
      const revision = isFirst ? known : (await this.#documents.read(key))?.revision;
      if (revision === undefined || (known !== undefined && revision !== known)) return;
      try {
        if (await this.#documents.remove(key, revision, lists)) return;
      } catch (error) {
        if (tries === 2) throw error;
      }
    }
  }

  #indexOf(documents: Documents): RunsIndex | undefined {
    const find = documents.find?.bind(documents);
    if (find === undefined) return undefined;
    const count = documents.count?.bind(documents);
    return {
      readAll: (keys) => Promise.all(keys.map((key) => this.read(key))),
      find: async (query) => {
        await this.#assertLayout();
        const { labels = [undefined], upTo, after, limit } = query;
        const list = listOf(query);
        const found = await Promise.all(
          labels.map((label) => find({ list, label, upTo, after, limit })),
        );
        return found.flat();
      },
      ...(count && {
        count: async ({ now, ...query }) => {
          await this.#assertLayout();
          return count({ list: listOf(query), now, upTo: query.upTo });
        },
      }),
      purge: async (principal, now, onBroken) => {
        await this.#assertLayout();
        const list = principal === undefined ? REMOVABLE : listOf({ kind: 'owned', of: principal });
        const upTo = principal === undefined ? now : 0;
        let purged = 0;
        for (let after: { score: number; key: string } | undefined; ; ) {
          const places = await find({ list, upTo, after, limit: SWEPT_AT_ONCE });
          const swept = await Promise.all(
            places.map(({ key }) =>
              this.#sweep(key, now).catch((error) => {
                if (!(error instanceof BrokenRun)) throw error;
                onBroken(error, key);
              }),
            ),
          );
          purged += swept.filter(Boolean).length;
          after = places.at(-1);
          if (after === undefined) return purged;
        }
      },
    };
  }

  /** Removes a document that is over; whether it was a run. */
  async #sweep(key: string, now: number): Promise<boolean> {
    if (!key.startsWith(OLDER)) {
      const { kept, broken } = await this.read(key);
      if (broken) throw broken;
      const goneAt = kept && removableAt(kept.run);
      return kept !== undefined && goneAt !== undefined && goneAt <= now && this.remove(key, kept);
    }
    const { document, revision } = (await this.#documents.read(key)) ?? {};
    const older = olderOfText(document);
    if (older && revision !== undefined && older.expiresAt <= now)
      await this.#remove(key, [REMOVABLE], revision);
    return false;
  }
}

/** The list of all documents; the score is when the backend may remove them. */
const REMOVABLE = 'removable';

function listOf({ kind, of }: Pick<RunIndexEntry, 'kind' | 'of'>): string {
  return `${kind}-${short(of)}`;
}

function documentIndexOf(run: RunState): readonly IndexEntry[] {
  // Also where it is pinned or frozen: the entry would come and go with each step.
  const removable = { list: REMOVABLE, label: '', score: Math.ceil(run.expiresAt) };
  const rest = indexOfRun(run).map((entry) => {
    return { list: listOf(entry), label: entry.label, score: entry.score };
  });
  return [removable, ...rest];
}

function short(name: string): string {
  return digestOf(name).slice(0, 32);
}

function revised(run: RunOfText, before: KeptDocument | undefined, revision: string): RunText {
  const revisions = withRevision(before?.run.revisions, revision);
  return { ...run, revisions, olderUntil: before?.olderUntil ?? 0 };
}

function keptOf(run: RunText, tag: string, bytes: number, before?: KeptDocument): KeptDocument {
  const mark = { revisions: run.revisions, bytes: 0 };
  return {
    ...{ run, tag, life: { ...mark, bytes } },
    flows: new Map([...run.workflows.keys()].map((name) => [name, mark])),
    parts: before?.parts ?? new Map(),
    olderUntil: Math.max(run.olderUntil, before?.olderUntil ?? 0),
  };
}

function isRemoved(run: RunText): boolean {
  return run.expiresAt === 0;
}

/** Whether the older entries would go soon after that time. */
function isSoonOver({ olderUntil }: KeptDocument, time: number): boolean {
  return olderUntil > 0 && olderUntil < time + OLDER_SOON_MS;
}

/** Whether a trail has twice as many entries as one is copied with: 50 are all that a run keeps. */
function isOverdue({ workflows }: RunText): boolean {
  for (const { trail } of workflows.values()) if (trail.length >= 2 * TRAIL_FULL) return true;
  return false;
}

/** Without the entries that lie elsewhere for certain. */
function shortened(run: RunOfText, parts: ReadonlyMap<string, number>): RunOfText {
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

const NO_INDEX = { index: [], put: [], drop: [] };

function documentOfOlder(older: OlderEntries): NextDocument {
  const { expiresAt } = older;
  const index = [{ list: REMOVABLE, label: '', score: expiresAt }];
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

function tooLarge(bytes: number, most: number, room: number): InterlockError {
  const rest = room < most ? `, of which a claim leaves a quarter to its commit` : '';
  return faulty(`the document has ${bytes} bytes, and maxBytes is ${most}${rest}`);
}
