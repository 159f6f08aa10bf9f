/**
 * A trail entry as one text, the same in every store, and the chain of hashes over those texts.
 * Hides the order of the members: scripts in Lua and SQL write them in the same one.
 */
import { createHash } from 'node:crypto';
import type { CallNote, FsmSnapshot, Json, TrailDraft, TrailEntry } from './store.ts';

/** The hash before the first entry. */
const NO_HASH = '';

/** The members that a store adds to an entry. */
type Stamps = Pick<TrailEntry, 'seq' | 'version' | 'attempt' | 'at'>;

/** What the next entry of a trail follows on. */
export interface TrailHead {
  /** How many entries it ever had. */
  readonly seq: number;
  /** How many attempts ended since the last commit. */
  readonly attempts: number;
  /** The hash of its newest entry, where it is chained. */
  readonly hash?: string | undefined;
}

/** The members that a call brings with it, in their order; `{}` if there are none. */
export function noteText(note: CallNote): string {
  return JSON.stringify(orderedNote(note));
}

/** An entry without its stamps. */
export function draftText(draft: TrailDraft): string {
  return JSON.stringify(orderedDraft(draft));
}

/** The attempt whose claim another claim has taken over. */
export function takenOver(from: string, note: CallNote): TrailDraft {
  return { from, event: null, outcome: 'unknown', kind: 'taken_over', ...note };
}

/** The next entry of a trail: frozen, and without what JSON cannot say. */
export function stampEntry(
  head: TrailHead,
  { version: before = 0 }: Pick<FsmSnapshot, 'version'>,
  draft: TrailDraft,
  at: number,
): TrailEntry {
  const { from, to, event, outcome } = draft;
  const seq = head.seq + 1;
  const version = to === undefined ? before : before + 1;
  const isAttempt = to !== undefined || outcome !== 'refused';
  const attempt = isAttempt ? head.attempts + 1 : head.attempts;
  // No spreads: an entry that begins with one, or has two, costs 3 kB here.
  const entry: Writable<TrailEntry> =
    to === undefined
      ? { seq, version, attempt, at, from, event }
      : { seq, version, attempt, at, from, to, event };
  addRest(entry, draft);
  if (entry.args !== undefined) entry.args = copyJson(entry.args);
  if (entry.payload !== undefined) entry.payload = copyJson(entry.payload);
  if (head.hash !== undefined) entry.hash = linkOf('sha256', head.hash, entry, draftText(draft));
  return Object.freeze(entry);
}

/** The hash of an empty trail; `undefined` where the trail is not chained. */
export function firstHash(isChained: boolean): string | undefined {
  return isChained ? NO_HASH : undefined;
}

type HashName = 'sha256' | 'sha1';

/** The hash of an entry in a chain. Scripts in Lua and SQL make the same hash of it. */
export function linkOf(
  name: HashName,
  before: string,
  { seq, version, attempt, at }: Stamps,
  text: string,
): string {
  const linked = `${before}\n${seq} ${version} ${attempt} ${at}\n${text}`;
  return `${name}:${createHash(name).update(linked).digest('hex')}`;
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

function orderedDraft(draft: TrailDraft): Writable<TrailDraft> {
  const { from, to, event } = draft;
  const ordered: Writable<TrailDraft> = to === undefined ? { from, event } : { from, to, event };
  addRest(ordered, draft);
  return ordered;
}

/** Adds what comes behind the event. */
function addRest(ordered: Writable<TrailDraft>, draft: TrailDraft): void {
  const { outcome, kind, payload, note, calledBy } = draft;
  if (outcome !== undefined) ordered.outcome = outcome;
  if (kind !== undefined) ordered.kind = kind;
  addNote(ordered, draft);
  if (payload !== undefined) ordered.payload = payload;
  if (note !== undefined) ordered.note = note;
  if (calledBy !== undefined) ordered.calledBy = calledBy;
}

/** A frozen copy of a note, with its members in their order and no others. */
export function orderedNote(note: CallNote): CallNote {
  const ordered: Writable<CallNote> = {};
  addNote(ordered, note);
  if (ordered.args !== undefined) ordered.args = copyJson(ordered.args);
  return Object.freeze(ordered);
}

function addNote(
  ordered: Writable<CallNote>,
  { tool, digest, args, actor, requestId, workflowVersion }: CallNote,
): void {
  if (tool !== undefined) ordered.tool = tool;
  if (digest !== undefined) ordered.digest = digest;
  if (args !== undefined) ordered.args = args;
  if (actor !== undefined) ordered.actor = actor;
  if (requestId !== undefined) ordered.requestId = requestId;
  if (workflowVersion !== undefined) ordered.workflowVersion = workflowVersion;
}

/** A fault of a trail, and the entry that has it. */
export interface TrailFault {
  /** The entry's index in the array that the caller gave. */
  readonly index: number;
  readonly seq: number;
  /**
   * `altered`: the entry does not have the content that its hash was made of. `missing`: entries
   * are missing in front of it. `order`: it belongs in front of the entry before it. `unchained`:
   * it has no hash, or one of an unknown kind.
   */
  readonly fault: 'altered' | 'missing' | 'order' | 'unchained';
}

/**
 * Checks the hashes of a trail that a store chained: whether an entry was altered, dropped or
 * swapped after the store wrote it. It cannot check the oldest of the entries, unless the trail
 * begins there. So keep that one's hash, or the newest one's, where the store's operators cannot
 * reach it, and compare.
 *
 * @param entries oldest first, as `runs.history()` gives them
 * @returns the faults, in the order of the entries; empty where there are none
 */
export function verifyTrail(entries: readonly TrailEntry[]): TrailFault[] {
  const faults: TrailFault[] = [];
  for (const [index, entry] of entries.entries()) {
    const fault = faultOf(entry, entries[index - 1]);
    if (fault !== undefined) faults.push({ index, seq: entry.seq, fault });
  }
  return faults;
}

function faultOf(
  entry: TrailEntry,
  before: TrailEntry | undefined,
): TrailFault['fault'] | undefined {
  const name = /^(sha256|sha1):[0-9a-f]+$/.exec(entry.hash ?? '')?.[1] as HashName | undefined;
  if (name === undefined) return 'unchained';
  if (before === undefined && entry.seq !== 1) return undefined;
  if (before !== undefined && entry.seq <= before.seq) return 'order';
  if (before !== undefined && entry.seq !== before.seq + 1) return 'missing';
  const link = linkOf(name, before?.hash ?? NO_HASH, entry, draftText(entry));
  return link === entry.hash ? undefined : 'altered';
}

/** A frozen copy, as a store on a server would give it back. */
export function copyJson(value: Json): Json {
  if (typeof value !== 'object' || value === null) return value;
  const copy: Json = JSON.parse(JSON.stringify(value));
  freezeDeeply(copy);
  return copy;
}

function freezeDeeply(value: Json): void {
  if (typeof value !== 'object' || value === null) return;
  for (const inner of Object.values(value)) freezeDeeply(inner);
  Object.freeze(value);
}
