import * as z from 'zod/mini';
import { systemClock } from '../basics/clock.ts';
import { InterlockError, quoteNames } from '../basics/errors.ts';
import {
  isTable,
  lazily,
  type ParsedBy,
  parseOptions,
  showValue,
  uncheckedOption,
} from '../basics/options.ts';
import { parseSnapshot } from '../workflow/stored.ts';
import type {
  ClientInfo,
  Freeze,
  FsmSnapshot,
  FsmStateStore,
  Json,
  SwitchRecord,
} from './store.ts';
import { copyJson } from './trail.ts';

/** The session record of a run. */
export interface SavedSession {
  readonly principal?: string | undefined;
  readonly minted?: boolean | undefined;
  readonly clientInfo?: ClientInfo | undefined;
  /** The token that opened the run; absent where a claim made it. */
  readonly openedBy?: string | undefined;
  /** The workflows that have a snapshot. If one of the snapshots is missing, it was evicted. */
  readonly workflows: readonly string[];
  /** Those of them that have ended. */
  readonly ended?: readonly string[] | undefined;
  /** Who has frozen some of them. */
  readonly frozen?: readonly (Freeze & { readonly workflow: string })[] | undefined;
  /** As in a run's state: whether the session is over, and the run is kept as evidence. */
  readonly sessionEnded?: boolean | 'evicted' | undefined;
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
  /** Members that only a newer version of the package knows. They are saved as they came. */
  readonly more?: Readonly<Record<string, Json>> | undefined;
}

export interface SavedRun {
  readonly session: SavedSession;
  readonly snapshots: ReadonlyMap<string, FsmSnapshot>;
}

/**
 * The format of what {@link SavedRuns} saves, which each session record names. The number grows
 * when other versions of the package would misread what this one saves, and not when there is
 * merely more to read.
 */
const ADAPTED_FORMAT = 1;

/** Not strict: a backend may add members of its own. */
const sessionSchema = lazily(() =>
  z.object({
    state: z.enum(['open', 'ended']),
    updatedAt: z.number(),
    context: uncheckedOption(),
  }),
);

/** Not strict: a newer version may add members of its own, which are carried along. */
const sessionContextSchema = lazily(() =>
  z.looseObject({
    format: z.int(),
    principal: z.optional(z.string()),
    minted: z.optional(z.boolean()),
    clientInfo: z.optional(z.object({ name: z.string(), version: z.string() })),
    openedBy: z.optional(z.string()),
    workflows: z.array(z.string()),
    ended: z.optional(z.array(z.string())),
    frozen: z.optional(
      z.array(z.object({ workflow: z.string(), actor: z.string(), note: z.string() })),
    ),
    sessionEnded: z.optional(z.union([z.boolean(), z.literal('evicted')])),
    expiresAt: z.number(),
  }),
);

const switchSchema = lazily(() =>
  z.object({
    state: z.string(),
    updatedAt: z.number(),
    context: z.looseObject({ value: z.unknown() }),
  }),
);

/** The optional members of a snapshot. */
const MORE = ['context', 'version'] as const;

export interface SavedRunsOptions {
  /** In how many milliseconds the store has to answer. */
  readonly deadlineMs: number;
  readonly onWarning: (warning: string) => void;
}

/** Runs as snapshots under keys, since a store of `load` and `save` can keep nothing else. */
export class SavedRuns {
  readonly #store: FsmStateStore;
  /** The optional members that the store has been seen to keep. */
  readonly #kept = new Set<(typeof MORE)[number]>();

  /** The sessions and switches, by their keys, with a save that may still arrive too late. */
  readonly #stuck = new Set<string>();
  readonly #options: SavedRunsOptions;

  constructor(store: FsmStateStore, options: SavedRunsOptions) {
    this.#store = store;
    this.#options = options;
  }

  /**
   * @throws InterlockError `ERR_INTERLOCK_STORE` while a save of the run is overdue: it could land
   * on a newer state.
   */
  assertSettled(run: string): void {
    this.#assertSettled(keyOfSession(run));
  }

  /** @throws InterlockError as {@link assertSettled} */
  assertSwitchSettled(workflow: string): void {
    this.#assertSettled(keyOfSwitch(workflow));
  }

  #assertSettled(key: string): void {
    if (this.#stuck.has(key)) throw overdue('save', this.#options.deadlineMs);
  }

  /**
   * The run as it was last saved, expired or not; `undefined` where it is unknown.
   *
   * @throws InterlockError `ERR_INTERLOCK_SNAPSHOT` where the store loads anything but a snapshot;
   * `ERR_INTERLOCK_STORE` where the run is of another format.
   */
  async load(run: string): Promise<SavedRun | undefined> {
    const loaded = await this.#loadKnown('run', keyOfSession(run));
    if (isMissing(loaded)) return undefined;
    const { state, context } = parse('session record', sessionSchema, loaded);
    if (state === 'ended') return undefined;
    const session = sessionOf(parse(CONTEXT_OF_SESSION, sessionContextSchema, context));
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
    const { principal, minted, clientInfo, openedBy, workflows, ended = [] } = session;
    const { frozen = [], sessionEnded, expiresAt } = session;
    const context: Json = {
      ...session.more,
      format: ADAPTED_FORMAT,
      workflows: [...workflows],
      expiresAt,
    };
    if (principal !== undefined) context.principal = principal;
    if (minted !== undefined) context.minted = minted;
    if (clientInfo !== undefined) context.clientInfo = { ...clientInfo };
    if (openedBy !== undefined) context.openedBy = openedBy;
    if (ended.length > 0) context.ended = [...ended];
    if (frozen.length > 0) context.frozen = frozen.map((each) => ({ ...each }));
    if (sessionEnded) context.sessionEnded = sessionEnded;
    await this.#save(keyOfSession(run), keyOfSession(run), {
      state: 'open',
      updatedAt: now,
      context,
    });
  }

  /** @throws InterlockError as {@link load} */
  async loadSwitch(workflow: string): Promise<SwitchRecord | undefined> {
    const loaded = await this.#loadKnown('switch', keyOfSwitch(workflow));
    if (isMissing(loaded)) return undefined;
    const { state: revision, context } = parse('switch', switchSchema, loaded);
    return { value: copyJson(context.value as Json), revision };
  }

  async saveSwitch(
    workflow: string,
    { value, revision }: SwitchRecord,
    now: number,
  ): Promise<void> {
    const key = keyOfSwitch(workflow);
    const context = { format: ADAPTED_FORMAT, value: copyJson(value) };
    await this.#save(key, key, { state: revision, updatedAt: now, context });
  }

  async saveWorkflow(run: string, workflow: string, snapshot: FsmSnapshot): Promise<void> {
    await this.#save(keyOfSession(run), workflowKey(run, workflow), { ...snapshot });
  }

  /**
   * `save` cannot delete, so the session record says that the run has ended. It need not have been
   * readable before.
   *
   * @returns when the run expires: never where it is frozen, or where that cannot be read;
   * `undefined` without a run
   * @throws InterlockError `ERR_INTERLOCK_STORE` where the run is of another format
   */
  async end(run: string, now: number): Promise<number | undefined> {
    const loaded = await this.#loadKnown('run', keyOfSession(run));
    if (isMissing(loaded) || (isTable(loaded) && loaded.state === 'ended')) return undefined;
    const key = keyOfSession(run);
    await this.#settled(key, () => this.#store.save(key, { state: 'ended', updatedAt: now }));
    const { expiresAt, frozen } = isTable(loaded) && isTable(loaded.context) ? loaded.context : {};
    const isKnown = typeof expiresAt === 'number' && frozen === undefined;
    return isKnown ? expiresAt : Number.POSITIVE_INFINITY;
  }

  /**
   * Tests once for each optional member whether the store keeps it. If not, the first load would
   * lose the run, and no error would say why.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where the store does not keep it.
   */
  async #save(owner: string, key: string, snapshot: FsmSnapshot): Promise<void> {
    await this.#settled(owner, () => this.#store.save(key, snapshot));
    const isNew = (member: (typeof MORE)[number]): boolean =>
      !this.#kept.has(member) && Boolean(snapshot[member]);
    const members = MORE.filter(isNew);
    const loaded = members.length === 0 ? undefined : await this.#load(key);
    // A backend may show a save late: the next save tests it again.
    if (isMissing(loaded)) return;
    const lost = members.filter((member) => isMissing(loaded[member]));
    if (lost.length > 0) throw forgetful(lost);
    for (const member of members) this.#kept.add(member);
  }

  /** Fails at its deadline, so that the next operation asks anew: a late answer harms nothing. */
  #load(key: string): ReturnType<FsmStateStore['load']> {
    const { deadlineMs } = this.#options;
    return new Promise((resolve, reject) => {
      const stop = systemClock.after(deadlineMs, () => reject(overdue('load', deadlineMs)));
      const answered = (async () => this.#store.load(key))();
      answered.then(resolve, reject).finally(stop);
    });
  }

  /** Waits for a save however long it takes. With a late one its session or switch is stuck. */
  async #settled(owner: string, save: () => Promise<void>): Promise<void> {
    const { deadlineMs, onWarning } = this.#options;
    const stop = systemClock.after(deadlineMs, () => {
      this.#stuck.add(owner);
      onWarning(
        `a save() of the store has not settled within ${deadlineMs} ms, and may still arrive: ` +
          'its run or switch is unavailable until then',
      );
    });
    try {
      await save();
    } finally {
      stop();
      this.#stuck.delete(owner);
    }
  }

  /** What is saved under the key in any shape, unless it is of another format. */
  async #loadKnown(what: 'run' | 'switch', key: string): Promise<unknown> {
    const loaded: unknown = await this.#load(key);
    const context = isTable(loaded) ? loaded.context : undefined;
    const format = isTable(context) ? context.format : undefined;
    if (format !== undefined && format !== ADAPTED_FORMAT) throw otherFormat(what, format);
    return loaded;
  }

  async #loadWorkflow(run: string, workflow: string): Promise<FsmSnapshot | undefined> {
    const loaded = await this.#load(workflowKey(run, workflow));
    if (isMissing(loaded)) return undefined;
    return parseSnapshot(workflow, loaded);
  }
}

const CONTEXT_OF_SESSION = 'context of a session record';

function sessionOf(context: ParsedBy<typeof sessionContextSchema>): SavedSession {
  const {
    format: _,
    principal,
    minted,
    clientInfo,
    openedBy,
    workflows,
    ended,
    frozen,
    sessionEnded,
    expiresAt,
    ...more
  } = context;
  const known = { principal, minted, clientInfo, openedBy, workflows, ended, frozen };
  return { ...known, sessionEnded, expiresAt, more: more as Record<string, Json> };
}

function otherFormat(what: 'run' | 'switch', format: unknown): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    `a ${what} was saved in format ${showValue(format)} by another version of mcp-interlock, ` +
      `and this one knows format ${ADAPTED_FORMAT} alone: ` +
      `the ${what} is left as it is; let processes of that version serve it`,
  );
}

function overdue(call: 'load' | 'save', ms: number): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    `the store did not settle ${call}() within ${ms} ms`,
  );
}

function forgetful(lost: readonly string[]): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    'the store does not keep what it is given: ' +
      `load() gave back a snapshot without its ${quoteNames(lost)}. ` +
      'An FsmSnapshot has a state, updatedAt, and often a version and a context; ' +
      'keep all of it, such as by JSON.stringify()',
  );
}

/** Many key-value clients give `null` for a missing key. */
function isMissing<T>(loaded: T | undefined | null): loaded is undefined | null {
  return loaded === undefined || loaded === null;
}

function parse<T extends z.ZodMiniObject>(
  what: string,
  schema: () => T,
  loaded: unknown,
): z.output<T> {
  return parseOptions(what, schema, loaded, 'ERR_INTERLOCK_SNAPSHOT');
}

function keyOfSession(run: string): string {
  return `session:${escapeUnsafe(run)}`;
}

function keyOfSwitch(workflow: string): string {
  return `switch:${escapeUnsafe(workflow)}`;
}

/** The first colon ends the workflow's name. No such key is that of a session or of a switch. */
function workflowKey(run: string, workflow: string): string {
  const name =
    workflow === 'session' || workflow === 'switch'
      ? `%${workflow}`
      : escapeUnsafe(workflow).replaceAll(':', '%3A');
  return `${name}:${escapeUnsafe(run)}`;
}

/**
 * Escapes, reversibly, characters that a backend's key may not be able to hold: controls, halves of
 * surrogate pairs, and `%` itself.
 */
function escapeUnsafe(name: string): string {
  return name.replace(
    /[%\p{Cc}\p{Cs}]/gu,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`,
  );
}
