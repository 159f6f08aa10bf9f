/**
 * A run as the text of a document, and under what it can be found. Hides the layout of the text,
 * which older entries of a trail lie elsewhere, and how names become keys of any backend.
 */
import { createHash } from 'node:crypto';
import { InterlockError } from '../../errors.ts';
import { newToken } from '../../names.ts';
import { neverExpires, type RunState, unsettledSince, type WorkflowState } from '../run-state.ts';
import { encodeText } from '../sql-text.ts';
import type { Json, SwitchRecord, TrailEntry } from '../store.ts';
import { digestOfName, freezeDeeply } from '../trail.ts';
import type { IndexEntry } from './documents.ts';

/** A run, with what the document says of itself. */
export interface StoredRun extends RunState {
  /** Its key, as the gate knows it. */
  readonly run: string;
  /** Made with the run: an earlier run under the same key had another one. */
  readonly birth: string;
  /** The last revisions, the newest last: so a process knows its own write, also a later one's. */
  readonly revisions: readonly string[];
  /** Until when the backend keeps the older entries of the trails at least. */
  readonly olderUntil: number;
  /** Under which key a copy is made that names no person; this one is removed then. */
  readonly movesTo?: string | undefined;
}

/**
 * Changes with each change of the texts, the keys or the lists that another version of this package
 * cannot work with.
 */
const LAYOUT = 2;

const REVISIONS_KEPT = 8;

/** In characters of base64url: 72 random bits. */
const REVISION_LENGTH = 12;

/** How many entries go into a document of their own, once there are `TRAIL_FULL` in the run's. */
export const OLDER_AT_ONCE = 8;
export const TRAIL_FULL = 9;

export function newRevision(): string {
  return newToken().slice(0, REVISION_LENGTH);
}

export function keyOfRun(run: string): string {
  return `run-${digestOf(run)}`;
}

/** How keys of documents with older entries begin. */
export const OLDER = 'trail-';

/** The document with the entries from `8 × part + 1` on. */
export function keyOfOlder(
  { birth }: Pick<StoredRun, 'birth'>,
  name: string,
  part: number,
): string {
  const id = createHash('sha256')
    .update(`${birth}${digestOfName(name)}`)
    .digest('hex');
  return `${OLDER}${id.slice(0, 40)}-${part}`;
}

/** The members of the text, in its order. A workflow may be called `__proto__`, hence the pairs. */
interface RunText {
  readonly layout: number;
  readonly run: string;
  readonly birth: string;
  readonly revisions: readonly string[];
  readonly session: RunState['session'];
  readonly openedBy?: string | undefined;
  readonly expiresAt: number;
  readonly sessionEnded?: boolean | undefined;
  readonly olderUntil: number;
  readonly movesTo?: string | undefined;
  readonly workflows: readonly (readonly [name: string, workflow: WorkflowText])[];
}

interface WorkflowText extends Omit<WorkflowState, 'settled'> {
  /** A token that was released has no version. */
  readonly settled: readonly (readonly [token: string, version?: number])[];
}

export function textOfRun(stored: StoredRun): string {
  const { run, birth, revisions, session, openedBy, expiresAt, sessionEnded } = stored;
  const { olderUntil, movesTo } = stored;
  const workflows = [...stored.workflows].map(([name, workflow]) => {
    const settled = workflow.settled.map(({ token, version }) =>
      version === undefined ? ([token] as const) : ([token, version] as const),
    );
    return [name, { ...workflow, settled }] as const;
  });
  const text: RunText = {
    ...{ layout: LAYOUT, run, birth, revisions, session, openedBy },
    ...{ expiresAt, sessionEnded: sessionEnded || undefined, olderUntil, movesTo },
    workflows,
  };
  return JSON.stringify(text);
}

/**
 * @throws InterlockError `ERR_INTERLOCK_STORE` where the text is none of this key's run, or has
 * another layout
 */
export function runOfText(key: string, document: string): StoredRun {
  const { workflows, layout: _, ...rest } = ofThisLayout(document) as unknown as RunText;
  if (keyOfRun(rest.run) !== key) throw otherKey();
  freezeDeeply(rest as unknown as Json);
  const states = workflows.map(([key, { settled, ...workflow }]) => {
    freezeDeeply(workflow as unknown as Json);
    const tokens = settled.map(([token, version]) =>
      version === undefined ? { token } : { token, version },
    );
    return [key, { ...workflow, settled: tokens }] as const;
  });
  return { ...rest, openedBy: rest.openedBy, workflows: new Map(states) };
}

/** @throws InterlockError `ERR_INTERLOCK_STORE` for a text of another layout, or of none */
export function ofThisLayout(document: string, what: 'run' | 'switch' = 'run'): object {
  const text = parsed(document) as { readonly layout?: unknown } | undefined;
  if (text?.layout === LAYOUT) return text;
  const found = typeof text?.layout === 'number' ? `has layout ${text.layout}` : `is no ${what}`;
  throw new InterlockError(
    'ERR_INTERLOCK_STORE',
    `documentStore(): a document ${found}, and this version of mcp-interlock knows layout ` +
      `${LAYOUT}: another version or another program wrote it. Nothing was changed`,
  );
}

function otherKey(): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    'documentStore(): read() gave the document of another key. Nothing was changed',
  );
}

function parsed(document: string): unknown {
  try {
    return JSON.parse(document) ?? undefined;
  } catch {
    return undefined;
  }
}

/** The key of the note that says which layout all documents of the backend have. */
export const NOTE = 'layout';

export function textOfNote(): string {
  return JSON.stringify({ layout: LAYOUT });
}

/** A run as its next revision is written; without the one before it is a new run. */
export function revised(
  name: string,
  run: RunState & Partial<Pick<StoredRun, 'movesTo'>>,
  before: Pick<StoredRun, 'birth' | 'revisions' | 'olderUntil'> | undefined,
  revision: string,
): StoredRun {
  const { session, openedBy, workflows, expiresAt, sessionEnded, movesTo } = run;
  const revisions = [...(before?.revisions.slice(1 - REVISIONS_KEPT) ?? []), revision];
  return {
    ...{ run: name, session, openedBy, workflows, expiresAt, sessionEnded, movesTo },
    revisions,
    birth: before?.birth ?? newRevision(),
    olderUntil: before?.olderUntil ?? 0,
  };
}

/** What is left of a run until its older entries are removed: it expired, and names no person. */
export function removed(run: StoredRun): StoredRun {
  const workflows = [...run.workflows].map(([name, workflow]) => {
    const { state, updatedAt } = workflow.snapshot;
    const bare = {
      snapshot: { state, updatedAt },
      claim: undefined,
      frozen: undefined,
      ended: true,
    };
    return [name, { ...workflow, ...bare, unsettled: [], settled: [], trail: [] }] as const;
  });
  const gone = { session: {}, openedBy: undefined, expiresAt: 0, sessionEnded: true };
  return { ...run, ...gone, movesTo: undefined, workflows: new Map(workflows) };
}

/** From when on the backend may remove the run; `undefined` while it is pinned or frozen. */
export function removableAt(run: RunState): number | undefined {
  if (neverExpires(run)) return undefined;
  let at = run.expiresAt;
  for (const { claim } of run.workflows.values()) at = Math.max(at, claim?.leaseEnd ?? 0);
  return Math.ceil(at);
}

/** Older entries of one trail, in a document of their own. */
export interface OlderEntries {
  readonly run: string;
  readonly workflow: string;
  readonly entries: readonly TrailEntry[];
  /** Milliseconds since the epoch, by the backend's clock. */
  readonly expiresAt: number;
}

export function textOfOlder({ run, workflow, entries, expiresAt }: OlderEntries): string {
  return JSON.stringify({ layout: LAYOUT, run, workflow, expiresAt, entries });
}

/** @throws InterlockError `ERR_INTERLOCK_STORE` where the text has another layout */
export function olderOfText(document: string | undefined): OlderEntries | undefined {
  return typeof document === 'string' ? (ofThisLayout(document) as OlderEntries) : undefined;
}

/** The document with the switch of a workflow. */
export function keyOfSwitch(workflow: string): string {
  return `switch-${digestOf(workflow)}`;
}

export function textOfSwitch(workflow: string, { value, revision }: SwitchRecord): string {
  return JSON.stringify({ layout: LAYOUT, workflow, revision, value });
}

/** @throws InterlockError `ERR_INTERLOCK_STORE` as {@link runOfText} */
export function switchOfText(workflow: string, document: string): SwitchRecord {
  const text = ofThisLayout(document, 'switch') as Partial<SwitchRecord & { workflow: string }>;
  if (text.workflow !== workflow) throw otherKey();
  return { value: text.value as Json, revision: text.revision as string };
}

/** Which document has the newest entries that are no longer in the run's; -1 for none. */
export function partBefore({ trail }: WorkflowState): number {
  return Math.floor(((trail[0]?.seq ?? 1) - 1) / OLDER_AT_ONCE) - 1;
}

/** All documents with older entries that a run may have, where a trail has `most` of them. */
export function keysOfOlder(run: StoredRun, most: number): string[] {
  return [...run.workflows].flatMap(([name, { head }]) => {
    if (head.seq < TRAIL_FULL) return [];
    const newest = Math.floor(head.seq / OLDER_AT_ONCE);
    const first = Math.max(0, newest - most - 1);
    return Array.from({ length: newest - first + 1 }, (_, at) => keyOfOlder(run, name, first + at));
  });
}

/** The lists in which a run can be found. */
export const LISTS = {
  /** By state, as encoded text; the score is when it came there. */
  open: (workflow: string) => `open-${short(workflow)}`,
  ended: (workflow: string) => `ended-${short(workflow)}`,
  /** Runs with a claim, by `uncertain`; the score is the end of its lease. */
  claimed: (workflow: string) => `claimed-${short(workflow)}`,
  /** The same; the score is when the claim was taken. */
  since: (workflow: string) => `since-${short(workflow)}`,
  /** Runs with unsettled steps, or whose claim may become one; the score is when it does. */
  unsettled: (workflow: string) => `unsettled-${short(workflow)}`,
  owned: (principal: string) => `of-${short(principal)}`,
  /** All documents; the score is when the backend may remove it, unless it is pinned or frozen. */
  removable: 'removable',
} as const;

export function indexOfRun(run: RunState): readonly IndexEntry[] {
  // Also where it is pinned or frozen: the entry would come and go with each step.
  const entries: IndexEntry[] = [
    { list: LISTS.removable, label: '', score: Math.ceil(run.expiresAt) },
  ];
  const { principal } = run.session;
  if (principal !== undefined) entries.push({ list: LISTS.owned(principal), label: '', score: 0 });
  for (const [name, workflow] of run.workflows) {
    const { snapshot, claim, ended } = workflow;
    const since = unsettledSince(workflow);
    if (since !== undefined)
      entries.push({ list: LISTS.unsettled(name), label: '', score: Math.floor(since) });
    const list = ended ? LISTS.ended(name) : LISTS.open(name);
    const score = Math.floor(snapshot.updatedAt);
    entries.push({ list, label: encodeText(snapshot.state), score });
    if (claim === undefined) continue;
    const { uncertain: label, leaseEnd } = claim;
    entries.push({ list: LISTS.claimed(name), label, score: Math.floor(leaseEnd) });
    entries.push({ list: LISTS.since(name), label, score: Math.floor(claim.since) });
  }
  return entries;
}

function short(name: string): string {
  return digestOf(name).slice(0, 32);
}

/** The newest digests, since each step asks several times for those of its run and its workflow. */
const digests = new Map<string, string>();

function digestOf(name: string): string {
  let digest = digests.get(name);
  if (digest === undefined) {
    digest = digestOfName(name);
    if (digests.size >= 1_000) digests.clear();
    digests.set(name, digest);
  }
  return digest;
}
