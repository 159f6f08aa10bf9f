/**
 * What a built-in backend keeps of a run: its parts, and what a write changes of them. Hides the
 * text of each part, and which index entries and trail entries belong to it.
 *
 * The parts are the *life*, which all workflows of the run share, and each workflow, with a revision
 * for each of them. A workflow has texts (position, claim, lease and data), the tokens that are
 * spent, and trail entries. A write judges only the parts that it needs, and sends only the texts
 * that change. So a renewal sends no facts, and the workflows of a run do not wait for each other.
 */

import { InterlockError } from '../../basics/errors.ts';
import { runDigest } from '../../basics/events.ts';
import { type Claim, neverExpires, type RunState, type WorkflowState } from '../run-life.ts';
import { unsettledSince } from '../run-state.ts';
import { encodeText } from '../sql-text.ts';
import type { Json, ManyRunsQuery, SwitchRecord, TrailEntry } from '../store.ts';
import { freezeDeeply } from '../trail.ts';
import type { IndexPlace } from './documents.ts';
import {
  BrokenRun,
  otherKey,
  REVISION_LENGTH,
  type RunOfText,
  settledOfText,
  textOfSettled,
  withRevision,
} from './run-text.ts';

/** A part as a process found or wrote it. */
export interface PartMark {
  /** The last ones, the newest first: so a process knows its own write, also behind a later one. */
  readonly revisions: string;
  /** About how much memory it takes. */
  readonly bytes: number;
}

/** A run as a process found or wrote it. */
export interface KeptRun {
  readonly run: RunOfText;
  readonly life: PartMark;
  readonly flows: ReadonlyMap<string, PartMark>;
}

/** What a backend answers about a run. */
export interface FoundParts {
  /** Absent: there is none. */
  readonly kept?: KeptRun | undefined;
  /** Why what is there cannot be read. */
  readonly broken?: BrokenRun | undefined;
  /** The backend's time, in milliseconds since the epoch; absent where it has no clock. */
  readonly now?: number | undefined;
  /** The part of the trail that was asked for, oldest first. */
  readonly entries?: readonly TrailEntry[] | undefined;
}

/** A part of a run's trail: the newest `limit` entries of one workflow. */
export interface TrailQuery {
  readonly workflow: string;
  readonly limit: number;
}

/** One write of a run. */
export interface RunWrite {
  /** The key of the run's document. */
  readonly key: string;
  /** What the writer went by; `undefined` where it knows of no run. */
  readonly before: KeptRun | undefined;
  /** Whether nothing of `before` stays: the next run is another one. */
  readonly isNew: boolean;
  readonly next: RunOfText;
  /** Unguessable, made for this one write. */
  readonly revision: string;
  /** Whether the life changes, and which workflows do. */
  readonly life: boolean;
  readonly flows: readonly string[];
  /**
   * Whether each part must be as it was in `before`, with no other beside them. Otherwise the life
   * and the workflows that change.
   */
  readonly judgesAll: boolean;
  /** A step of one workflow, which must not wait until other workflows are committed. */
  readonly isStep: boolean;
  /** A claim leaves room for its commit, where the backend has a limit. */
  readonly isClaim: boolean;
}

export interface WrittenRun extends FoundParts {
  /** `kept` is what is there now, or absent where the loser must read. */
  readonly swapped: boolean;
}

/**
 * - `open`, `ended`: runs by state, of a workflow; the score is when they came there.
 * - `claimed`: runs with a claim, by `hold` or `retry`; the score is the end of the lease.
 * - `since`: the same; the score is when the claim was taken.
 * - `unsettled`: runs with unsettled steps, or whose claim may become one; the score is when.
 * - `owned`: the runs of a principal.
 */
export type IndexKind = 'open' | 'ended' | 'claimed' | 'since' | 'unsettled' | 'owned';

export interface RunIndexEntry {
  readonly kind: IndexKind;
  /** The workflow, or the principal. */
  readonly of: string;
  /** Text that a database can keep. */
  readonly label: string;
  /** A whole number. */
  readonly score: number;
}

export interface RunsFind {
  readonly kind: IndexKind;
  readonly of: string;
  /** Absent: entries with any label. */
  readonly labels?: readonly string[] | undefined;
  readonly upTo: number;
  readonly after?: IndexPlace | undefined;
  readonly limit: number;
}

export interface RunsTally {
  readonly label: string;
  readonly entries: number;
  /** How many of them have at most the score `upTo`. */
  readonly upTo: number;
}

/** A backend of runs in parts. Each method is one atomic operation of it. */
export interface RunDocuments {
  /** Whether a run is one text, so that its writers wait for each other. */
  readonly isWhole?: boolean;
  /** Under which key the backend keeps a run. No two runs share one. */
  keyOf(run: string): string;
  /** The newest write anywhere, never one of a replica that may lag. */
  read(key: string, trail?: TrailQuery): Promise<FoundParts>;
  /**
   * Writes the parts that change, if the judged ones still have the revisions of `before`. Of many
   * who expect the same, exactly one gets `true`. What it answers is never older than the loss.
   */
  swap(write: RunWrite): Promise<WrittenRun>;
  /** Removes the run with its trail, if each part of it is still as it was kept. */
  remove(key: string, kept: KeptRun): Promise<boolean>;
  readSwitch(workflow: string): Promise<SwitchRecord | undefined>;
  swapSwitch(workflow: string, expected: string | undefined, next: SwitchRecord): Promise<boolean>;
  /** What time it is, where no answer has said so yet. */
  now(): Promise<number | undefined>;
  /** The operations below come together; `count` may be missing beside the others. */
  readonly index?: RunsIndex | undefined;
}

export interface RunsIndex {
  /** Several runs at once, in the order of the keys. */
  readAll(keys: readonly string[]): Promise<readonly FoundParts[]>;
  /** In the order of scores and, of one score, of keys. May name runs that are gone. */
  find(query: RunsFind): Promise<readonly IndexPlace[]>;
  /** Counts by label; expired runs do not count. */
  count?(
    query: Pick<RunsFind, 'kind' | 'of' | 'upTo'> & { readonly now: number },
  ): Promise<readonly RunsTally[]>;
  /** A list has named a run that is not there; for a backend that may evict runs by itself. */
  forget?(key: string): Promise<void>;
  /** Removes what is left of runs that expired before `now`, of one principal or of all. */
  purge(
    principal: string | undefined,
    now: number,
    onBroken: NonNullable<ManyRunsQuery['onError']>,
  ): Promise<number>;
}

/** What a write puts of a part. */
export interface PartChange {
  /** Until when the run stays for its sake; `undefined`: it must not go. */
  readonly expiresAt: number | undefined;
  readonly index: readonly RunIndexEntry[];
}

export interface LifeChange extends PartChange {
  readonly text: string;
}

/** The texts of a workflow, by what they hold. The head is its name, its position and the like. */
export const TEXTS = ['head', 'claim', 'lease', 'data'] as const;

type TextName = (typeof TEXTS)[number];

export interface FlowChange extends PartChange {
  readonly workflow: string;
  readonly state: WorkflowState;
  /** Those that change. `null`: there is none any more. */
  readonly texts: { readonly [Name in TextName]?: string | null };
  /** The tokens that are spent with it, as words for {@link settledOfText}. */
  readonly settled: string;
  /** The new entries of the trail. */
  readonly entries: readonly TrailEntry[];
}

/** What a write puts. */
export interface RunChange {
  readonly life: LifeChange | undefined;
  readonly flows: readonly FlowChange[];
  /** The run as it is once this is written. */
  readonly kept: KeptRun;
}

export function revisionOf(mark: PartMark | undefined): string | undefined {
  return mark?.revisions.slice(0, REVISION_LENGTH);
}

/** Whether a part is this write's, or has been since. */
export function hasWritten({ life, flows }: KeptRun, revision: string): boolean {
  if (life.revisions.includes(revision)) return true;
  for (const mark of flows.values()) if (mark.revisions.includes(revision)) return true;
  return false;
}

/** What a write changes of each part. */
export function changeOf({ before, isNew, next, revision, life, flows }: RunWrite): RunChange {
  const known = isNew ? undefined : before;
  const marks = new Map(known?.flows);
  const workflows = new Map(next.workflows);
  const flowChanges = flows.map((name): FlowChange => {
    const state = next.workflows.get(name) as WorkflowState;
    const old = known?.run.workflows.get(name);
    const mark = known?.flows.get(name);
    const texts = changedTexts(name, state, old);
    const bytes = Object.values(texts).reduce((sum, text) => sum + (text?.length ?? 0), 0);
    marks.set(name, {
      revisions: withRevision(mark?.revisions, revision),
      bytes: Math.max(bytes, texts.data === undefined ? (mark?.bytes ?? 0) : 0),
    });
    // The backend has the entries; no rule reads more than the head of the trail.
    workflows.set(name, { ...state, trail: [] });
    return {
      ...{ workflow: name, state, texts },
      settled: textOfSettled(newlySettled(state.settled, old?.settled)),
      expiresAt: expiryOfFlow(state),
      entries: state.trail,
      index: indexOfFlow(name, state),
    };
  });
  const isLife = life || known === undefined;
  const text = isLife ? textOfLife(next) : '';
  const lifeMark = isLife
    ? { revisions: withRevision(known?.life.revisions, revision), bytes: text.length }
    : known.life;
  return {
    life: isLife
      ? { text, expiresAt: Math.ceil(next.expiresAt), index: indexOfLife(next) }
      : undefined,
    flows: flowChanges,
    kept: { run: { ...next, workflows }, life: lifeMark, flows: marks },
  };
}

function changedTexts(
  name: string,
  state: WorkflowState,
  old: WorkflowState | undefined,
): FlowChange['texts'] {
  const before = old ? textsOf(name, old) : {};
  const texts = Object.entries(textsOf(name, state)) as [TextName, string | null][];
  const changed = texts.filter(([text, value]) => value !== (before[text] ?? null));
  const isSame = old !== undefined && old.snapshot.context === state.snapshot.context;
  if (!isSame) changed.push(['data', dataOf(state)]);
  return Object.fromEntries(changed);
}

function dataOf({ snapshot: { context } }: WorkflowState): string | null {
  return context === undefined ? null : JSON.stringify(context);
}

/** Those that are spent in front of others stay where the backend has them. */
function newlySettled(
  settled: WorkflowState['settled'],
  before: WorkflowState['settled'] = [],
): WorkflowState['settled'] {
  const last = before.at(-1);
  return last === undefined ? settled : settled.slice(settled.lastIndexOf(last) + 1);
}

/** A part as a backend gives it back. */
export interface FoundPart {
  readonly revisions: string;
}

export interface FoundLife extends FoundPart {
  readonly text: string;
}

/** An empty text, or `null`: there is none. */
export interface FoundFlow
  extends FoundPart,
    Readonly<Partial<Record<TextName | 'settled', string | null | undefined>>> {
  readonly head: string;
}

/**
 * @throws InterlockError `ERR_INTERLOCK_STORE` where a text is none of this key's run
 */
export function runOfParts(
  documents: Pick<RunDocuments, 'keyOf'>,
  key: string,
  { text, revisions }: FoundLife,
  flows: readonly FoundFlow[],
): KeptRun {
  const life = parsed<Omit<RunOfText, 'workflows'>>(text, 'run');
  if (documents.keyOf(life.run) !== key) throw otherKey();
  const run = { ...life, openedBy: life.openedBy, workflows: new Map() };
  return withFlows({ run, life: { revisions, bytes: text.length }, flows: new Map() }, flows);
}

/** The run with these workflows in place of those that were known by then. */
export function withFlows({ run, life, flows }: KeptRun, found: readonly FoundFlow[]): KeptRun {
  const workflows = new Map(run.workflows);
  const marks = new Map(flows);
  for (const { revisions, head, claim, lease, data, settled } of found) {
    const { workflow, state, updatedAt, version, ...more } = parsed<HeadText>(head, 'state');
    const context = data ? (JSON.parse(data) as Json) : undefined;
    if (context !== undefined) freezeDeeply(context);
    const snapshot = Object.freeze(
      context === undefined
        ? { state, updatedAt, version }
        : { state, updatedAt, version, context },
    );
    workflows.set(workflow, {
      ...more,
      snapshot,
      claim: claim ? { ...parsed<ClaimText>(claim, 'token'), leaseEnd: Number(lease) } : undefined,
      unsettled: more.unsettled ?? [],
      settled: settledOfText(settled ?? ''),
      trail: [],
    });
    const bytes = head.length + (claim?.length ?? 0) + (data?.length ?? 0);
    marks.set(workflow, { revisions, bytes });
  }
  return { run: { ...run, workflows }, life, flows: marks };
}

/**
 * A run as it is parsed, or why it cannot be: a list over many goes on past a broken one.
 *
 * @throws InterlockError `ERR_INTERLOCK_STORE` where it has another layout, as all of them may
 */
export function foundIn<Kept extends KeptRun>(
  key: string,
  parse: () => Kept | undefined,
): { readonly kept?: Kept | undefined; readonly broken?: BrokenRun } {
  try {
    return { kept: parse() };
  } catch (error) {
    const isBroken = error instanceof BrokenRun;
    if (error instanceof InterlockError && !isBroken) throw error;
    // What the parser says has the run's own texts.
    const fault = isBroken ? error.fault : 'what is kept of a run lacks a part';
    return { broken: new BrokenRun(fault, runDigest(key)) };
  }
}

/** How a list reports a run that it leaves out, where its caller does not say. */
export function warnOfBroken(error: unknown): void {
  process.emitWarning((error as BrokenRun).message, 'InterlockWarning');
}

interface HeadText
  extends Pick<WorkflowState, 'ended' | 'frozen' | 'head'>,
    Partial<Pick<WorkflowState, 'unsettled'>> {
  readonly workflow: string;
  readonly state: string;
  readonly updatedAt: number;
  readonly version: number;
}

type ClaimText = Omit<Claim, 'leaseEnd'>;

function textOfLife({ workflows: _, sessionEnded, ...rest }: RunOfText): string {
  return JSON.stringify({ ...rest, sessionEnded: sessionEnded || undefined });
}

/** All but the data, which may be large. */
function textsOf(
  workflow: string,
  { snapshot, claim, ended, frozen, unsettled, head }: WorkflowState,
): FlowChange['texts'] {
  const { state, updatedAt, version } = snapshot;
  const unknown = unsettled.length > 0 ? unsettled : undefined;
  const position = { workflow, state, updatedAt, version, ended, frozen, unsettled: unknown, head };
  const { leaseEnd, ...taken } = claim ?? {};
  return {
    head: JSON.stringify(position),
    claim: claim === undefined ? null : JSON.stringify(taken),
    lease: leaseEnd === undefined ? null : String(leaseEnd),
  };
}

/** Frozen, as all that a store gives. */
function parsed<Part extends object>(text: string, member: keyof Part): Part {
  let part: Json;
  try {
    part = JSON.parse(text) as Json;
  } catch {
    // What the parser says has the run's own texts.
    throw new BrokenRun('a part of a run is no JSON');
  }
  if (typeof (part as Partial<Part> | null)?.[member] !== 'string')
    throw new BrokenRun('what is kept of a run lacks a part');
  freezeDeeply(part);
  return part as Part;
}

function expiryOfFlow(state: WorkflowState): number | undefined {
  if (neverExpires({ workflows: new Map([['', state]]) })) return undefined;
  return Math.ceil(state.claim?.leaseEnd ?? 0);
}

function indexOfLife({ session: { principal } }: RunState): RunIndexEntry[] {
  return principal === undefined ? [] : [{ kind: 'owned', of: principal, label: '', score: 0 }];
}

function indexOfFlow(of: string, workflow: WorkflowState): RunIndexEntry[] {
  const { snapshot, claim, ended } = workflow;
  const kind = ended ? 'ended' : 'open';
  const score = Math.floor(snapshot.updatedAt);
  const entries: RunIndexEntry[] = [{ kind, of, label: encodeText(snapshot.state), score }];
  const unsettled = unsettledSince(workflow);
  if (unsettled !== undefined)
    entries.push({ kind: 'unsettled', of, label: 'retry', score: Math.floor(unsettled) });
  if (claim === undefined) return entries;
  const { uncertain: label, leaseEnd, since } = claim;
  entries.push({ kind: 'claimed', of, label, score: Math.floor(leaseEnd) });
  entries.push({ kind: 'since', of, label, score: Math.floor(since) });
  return entries;
}

/** Under what a run can be found. */
export function indexOfRun(run: RunState): RunIndexEntry[] {
  const flows = [...run.workflows].flatMap(([name, state]) => indexOfFlow(name, state));
  return [...indexOfLife(run), ...flows];
}

/** What a list has of a run. */
export function entriesOf(
  run: RunState,
  { kind, of }: Pick<RunsFind, 'kind' | 'of'>,
): RunIndexEntry[] {
  const flow = run.workflows.get(of);
  const entries = kind === 'owned' ? indexOfLife(run) : flow ? indexOfFlow(of, flow) : [];
  return entries.filter((entry) => entry.kind === kind && entry.of === of);
}

/** The order of a list. */
export function byPlace(a: IndexPlace, b: IndexPlace): number {
  return a.score - b.score || (a.key < b.key ? -1 : 1);
}
