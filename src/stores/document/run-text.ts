/**
 * A run as the text of a document, and under what it can be found. Hides the layout of the text,
 * which older entries of a trail lie elsewhere, and how names become keys of any backend.
 */
import { createHash } from 'node:crypto';
import { InterlockError } from '../../basics/errors.ts';
import { newToken } from '../../basics/names.ts';
import { neverExpires, type RunState, type WorkflowState } from '../run-life.ts';
import type { Json, SwitchRecord, TrailEntry } from '../store.ts';
import { digestOfName, freezeDeeply } from '../trail.ts';

/** One text that cannot be read, which says nothing of the others. */
export class BrokenRun extends InterlockError {
  readonly fault: string;

  /** @param run the digest of the key under which the run is kept */
  constructor(fault: string, run?: string) {
    const named = run === undefined ? '' : `, of the run with the digest ${run}`;
    super('ERR_INTERLOCK_STORE', `documentStore(): ${fault}${named}. Nothing was changed`);
    this.fault = fault;
  }
}

/** A run, with what its document says of itself. */
export interface RunOfText extends RunState {
  /** Its key, as the gate knows it. */
  readonly run: string;
  /** Made with the run: an earlier run under the same key had another one. */
  readonly birth: string;
  /** Under which key a copy is made that names no person; this one is removed then. */
  readonly movesTo?: string | undefined;
}

/** A run as one text. */
export interface RunText extends RunOfText {
  /** As in a part's mark. */
  readonly revisions: string;
  /** Until when the backend keeps the older entries of the trails at least. */
  readonly olderUntil: number;
}

/**
 * Changes with each change of the texts, the keys or the lists that another version of this package
 * cannot work with.
 */
export const LAYOUT = 5;

/** In characters of base64url: 72 random bits. */
export const REVISION_LENGTH = 12;

/** How many entries go into a document of their own, once there are `TRAIL_FULL` in the run's. */
export const OLDER_AT_ONCE = 8;
export const TRAIL_FULL = 9;

const REVISIONS_KEPT = 8;

/** How long the text of the newest revisions is. */
export const REVISIONS_LENGTH = REVISIONS_KEPT * REVISION_LENGTH;

export function newRevision(): string {
  return newToken().slice(0, REVISION_LENGTH);
}

/** The newest revisions, the last one first. */
export function withRevision(revisions: string | undefined, revision: string): string {
  return `${revision}${revisions ?? ''}`.slice(0, REVISIONS_LENGTH);
}

export function keyOfRun(run: string): string {
  return `run-${digestOf(run)}`;
}

/** How keys of documents with older entries begin. */
export const OLDER = 'trail-';

/** The document with the entries from `8 × part + 1` on. */
export function keyOfOlder(
  { birth }: Pick<RunOfText, 'birth'>,
  name: string,
  part: number,
): string {
  const id = createHash('sha256')
    .update(`${birth}${digestOfName(name)}`)
    .digest('hex');
  return `${OLDER}${id.slice(0, 40)}-${part}`;
}

/** The members of the text, in its order. A workflow may be called `__proto__`, hence the pairs. */
interface Written extends Omit<RunText, 'workflows'> {
  readonly layout: number;
  readonly workflows: readonly (readonly [name: string, workflow: WorkflowText])[];
}

interface WorkflowText extends Omit<WorkflowState, 'settled'> {
  readonly settled: string;
}

/** A word for each token, oldest first. One that was released has no version. */
export function textOfSettled(settled: WorkflowState['settled']): string {
  return settled.map(({ id, version = '' }) => `${id}:${version}`).join(' ');
}

export function settledOfText(text: string): WorkflowState['settled'] {
  return text.split(' ').flatMap((word) => {
    const [id = '', version = ''] = word.split(':');
    if (id === '') return [];
    return version === '' ? [{ id }] : [{ id, version: Number(version) }];
  });
}

export function textOfRun(stored: RunText): string {
  const { run, birth, revisions, session, openedBy, released, expiresAt } = stored;
  const { sessionEnded, olderUntil, movesTo } = stored;
  const workflows = [...stored.workflows].map(([name, workflow]) => {
    return [name, { ...workflow, settled: textOfSettled(workflow.settled) }] as const;
  });
  const text: Written = {
    ...{ layout: LAYOUT, run, birth, revisions, session, openedBy, released },
    ...{ expiresAt, sessionEnded: sessionEnded || undefined, olderUntil, movesTo },
    workflows,
  };
  return JSON.stringify(text);
}

/**
 * @throws InterlockError `ERR_INTERLOCK_STORE` where the text is none of this key's run, or has
 * another layout
 */
export function runOfText(key: string, document: string): RunText {
  const { workflows, layout: _, ...rest } = ofThisLayout(document) as unknown as Written;
  if (keyOfRun(rest.run) !== key) throw otherKey();
  freezeDeeply(rest as unknown as Json);
  const states = workflows.map(([key, { settled, ...workflow }]) => {
    freezeDeeply(workflow as unknown as Json);
    return [key, { ...workflow, settled: settledOfText(settled) }] as const;
  });
  return { ...rest, openedBy: rest.openedBy, workflows: new Map(states) };
}

/** @throws InterlockError `ERR_INTERLOCK_STORE` for a text of another layout, or of none */
export function ofThisLayout(document: string, what: 'run' | 'switch' = 'run'): object {
  const text = parsed(document) as { readonly layout?: unknown } | undefined;
  if (text?.layout === LAYOUT) return text;
  const isOther = typeof text?.layout === 'number';
  const found = isOther ? `has layout ${text.layout}` : `is no ${what}`;
  const fault =
    `a document ${found}, and this version of mcp-interlock knows layout ` +
    `${LAYOUT}: another version or another program wrote it`;
  if (!isOther) throw new BrokenRun(fault);
  const words = `documentStore(): ${fault}. Nothing was changed`;
  throw new InterlockError('ERR_INTERLOCK_STORE', words);
}

export function otherKey(): InterlockError {
  return new BrokenRun('read() gave the document of another key');
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

/** What is left of a run until its older entries are removed: it expired, and names no person. */
export function removed<Run extends RunOfText>(run: Run): Run {
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
  const gone = { session: {}, openedBy: undefined, released: undefined };
  const life = { expiresAt: 0, sessionEnded: true };
  return { ...run, ...gone, ...life, movesTo: undefined, workflows: new Map(workflows) };
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
export function keysOfOlder(run: RunOfText, most: number): string[] {
  return [...run.workflows].flatMap(([name, { head }]) => {
    if (head.seq < TRAIL_FULL) return [];
    const newest = Math.floor(head.seq / OLDER_AT_ONCE);
    const first = Math.max(0, newest - most - 1);
    return Array.from({ length: newest - first + 1 }, (_, at) => keyOfOlder(run, name, first + at));
  });
}

/** The newest digests, since each step asks several times for those of its run and its workflow. */
const digests = new Map<string, string>();
const LONGEST_NAME = 200;

export function digestOf(name: string): string {
  let digest = digests.get(name);
  if (digest === undefined) {
    digest = digestOfName(name);
    // A client may choose the name, and its length.
    if (name.length > LONGEST_NAME) return digest;
    if (digests.size >= 1_000) digests.clear();
    digests.set(name, digest);
  }
  return digest;
}
