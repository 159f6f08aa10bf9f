import * as z from 'zod/mini';
import { InterlockError, quoteNames } from '../errors.ts';
import { isTable, parseOptions } from '../options.ts';
import { parseSnapshot } from '../workflow/stored.ts';
import type { FsmSnapshot, FsmStateStore, Json } from './store.ts';

/** What the session record of a run says. */
export interface SavedSession {
  readonly principal?: string | undefined;
  readonly minted?: boolean | undefined;
  /** The token that opened the run, where one did. */
  readonly openedBy?: string | undefined;
  /** The workflows that have a snapshot. One that is listed and has none was evicted. */
  readonly workflows: readonly string[];
  /** Those of them that have ended, as far as that is known. */
  readonly ended?: readonly string[] | undefined;
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
}

export interface SavedRun {
  readonly session: SavedSession;
  readonly snapshots: ReadonlyMap<string, FsmSnapshot>;
}

/**
 * The format of what is saved here. A session record says it; one without is of this first format.
 * It grows when an older version of the package would misread what a newer one saves, and not when
 * there is more to read.
 */
const FORMAT = 1;

/** Not strict: a backend may keep more beside it than it was given. */
const sessionSchema = z.object({
  state: z.enum(['open', 'ended']),
  updatedAt: z.number(),
  context: z.optional(z.unknown()),
});

const sessionContextSchema = z.object({
  principal: z.optional(z.string()),
  minted: z.optional(z.boolean()),
  openedBy: z.optional(z.string()),
  workflows: z.array(z.string()),
  ended: z.optional(z.array(z.string())),
  expiresAt: z.number(),
});

/** What a snapshot may have beside its state and its time. */
const MORE = ['context', 'version'] as const;

/** Runs as snapshots under keys, which is all that a store of `load` and `save` can keep. */
export class SavedRuns {
  readonly #store: FsmStateStore;
  /** Those of them that the store was seen to keep. */
  readonly #kept = new Set<(typeof MORE)[number]>();

  constructor(store: FsmStateStore) {
    this.#store = store;
  }

  /**
   * The run as it was last saved, expired or not, or `undefined` where it is unknown.
   *
   * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where something was loaded that is not a
   * snapshot; `ERR_INTERLOCK_STORE` where it is of a newer format.
   */
  async load(run: string): Promise<SavedRun | undefined> {
    const loaded = await this.#loadSession(run);
    if (isMissing(loaded)) return undefined;
    const { state, context } = parse('session record', sessionSchema, loaded);
    if (state === 'ended') return undefined;
    const session = parse('context of a session record', sessionContextSchema, context);
    const snapshots = await Promise.all(
      session.workflows.map((workflow) => this.#loadWorkflow(run, workflow)),
    );
    const found = session.workflows.flatMap((workflow, index) => {
      const snapshot = snapshots[index];
      return snapshot ? [[workflow, snapshot] as const] : [];
    });
    return found.length < session.workflows.length
      ? undefined
      : { session, snapshots: new Map(found) };
  }

  async saveSession(run: string, session: SavedSession, now: number): Promise<void> {
    const { principal, minted, openedBy, workflows, ended = [], expiresAt } = session;
    const context: Json = { format: FORMAT, workflows: [...workflows], expiresAt };
    if (principal !== undefined) context.principal = principal;
    if (minted !== undefined) context.minted = minted;
    if (openedBy !== undefined) context.openedBy = openedBy;
    if (ended.length > 0) context.ended = [...ended];
    await this.#save(sessionKey(run), { state: 'open', updatedAt: now, context });
  }

  async saveWorkflow(run: string, workflow: string, snapshot: FsmSnapshot): Promise<void> {
    await this.#save(workflowKey(run, workflow), { ...snapshot });
  }

  /**
   * Nothing can be deleted with `save`, so the session record says that the run is over. What it
   * said before need not be readable.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where it is of a newer format
   */
  async end(run: string, now: number): Promise<void> {
    await this.#loadSession(run);
    await this.#store.save(sessionKey(run), { state: 'ended', updatedAt: now });
  }

  /**
   * Looks once whether the store keeps more of a snapshot than its state and its time: without, the
   * run would be lost at its first load, and no error would say why.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where it does not.
   */
  async #save(key: string, snapshot: FsmSnapshot): Promise<void> {
    await this.#store.save(key, snapshot);
    const isNew = (member: (typeof MORE)[number]): boolean =>
      !this.#kept.has(member) && Boolean(snapshot[member]);
    const members = MORE.filter(isNew);
    const loaded = members.length === 0 ? undefined : await this.#store.load(key);
    // One that answers late is asked again at the next save.
    if (isMissing(loaded)) return;
    const lost = members.filter((member) => isMissing(loaded[member]));
    if (lost.length > 0) throw forgetful(lost);
    for (const member of members) this.#kept.add(member);
  }

  /** The session record, of whatever shape, unless its format is a newer one. */
  async #loadSession(run: string): Promise<unknown> {
    const loaded: unknown = await this.#store.load(sessionKey(run));
    const context = isTable(loaded) ? loaded.context : undefined;
    const format = isTable(context) ? context.format : undefined;
    if (typeof format === 'number' && format > FORMAT) throw tooNew(format);
    return loaded;
  }

  async #loadWorkflow(run: string, workflow: string): Promise<FsmSnapshot | undefined> {
    const loaded = await this.#store.load(workflowKey(run, workflow));
    if (isMissing(loaded)) return undefined;
    return parseSnapshot(workflow, loaded);
  }
}

function tooNew(format: number): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    `a run was saved in format ${format} by a newer version of mcp-interlock, and this one knows formats up to ${FORMAT}: ` +
      'the run is left as it is; deploy the newer version wherever the store is used',
  );
}

function forgetful(lost: readonly string[]): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    `the store does not keep what it is given: load() gave a snapshot back that was saved with ${quoteNames(lost)}, and without. ` +
      'An FsmSnapshot has a state, updatedAt, and often a version and a context; keep all of it, such as by JSON.stringify()',
  );
}

/** Many a key-value client says `null` for what it does not have. */
function isMissing<T>(loaded: T | undefined | null): loaded is undefined | null {
  return loaded === undefined || loaded === null;
}

function parse<T extends z.ZodMiniObject>(what: string, schema: T, loaded: unknown): z.output<T> {
  return parseOptions(what, schema, loaded, 'ERR_INTERLOCK_SNAPSHOT');
}

function sessionKey(run: string): string {
  return `session:${escapeUnsafe(run)}`;
}

/** The first colon ends the workflow's name, and no workflow's key can be a session's. */
function workflowKey(run: string, workflow: string): string {
  const name = workflow === 'session' ? '%session' : escapeUnsafe(workflow).replaceAll(':', '%3A');
  return `${name}:${escapeUnsafe(run)}`;
}

/**
 * Escapes, reversibly, what a backend's key may not be able to hold: controls, halves of surrogate
 * pairs, and `%` itself.
 */
function escapeUnsafe(name: string): string {
  return name.replace(
    /[%\p{Cc}\p{Cs}]/gu,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`,
  );
}
