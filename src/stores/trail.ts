/**
 * What a trail entry says, as one text that every store agrees on, and the chain of hashes over
 * those texts. Hides the order of the members, so that a script in Lua or SQL can write them too.
 */
import { createHash } from 'node:crypto';
import type { CallNote, FsmSnapshot, Json, TrailDraft, TrailEntry } from './store.ts';

/** What stands before the first entry's hash. */
const NO_HASH = '';

/** What a store stamps an entry with. */
type Stamps = Pick<TrailEntry, 'seq' | 'version' | 'attempt' | 'at'>;

/** Where the trail of a workflow stands. */
export interface TrailHead {
  /** How many entries it ever had. */
  readonly seq: number;
  /** How many attempts ended since the last commit. */
  readonly attempts: number;
  /** The hash of its newest entry, where it is chained. */
  readonly hash?: string | undefined;
}

/** The members that a call brings with it, in their order. Without members: `{}`. */
export function noteText(note: CallNote): string {
  return JSON.stringify(orderedNote(note));
}

/** All that the app and the gate say of an entry, without its stamps. */
export function draftText(draft: TrailDraft): string {
  return JSON.stringify(orderedDraft(draft));
}

/** The attempt of a claim that another one took over. */
export function takenOver(from: string, note: CallNote): TrailDraft {
  return { from, event: null, outcome: 'unknown', kind: 'taken_over', ...note };
}

/** The next entry of a trail: frozen, and without what JSON cannot say. */
export function stampEntry(
  { seq, attempts, hash }: TrailHead,
  { version = 0 }: Pick<FsmSnapshot, 'version'>,
  draft: TrailDraft,
  at: number,
): TrailEntry {
  const stamps = {
    seq: seq + 1,
    version: draft.to === undefined ? version : version + 1,
    attempt: draft.outcome === 'refused' && draft.to === undefined ? attempts : attempts + 1,
    at,
  };
  const said = orderedDraft(draft);
  if (said.args !== undefined) said.args = copyJson(said.args);
  if (said.payload !== undefined) said.payload = copyJson(said.payload);
  return Object.freeze({
    ...stamps,
    ...said,
    ...(hash !== undefined && { hash: linkOf('sha256', hash, stamps, draftText(draft)) }),
  });
}

/** The hash of a chain to which nothing was added yet; `undefined` where it is not chained. */
export function firstHash(isChained: boolean): string | undefined {
  return isChained ? NO_HASH : undefined;
}

type HashName = 'sha256' | 'sha1';

/** The hash of an entry in a chain. Scripts in Lua and SQL make the same of the same. */
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
  const { from, to, event, outcome, kind, payload, note, calledBy } = draft;
  const ordered = (
    to === undefined ? { from, event } : { from, to, event }
  ) as Writable<TrailDraft>;
  if (outcome !== undefined) ordered.outcome = outcome;
  if (kind !== undefined) ordered.kind = kind;
  addNote(ordered, draft);
  if (payload !== undefined) ordered.payload = payload;
  if (note !== undefined) ordered.note = note;
  if (calledBy !== undefined) ordered.calledBy = calledBy;
  return ordered;
}

/** A frozen copy of a note: its members in their order, and no others. */
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

/** What is wrong with a trail, and at which of the given entries. */
export interface TrailFault {
  /** The index in the array that was given. */
  readonly index: number;
  readonly seq: number;
  /**
   * `altered`: the entry is not what its hash was made of. `missing`: the entry after the one
   * before is not there. `order`: it stands before one that it came after. `unchained`: it has no
   * hash, or one of an unknown kind.
   */
  readonly fault: 'altered' | 'missing' | 'order' | 'unchained';
}

/**
 * Checks the hashes of a trail that a store chained: whether an entry was altered, dropped or
 * swapped after it was written. The oldest entry that is given is taken as it is: keep its hash, or
 * the newest one, where the store's operators cannot reach it, and compare.
 *
 * @param entries oldest first, as `runs.history()` gives them
 * @returns what is wrong, in the order of the entries; empty where nothing is
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

/** A frozen copy, as other stores would give it back. */
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
