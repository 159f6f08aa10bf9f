import type { CallNote, Json, MoveDraft, TrailDraft, TrailEntry } from './trail-entry.ts';

export type {
  CallNote,
  Json,
  MoveDraft,
  TrailDraft,
  TrailEntry,
  TrailOutcome,
} from './trail-entry.ts';

/** The persisted position of one run in one workflow. */
export interface FsmSnapshot {
  /** The state's name. */
  state: string;
  /**
   * When a move, or the first claim or freeze of the workflow, made it: milliseconds since the
   * epoch. By the clock of the store where that has one, else by that of the process.
   */
  updatedAt: number;
  /** How many moves the run has committed. Absent means 0. */
  version?: number;
  /** Data that the workflow carries along; opaque to every store. */
  context?: Json;
}

/**
 * The smallest store: enough to plug a backend in. With only this, steps are exact within one
 * process, and a warning says so; an `AtomicStateStore` makes them exact across processes.
 */
export interface FsmStateStore {
  /**
   * The snapshot saved under this key, or `undefined` where there is none. The key of a run as a
   * whole is `session:<run>`; that of each of its workflows is `<gate's id>:<run>`.
   */
  load(sessionId: string): Promise<FsmSnapshot | undefined>;
  /**
   * Replaces the snapshot under this key, with all of its members. Resolves once it is as durable
   * as the backend makes it.
   */
  save(sessionId: string, snapshot: FsmSnapshot): Promise<void>;
}

/** Names one workflow of one run. Two workflows of one run never share a snapshot. */
export interface RunKey {
  /** The run key: a session id, a principal or a handle. Any string; hostile ones too. */
  readonly run: string;
  /** The gate's id. */
  readonly workflow: string;
}

/** What a client called itself when it opened its session, each up to 100 characters. */
export interface ClientInfo {
  /** Empty where it gave no name. */
  readonly name: string;
  /** Empty where it gave no version. */
  readonly version: string;
}

/** What is known of a run before any workflow of it has moved. */
export interface SessionRecord {
  /** Who may use the run; `undefined` binds it to unauthenticated callers. */
  readonly principal?: string | undefined;
  /** Whether the middleware made the session id up, because the upstream makes none. */
  readonly minted?: boolean | undefined;
  /** What the session's client called itself; `undefined` where it said nothing. */
  readonly clientInfo?: ClientInfo | undefined;
}

/** What may happen after a step whose outcome the gate did not see. */
export type Uncertain = 'hold' | 'retry';

/** The call that a claim is held for. */
export interface StepDescription {
  /** The tool that is called. Of a move from outside: what makes it, such as `send PAY`. */
  readonly tool: string;
  /** A digest of the call's arguments. The same tool with the same digest is the same call. */
  readonly digest: string;
  readonly uncertain: Uncertain;
  /** What the call would use up of its run's limits; opaque to the store. Absent: nothing. */
  readonly use?: Json | undefined;
}

/** A step of unknown outcome that may be repeated, and whose lease has ended. */
export interface UnsettledStep {
  readonly tool: string;
  readonly digest: string;
  /** The next claim of the same tool with the same digest gets it again. */
  readonly idempotencyKey: string;
  /** When its last claim was taken: milliseconds since the epoch, by the store's clock. */
  readonly since: number;
  /** As in {@link StepDescription}, of its last claim. */
  readonly use?: Json;
}

/** A claim as other clients see it. */
export interface ClaimView extends StepDescription {
  readonly token: string;
  readonly idempotencyKey: string;
  /** `false` once the lease has ended: the outcome of the step is unknown. */
  readonly live: boolean;
  /** When a caller took it: milliseconds since the epoch, by the store's clock. */
  readonly since?: number;
  /** When its lease ends or ended, by the same clock. */
  readonly until?: number;
  /** What the claim says for the trail: who called, and under which id. */
  readonly entry?: CallNote;
  /** Why the step is held, where {@link RenewOptions.hold} said so. */
  readonly kind?: string;
}

/** Who has frozen a run, or a whole workflow, and why. Any strings; a store keeps nothing else. */
export interface Freeze {
  readonly actor: string;
  readonly note: string;
}

/** One workflow of a run, as it is stored. */
export interface WorkflowRecord {
  readonly snapshot: FsmSnapshot;
  readonly claim?: ClaimView;
  /** As in {@link SeenSnapshot}. */
  readonly unsettled?: readonly UnsettledStep[];
  /** Who has frozen it by {@link AtomicStateStore.freeze}. Absent where it goes on. */
  readonly frozen?: Freeze;
  /** Whether its last commit ended it. Absent where no commit said so, as in older versions. */
  readonly ended?: boolean;
}

/** A whole run: who may use it, and each of its workflows that was claimed, moved or frozen. */
export interface RunRecord {
  readonly session: SessionRecord;
  readonly workflows: Readonly<Record<string, WorkflowRecord>>;
  /**
   * Set once the session that named the run is over: by {@link AtomicStateStore.end}, or because
   * nothing used the run for its time to live. The run is evidence then, and its client gets the
   * answer of an unknown session. Absent before. `evicted`: the run made way for others by
   * {@link EndOptions.evict}; until it would have expired, no claim begins it anew.
   */
  readonly sessionEnded?: true | 'evicted';
  /** What time it is for the store, as in {@link SeenSnapshot}. */
  readonly now?: number;
}

export type OpenResult =
  | { readonly status: 'opened' }
  /** There is such a run already. Nothing of it has changed, not even its expiry. */
  | { readonly status: 'taken' };

export interface ClaimRequest extends RunKey {
  /**
   * The caller makes it, unguessable, for one claim only. A driver may retry: while the claim is
   * this token's, asking again gives the same answer and restarts the lease. A token that was
   * committed or released gets `state`, also where it was released before its claim came.
   */
  readonly token: string;
  readonly step: StepDescription;
  /**
   * Kept with the claim. If another claim takes this one over, the store writes it into the trail,
   * as an attempt of unknown outcome and of the kind `taken_over`. Absent: it writes nothing.
   */
  readonly entry?: CallNote | undefined;
  /** The states that allow the step; `undefined`: all. */
  readonly states: readonly string[] | undefined;
  /**
   * Where the workflow begins, if it was never claimed in this run. A store with a clock replaces
   * `updatedAt`: by the time of the first claim that it grants, or of its answer where it refuses
   * one. Any other store keeps `updatedAt`.
   */
  readonly initial: FsmSnapshot;
  /**
   * Whom the run belongs to, where its caller needs no session: the run of a principal. The store
   * makes a missing run with this session record, and a run whose session has ended lives on.
   * Absent: it answers `unknown` in both cases.
   */
  readonly create?: SessionRecord | undefined;
  /** How long the claim lives without being renewed, in milliseconds by the store's clock. */
  readonly leaseMs: number;
  /**
   * How long the run lives from now on at least, in milliseconds, with any answer. No claim, read
   * or renewal makes its expiry earlier: only a commit does, `end`, and a held step that is
   * settled. A store may leave the expiry as it is while nine tenths of this remain. A claim of an
   * ended workflow moves the expiry only to the end of its own lease.
   */
  readonly ttlMs: number;
  /**
   * Of a `retry` step: how long the run lives at least, in milliseconds, so that a later try finds
   * its idempotency key. While a key of the run is unsettled, nothing makes its expiry earlier.
   * Default: `ttlMs`.
   */
  readonly keyMs?: number | undefined;
}

/** A snapshot, and when the store gave it. */
export interface SeenSnapshot {
  readonly snapshot: FsmSnapshot;
  /**
   * The time in milliseconds since the epoch, by the clock that stamps `updatedAt`. So `now -
   * snapshot.updatedAt` is the snapshot's age, even if the caller's clock is wrong. It is never
   * before `updatedAt` or the `now` of an earlier answer, unless a failover set the clock back. A
   * store without a clock leaves it out, and the caller goes by its own.
   */
  readonly now?: number;
  /**
   * In a record, and in each answer to a claim: the steps of this workflow in this run whose
   * outcome is unknown and whose keys the store keeps, oldest first. A `retry` step whose lease has
   * ended is one of them, and so is the claim that a granted one has just taken over. So is an
   * earlier try of the claimed step, which has the same `idempotencyKey`. Absent where there are
   * none.
   */
  readonly unsettled?: readonly UnsettledStep[];
}

export type ClaimResult =
  /** Granted. */
  | ({
      readonly status: 'claimed';
      /** New, or that of an earlier try of unknown outcome. */
      readonly idempotencyKey: string;
    } & SeenSnapshot)
  /** The run's state does not allow the step, or the token is spent. Nothing has changed. */
  | ({ readonly status: 'state' } & SeenSnapshot)
  /** The workflow is frozen in this run. Nothing has changed. */
  | ({ readonly status: 'frozen'; readonly freeze: Freeze } & SeenSnapshot)
  /** Another step's claim lives, for at most `remainingMs` more unless it is renewed. */
  | ({ readonly status: 'busy'; readonly remainingMs: number } & SeenSnapshot)
  /**
   * A step that must not be repeated ended with an unknown outcome. The person who finds out
   * resolves it with `claim.token`: by `commit` if the step was done, by `release` if it was not.
   */
  | ({ readonly status: 'held'; readonly claim: ClaimView } & SeenSnapshot)
  /**
   * Sixteen steps of the workflow have an unknown outcome and keep their idempotency keys, and this
   * `retry` step is none of them. A person must resolve one first. Nothing has changed.
   */
  | ({ readonly status: 'unsettled' } & SeenSnapshot)
  /**
   * There is no such run: it never began, was deleted, has expired or was evicted. Or its session
   * has ended, and the claim does not say `create`.
   */
  | { readonly status: 'unknown' };

export interface CommitRequest extends RunKey {
  /**
   * The claim's token. A second commit with it changes nothing, and its answer is `repeated`. A
   * store remembers at least the last 32 tokens that were committed or released in each workflow of
   * a run.
   */
  readonly token: string;
  /**
   * The committer's own token, where a person resolves the held claim of a client. The store
   * remembers the commit by this token. The claim's own token counts as released, so a late commit
   * by its holder is `lost`. Default: `token`.
   */
  readonly as?: string | undefined;
  /**
   * The next position. Without a `context` the store keeps none. The store sets `version` to one
   * more than before, and `updatedAt` to its own time.
   */
  readonly snapshot: Pick<FsmSnapshot, 'state' | 'context'>;
  /** Saved in the same atomic operation as the snapshot. */
  readonly trail: MoveDraft;
  /** As {@link ClaimRequest.ttlMs}, but for ended workflows too. */
  readonly ttlMs: number;
  /**
   * Whether this commit ends the workflow. From then on reads and claims of it do not keep the run
   * alive, until a later commit says otherwise. Default `false`.
   */
  readonly ended?: boolean | undefined;
  /**
   * As in {@link ReleaseOptions}: `false` where the step did not begin and its data is saved all
   * the same. `'all'` where the workflow begins anew: the store forgets the keys of all tries.
   * Default `true`.
   */
  readonly settles?: boolean | 'all' | undefined;
  /**
   * The version of the snapshot from which the committer made the next one. Where the workflow has
   * moved since, by {@link AtomicStateStore.record}, the commit is `moved` and changes nothing.
   * Absent: any version will do.
   */
  readonly from?: number | undefined;
}

export type CommitResult =
  | {
      readonly status: 'committed';
      readonly version: number;
      /** The token had committed before, such as when a driver asks twice. Nothing has changed. */
      readonly repeated?: true;
    }
  /** The token has no claim: it was released, resolved, taken over, or never granted. */
  | { readonly status: 'lost' }
  /** The workflow has another version than `from`. Nothing has changed: make the next one anew. */
  | ({ readonly status: 'moved' } & SeenSnapshot)
  | { readonly status: 'unknown' };

/** A move that needs no claim, and leaves alone what other steps have claimed. */
export interface RecordRequest extends RunKey {
  /**
   * The caller makes it, unguessable, for one success only. Asking again with it changes nothing,
   * and its answer is `repeated`, as with {@link CommitRequest.token}.
   */
  readonly token: string;
  /**
   * The version of the snapshot from which the caller made the next one, 0 for a workflow that was
   * never claimed. Where it is another one by now, nothing changes, and the answer is `moved`.
   */
  readonly from: number;
  /** As {@link ClaimRequest.initial}. */
  readonly initial: FsmSnapshot;
  /** As {@link ClaimRequest.create}. */
  readonly create?: SessionRecord | undefined;
  /** As {@link CommitRequest.snapshot}. */
  readonly snapshot: Pick<FsmSnapshot, 'state' | 'context'>;
  /** As {@link CommitRequest.ended}. Default: as it was. */
  readonly ended?: boolean | undefined;
  /** Saved in the same atomic operation as the snapshot. */
  readonly trail: MoveDraft;
  /**
   * The idempotency key of an unsettled step whose outcome a person has found out: the store
   * forgets the step with this move. Absent: none.
   */
  readonly settlesKey?: string | undefined;
  /** As {@link ClaimRequest.ttlMs}. */
  readonly ttlMs: number;
}

export type RecordResult =
  | { readonly status: 'recorded'; readonly version: number; readonly repeated?: true }
  /**
   * The workflow has another version than `from`. Or no step has the `settlesKey`, or a claim has
   * it. Nothing has changed.
   */
  | ({ readonly status: 'moved' } & SeenSnapshot)
  /** As the `unknown` of a claim. */
  | { readonly status: 'unknown' };

/** Freezes one workflow of a run, or lets it go on. */
export interface FreezeRequest extends RunKey {
  /**
   * The caller makes it, unguessable, for one call only. Once it has changed the run, asking again
   * with it changes nothing, and its answer is `changed`. That is so though the run may be over
   * by then. It counts among the last tokens of the workflow as one that was released.
   */
  readonly token: string;
  /** Who freezes the run, and why. `undefined` lets it go on. */
  readonly freeze: Freeze | undefined;
  /** As {@link ClaimRequest.initial}. */
  readonly initial: FsmSnapshot;
  /** As {@link ClaimRequest.create}. */
  readonly create?: SessionRecord | undefined;
  /**
   * Saved in the same atomic operation, and only where something changes. It has no `to` and no
   * `outcome`, and counts as no attempt.
   */
  readonly entry: TrailDraft;
  /** As {@link ClaimRequest.ttlMs}. */
  readonly ttlMs: number;
}

export type FreezeResult =
  /**
   * `unchanged`: it was frozen before, and that freeze stays; or there was none to lift. No entry
   * is written then.
   */
  | ({
      readonly status: 'changed' | 'unchanged';
      /** Who has frozen it, as things are now; absent where it goes on. */
      readonly frozen?: Freeze;
    } & SeenSnapshot)
  /** There is no such run. Or its session has ended, it is not needed, and there is no `create`. */
  | { readonly status: 'unknown' };

/**
 * What is kept once for a whole workflow: what operators have set, or which gates have served it.
 * Opaque to every store.
 */
export interface SwitchRecord {
  readonly value: Json;
  /** Names this write of it. */
  readonly revision: string;
}

/** How a caller keeps its claim. */
export interface RenewOptions {
  /**
   * Why the run must be held, such as `undecided`: the claim becomes that of a `hold` step, and its
   * view has this `kind`. Absent: it stays what it is.
   */
  readonly hold?: string | undefined;
}

/** How a caller lets its claim go without a move. */
export interface ReleaseOptions {
  /**
   * `false` where the step did not begin: the store keeps an earlier try's idempotency key for the
   * next one. Default `true`.
   */
  readonly settles?: boolean | undefined;
  /**
   * The attempt's entry in the trail, without `to`. The store writes it in the same atomic
   * operation, if the claim is still the token's. Absent where nothing was forwarded.
   */
  readonly entry?: TrailDraft | undefined;
}

/** What looks at many runs. */
export interface ManyRunsQuery {
  /**
   * Called for each run that the store finds and cannot read, with the key under which it keeps
   * that. The others are given. Default: a warning of the process.
   */
  readonly onError?: ((error: unknown, kept: string) => void) | undefined;
}

/** A part of a listing. */
export interface PageQuery extends ManyRunsQuery {
  /** How many runs the page has at most, from 1 to 1,000. */
  readonly limit: number;
  /** The `next` of the page before. Absent: the first page. */
  readonly after?: string | undefined;
}

/** Which runs {@link AtomicStateStore.held} and {@link AtomicStateStore.unsettled} give. */
export interface HeldQuery extends PageQuery {
  /** The gate's id. */
  readonly workflow: string;
}

/** Which runs {@link AtomicStateStore.stuck} gives. */
export interface StuckQuery extends HeldQuery {
  /** Only runs in these states, by the names in the store. `undefined`: in any. */
  readonly states?: readonly string[] | undefined;
  /** Only runs whose snapshot is at least so old, in milliseconds by the store's clock. */
  readonly forMs: number;
}

/** What {@link AtomicStateStore.count} counts. */
export interface CountQuery {
  /** The gate's id. */
  readonly workflow: string;
  /** From which age of its snapshot on a run counts as stuck, in milliseconds. */
  readonly forMs: number;
}

/** Which runs {@link AtomicStateStore.list} gives. */
export interface ListQuery extends PageQuery {
  readonly principal: string;
}

/** A page of run keys. */
export interface KeysPage {
  readonly runs: readonly string[];
  /** Opaque. Absent: there are no more. */
  readonly next?: string;
}

/** One workflow of a run, as listings give it. */
export interface FoundRun extends WorkflowRecord {
  readonly run: string;
  /** As {@link RunRecord.sessionEnded}. */
  readonly sessionEnded?: true;
}

/** Which runs {@link AtomicStateStore.end} leaves alone, and what stays of others. */
export interface EndOptions {
  /** Only where no workflow of the run has a claim, in any state, and none is frozen. */
  readonly ifUnclaimed?: boolean | undefined;
  /**
   * The run makes way for others, if `ifUnclaimed` would end it. `any`: where it has begun, which
   * is with a move, a fact or an unsettled step, it is known as evicted from then on, until it
   * would have expired. Of its workflows nothing needs to stay. `claim`, `record` and `freeze`
   * answer `unknown`, also with `create`. `unbegun`: a run that has begun is left alone.
   */
  readonly evict?: 'unbegun' | 'any' | undefined;
}

/** What became of {@link AtomicStateStore.end}. */
export type EndResult =
  /** The session is over. The run is gone with it, unless it is needed. */
  | 'ended'
  /** A claim or a freeze is there, and the caller asked to leave such a run alone. */
  | 'claimed'
  /** It has begun, and the caller asked to evict no such run. */
  | 'begun'
  /** There is no such run. */
  | 'unknown';

/** What became of {@link AtomicStateStore.delete}. */
export type DeleteResult =
  | 'deleted'
  /** A `hold` step has the claim, and so the run stays. Nothing has changed. */
  | 'pinned'
  /** There is no such run. */
  | 'unknown';

/** What {@link AtomicStateStore.purge} removes. */
export interface PurgeQuery extends ManyRunsQuery {
  /**
   * Only what is left of this principal's runs, and with it the trails that the backend keeps for
   * audits. Absent: what is left of any run, and no such trail.
   */
  readonly principal?: string | undefined;
}

/**
 * A page of a listing. A run that does not move is on exactly one page; one that moves between two
 * pages may be on none.
 */
export interface RunsPage {
  readonly runs: readonly FoundRun[];
  /** Opaque. Absent: there are no more. */
  readonly next?: string;
  /** What time it is for the store, as in {@link SeenSnapshot}. */
  readonly now?: number;
}

/** How many runs of a workflow have not ended, are held, or have a step under way. */
export interface RunsCount {
  /** The runs that have not ended, by state. A state without any is left out. */
  readonly states: readonly {
    readonly state: string;
    readonly runs: number;
    /** How many of them have a snapshot at least `forMs` old. */
    readonly stuck: number;
  }[];
  /** Runs whose step ended with an unknown outcome and must be resolved. */
  readonly held: number;
  /** Runs with unsettled steps. Absent where the store cannot count them. */
  readonly unsettled?: number;
  /** Runs with a live claim. */
  readonly running: number;
  /** When the oldest claim that is still there was taken, by the store's clock. */
  readonly oldestClaim?: number;
  /** What time it is for the store, as in {@link SeenSnapshot}. */
  readonly now?: number;
}

/** Which runs {@link AtomicStateStore.runs} gives. */
export interface RunsQuery extends ManyRunsQuery {
  /** The gate's id. */
  readonly workflow: string;
  readonly state: string;
  /** Only runs whose snapshot is at least so old, by the store's clock. Default 0. */
  readonly forMs?: number | undefined;
}

/**
 * A store that makes steps exact across processes. Each method is **one** atomic operation of the
 * backend — a script, a transaction, an `UPDATE … WHERE` — never a read followed by a write.
 *
 * - A store with a clock goes by it, so that skew between processes breaks nothing.
 * - A run that has expired, was deleted or was evicted is `unknown` as a whole. None of its
 *   workflows may come back in its initial state.
 * - The claim of a `hold` step *pins* its run from the claim on, also past its lease. Until the
 *   step is committed or released, no expiry, `end`, `delete` or eviction takes the run away. What
 *   is pinned is the operator's evidence. The session may end meanwhile; then `sessionEnded` says
 *   so, and no claim without `create` gets the run.
 * - A frozen run stays as a pinned one does, until it goes on. But `delete` removes it, and
 *   `anonymize` drops its freezes. A run is *needed* while it is pinned or frozen, or while a step
 *   of it runs.
 * - A run whose session has ended can be read for another 24 hours once its last step is settled,
 *   or once it goes on. No operation without `create` makes its session live again.
 * - A rejected promise means "could not be asked", and the caller fails closed. Never answer "no"
 *   for "do not know".
 * - Any JavaScript string is a valid run key, workflow, tool or state: `__proto__`, quotes, NUL,
 *   half a surrogate pair, 4 KB of emoji. No two of them are the same. Where a backend cannot keep
 *   such a string, `JSON.stringify` writes it reversibly as valid UTF-8 without NUL.
 * - What a method gives back is a copy, or frozen.
 */
export interface AtomicStateStore {
  /** Which contract the store keeps. A store that says another number is refused. */
  readonly contract: 1;

  /**
   * Starts a run, unless there is one under that key: an upstream may use a session id twice, even
   * for another principal. A key is free again once its run is gone. Then nothing of that run is
   * left, not even its trail. While a run is needed, or can still be read, its key is `taken`.
   *
   * The caller makes `token`, unguessable, for one call only. A driver may retry: asking again with
   * it changes nothing and gives the first answer. Without a token, an existing run is `taken`,
   * even if this caller opened it.
   */
  open(run: string, session: SessionRecord, ttlMs: number, token?: string): Promise<OpenResult>;

  /**
   * The run, or `undefined` where it is unknown. Sets its expiry to `ttlMs` from now, as a claim
   * does. Not so where the caller reads it `about` a workflow that has ended, or where its session
   * has ended.
   */
  read(run: string, ttlMs: number, about?: string): Promise<RunRecord | undefined>;

  /**
   * Grants the claim after these tests, in this order. Each names the answer where it fails.
   *
   * 1. The run exists and its session has not ended, or `create` is there (`unknown`). The token
   *    that has the claim passes this test too.
   * 2. The token is not spent (`state`).
   * 3. The workflow is not frozen (`frozen`), or this token has the claim already.
   * 4. No other token's claim lives (`busy`) or is held (`held`).
   * 5. The state allows the step (`state`).
   * 6. A `retry` step finds room for its idempotency key (`unsettled`).
   *
   * A refused claim changes nothing but the expiry, except that it may have made the run.
   *
   * Where a lease ends without a commit, the outcome of the step is unknown. With `uncertain:
   * 'hold'` every later claim gets `held` until a person resolves the step. With `'retry'` the next
   * claim takes over; until then the claim remains its holder's. The store remembers 16 such steps
   * with their idempotency keys, and drops none of them for another. Each key is given again to a
   * claim of the same tool with the same digest, until a commit or a release settles that step.
   * Until then each claim that is granted names the step in `unsettled`.
   */
  claim(request: ClaimRequest): Promise<ClaimResult>;

  /**
   * Saves the next snapshot with its trail entry and lets the claim go, if the claim is still this
   * token's. That includes a lease that has ended and that no other claim has taken over: the late
   * holder knows the outcome.
   */
  commit(request: CommitRequest): Promise<CommitResult>;

  /**
   * Makes the lease end `leaseMs` from now, even one that has ended and was not taken over. With 0
   * it ends at once. The run does not expire before that. `false` where the claim is no longer this
   * token's.
   */
  renew(key: RunKey, token: string, leaseMs: number, options?: RenewOptions): Promise<boolean>;

  /**
   * Saves a next snapshot with its trail entry, without a claim: what a call adds that runs beside
   * others. The claim of another step stays, and so do its lease and its token. The move counts as
   * any other: the version grows, and `updatedAt` is new.
   */
  record(request: RecordRequest): Promise<RecordResult>;

  /**
   * Freezes a workflow of a run, or lets it go on: a mark beside the claim, which needs none. A
   * step that is running, or held, keeps its claim, its lease and its token. What it comes to is
   * saved, and the freeze stays. The snapshot and its version stay as they are. Moves the expiry as
   * a claim does.
   *
   * A run whose session has ended is `unknown` without `create`, unless it is needed.
   */
  freeze(request: FreezeRequest): Promise<FreezeResult>;

  /**
   * Lets the claim go without a move. Where the claim is not this token's, it stays, and the token
   * is spent if the workflow was ever claimed. So a claim that its caller no longer waits for is
   * refused when it arrives late.
   */
  release(key: RunKey, token: string, options?: ReleaseOptions): Promise<void>;

  /**
   * Adds the entry of a refused call, which has no `to`, to a trail, and changes nothing else. Does
   * nothing where the run or the workflow is unknown. Without this operation a gate cannot keep
   * refused calls.
   */
  append?(key: RunKey, entry: TrailDraft): Promise<void>;

  /**
   * Ends the session that names a run: a client's DELETE, or a quota. The run goes with it, but not
   * while it is needed. What a step that runs comes to is still saved.
   */
  end(run: string, options?: EndOptions): Promise<EndResult>;

  /**
   * Removes a run with everything in it, frozen or not, unless it is pinned. From then on `history`
   * is empty, though a backend may keep the trail for audits.
   */
  delete(run: string): Promise<DeleteResult>;

  /**
   * The newest `limit` trail entries (default 50), oldest first. Empty where the run is unknown. A
   * store keeps at least the last 50 of each workflow, refused calls among them. Does not move the
   * expiry.
   */
  history(key: RunKey, limit?: number): Promise<TrailEntry[]>;

  /**
   * The keys of the known runs whose workflow is in a state, those with the oldest snapshots first,
   * for sweeps and operators' pages. A workflow that was never claimed, moved or frozen is in no
   * state yet. A run that moves meanwhile may be missing or not, so a sweep must go by the answer
   * to its claim. Does not move the expiry. A store that would have to go through all of its keys
   * leaves this out.
   */
  runs?(query: RunsQuery): AsyncIterable<string>;

  /**
   * This and the operations below need an index, since none of them may go through all runs. A
   * store has all of them or none, but for `count`. They do not move the expiry.
   *
   * The held runs, whose step has `uncertain: 'hold'` and a lease that has ended. Those whose lease
   * ended first come first.
   */
  held?(query: HeldQuery): Promise<RunsPage>;

  /** The runs with unsettled steps, as {@link SeenSnapshot} names them: the oldest first. */
  unsettled?(query: HeldQuery): Promise<RunsPage>;

  /** The runs that have not ended and have not moved for `forMs`, oldest snapshot first. */
  stuck?(query: StuckQuery): Promise<RunsPage>;

  /** How many runs of a workflow are in each state, held and running, without a walk over them. */
  count?(query: CountQuery): Promise<RunsCount>;

  /** The keys of a principal's runs with any workflows, in no order. */
  list?(query: ListQuery): Promise<KeysPage>;

  /**
   * Gives a held run a new random key that no client can name. Takes away whom it belongs to, its
   * trail, and what its claims say of their callers. The held steps stay, with their idempotency
   * keys, their tokens and what they would use, and no freeze does. The old key is free from then
   * on. `undefined` where there is no such run, where it is not held, or where a step of it runs.
   */
  anonymize?(run: string): Promise<string | undefined>;

  /**
   * Removes what is left of runs that are unknown by now. Resolves to how many. A backend that
   * forgets them by itself has nothing to do.
   */
  purge?(query?: PurgeQuery): Promise<number>;

  /** How many keys the server has evicted, of any program. `undefined`: it does not say. */
  evictedKeys?(): Promise<number | undefined>;

  /**
   * The switch of a workflow, as the last write anywhere left it; `undefined` where there was none.
   * It never expires, and belongs to no run. The gates that have served the workflow are kept in
   * the same way, under the name `gates:<workflow>`. A store has both operations on switches or none.
   */
  readSwitch?(workflow: string): Promise<SwitchRecord | undefined>;

  /**
   * Replaces the switch if its revision is `expected`, or if there is none and that is `undefined`.
   * Of many who expect the same, exactly one gets `true`. The caller makes `next.revision`,
   * unguessable, for this one write. Where the switch has it already, such as after a lost answer,
   * that is a success too.
   */
  swapSwitch?(workflow: string, expected: string | undefined, next: SwitchRecord): Promise<boolean>;
}

/**
 * A store that can commit a step in the handler's own transaction, so that the handler's writes and
 * the move are saved together.
 */
export interface TransactionalStateStore<Client> extends AtomicStateStore {
  /**
   * As `commit`, in the transaction that is open on `client`: a rollback undoes it. After that
   * transaction, a second commit with the same token gets `repeated`.
   */
  commitIn(client: Client, request: CommitRequest): Promise<CommitResult>;
}

/** Either kind of store. */
export type StateStore = FsmStateStore | AtomicStateStore;
