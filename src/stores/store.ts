/** A JSON value, which is all that a store is asked to keep. */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

/** The persisted position of one run in one workflow. */
export interface FsmSnapshot {
  /** The state's name. */
  state: string;
  /**
   * When it was made, by a commit or by the workflow's first claim: milliseconds since the epoch,
   * on the clock of the store where that has one, else of the process.
   */
  updatedAt: number;
  /** How many steps and moves the run has committed. Absent means 0. */
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
   * The snapshot saved under this key, or `undefined` where there is none. A key is `session:<run>`
   * for what is known of a run as a whole, and `<gate's id>:<run>` for each workflow of it.
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

/** What is known of a run before any workflow of it has moved. */
export interface SessionRecord {
  /** Who may use the run; `undefined` binds it to unauthenticated callers. */
  readonly principal?: string | undefined;
  /** Whether the middleware made the session id up, because the upstream makes none. */
  readonly minted?: boolean | undefined;
}

/** What may happen after a step whose outcome nobody saw. */
export type Uncertain = 'hold' | 'retry';

/** The call that a claim is held for. */
export interface StepDescription {
  readonly tool: string;
  /** A digest of the call's arguments. Of one tool, the same digest is the same call. */
  readonly digest: string;
  readonly uncertain: Uncertain;
}

/** A claim as others see it. */
export interface ClaimView extends StepDescription {
  readonly token: string;
  readonly idempotencyKey: string;
  /** `false` once the lease has run out: the outcome of the step is unknown. */
  readonly live: boolean;
  /** When it was taken: milliseconds since the epoch, on the store's clock. */
  readonly since?: number;
  /** When its lease ends, or ended, on the same clock. */
  readonly until?: number;
  /** What the claim said for the trail: who called, and under which id. */
  readonly entry?: CallNote;
}

/** One workflow of a run, as it is stored. */
export interface WorkflowRecord {
  readonly snapshot: FsmSnapshot;
  readonly claim?: ClaimView;
  /**
   * What its last commit said of its end; absent where none said anything, as those of older
   * versions.
   */
  readonly ended?: boolean;
}

/** A whole run: who it belongs to, and each workflow of it that was ever claimed. */
export interface RunRecord {
  readonly session: SessionRecord;
  readonly workflows: Readonly<Record<string, WorkflowRecord>>;
  /** What time it is for the store, as in {@link SeenSnapshot}. */
  readonly now?: number;
}

/**
 * What became of a call. `not_run`: it was forwarded, and it is certain that nothing of it ran.
 * `refused`: it was not forwarded.
 */
export type TrailOutcome =
  | 'succeeded'
  | 'failed'
  | 'input_required'
  | 'not_run'
  | 'unknown'
  | 'refused';

/** What the trail says of a call that is known before the call is forwarded. */
export interface CallNote {
  readonly tool?: string | undefined;
  /** A digest of the call's arguments. */
  readonly digest?: string | undefined;
  /** The arguments, as the app's redaction lets them through. Absent unless it asks for them. */
  readonly args?: Json | undefined;
  /** Who made the move: a principal, a user, a job. */
  readonly actor?: string | undefined;
  /** The id of the JSON-RPC request. */
  readonly requestId?: string | number | undefined;
  /** The gate's `version`: which deployment of the workflow it was. Absent where it has none. */
  readonly workflowVersion?: number | undefined;
}

/** A trail entry before the store has stamped it. */
export interface TrailDraft extends CallNote {
  readonly from: string;
  /** Where the run went; it may be where it was. Absent where nothing was committed. */
  readonly to?: string | undefined;
  /** The event that was sent, or `null` where none was. */
  readonly event: string | null;
  /** Absent where no call made the move, but an event from outside, a deadline or a restart. */
  readonly outcome?: TrailOutcome | undefined;
  /**
   * What kind of outcome: `tool_error` (a result with `isError`), `rpc_error`, `rejected` (by the
   * upstream's transport), `not_forwarded`, `cancelled`, `taken_over`, `resolved` (a person found
   * out), or the reason of a refusal.
   */
  readonly kind?: string | undefined;
  /** What came with the event. */
  readonly payload?: Json | undefined;
  /** What a person said who resolved it. */
  readonly note?: string | undefined;
  /** Who made the call, where `actor` is the person who resolved it. */
  readonly calledBy?: string | undefined;
}

/** The entry of something that is committed. */
export interface MoveDraft extends TrailDraft {
  readonly to: string;
}

/**
 * One entry of a workflow's trail: an attempt, which is a call that was forwarded, whatever became
 * of it; a move that no call made; or a refused call, where the app asks for those.
 */
export interface TrailEntry extends TrailDraft {
  /** Its place: 1, 2, 3 … in each workflow of a run, without gaps. */
  readonly seq: number;
  /** The snapshot's version after it: one more than before where `to` is there, else the same. */
  readonly version: number;
  /**
   * How many attempts the run took since its last commit, this one included: 1 where the first
   * succeeded. A refused call is no attempt, and has the number of those before it.
   */
  readonly attempt: number;
  /** Milliseconds since the epoch, on the store's clock. */
  readonly at: number;
  /**
   * `sha256:` or `sha1:` and, in hex, the hash of this entry together with the `hash` of the one
   * before. There where the store chains its trail.
   */
  readonly hash?: string;
}

export type OpenResult =
  | { readonly status: 'opened' }
  /** A run is there already: it is as it was, its expiry too. */
  | { readonly status: 'taken' };

export interface ClaimRequest extends RunKey {
  /**
   * Made by the caller, unguessable, for one claim only. While the claim is this token's, asking
   * again gives the same answer and begins the lease anew, so a driver may retry. A token that was
   * committed or released is answered `state`.
   */
  readonly token: string;
  readonly step: StepDescription;
  /**
   * What the trail says of this call if another claim takes its own over, as an attempt of unknown
   * outcome: the store writes it then, with `kind` `taken_over`. Kept with the claim. Absent:
   * nothing is written then.
   */
  readonly entry?: CallNote | undefined;
  /** The states in which the step is allowed; `undefined` allows every state. */
  readonly states: readonly string[] | undefined;
  /**
   * The snapshot of a workflow that was never claimed in this run. A store with a clock replaces
   * its `updatedAt`, by the time of the first claim that is taken, or of the answer where one is
   * refused; any other keeps it.
   */
  readonly initial: FsmSnapshot;
  /**
   * A run that does not exist is made with this session record; `undefined` answers `unknown`
   * instead.
   */
  readonly create?: SessionRecord | undefined;
  /** How long the claim lives without being renewed, in milliseconds on the store's clock. */
  readonly leaseMs: number;
  /**
   * How long the run lives after this operation, whatever its answer, in milliseconds; longer where
   * a claim of it lives longer. A store may leave the expiry as it is while nine tenths of this
   * remain. A claim of a workflow that has ended leaves it as it is but for the claim's own life.
   */
  readonly ttlMs: number;
}

/** A snapshot that is handed out, and when. */
export interface SeenSnapshot {
  readonly snapshot: FsmSnapshot;
  /**
   * What time it is, in milliseconds since the epoch, on the clock that stamps `updatedAt`: `now -
   * snapshot.updatedAt` is the snapshot's age, whatever time it is for the caller. Neither before
   * `updatedAt` nor before what an earlier answer said, unless the clock went back, as it may at a
   * failover. A store without a clock of its own leaves it out: then the caller's is used.
   */
  readonly now?: number;
}

export type ClaimResult =
  /**
   * The lease is taken. `idempotencyKey` is new, or that of the same step whose outcome was
   * unknown.
   */
  | ({ readonly status: 'claimed'; readonly idempotencyKey: string } & SeenSnapshot)
  /**
   * The run is in a state in which the step is not allowed, or the token is spent. Nothing was
   * changed.
   */
  | ({ readonly status: 'state' } & SeenSnapshot)
  /** Another step's claim lives, for at most `remainingMs` more unless it is renewed. */
  | ({ readonly status: 'busy'; readonly remainingMs: number } & SeenSnapshot)
  /**
   * A step that must not be repeated ended with an unknown outcome. Whoever finds out resolves it
   * with `claim.token`: `commit` if it was done, `release` if it was not.
   */
  | ({ readonly status: 'held'; readonly claim: ClaimView } & SeenSnapshot)
  /** No such run: it never was, it ended, it expired or it was evicted. */
  | { readonly status: 'unknown' };

export interface CommitRequest extends RunKey {
  /**
   * The claim's token. Committing again with it changes nothing, and is answered `repeated`; a
   * store remembers at least the last 16 tokens that each workflow of a run has settled, by commit
   * or by release.
   */
  readonly token: string;
  /**
   * A token of the committer's own, where the claim is another's: a person resolves a held run. The
   * commit is remembered by this token. The claim's own is spent as by a release, so that a late
   * commit of its holder is `lost`. Default: `token`.
   */
  readonly as?: string | undefined;
  /**
   * The next position, context included: without one, none is kept. The store sets `version` to one
   * more than it was, and `updatedAt` to its own time.
   */
  readonly snapshot: Pick<FsmSnapshot, 'state' | 'context'>;
  /** Saved in the same atomic operation as the snapshot. */
  readonly trail: MoveDraft;
  /** As {@link ClaimRequest.ttlMs}, also of a workflow that has ended. */
  readonly ttlMs: number;
  /**
   * Whether the workflow has come to its end. Looks at it, and claims of it, do not keep the run
   * alive from then on, until a commit says otherwise. Default `false`.
   */
  readonly ended?: boolean | undefined;
  /**
   * As in {@link ReleaseOptions}: `false` where something is saved and the step was not begun.
   * `'all'` where the workflow begins anew: the keys of all tries are forgotten, since no call is
   * one of theirs any more. Default `true`.
   */
  readonly settles?: boolean | 'all' | undefined;
}

export type CommitResult =
  | {
      readonly status: 'committed';
      readonly version: number;
      /**
       * The token had committed before: this time nothing was changed. The caller, its driver or
       * another process asked twice.
       */
      readonly repeated?: true;
    }
  /**
   * The claim is no longer this token's: it was released, resolved, taken over after its lease, or
   * never there.
   */
  | { readonly status: 'lost' }
  | { readonly status: 'unknown' };

/** How a claim is let go. */
export interface ReleaseOptions {
  /**
   * `false` where the step was not begun after all: the key of an earlier try, whose outcome is
   * unknown, is kept for the next. Default `true`.
   */
  readonly settles?: boolean | undefined;
  /**
   * What the trail says of the attempt. Written in the same atomic operation, if the claim is still
   * the token's; absent where nothing was forwarded. Its `to` is absent.
   */
  readonly entry?: TrailDraft | undefined;
}

/** A part of a listing. */
export interface PageQuery {
  /** The most that are given, from 1 to 1,000. */
  readonly limit: number;
  /** The `next` of the page before. Absent: the first page. */
  readonly after?: string | undefined;
}

/** Which runs {@link AtomicStateStore.held} gives. */
export interface HeldQuery extends PageQuery {
  /** The gate's id. */
  readonly workflow: string;
}

/** Which runs {@link AtomicStateStore.stuck} gives. */
export interface StuckQuery extends HeldQuery {
  /** As they are stored; `undefined`: in any. */
  readonly states?: readonly string[] | undefined;
  /** Only those whose snapshot is at least so old, in milliseconds on the store's clock. */
  readonly forMs: number;
}

/** What {@link AtomicStateStore.count} counts. */
export interface CountQuery {
  /** The gate's id. */
  readonly workflow: string;
  /** A run counts as stuck whose snapshot is at least so old, in milliseconds. */
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
}

/** A page of a listing. What moves meanwhile may be on none; what stands still is on one. */
export interface RunsPage {
  readonly runs: readonly FoundRun[];
  /** Opaque. Absent: there are no more. */
  readonly next?: string;
  /** What time it is for the store, as in {@link SeenSnapshot}. */
  readonly now?: number;
}

/** How many runs of a workflow are under way. */
export interface RunsCount {
  /** Those that have not ended, by state as it is stored. States without any are left out. */
  readonly states: readonly {
    readonly state: string;
    readonly runs: number;
    /** Those of them whose snapshot is at least `forMs` old. */
    readonly stuck: number;
  }[];
  /** Runs whose step ended with an unknown outcome and must be resolved. */
  readonly held: number;
  /** Steps whose lease runs. */
  readonly running: number;
  /** When the oldest claim was taken that is still there, on the store's clock. */
  readonly oldestClaim?: number;
  /** What time it is for the store, as in {@link SeenSnapshot}. */
  readonly now?: number;
}

/** Which runs {@link AtomicStateStore.runs} gives. */
export interface RunsQuery {
  /** The gate's id. */
  readonly workflow: string;
  readonly state: string;
  /**
   * Only those whose snapshot is at least so old, in milliseconds on the store's clock. Default 0.
   */
  readonly forMs?: number | undefined;
}

/**
 * A store that makes steps exact across processes. Each method is **one** atomic operation of the
 * backend — a script, a transaction, an `UPDATE … WHERE` — never a read followed by a write.
 *
 * - Times are the store's own clock where it has one, so that skew between processes breaks
 *   nothing.
 * - A run that has expired, was deleted or was evicted is `unknown` as a whole: no workflow of it
 *   may come back in its initial state under the old key.
 * - A rejected promise means "could not be asked"; the caller fails closed. Never answer "no" for
 *   "do not know".
 * - Any JavaScript string is a valid run key, workflow, tool or state: `__proto__`, quotes, NUL,
 *   half a surrogate pair, 4 KB of emoji. No two of them are the same. Where a backend cannot keep
 *   each of them, `JSON.stringify` writes it as valid UTF-8 without NUL, and reversibly.
 * - What is handed out is a copy, or frozen.
 */
export interface AtomicStateStore {
  /**
   * Starts a run, unless there is one under that key: an upstream may use a session id twice, for
   * another principal even. A key is free again once its run was deleted or has expired; nothing is
   * left of that run then, its trail included.
   *
   * `token` is made by the caller, unguessable, for one call only: asking again with it is answered
   * as the first time, and changes nothing, so a driver may retry. Without one a run that is there
   * is `taken`, whoever opened it.
   */
  open(run: string, session: SessionRecord, ttlMs: number, token?: string): Promise<OpenResult>;

  /**
   * The run, or `undefined` where it is unknown. Sets its expiry to `ttlMs` from now, as a claim
   * does; but not where the look is `about` a workflow that has ended.
   */
  read(run: string, ttlMs: number, about?: string): Promise<RunRecord | undefined>;

  /**
   * Tests, in this order, and takes the lease if all hold: the run exists (or `create` says to make
   * it); the token is not spent (`state`), and does not have the claim already; no other claim
   * lives (`busy`) or is held (`held`); the state is allowed (`state`). A refused claim changes
   * nothing but the expiry, except that a run may have been made.
   *
   * A claim whose lease ended without a commit is an unknown outcome. With `uncertain: 'hold'` it
   * answers `held` to everybody until it is resolved. With `'retry'` it gives way to the next
   * claim; its idempotency key is remembered (the last 16 such) and handed out again to the claim
   * of the same tool with the same digest, until that step commits or is released, and settled by
   * it. The one to whom a claim belonged when its lease ended keeps it until somebody takes it
   * over.
   */
  claim(request: ClaimRequest): Promise<ClaimResult>;

  /**
   * Saves the next snapshot with its trail entry and lets the claim go, if the claim is still this
   * token's. A lease that ran out without anybody taking the run over is still this token's: the
   * late holder knows the truth.
   */
  commit(request: CommitRequest): Promise<CommitResult>;

  /**
   * Makes the lease end `leaseMs` from now, also one that ran out and was not taken over. The run
   * does not expire before that. `false` where the claim is no longer this token's.
   */
  renew(key: RunKey, token: string, leaseMs: number): Promise<boolean>;

  /**
   * Lets the claim go without a move. Where it is not this token's no claim is touched, but the
   * token is spent if the workflow was ever claimed: so a claim that its caller gave up waiting for
   * takes no lease when it arrives after all.
   */
  release(key: RunKey, token: string, options?: ReleaseOptions): Promise<void>;

  /**
   * Adds an entry to the trail of a workflow that is there, and changes nothing else: a refused
   * call. Its `to` is absent. Nothing where the run or the workflow is unknown. Without this
   * operation refused calls cannot be kept.
   */
  append?(key: RunKey, entry: TrailDraft): Promise<void>;

  /**
   * Ends a run with everything in it; nothing where it is unknown. Its trail is no longer given by
   * `history`, though a backend may keep it for audits.
   */
  delete(run: string): Promise<void>;

  /**
   * The newest `limit` trail entries (default 50), oldest first. Empty where the run is unknown. A
   * store keeps at least the last 50 of each workflow, refused calls among them. Reading them does
   * not push the expiry out.
   */
  history(key: RunKey, limit?: number): Promise<TrailEntry[]>;

  /**
   * The keys of the known runs whose workflow stands in a state, those with the oldest snapshots
   * first, for sweeps and operators' pages. A workflow that was never claimed stands nowhere yet. A
   * run that moves meanwhile may be given or not, so a sweep decides by what its claim is answered.
   * Does not push the expiry out. Only for a store that can look it up by the state: one that would
   * have to go through all of its keys has no such operation.
   */
  runs?(query: RunsQuery): AsyncIterable<string>;

  /**
   * The operations below are there in a store that keeps an index of what is under way: none of
   * them goes through all runs. A store has all of them or none. They do not push the expiry out.
   *
   * The runs that are held: a step with `uncertain: 'hold'` whose lease is over. Those whose lease
   * ended first come first.
   */
  held?(query: HeldQuery): Promise<RunsPage>;

  /** The runs that have not ended and have not moved for so long. The oldest first. */
  stuck?(query: StuckQuery): Promise<RunsPage>;

  /** How many runs of a workflow have not ended, and how many of them are older than `forMs`. */
  count?(query: CountQuery): Promise<RunsCount>;

  /** The keys of a principal's runs, whatever workflows they have. In no order. */
  list?(query: ListQuery): Promise<KeysPage>;
}

/**
 * A store that can commit a step in a transaction of the handler's own, so that its writes and the
 * move are one.
 */
export interface TransactionalStateStore<Client> extends AtomicStateStore {
  /**
   * The same as `commit`, on a client that has a transaction open: undone where that is rolled
   * back. Committing again outside of it, with the same token, is answered `repeated`.
   */
  commitIn(client: Client, request: CommitRequest): Promise<CommitResult>;
}

/** Either kind of store. */
export type StateStore = FsmStateStore | AtomicStateStore;
