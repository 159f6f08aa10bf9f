/**
 * A trail entry as one text, the same in every store, and the chain of hashes over those texts.
 * Hides the order of the members, which is the same in every store.
 */
import { createHash } from 'node:crypto';
import type { CallNote, FsmSnapshot, Json, RunKey, TrailDraft, TrailEntry } from './store.ts';

/** The members that a store adds to an entry. */
type Stamps = Pick<TrailEntry, 'seq' | 'version' | 'attempt' | 'at'>;

/** What the next entry of a trail follows on. */
export interface TrailHead {
  /** How many entries it ever had. */
  readonly seq: number;
  /** How many attempts ended since the last commit. */
  readonly attempts: number;
  /** The hash of its newest entry, or the anchor of an empty trail, where it is chained. */
  readonly hash?: string | undefined;
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
  // Only a forwarded call is one: no refusal, and no freeze.
  const isAttempt = to !== undefined || (outcome !== undefined && outcome !== 'refused');
  const attempt = isAttempt ? head.attempts + 1 : head.attempts;
  // No spreads: an entry that begins with one, or has two, costs 3 kB here.
  const entry: Writable<TrailEntry> =
    to === undefined
      ? { seq, version, attempt, at, from, event }
      : { seq, version, attempt, at, from, to, event };
  addRest(entry, draft);
  if (entry.args !== undefined) entry.args = copyJson(entry.args);
  if (entry.payload !== undefined) entry.payload = copyJson(entry.payload);
  if (entry.errors !== undefined) entry.errors = copyJson(entry.errors);
  if (head.hash !== undefined) {
    entry.previous = head.hash;
    entry.hash = linkOf(head.hash, entry, draftText(draft));
  }
  return Object.freeze(entry);
}

/**
 * What a chained trail begins with: it binds the first entry, and so each later one, to this run
 * and workflow. Of UTF-16 units, because UTF-8 cannot hold half a surrogate pair.
 */
export function anchorOf({ run, workflow }: RunKey): string {
  const named = JSON.stringify([digestOfName(run), digestOfName(workflow)]);
  return `sha256:${createHash('sha256').update(named).digest('hex')}`;
}

/** What an anchor is made of: one digest each of the run and the workflow. */
export function digestOfName(name: string): string {
  return createHash('sha256').update(name, 'utf16le').digest('hex');
}

/** The hash of an entry in a chain. */
export function linkOf(
  before: string,
  { seq, version, attempt, at }: Stamps,
  text: string,
): string {
  const linked = `${before}\n${seq} ${version} ${attempt} ${at}\n${text}`;
  return `sha256:${createHash('sha256').update(linked).digest('hex')}`;
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

/**
 * What its hash is made of: the members that a store knows, in their order, and then any others.
 */
function hashedText(entry: TrailEntry): string {
  const { seq: _, version: __, attempt: ___, at: ____, hash: _____, previous, ...draft } = entry;
  return JSON.stringify({ ...orderedDraft(draft), ...draft });
}

function orderedDraft(draft: TrailDraft): Writable<TrailDraft> {
  const { from, to, event } = draft;
  const ordered: Writable<TrailDraft> = to === undefined ? { from, event } : { from, to, event };
  addRest(ordered, draft);
  return ordered;
}

/** Adds what comes behind the event. */
function addRest(ordered: Writable<TrailDraft>, draft: TrailDraft): void {
  const { outcome, kind, payload, errors, note, calledBy } = draft;
  if (outcome !== undefined) ordered.outcome = outcome;
  if (kind !== undefined) ordered.kind = kind;
  addNote(ordered, draft);
  if (payload !== undefined) ordered.payload = payload;
  if (errors !== undefined) ordered.errors = errors;
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
  /** The entry's index in the array that the caller gave; -1 for a fault of the whole trail. */
  readonly index: number;
  /** 0 for a fault of the whole trail. */
  readonly seq: number;
  /**
   * - `altered`: the entry does not have the content that its hash was made of.
   * - `missing`: entries are missing in front of it.
   * - `order`: it belongs in front of the entry before it.
   * - `unchained`: it has no hash, or one of an unknown kind.
   * - `foreign`: it is the first entry of another run or workflow.
   * - `cut`: no entry has the hash that the caller kept. The newest entries were dropped, or the
   *   trail was written anew.
   */
  readonly fault: 'altered' | 'missing' | 'order' | 'unchained' | 'foreign' | 'cut';
}

/** What {@link verifyTrail} compares a trail with. */
export interface VerifyTrailOptions {
  /** The run and the workflow whose trail it must be. */
  readonly from: RunKey;
  /**
   * The hash of an entry that was the newest one once, kept where the store's operators cannot
   * reach it. Without it, a person who can write to the store can write the whole trail anew.
   */
  readonly newest?: string | undefined;
}

/**
 * Checks the hashes of a trail that a store chained. They show whether an entry was altered,
 * dropped, swapped or added after the store wrote it, and whether the trail is this run's. An
 * entry's hash covers each of its members, also unknown ones, and the hash before it. The run is
 * bound by the first entry: where the trail no longer begins there, give `newest` too.
 *
 * @param entries oldest first, as `runs.history()` gives them
 * @returns the faults, in the order of the entries; empty where there are none
 */
export function verifyTrail(
  entries: readonly TrailEntry[],
  { from, newest }: VerifyTrailOptions,
): TrailFault[] {
  const faults: TrailFault[] = [];
  for (const [index, entry] of entries.entries()) {
    const fault = faultOf(entry, entries[index - 1], from);
    if (fault !== undefined) faults.push({ index, seq: entry.seq, fault });
  }
  if (newest !== undefined && !entries.some(({ hash }) => hash === newest))
    faults.push({ index: -1, seq: 0, fault: 'cut' });
  return faults;
}

function faultOf(
  entry: TrailEntry,
  before: TrailEntry | undefined,
  from: RunKey,
): TrailFault['fault'] | undefined {
  const { seq, hash = '', previous } = entry;
  if (!/^sha256:[0-9a-f]+$/.test(hash) || previous === undefined) return 'unchained';
  if (before !== undefined && seq <= before.seq) return 'order';
  if (before !== undefined && seq !== before.seq + 1) return 'missing';
  if (linkOf(previous, entry, hashedText(entry)) !== hash) return 'altered';
  if (seq === 1) return previous === anchorOf(from) ? undefined : 'foreign';
  // The entry before was written anew, together with its own hash.
  return before === undefined || before.hash === previous ? undefined : 'altered';
}

/** A frozen copy, as a store on a server would give it back. Texts are shared with the original. */
export function copyJson<Value extends Json | readonly Json[]>(value: Value): Value {
  if (typeof value !== 'object' || value === null) return value;
  return copyOf(value, 0) as Value;
}

/** Deeper, or in a circle: `JSON.stringify` copies it, or says why not. */
const DEEPEST = 100;

function copyOf(value: unknown, depth: number): unknown {
  if (typeof value === 'string' || typeof value === 'boolean' || value === null) return value;
  if (typeof value === 'number' && Number.isFinite(value)) return value + 0;
  if (depth < DEEPEST && Array.isArray(value))
    return Object.freeze(Array.from(value, (each) => copyOf(each, depth + 1) ?? null));
  if (depth < DEEPEST && isPlain(value)) {
    const copy: Record<string, unknown> = {};
    for (const key of Object.keys(value)) {
      const inner = copyOf(value[key], depth + 1);
      if (inner !== undefined) copy[key] = inner;
    }
    return Object.freeze(copy);
  }
  const text = JSON.stringify(value);
  if (text === undefined) return undefined;
  const copy = JSON.parse(text);
  freezeDeeply(copy);
  return copy;
}

/** Whether it is written member by member, and none of them is a prototype. */
function isPlain(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return (
    (prototype === Object.prototype || prototype === null) &&
    typeof (value as { toJSON?: unknown }).toJSON !== 'function' &&
    !Object.hasOwn(value, '__proto__')
  );
}

export function freezeDeeply(value: Json): void {
  if (typeof value !== 'object' || value === null) return;
  for (const inner of Object.values(value)) freezeDeeply(inner);
  Object.freeze(value);
}
