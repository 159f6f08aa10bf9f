// What mcp-interlock exports. `npm run api` renews this file.

export interface ActionContext {
    readonly run?: string | undefined;
    readonly workflow: string;
    readonly event: string | null;
    readonly from: string;
    readonly to: string;
    readonly context?: Json | undefined;
}

export type ActionListener = (action: FsmAction, context: ActionContext) => void | Promise<void>;

export interface AdaptOptions {
    readonly now?: (() => number) | undefined;
    readonly onWarning?: ((warning: string) => void) | undefined;
    readonly deadlineMs?: number | undefined;
}

export type AllFrozen = {
    readonly frozen: true;
} | {
    readonly frozen: false;
    readonly reason: 'frozen';
};

export type AllUnfrozen = {
    readonly unfrozen: true;
} | {
    readonly unfrozen: false;
    readonly reason: 'not-frozen';
};

export interface AnsweredError {
    readonly code: number;
    readonly message: string;
    readonly data?: unknown;
}

export type ArgumentsCondition = Condition | ((args: Readonly<Record<string, unknown>>) => boolean);

export interface ArgumentsSchema {
    readonly type: 'object';
    readonly [keyword: string]: unknown;
}

export interface AtomicStateStore {
    readonly contract: 1;
    open(run: string, session: SessionRecord, ttlMs: number, token?: string): Promise<OpenResult>;
    read(run: string, ttlMs: number, about?: string): Promise<RunRecord | undefined>;
    claim(request: ClaimRequest): Promise<ClaimResult>;
    commit(request: CommitRequest): Promise<CommitResult>;
    renew(key: RunKey, token: string, leaseMs: number, options?: RenewOptions): Promise<boolean>;
    record(request: RecordRequest): Promise<RecordResult>;
    freeze(request: FreezeRequest): Promise<FreezeResult>;
    release(key: RunKey, token: string, options?: ReleaseOptions): Promise<void>;
    append?(key: RunKey, entry: TrailDraft): Promise<void>;
    end(run: string, options?: EndOptions): Promise<EndResult>;
    delete(run: string): Promise<DeleteResult>;
    history(key: RunKey, limit?: number): Promise<TrailEntry[]>;
    runs?(query: RunsQuery): AsyncIterable<string>;
    held?(query: HeldQuery): Promise<RunsPage>;
    unsettled?(query: HeldQuery): Promise<RunsPage>;
    stuck?(query: StuckQuery): Promise<RunsPage>;
    count?(query: CountQuery): Promise<RunsCount>;
    list?(query: ListQuery): Promise<KeysPage>;
    anonymize?(run: string): Promise<string | undefined>;
    purge?(query?: PurgeQuery): Promise<number>;
    evictedKeys?(): Promise<number | undefined>;
    readSwitch?(workflow: string): Promise<SwitchRecord | undefined>;
    swapSwitch?(workflow: string, expected: string | undefined, next: SwitchRecord): Promise<boolean>;
}

export type Begin = (run: BeginningRun) => Json | BeginsIn | undefined | Promise<Json | BeginsIn | undefined>;

export interface BeginOptions {
    readonly data?: Json | undefined;
    readonly state?: string | undefined;
    readonly actor?: string | undefined;
}

export interface BeginningRun {
    readonly run: string;
    readonly principal: string | undefined;
}

export class BeginsIn {
    readonly state: string;
    readonly data: Json | undefined;
}

export type Begun = {
    readonly begun: true;
    readonly state: string;
    readonly context: Json | undefined;
} | {
    readonly begun: false;
    readonly reason: NotMoved | 'begun';
};

export interface BindableTool<S extends string = string, E extends string = string, T extends string = never, X = Json | undefined> {
    readonly name: string;
    readonly bindings: readonly Binding<S, E, T, X>[];
}

export interface Binding<S extends string = string, E extends string = string, T extends string = never, X = Json | undefined> extends BindingOptions<E, X> {
    readonly tool: string;
    readonly states: readonly StateExpression<S, T>[];
}

export interface BindingOptions<E extends string = string, X = Json | undefined, S extends string = string, T extends string = string> {
    readonly success?: EventSource<E, SucceededCall<X, S, T>> | undefined;
    readonly failure?: EventSource<E, FailedCall<X, S, T>> | undefined;
    readonly sends?: readonly E[] | undefined;
    readonly retries?: number | undefined;
    readonly errors?: ErrorRule | undefined;
    readonly ok?: Condition | ResultTest | undefined;
    readonly results?: 'structured' | 'text' | undefined;
    readonly limit?: Limit | readonly Limit[] | undefined;
    readonly guard?: Guard<X, S, T> | undefined;
    readonly visible?: VisibleTest<X, S, T> | undefined;
    readonly when?: CallTest | undefined;
    readonly uncertain?: Uncertain | undefined;
    readonly readOnly?: boolean | undefined;
    readonly whileHeld?: boolean | undefined;
}

export class BusUnavailable extends Error {
    readonly name = "BusUnavailable";
}

export type CacheDirective = 'no-store' | 'immutable';

export interface CallNote {
    readonly tool?: string | undefined;
    readonly digest?: string | undefined;
    readonly args?: Json | undefined;
    readonly actor?: string | undefined;
    readonly requestId?: string | number | undefined;
    readonly workflowVersion?: number | undefined;
}

export interface CallRecorder extends EventListener {
    flush(): Promise<void>;
    readonly dropped: number;
}

export type CallTest = (args: Record<string, unknown>) => boolean;

export interface CallerRequest {
    readonly method?: string | undefined;
    readonly url?: string | undefined;
    readonly headers: IncomingHttpHeaders;
    readonly auth?: unknown;
}

export interface CheckedRuns {
    readonly runs: number;
    readonly states: readonly RunsInState[];
    readonly unreadable: number;
    readonly faults: readonly UnreadableRuns[];
    readonly migrated: readonly MigratedRuns[];
    readonly unbound: readonly UnboundSteps[];
    readonly isCut: boolean;
}

export interface ClaimRequest extends RunKey {
    readonly token: string;
    readonly step: StepDescription;
    readonly entry?: CallNote | undefined;
    readonly states: readonly string[] | undefined;
    readonly initial: FsmSnapshot;
    readonly create?: SessionRecord | undefined;
    readonly leaseMs: number;
    readonly ttlMs: number;
    readonly keyMs?: number | undefined;
}

export type ClaimResult = ({
    readonly status: 'claimed';
    readonly idempotencyKey: string;
} & SeenSnapshot) | ({
    readonly status: 'state';
} & SeenSnapshot) | ({
    readonly status: 'frozen';
    readonly freeze: Freeze;
} & SeenSnapshot) | ({
    readonly status: 'busy';
    readonly remainingMs: number;
} & SeenSnapshot) | ({
    readonly status: 'held';
    readonly claim: ClaimView;
} & SeenSnapshot) | ({
    readonly status: 'unsettled';
} & SeenSnapshot) | {
    readonly status: 'unknown';
};

export interface ClaimView extends StepDescription {
    readonly token: string;
    readonly idempotencyKey: string;
    readonly live: boolean;
    readonly since?: number;
    readonly until?: number;
    readonly entry?: CallNote;
    readonly kind?: string;
}

export interface ClientInfo {
    readonly name: string;
    readonly version: string;
}

export interface Clock {
    now(): number;
    after(ms: number, task: () => void): () => void;
}

export interface CloseOptions {
    drainMs?: number | undefined;
}

export interface CommitRequest extends RunKey {
    readonly token: string;
    readonly as?: string | undefined;
    readonly snapshot: Pick<FsmSnapshot, 'state' | 'context'>;
    readonly trail: MoveDraft;
    readonly ttlMs: number;
    readonly ended?: boolean | undefined;
    readonly settles?: boolean | 'all' | undefined;
    readonly from?: number | undefined;
}

export type CommitResult = {
    readonly status: 'committed';
    readonly version: number;
    readonly repeated?: true;
} | {
    readonly status: 'lost';
} | ({
    readonly status: 'moved';
} & SeenSnapshot) | {
    readonly status: 'unknown';
};

export interface CommonOptions {
    maxBodyBytes?: number | undefined;
    maxBatch?: number | undefined;
    maxMessageBytes?: number | undefined;
    onError?: ((error: unknown) => void) | undefined;
    onWarning?: ((warning: string) => void) | undefined;
    onEvent?: EventListener | undefined;
}

export interface Comparison {
    readonly eq?: Scalar | undefined;
    readonly ne?: Scalar | undefined;
    readonly gt?: number | undefined;
    readonly gte?: number | undefined;
    readonly lt?: number | undefined;
    readonly lte?: number | undefined;
    readonly in?: readonly Scalar[] | undefined;
    readonly exists?: boolean | undefined;
}

export interface Condition {
    readonly any?: readonly Condition[] | undefined;
    readonly not?: Condition | undefined;
    readonly [path: string]: Scalar | Comparison | Condition | readonly Condition[] | undefined;
}

export interface ConversationKeyOptions {
    names?: readonly string[] | undefined;
    anonymous?: boolean | undefined;
}

export interface CountOptions {
    readonly forMs?: number | undefined;
}

export interface CountQuery {
    readonly workflow: string;
    readonly forMs: number;
}

export interface CurrentStep {
    readonly run: string;
    readonly workflow: string;
    readonly tool: string;
    readonly state: string;
    readonly context: Json | undefined;
    update(change: (context: Json | undefined) => Json | undefined): Json | undefined;
    readonly idempotencyKey: string;
    commitIn(client: unknown): Promise<void>;
    unknown(words?: string): void;
}

export interface CurrentStepOptions {
    gate?: {
        readonly id: string;
    } | undefined;
}

export type DeleteResult = 'deleted' | 'pinned' | 'unknown';

export type Deleted = {
    readonly deleted: true;
} | {
    readonly deleted: false;
    readonly reason: 'unknown-run' | 'pinned';
};

export type Doubt = 'guard' | 'values' | 'outcome' | 'unreadable';

export type Duration = number | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`;

export const ERROR_CODES: {
    readonly ERR_INTERLOCK_CONFIG: 'an option or a workflow has the wrong shape, or an unknown key';
    readonly ERR_INTERLOCK_INITIAL: 'the initial state is not one of the states';
    readonly ERR_INTERLOCK_TARGET: 'a transition leads to a state that does not exist';
    readonly ERR_INTERLOCK_BINDING: 'a tool is bound to a state that does not exist, or without a name';
    readonly ERR_INTERLOCK_EVENT: 'an event that is not a non-empty string was bound or sent';
    readonly ERR_INTERLOCK_SNAPSHOT: 'a snapshot is malformed or names a state that does not exist';
    readonly ERR_INTERLOCK_DISPOSED: 'a gate was used after dispose()';
    readonly ERR_INTERLOCK_POLICY: 'a synchronisation policy or a glob pattern is malformed';
    readonly ERR_INTERLOCK_STORE: string;
    readonly ERR_INTERLOCK_STEP: 'currentStep() was called without what its handler was given, or with something else';
    readonly ERR_INTERLOCK_MOUNT: 'the middlewares are mounted in an order, in a number or on a server that cannot work';
    readonly ERR_INTERLOCK_NODE: 'the package runs on a version of Node that it does not support';
};

export const EVENT_CHANNEL = "mcp-interlock";

export interface EarlierCall<N extends string = string> extends PastCall<N> {
    readonly consumes?: boolean | 'calls' | undefined;
}

export type EarlierValue = string | {
    readonly args: string;
} | {
    readonly result: string;
};

export interface EndOptions {
    readonly ifUnclaimed?: boolean | undefined;
    readonly evict?: 'unbegun' | 'any' | undefined;
}

export type EndResult = 'ended' | 'claimed' | 'begun' | 'unknown';

export interface EnforceOptions extends FreezeOptions {
    readonly living?: boolean | undefined;
}

export interface EraseOptions {
    readonly held?: 'anonymize' | undefined;
}

export interface Erased {
    readonly deleted: number;
    readonly anonymized: readonly {
        readonly run: string;
        readonly freed: string;
    }[];
    readonly pinned: readonly string[];
    readonly failed?: readonly string[];
}

export interface ErrorAnswer {
    readonly status: number;
    readonly headers: Readonly<Record<string, string>>;
    readonly body: string;
    readonly error: AnsweredError | undefined;
}

export type ErrorListener = (error: unknown) => void;

export type ErrorRule = 'failed' | 'unknown' | ((result: ToolResult | undefined, error: unknown) => 'failed' | 'unknown');

export type EventListener = (event: InterlockEvent) => void;

export type EventSource<E extends string, Call> = E | ((call: Call) => E | EventWithPayload<E> | undefined);

export interface EventWithPayload<E extends string = string> {
    readonly type: E;
    readonly payload?: Json | undefined;
}

export interface Explained {
    readonly state: string;
    readonly snapshot: FsmSnapshot;
    readonly context?: Json;
    readonly ended: boolean;
    readonly tools: readonly ExplainedTool[];
    readonly events: readonly string[];
    readonly leavesAt?: number;
    readonly version?: number;
}

export type ExplainedRun = Pick<RunView, 'snapshot'> & Partial<Pick<RunView, 'run' | 'claim' | 'unsettled' | 'available' | 'frozen' | 'unmovedForMs'>>;

export interface ExplainedTool {
    readonly tool: string;
    readonly shown: boolean;
    readonly refusal?: Refusal;
    readonly says?: string;
    readonly leadsTo: readonly string[];
    readonly isPartial: boolean;
}

export interface FailedAnswer {
    readonly content?: readonly {
        readonly text?: string;
        readonly [member: string]: Json | undefined;
    }[];
    readonly structuredContent?: {
        readonly [member: string]: Json;
    };
    readonly code?: number;
    readonly message?: string;
    readonly data?: Json;
    readonly [member: string]: unknown;
}

export interface FailedCall<X = Json | undefined, S extends string = string, T extends string = string> extends EndedCall<X, S, T> {
    readonly result?: ToolResult | undefined;
    readonly error?: unknown;
}

export interface FoundRun extends WorkflowRecord {
    readonly run: string;
    readonly sessionEnded?: true;
}

export interface Freeze {
    readonly actor: string;
    readonly note: string;
}

export interface FreezeAllOptions extends FreezeOptions {
    readonly tool?: string | undefined;
}

export interface FreezeOptions {
    readonly actor: string;
    readonly note: string;
}

export interface FreezeRequest extends RunKey {
    readonly token: string;
    readonly freeze: Freeze | undefined;
    readonly initial: FsmSnapshot;
    readonly create?: SessionRecord | undefined;
    readonly entry: TrailDraft;
    readonly ttlMs: number;
}

export type FreezeResult = ({
    readonly status: 'changed' | 'unchanged';
    readonly frozen?: Freeze;
} & SeenSnapshot) | {
    readonly status: 'unknown';
};

export type Frozen = {
    readonly frozen: true;
    readonly state: string;
} | {
    readonly frozen: false;
    readonly reason: Extract<NotMoved, 'unknown-run' | 'frozen'>;
};

export interface FsmAction {
    readonly type: string;
    readonly params?: Json;
}

export interface FsmConfig<S extends string = string, E extends string = string> {
    readonly id?: string | undefined;
    readonly initial: NoInfer<S>;
    readonly on?: {
        readonly [event in E]?: FsmTransition<NoInfer<S>> | undefined;
    } | undefined;
    readonly states: {
        readonly [state in S]: FsmStateConfig<NoInfer<S>, E>;
    };
}

export interface FsmGateOptions extends CommonOptions {
    announce?: boolean | undefined;
    visibility?: Visibility | VisibilityOf | undefined;
    listCache?: boolean | ListCacheOptions | undefined;
    refusal?: 'explain' | 'unknown-tool' | undefined;
    enforce?: boolean | readonly string[] | undefined;
    unbound?: 'allow' | 'refuse' | undefined;
    whenEnded?: WhenEnded | undefined;
    begin?: Begin | undefined;
    trail?: TrailOptions | undefined;
    neverRan?: ((answer: ErrorAnswer) => boolean) | undefined;
    statusTool?: string | StatusToolOptions | undefined;
    waitMs?: number | undefined;
    maxWaiting?: number | undefined;
    maxWaitingBytes?: number | undefined;
    leaseMs?: number | undefined;
    maxStepMs?: number | undefined;
    cancelGraceMs?: number | undefined;
    clock?: Clock | undefined;
}

export interface FsmSnapshot {
    state: string;
    updatedAt: number;
    version?: number;
    context?: Json;
}

export interface FsmStateConfig<S extends string = string, E extends string = string> {
    readonly on?: {
        readonly [event in E]?: FsmTransition<S> | undefined;
    } | undefined;
    readonly after?: {
        readonly [ms: number]: S;
    } | undefined;
    readonly type?: 'final' | undefined;
}

export interface FsmStateStore {
    load(sessionId: string): Promise<FsmSnapshot | undefined>;
    save(sessionId: string, snapshot: FsmSnapshot): Promise<void>;
}

export type FsmTransition<S extends string = string> = S | {
    readonly target: S;
    readonly reenter?: boolean | undefined;
};

export interface GateOptions {
    readonly now?: (() => number) | undefined;
    readonly onError?: ErrorListener | undefined;
    readonly onAction?: ActionListener | undefined;
    readonly version?: number | undefined;
    readonly migrate?: Migrate | undefined;
    readonly loopShield?: LoopShieldOptions | undefined;
    readonly starts?: readonly string[] | undefined;
}

export type Guard<X = Json | undefined, S extends string = string, T extends string = string> = (call: GuardedCall<X, S, T>) => boolean | string | Promise<boolean | string>;

export interface GuardedCall<X = Json | undefined, S extends string = string, T extends string = string> extends RunFacts<X, S, T> {
    readonly run: string;
    readonly tool: string;
    readonly args: Readonly<Record<string, unknown>>;
}

export class HandleKey {
    readonly kind = "handle";
    readonly argument: string;
    readonly createdBy: readonly string[];
    readonly field: string;
    constructor(argument: string, createdBy: readonly string[], field: string);
    runKey(handle: string | number, principal?: string | IssuedPrincipal): string;
}

export interface HandleKeyOptions {
    createdBy: string | readonly string[];
    field?: string | undefined;
}

export interface HealthHandler {
    (req: IncomingMessage, res: ServerResponse): void;
    readonly live: (req: IncomingMessage, res: ServerResponse) => void;
    readonly fetch: (request: Request) => Promise<Response>;
}

export interface HealthReport {
    readonly status: 'ok' | 'degraded' | 'failing';
    readonly failing: readonly (FailOn | 'store' | 'ending' | 'index')[];
    readonly degraded?: readonly ('evictions' | 'switch' | 'strayed')[];
    readonly bus?: 'hears' | 'deaf';
    readonly workflows: readonly WorkflowHealth[];
}

export interface HeldOutcome {
    readonly outcome: 'succeeded' | 'failed';
    readonly event?: string | null;
    readonly leadsTo?: string;
}

export interface HeldQuery extends PageQuery {
    readonly workflow: string;
}

export type HeldRun = RunView & {
    readonly claim: ClaimView;
};

export class InterlockError extends Error {
    readonly name = "InterlockError";
    readonly code: InterlockErrorCode;
    readonly help: string;
    constructor(code: InterlockErrorCode, message: string, options?: ErrorOptions);
}

export type InterlockErrorCode = keyof typeof ERROR_CODES;

export type InterlockEvent = {
    readonly at: number;
} & EventBody;

export type InterlockEventType = InterlockEvent['type'];

export interface InvalidationEvent {
    readonly causedBy: string;
    readonly patterns: readonly string[];
    readonly timestamp: string;
}

export interface IssuedPrincipal {
    readonly issuer: string;
    readonly subject: string;
}

export type Json = string | number | boolean | null | Json[] | {
    [key: string]: Json;
};

export interface KeysPage {
    readonly runs: readonly string[];
    readonly next?: string;
}

export type Limit = LimitedCalls & ({
    readonly times: number;
    readonly sum?: undefined;
    readonly max?: undefined;
    readonly below?: undefined;
} | {
    readonly sum: string | {
        readonly path: string;
        readonly text?: boolean | undefined;
    };
    readonly max?: number | undefined;
    readonly below?: number | undefined;
    readonly times?: undefined;
});

export interface ListCacheOptions {
    ttlMs?: number | undefined;
    vary?: VaryBy['vary'] | undefined;
    shared?: boolean | undefined;
}

export interface ListOptions extends PageOptions {
    readonly principal: string | IssuedPrincipal;
}

export interface ListQuery extends PageQuery {
    readonly principal: string;
}

export interface ListedRun extends Pick<RunView, 'run' | 'state' | 'status' | 'frozen' | 'unsettled' | 'heldForMs' | 'unmovedForMs' | 'fault'> {
    readonly tool?: string;
    readonly idempotencyKey?: string;
}

export interface LocalBusOptions {
    readonly onError?: ((error: unknown) => void) | undefined;
}

export interface Loop {
    readonly run: string;
    readonly workflow: string;
    readonly tool: string;
    readonly state: string;
    readonly calls: number;
    readonly max: number;
}

export type LoopListener = (loop: Loop) => void;

export interface LoopShieldOptions {
    readonly max: number;
    readonly mode?: 'repeated' | 'consecutive' | undefined;
    readonly sameArguments?: boolean | undefined;
    readonly window?: number | undefined;
    readonly fallback: {
        readonly state: string;
    } | {
        readonly event: string;
    };
    readonly onLoop?: LoopListener | undefined;
}

export class ManagedHandle {
    readonly kind = "managed";
    readonly start: string;
    readonly argument: string;
    readonly description: string;
    constructor({ start, argument, description, }: {
        start: string;
        argument: string;
        description: string;
    });
    runKey(handle: string, principal?: string | IssuedPrincipal): string;
}

export interface ManagedHandleOptions {
    start: string;
    argument: string;
    description?: string | undefined;
}

export interface MemoryStoreOptions {
    readonly maxRuns?: number | undefined;
    readonly now?: (() => number) | undefined;
    readonly chainTrail?: boolean | undefined;
}

export interface Middleware {
    (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void): void;
    readonly [STAGE]: object;
}

export type Migrate = (stored: StoredRun) => {
    readonly state: string;
    readonly context?: Json | undefined;
};

export interface MigratedRuns {
    readonly from: string;
    readonly version: number;
    readonly to: string;
    readonly runs: number;
}

export type ModeSet = {
    readonly changed: true;
} | {
    readonly changed: false;
    readonly reason: 'same';
};

export interface Move<S extends string = string> extends TransitionResult<S> {
    event: string;
    run?: string;
}

export interface MoveDraft extends TrailDraft {
    readonly to: string;
}

export interface NextToolSchema {
    readonly type: 'object';
    readonly oneOf: readonly {
        readonly properties: {
            readonly tool: {
                readonly const: string;
            };
            readonly arguments: ArgumentsSchema;
        };
        readonly required: readonly [
            'tool'
        ] | readonly [
            'tool',
            'arguments'
        ];
    }[];
}

export interface NotificationBus {
    publish(message: string): Promise<void>;
    subscribe(listener: (message: string) => void, signal?: AbortSignal): Promise<() => Promise<void>>;
    hears?(): boolean;
}

export interface Observed {
    readonly since: number;
    readonly runs: number;
    readonly refused: number;
    readonly calls: number;
    readonly wouldWait: number;
    readonly strayed: number;
    readonly unjudged: Readonly<Partial<Record<Unjudged, number>>>;
    readonly rules: readonly ObservedRule[];
    readonly hours: readonly ObservedHour[];
    readonly last?: ObservedRefusal;
}

export interface ObservedHour {
    readonly from: number;
    readonly runs: number;
    readonly refused: number;
}

export interface ObservedMark {
    readonly enforced: readonly string[];
    readonly refused: boolean;
    readonly strayed: boolean;
}

export interface ObservedRefusal {
    readonly tool: string;
    readonly reason: string;
    readonly state: string;
    readonly says: readonly string[];
    readonly at: number;
    readonly run: string;
}

export interface ObservedRule {
    readonly tool: string;
    readonly reason: string;
    readonly runs: number;
    readonly calls: number;
    readonly last: ObservedRefusal;
}

export type OpenResult = {
    readonly status: 'opened';
} | {
    readonly status: 'taken';
};

export interface OrderOptions<N extends string = string, D extends string = string> extends Omit<GateOptions, 'onAction' | 'starts'> {
    readonly id?: string | undefined;
    readonly needs?: {
        readonly [name in D]: OrderRequirement<N, D> | readonly OrderRequirement<N, D>[];
    } | undefined;
    readonly results?: 'structured' | 'text' | undefined;
}

export type OrderRequirement<N extends string = string, D extends string = string> = N | EarlierCall<N> | {
    readonly need: D;
    readonly when?: ArgumentsCondition | undefined;
} | {
    readonly all: readonly OrderRequirement<N, D>[];
    readonly when?: ArgumentsCondition | undefined;
} | {
    readonly any: readonly OrderRequirement<N, D>[];
    readonly when?: ArgumentsCondition | undefined;
};

export interface OrderRule<N extends string = string, D extends string = string> {
    readonly after?: OrderRequirement<N, D> | readonly OrderRequirement<N, D>[] | undefined;
    readonly notAfter?: N | PastCall<N> | readonly (N | PastCall<N>)[] | undefined;
    readonly limit?: Limit | readonly Limit[] | undefined;
    readonly undoneBy?: N | readonly N[] | undefined;
    readonly once?: boolean | undefined;
    readonly step?: boolean | undefined;
    readonly errors?: ErrorRule | undefined;
    readonly ok?: Condition | ResultTest | undefined;
    readonly results?: 'structured' | 'text' | undefined;
    readonly guard?: Guard | undefined;
    readonly visible?: VisibleTest | undefined;
    readonly failure?: N | undefined;
    readonly retries?: number | undefined;
    readonly uncertain?: Uncertain | undefined;
}

export type OrderRules<K extends string = string, M extends string = string, D extends string = string> = {
    readonly [tool in K]: OrderRule<M, D>;
};

export interface OverlapWarning {
    readonly shadowingIndex: number;
    readonly shadowedIndex: number;
    readonly message: string;
}

export interface PageOptions {
    readonly limit?: number | undefined;
    readonly after?: string | undefined;
}

export interface PageQuery {
    readonly limit: number;
    readonly after?: string | undefined;
}

export interface PastCall<N extends string = string> {
    readonly tool: N;
    readonly within?: Duration | undefined;
    readonly same?: readonly string[] | {
        readonly [path: string]: EarlierValue;
    } | undefined;
    readonly when?: ArgumentsCondition | undefined;
    readonly args?: ArgumentsCondition | undefined;
    readonly result?: ResultCondition | undefined;
    readonly outcome?: 'succeeded' | 'failed' | 'any' | undefined;
    readonly times?: number | undefined;
    readonly as?: string | undefined;
    readonly distinct?: EarlierValue | undefined;
}

export interface PolicyDefaults<D extends string = CacheDirective> {
    readonly cacheControl?: D | undefined;
}

export class PolicyEngine {
    #private;
    constructor(policies: readonly SyncPolicy<string>[], defaults?: PolicyDefaults<string>);
    resolve(name: string): ResolvedPolicy | undefined;
    matchOf(name: string): string | undefined;
}

export class PrincipalKey {
    readonly kind = "principal";
    runKey(principal: string | IssuedPrincipal): string;
}

export interface PurgeQuery {
    readonly principal?: string | undefined;
}

export interface ReadOptions<X = Json | undefined, S extends string = string, T extends string = string> {
    readonly guard?: Guard<X, S, T> | undefined;
    readonly visible?: VisibleTest<X, S, T> | undefined;
}

export interface ReadRefusal extends Omit<Refusal, 'tool' | 'reason'> {
    readonly prompt?: string | undefined;
    readonly resource?: string | undefined;
    readonly reason: ReadRefusalReason;
}

export type ReadRefusalReason = Extract<RefusalReason, 'state' | 'guard' | 'unavailable' | 'unreadable' | 'no-run'> | StopReason;

export interface RecordCallsOptions {
    write: (lines: string) => unknown;
    key: string | Uint8Array;
    clear?: ((value: RecordedValue) => boolean | 'name') | undefined;
    maxQueued?: number | undefined;
    maxQueuedBytes?: number | undefined;
    waitUntil?: ((writing: Promise<unknown>) => void) | undefined;
    onError?: ((error: unknown) => void) | undefined;
}

export interface RecordRequest extends RunKey {
    readonly token: string;
    readonly from: number;
    readonly initial: FsmSnapshot;
    readonly create?: SessionRecord | undefined;
    readonly snapshot: Pick<FsmSnapshot, 'state' | 'context'>;
    readonly ended?: boolean | undefined;
    readonly trail: MoveDraft;
    readonly settlesKey?: string | undefined;
    readonly ttlMs: number;
}

export type RecordResult = {
    readonly status: 'recorded';
    readonly version: number;
    readonly repeated?: true;
} | ({
    readonly status: 'moved';
} & SeenSnapshot) | {
    readonly status: 'unknown';
};

export interface RecordedValue {
    readonly tool: string;
    readonly part: 'args' | 'result';
    readonly pointer: string;
    readonly value: Json;
}

export interface Refusal {
    readonly workflow: string;
    readonly state?: string | undefined;
    readonly tool: string;
    readonly reason: RefusalReason;
    readonly available: readonly string[];
    readonly path?: readonly string[] | undefined;
    readonly events?: readonly string[] | undefined;
    readonly leavesInMs?: number | undefined;
    readonly parts?: readonly RefusedPart[] | undefined;
    readonly retryAfterMs?: number | undefined;
}

export type RefusalReason = 'state' | 'arguments' | 'guard' | 'limit' | 'busy' | 'held' | 'too-many-held' | 'loop' | StopReason | 'unavailable' | 'unreadable' | 'no-run' | 'unbound';

export interface ReleaseOptions {
    readonly settles?: boolean | undefined;
    readonly entry?: TrailDraft | undefined;
}

export interface RenewOptions {
    readonly hold?: string | undefined;
}

export interface Replay {
    readonly state: string;
    readonly version: number;
    readonly moves: number;
    readonly faults: readonly ReplayFault[];
}

export interface ReplayFault {
    readonly index: number;
    readonly seq: number;
    readonly fault: 'missing' | 'from' | 'state' | 'event';
}

export class RequestKey {
    readonly kind = "request";
    readonly name: string;
    readonly anonymous: boolean;
    readonly names: readonly string[];
    readonly of: RunIdOf | undefined;
    constructor(name: string, anonymous: boolean, where: {
        readonly names: readonly string[];
    } | {
        readonly of: RunIdOf;
    });
    runKey(id: string, principal?: string | IssuedPrincipal): string;
}

export type Resolution = {
    readonly resolved: true;
    readonly state: string;
} | {
    readonly resolved: false;
    readonly reason: 'unknown-run' | 'not-held' | 'running' | 'several';
};

export interface ResolveAllOptions {
    readonly tool: string;
    readonly since?: number | undefined;
    readonly outcome: Outcome | ((held: HeldRun) => Promise<Outcome | undefined>);
    readonly actor: string;
    readonly note: string;
    readonly dryRun?: boolean | undefined;
}

export interface ResolveOptions<E extends string = string> extends Pick<SendOptions, 'actor' | 'payload'> {
    readonly event?: E | null | undefined;
    readonly note?: string | undefined;
    readonly token?: string | undefined;
}

export interface ResolvedAll {
    readonly resolved: number;
    readonly runs: readonly ResolvedRun[];
}

export interface ResolvedPolicy {
    readonly cacheControl?: CacheDirective;
    readonly invalidates?: readonly string[];
}

export interface ResolvedRun {
    readonly run: string;
    readonly idempotencyKey: string;
    readonly outcome: Outcome | undefined;
    readonly resolution?: Resolution;
}

export interface ResourceNotification {
    readonly method: 'notifications/resources/updated';
    readonly params: {
        readonly uri: string;
    };
}

export type Restarted = {
    readonly restarted: true;
    readonly state: string;
} | {
    readonly restarted: false;
    readonly reason: NotMoved;
};

export type ResultCondition = Condition | ((result: unknown) => boolean);

export type ResultTest = (result: ToolResult) => boolean;

export type RunEnd = 'final' | 'session' | 'quota' | 'deleted' | 'unknown';

export interface RunFacts<X = Json | undefined, S extends string = string, T extends string = string> {
    readonly state: string;
    readonly context: X;
    readonly principal: string | undefined;
    matches(state: StateExpression<S, T>): boolean;
}

export type RunIdOf = (request: RunKeyRequest) => string | undefined;

export interface RunKey {
    readonly run: string;
    readonly workflow: string;
}

export interface RunKeyOptions {
    name: string;
    of: RunIdOf;
    anonymous?: boolean | undefined;
}

export interface RunKeyRequest {
    readonly http: CallerRequest;
    readonly principal: string | undefined;
    readonly method: string;
    readonly tool: string | undefined;
    readonly meta: Readonly<Record<string, unknown>>;
}

export type RunKeyStrategy = SessionKey | PrincipalKey | RequestKey | HandleKey | ManagedHandle;

export interface RunRecord {
    readonly session: SessionRecord;
    readonly workflows: Readonly<Record<string, WorkflowRecord>>;
    readonly sessionEnded?: true | 'evicted';
    readonly now?: number;
}

export interface RunView {
    readonly run: string;
    readonly state: string;
    readonly snapshot: FsmSnapshot;
    readonly context?: Json | undefined;
    readonly status: 'idle' | 'running' | 'held';
    readonly observed?: ObservedMark;
    readonly ended: boolean;
    readonly available: readonly string[];
    readonly sessionEnded?: true;
    readonly claim?: ClaimView;
    readonly unsettled?: readonly UnsettledStep[];
    readonly frozen?: Freeze;
    readonly heldForMs?: number;
    readonly unmovedForMs?: number;
    readonly fault?: string;
}

export interface RunViews {
    readonly runs: readonly RunView[];
    readonly next?: string;
}

export class Runs<E extends string = string, Q = StateExpression> {
    #private;
    readonly gate: StateMachineGate;
    get hearsBus(): boolean | undefined;
    get workflow(): string;
    read(run: string): Promise<RunView | undefined>;
    held(options?: PageOptions): Promise<RunViews>;
    unsettled(options?: PageOptions): Promise<RunViews>;
    stuck(options: StuckOptions<NoInfer<Q>>): Promise<RunViews>;
    count(options?: CountOptions): Promise<RunsUnderWay>;
    check(): Promise<CheckedRuns>;
    list(options: ListOptions): Promise<KeysPage>;
    delete(run: string): Promise<Deleted>;
    history(run: string, limit?: number): Promise<TrailEntry[]>;
    send(run: string, event: E, options?: SendOptions): Promise<Sent>;
    update(run: string, change: (context: Json | undefined) => Json | undefined, options?: Pick<SendOptions, 'actor' | 'step'>): Promise<Updated>;
    begin(run: string, options?: BeginOptions): Promise<Begun>;
    restart(run: string, options?: Pick<SendOptions, 'actor'>): Promise<Restarted>;
    freeze(run: string, options: FreezeOptions): Promise<Frozen>;
    unfreeze(run: string, options: FreezeOptions): Promise<Unfrozen>;
    freezeAll(options: FreezeAllOptions): Promise<AllFrozen>;
    unfreezeAll(options: FreezeAllOptions): Promise<AllUnfrozen>;
    frozen(): Promise<readonly Stopped[]>;
    observe(options: FreezeOptions): Promise<ModeSet>;
    enforce(options: EnforceOptions): Promise<ModeSet>;
    mode(): Promise<WorkflowMode>;
    get observed(): Observed | undefined;
    resolve(held: string | {
        readonly idempotencyKey: string;
    }, outcome: 'succeeded' | 'failed', options?: ResolveOptions<E>): Promise<Resolution>;
    resolveAll(options: ResolveAllOptions): Promise<ResolvedAll>;
    erase(principal: ListOptions['principal'], options?: EraseOptions): Promise<Erased>;
    purge(): Promise<number>;
    sweep(runs?: Iterable<string> | AsyncIterable<string>): Promise<number>;
}

export interface RunsCount {
    readonly states: readonly {
        readonly state: string;
        readonly runs: number;
        readonly stuck: number;
    }[];
    readonly held: number;
    readonly unsettled?: number;
    readonly running: number;
    readonly oldestClaim?: number;
    readonly now?: number;
}

export interface RunsInState {
    readonly state: string;
    readonly runs: number;
}

export interface RunsOptions {
    sessions?: SessionMiddleware | undefined;
    store?: StateStore | undefined;
    service?: string | undefined;
    idleMs?: number | undefined;
    begin?: Begin | undefined;
    storeDeadlineMs?: number | undefined;
    onError?: ((error: unknown) => void) | undefined;
    onWarning?: ((warning: string) => void) | undefined;
    onEvent?: EventListener | undefined;
}

export interface RunsPage {
    readonly runs: readonly FoundRun[];
    readonly next?: string;
    readonly now?: number;
}

export interface RunsQuery {
    readonly workflow: string;
    readonly state: string;
    readonly forMs?: number | undefined;
}

export interface RunsUnderWay {
    readonly runs: number;
    readonly states: readonly {
        readonly state: string;
        readonly runs: number;
        readonly stuck?: number;
    }[];
    readonly stuck?: number;
    readonly unreadable: number;
    readonly unenforced?: number;
    readonly strayed?: number;
    readonly held: number;
    readonly unsettled?: number;
    readonly running: number;
    readonly oldestClaimMs?: number;
}

export type Scalar = string | number | boolean | null;

export interface SeenSnapshot {
    readonly snapshot: FsmSnapshot;
    readonly now?: number;
    readonly unsettled?: readonly UnsettledStep[];
}

export interface SendOptions {
    readonly actor?: string | undefined;
    readonly payload?: Json | undefined;
    readonly arguments?: {
        readonly [name: string]: Json;
    } | undefined;
    readonly result?: Json | undefined;
    readonly step?: CurrentStep | undefined;
}

export type Sent = {
    readonly sent: true;
    readonly changed: boolean;
    readonly state: string;
    readonly lacks?: readonly string[];
} | {
    readonly sent: false;
    readonly reason: NotMoved | 'unhandled';
};

export class SessionKey {
    readonly kind = "session";
    runKey(sessionId: string): string;
}

export interface SessionMiddleware extends Middleware {
    readonly [SESSIONS]: object;
    close(options?: CloseOptions): Promise<void>;
}

export interface SessionRecord {
    readonly principal?: string | undefined;
    readonly minted?: boolean | undefined;
    readonly clientInfo?: ClientInfo | undefined;
}

export interface SessionStoreOptions extends CommonOptions {
    store?: StateStore | undefined;
    service?: string | undefined;
    key?: RunKeyStrategy | readonly RunKeyStrategy[] | undefined;
    withoutSession?: 'refuse' | 'pass' | undefined;
    enforce?: boolean | undefined;
    principal?: PrincipalOf | undefined;
    idleMs?: number | undefined;
    sessionCacheMs?: number | undefined;
    maxSessions?: number | undefined;
    maxSessionsPerPrincipal?: number | undefined;
    maxConversationsPerCaller?: number | undefined;
    clientOf?: ClientOf | undefined;
    maxSessionsPerClient?: number | undefined;
    maxHeldPerCaller?: number | undefined;
    maxHeld?: number | undefined;
    maxStreams?: number | undefined;
    serveStreams?: boolean | undefined;
    keepAliveMs?: number | undefined;
    bus?: NotificationBus | undefined;
    storeDeadlineMs?: number | undefined;
    clock?: Clock | undefined;
}

export interface SetFreeze extends Freeze {
    readonly at: number;
}

export type StateExpression<S extends string = string, T extends string = string> = S | '*' | StateTag<T> | {
    readonly all: readonly StateExpression<S, T>[];
} | {
    readonly any: readonly StateExpression<S, T>[];
} | {
    readonly not: StateExpression<S, T>;
};

export type StateMachineGate<S extends string = string, E extends string = string, T extends string = never, C extends string = S, X = Json | undefined> = Gate<S, E, T, C, X>;

export const StateMachineGate: StateMachineGateConstructor;

export interface StateMachineGateConstructor {
    new <M extends XStateMachine>(machine: M, options?: GateOptions): Gate<XStatePaths<M>, XStateEvents<M>, XStateTags<M>, XStateTexts<M>, XStateContext<M>>;
    new <S extends string, E extends string, N extends string>(config: WidenedConfig<S, E, N> & (string extends N ? unknown : never), options?: GateOptions): Gate<S, E>;
    new <S extends string = string, E extends string = string>(config: FsmConfig<S, E>, options?: GateOptions): Gate<S, E>;
    fromOrder<const K extends string, const M extends string = never, const D extends string = never, const N extends string = never, const P extends string = never>(rules: OrderRules<K, M, D>, options?: OrderOptions<N, D | P>): Gate<K | M | N, K | M | N, never, string>;
    readonly prototype: Gate;
}

export type StateStore = FsmStateStore | AtomicStateStore;

export interface StateSyncConfig<D extends string = CacheDirective> {
    readonly policies: readonly SyncPolicy<D>[];
    readonly defaults?: PolicyDefaults<D> | undefined;
    readonly onInvalidation?: ((event: InvalidationEvent) => void) | undefined;
    readonly notificationSink?: ((notification: ResourceNotification) => void | Promise<void>) | undefined;
}

export interface StateSyncOptions<D extends string = CacheDirective> extends StateSyncConfig<D>, CommonOptions {
    readonly tools?: readonly ToolDeclaration<string, string>[] | undefined;
    readonly placement?: 'append' | 'prepend' | undefined;
    readonly now?: (() => number) | undefined;
}

export interface StateTag<T extends string = string> {
    readonly tag: T;
}

export interface StatusToolOptions {
    name: string;
    description?: string | undefined;
    summary?: ((run: SummarizedRun) => Json) | undefined;
}

export interface StepDescription {
    readonly tool: string;
    readonly digest: string;
    readonly uncertain: Uncertain;
    readonly use?: Json | undefined;
}

export type StepSource = {
    readonly _meta?: object | undefined;
    readonly requestId: string | number;
} | {
    readonly mcpReq: {
        readonly _meta?: object | undefined;
    };
} | IncomingMessage | Request;

export interface Stopped extends SetFreeze {
    readonly tool?: string;
}

export class StoreUnavailable extends Error {
    readonly name = "StoreUnavailable";
}

export interface StoredRun {
    readonly state: string;
    readonly context?: Json | undefined;
    readonly version: number;
}

export interface StuckOptions<Q = StateExpression> extends PageOptions {
    readonly forMs: number;
    readonly state?: Q | undefined;
}

export interface StuckQuery extends HeldQuery {
    readonly states?: readonly string[] | undefined;
    readonly forMs: number;
}

export interface SucceededCall<X = Json | undefined, S extends string = string, T extends string = string> extends EndedCall<X, S, T> {
    readonly result: ToolResult;
}

export interface SummarizedRun {
    readonly state: string;
    readonly context: Json | undefined;
    readonly principal: string | undefined;
}

export interface SwitchRecord {
    readonly value: Json;
    readonly revision: string;
}

export interface SyncPolicy<D extends string = CacheDirective> {
    readonly match: string;
    readonly cacheControl?: D | undefined;
    readonly invalidates?: readonly string[] | undefined;
}

export class ToolDeclaration<S extends string = never, E extends string = never, T extends string = never, X = Json | undefined> {
    #private;
    readonly name: string;
    readonly bindings: readonly Binding<S, E, T, X>[];
    readonly policy: SyncPolicy | undefined;
    constructor(name: string, bindings: readonly Binding<S, E, T, X>[], policy: SyncPolicy | undefined);
    bindState<const B extends BoundState, E2 extends string = never>(states: B | readonly B[], event?: E2): ToolDeclaration<S | NameOf<B>, E | E2, T | TagOf<B>, X>;
    bindState<const B extends BoundState, E2 extends string = never>(states: B | readonly B[], options: BindingOptions<E2, X>): ToolDeclaration<S | NameOf<B>, E | E2, T | TagOf<B>, X>;
    invalidates(...patterns: readonly string[]): ToolDeclaration<S, E, T, X>;
    cached(): ToolDeclaration<S, E, T, X>;
    stale(): ToolDeclaration<S, E, T, X>;
}

export interface ToolResult {
    readonly content?: readonly unknown[] | undefined;
    readonly structuredContent?: Readonly<Record<string, unknown>> | undefined;
    readonly isError?: boolean | undefined;
    readonly [property: string]: unknown;
}

export interface ToolWithSchema {
    readonly name: string;
    readonly inputSchema?: Readonly<Record<string, unknown>> | undefined;
}

export interface TrailDraft extends CallNote {
    readonly from: string;
    readonly to?: string | undefined;
    readonly event: string | null;
    readonly outcome?: TrailOutcome | undefined;
    readonly kind?: string | undefined;
    readonly payload?: Json | undefined;
    readonly errors?: readonly Json[] | undefined;
    readonly note?: string | undefined;
    readonly calledBy?: string | undefined;
}

export interface TrailEntry extends TrailDraft {
    readonly seq: number;
    readonly version: number;
    readonly attempt: number;
    readonly at: number;
    readonly previous?: string;
    readonly hash?: string;
}

export interface TrailFault {
    readonly index: number;
    readonly seq: number;
    readonly fault: 'altered' | 'missing' | 'order' | 'unchained' | 'foreign' | 'cut';
}

export interface TrailMessage {
    readonly role: 'assistant' | 'user';
    readonly content: string;
    readonly seq: number;
    readonly failure?: TryFailure | undefined;
}

export interface TrailOptions {
    readonly refusals?: boolean | undefined;
    readonly args?: ((args: Json, call: {
        readonly tool: string;
    }) => Json | undefined) | undefined;
    readonly errors?: ((answer: FailedAnswer, call: {
        readonly tool: string;
        readonly kind: FailureKind;
    }) => Json | readonly Json[] | undefined) | undefined;
}

export type TrailOutcome = 'succeeded' | 'failed' | 'input_required' | 'not_run' | 'unknown' | 'refused';

export interface TrailPrompts {
    readonly messages: readonly TrailMessage[];
    readonly state: string;
    readonly output: NextToolSchema | undefined;
}

export interface TrailPromptsOptions {
    readonly omit?: readonly string[] | ((entry: TrailEntry) => boolean) | undefined;
    readonly tools?: readonly ToolWithSchema[] | undefined;
}

export interface TransactionalStateStore<Client> extends AtomicStateStore {
    commitIn(client: Client, request: CommitRequest): Promise<CommitResult>;
}

export type TransitionListener<S extends string = string> = (move: Move<S>) => void;

export interface TransitionResult<S extends string = string> {
    changed: boolean;
    previousState: S;
    currentState: S;
}

export interface TryFailure {
    readonly type: string;
    readonly errors: readonly Json[];
    readonly attempt: number;
}

export interface UnboundSteps {
    readonly tool: string;
    readonly held: number;
    readonly running: number;
    readonly run: string;
}

export type Uncertain = 'hold' | 'retry';

export type Unfrozen = {
    readonly unfrozen: true;
    readonly state: string;
} | {
    readonly unfrozen: false;
    readonly reason: Exclude<NotMoved, 'frozen'> | 'not-frozen';
};

export type Unjudged = 'no-run' | 'unread' | 'crowded' | Doubt;

export class UnknownOutcome extends Error {
    readonly name = "UnknownOutcome";
    readonly run: string;
    readonly digest: string;
    readonly workflow: string;
    readonly tool: string;
    readonly idempotencyKey: string;
    readonly help = "https://www.npmjs.com/package/mcp-interlock#when-the-outcome-is-unknown";
    constructor({ key, tool, idempotencyKey, uncertain }: UnknownStep, why: string, { ran, waits, answered, cause }: KnownOfUnknown);
}

export type UnreadableKind = 'unknown-state' | 'older-version' | 'newer-version' | 'newer-package' | 'migrate-threw' | 'migrate-returned' | 'malformed';

export interface UnreadableRuns extends RunsInState {
    readonly kind: UnreadableKind;
    readonly version: number;
    readonly reason: string;
    readonly run: string;
}

export class UnrecordedSuccess extends Error {
    readonly name = "UnrecordedSuccess";
    readonly run: string;
    readonly workflow: string;
    readonly tool: string;
    constructor(run: string, workflow: string, tool: string, options: ErrorOptions);
}

export interface UnsettledStep {
    readonly tool: string;
    readonly digest: string;
    readonly idempotencyKey: string;
    readonly since: number;
    readonly use?: Json;
}

export type Updated = {
    readonly updated: true;
    readonly context: Json | undefined;
} | {
    readonly updated: false;
    readonly reason: NotMoved;
};

export interface ViewedRun<X = Json | undefined, S extends string = string, T extends string = string> extends RunFacts<X, S, T> {
    readonly run?: string | undefined;
}

export type Visibility = 'hide' | 'stable' | 'auto';

export type VisibilityOf = (client: ClientInfo) => Visibility;

export type VisibleTest<X = Json | undefined, S extends string = string, T extends string = string> = (run: ViewedRun<X, S, T>) => boolean;

export interface WhatIf {
    readonly result: 'moved' | 'stayed' | 'unhandled' | 'refused' | 'choose-event';
    readonly snapshot: FsmSnapshot;
    readonly event?: string;
    readonly refusal?: Refusal;
    readonly says?: string;
    readonly actions: readonly string[];
}

export type WhatIfMove = {
    readonly tool: string;
    readonly outcome: 'succeeded' | 'failed';
    readonly event?: string | undefined;
} | {
    readonly event: string;
    readonly payload?: Json | undefined;
} | {
    readonly deadline: true;
};

export type WhenEnded = 'keep' | 'restart';

export interface WorkflowHealth extends Partial<RunsUnderWay> {
    readonly workflow: string;
    readonly store: 'ok' | 'failing';
    readonly evictions?: 'rising' | 'hidden';
    readonly switch?: 'restored';
    readonly index: 'ok' | 'uncounted' | 'unavailable' | 'none';
    readonly frozen?: 'workflow' | 'tools';
    readonly stopped?: readonly Stopped[];
    readonly observed?: Pick<Observed, 'since' | 'runs' | 'refused' | 'calls'>;
    readonly observations?: Observed;
    readonly heldRuns?: readonly ListedRun[];
    readonly unsettledRuns?: readonly ListedRun[];
    readonly stuckRuns?: readonly ListedRun[];
}

export interface WorkflowHealthOptions {
    runs: readonly Runs[];
    stuckAfterMs: number;
    authorize?: Authorizes['authorize'] | undefined;
    failOn?: readonly FailOn[] | undefined;
    maxAgeMs?: number | undefined;
    onError?: ((error: unknown) => void) | undefined;
}

export interface WorkflowMode {
    readonly enforce?: boolean;
    readonly living?: boolean;
    readonly actor?: string;
    readonly note?: string;
    readonly at?: number;
}

export interface WorkflowRecord {
    readonly snapshot: FsmSnapshot;
    readonly claim?: ClaimView;
    readonly unsettled?: readonly UnsettledStep[];
    readonly frozen?: Freeze;
    readonly ended?: boolean;
}

export type XStateContext<M> = M extends {
    getInitialSnapshot(scope: never, input?: never): {
        readonly context: infer Context;
    };
} ? AsJson<Context> : Json | undefined;

export type XStateEvents<M> = M extends {
    getTransitionData(snapshot: never, event: infer Event): unknown;
} ? [
    Event
] extends [
    never
] ? string : Event extends {
    readonly type: infer Type extends string;
} ? Type : never : string;

export interface XStateMachine {
    readonly id: string;
    readonly config: object;
    readonly root: object;
    readonly implementations: object;
    getInitialSnapshot(scope: never, input?: never): object;
    getTransitionData(snapshot: never, event: never): unknown;
    resolveState(config: never): object;
    transition(snapshot: never, event: never, scope: never): object;
}

export type XStatePaths<M> = PathsOf<ValueOf<M>>;

export type XStateTags<M> = M extends {
    getInitialSnapshot(scope: never, input?: never): {
        hasTag(tag: infer Tag extends string): boolean;
    };
} ? Tag : string;

export type XStateTexts<M> = TextsOf<ValueOf<M>>;

export function adaptStateStore(store: FsmStateStore, options?: AdaptOptions): AtomicStateStore;

export function beginIn(state: string, data?: Json): BeginsIn;

export function conversationKey(options?: ConversationKeyOptions): RequestKey;

export function currentStep(source: StepSource, options?: CurrentStepOptions): CurrentStep | undefined;

export function currentStep(): CurrentStep | undefined;

export function detectOverlaps(policies: readonly SyncPolicy<string>[]): OverlapWarning[];

export function entryWords({ tool, event, from, to, outcome, }: Pick<TrailEntry, 'tool' | 'event' | 'from' | 'to' | 'outcome'>): string;

export function explain<S extends string, E extends string>(gate: StateMachineGate<S, E>, at?: ExplainedRun): Explained;

export function fsmGate<S extends string, E extends string>(gate: StateMachineGate<S, E>, options?: FsmGateOptions): Middleware;

export function handleKey(argument: string, options: HandleKeyOptions): HandleKey;

export function heldOutcomes<S extends string, E extends string>(gate: StateMachineGate<S, E>, { snapshot, claim }: ExplainedRun): readonly HeldOutcome[];

export function initFsmEngine(): Promise<boolean>;

export function localBus(options?: LocalBusOptions): NotificationBus;

export function managedHandle(options: ManagedHandleOptions): ManagedHandle;

export function matchGlob(pattern: string, name: string): boolean;

export function memoryStore(options?: MemoryStoreOptions): AtomicStateStore;

export function notForwarded(request: IncomingMessage | Request): Promise<void>;

export function principalKey(): PrincipalKey;

export function recordCalls(options: RecordCallsOptions): CallRecorder;

export function replayTrail<S extends string, E extends string>(gate: StateMachineGate<S, E>, entries: readonly TrailEntry[]): Replay;

export function runDigest(run: string): string;

export function runKey(options: RunKeyOptions): RequestKey;

export function runsOf<S extends string, E extends string, T extends string, C extends string, X>(gate: StateMachineGate<S, E, T, C, X>, options: RunsOptions): Runs<E, StateExpression<S, T> | C>;

export function sessionKey(): SessionKey;

export function sessionStore(options?: SessionStoreOptions): SessionMiddleware;

export function stateSync<D extends string>(options: StateSyncOptions<D> & (string extends D ? unknown : never)): Middleware;

export function stateSync(options: StateSyncOptions): Middleware;

export function tool<X = Json | undefined>(name: string): ToolDeclaration<never, never, never, X>;

export function trailToPrompts<S extends string, E extends string>(gate: StateMachineGate<S, E>, trail: readonly TrailEntry[], { omit, tools }?: TrailPromptsOptions): TrailPrompts;

export function unboundTools<S extends string, E extends string>(gate: StateMachineGate<S, E>): readonly string[] | undefined;

export function verifyTrail(entries: readonly TrailEntry[], { from, newest }: VerifyTrailOptions): TrailFault[];

export function whatIf<S extends string, E extends string>(gate: StateMachineGate<S, E>, at: ExplainedRun | undefined, move: WhatIfMove): WhatIf;

export function workflowHealth(options: WorkflowHealthOptions): HealthHandler;

// Named by the above, and exported by no entry:

class Gate<S extends string = string, E extends string = string, T extends string = never, C extends string = S, X = Json | undefined> {
    #private;
    static fromOrder<K extends string, M extends string, D extends string, N extends string>(rules: OrderRules<K, M, D>, options?: OrderOptions<N, D>): Gate<K | M | N, K | M | N, never, string>;
    get id(): string;
    get currentState(): C;
    get hasBindings(): boolean;
    get warnings(): readonly string[];
    bindTool(name: string, states: BoundStates<S, T>, event?: E | BindingOptions<E, X, S, T>): this;
    bind(...tools: readonly (BindableTool<S, E, T, X> | BindableTool<S, E, T>)[]): this;
    bindPrompt(name: string, states: BoundStates<S, T>, options?: ReadOptions<X, S, T>): this;
    bindResource(uriPattern: string, states: BoundStates<S, T>, options?: ReadOptions<X, S, T>): this;
    isToolAllowed(name: string): boolean;
    getVisibleToolNames(allTools: readonly string[]): string[];
    getTransitionEvent(name: string): E | undefined;
    transition(event: E, payload?: Json): Promise<TransitionResult<C>>;
    onTransition(callback: TransitionListener<C>): () => void;
    snapshot(): FsmSnapshot;
    restore(snapshot: FsmSnapshot): void;
    clone(): Gate<S, E, T, C, X>;
    init(): Promise<boolean>;
    dispose(): void;
}

const SENT: unique symbol;

const SESSIONS: unique symbol;

const STAGE: unique symbol;

interface Authorizes {
    authorize(req: CallerRequest): boolean | Promise<boolean>;
}

interface EndedCall<X, S extends string, T extends string> extends RunFacts<X, S, T> {
    readonly tool: string;
    readonly args: Readonly<Record<string, unknown>>;
}

interface Failure {
    readonly message: string;
    readonly code?: string | undefined;
    readonly causedBy?: string | undefined;
    readonly error: unknown;
}

interface KnownOfUnknown {
    readonly ran: boolean;
    readonly answered?: Answered | undefined;
    readonly waits: boolean;
    readonly cause?: unknown;
}

interface LimitedCalls {
    readonly within?: Duration | undefined;
    readonly same?: readonly string[] | undefined;
    readonly when?: ArgumentsCondition | undefined;
    readonly as?: string | undefined;
    readonly outcome?: 'succeeded' | 'failed' | 'any' | undefined;
}

interface NamedCall {
    readonly tool: string;
    readonly requestId?: string | number | undefined;
    readonly call?: number | undefined;
}

interface NamedRun {
    readonly run: string;
    readonly runKey: string;
}

interface NamesCallers {
    principal(req: CallerRequest): string | undefined;
}

interface OfCall extends OfRun, NamedCall {
    readonly state: string;
    readonly actor?: string | undefined;
}

interface OfRequest {
    readonly request: number;
    readonly method: ToldMethod;
    readonly requestId: string | number;
}

interface OfRun extends NamedRun {
    readonly workflow: string;
}

interface OfStep extends OfCall {
    readonly durationMs: number;
    readonly storeMs: number;
    readonly isLate: boolean;
}

interface OfUnknown extends OfStep {
    readonly why: string;
    readonly isHeld: boolean;
    readonly idempotencyKey: string;
}

interface OfWholeCall extends Partial<NamedRun> {
    readonly [SENT]?: SentValue | undefined;
    readonly call: number;
    readonly tool: string;
    readonly requestId: string | number;
}

interface RefusedPart {
    readonly part: 'arguments' | 'after' | 'notAfter' | 'once' | 'limit';
    readonly tool?: string | undefined;
    readonly paths?: readonly string[] | undefined;
    readonly withinMs?: number | undefined;
    readonly retryAfterMs?: number | undefined;
    readonly says: string;
}

interface SentValue {
    readonly value: () => unknown;
    readonly schema: () => unknown;
}

interface Started {
    readonly protocolVersion?: string | undefined;
    readonly inSession: boolean;
    readonly trace?: TraceContext | undefined;
}

interface TraceContext {
    readonly traceparent?: string | undefined;
    readonly tracestate?: string | undefined;
    readonly baggage?: string | undefined;
}

interface VaryBy {
    vary(req: CallerRequest): string | undefined;
}

interface VerifyTrailOptions {
    readonly from: RunKey;
    readonly newest?: string | undefined;
}

interface WidenedConfig<S extends string, E extends string, N extends string> {
    readonly id?: string | undefined;
    readonly initial: N;
    readonly on?: {
        readonly [event in E]?: FsmTransition<N> | undefined;
    } | undefined;
    readonly states: {
        readonly [state in S]: {
            readonly on?: {
                readonly [event in E]?: FsmTransition<N> | undefined;
            } | undefined;
            readonly after?: {
                readonly [ms: number]: N;
            } | undefined;
            readonly type?: N | undefined;
        };
    };
}

type Answered = 'succeeded' | 'failed' | 'input_required';

type AsJson<T> = unknown extends T ? Json : T extends string | number | boolean | null ? T : T extends bigint | symbol | undefined | ((...args: never) => unknown) ? never : T extends readonly unknown[] ? {
    -readonly [I in keyof T]: AsJson<T[I]>;
} : string extends keyof T ? {
    [key: string]: AsJson<T[keyof T]>;
} : {
    -readonly [K in keyof T as undefined extends T[K] ? never : K]: AsJson<T[K]>;
} & {
    -readonly [K in keyof T as undefined extends T[K] ? K : never]?: AsJson<T[K]>;
};

type AtomOf<B> = BoundState extends B ? string | StateTag : B extends string | StateTag ? B : B extends {
    readonly not: infer Inner;
} ? AtomOf<Inner> : B extends {
    readonly all: readonly (infer Inner)[];
} ? AtomOf<Inner> : B extends {
    readonly any: readonly (infer Inner)[];
} ? AtomOf<Inner> : never;

type BoundState = StateExpression;

type BoundStates<S extends string, T extends string> = StateExpression<S, T> | readonly StateExpression<S, T>[];

type CallAnswer = 'ok' | 'tool_error' | 'rpc_error' | 'refused' | 'unknown' | 'unanswered';

type ClientOf = NamesCallers['principal'];

type EventBody = ({
    readonly type: 'call.started';
    readonly client?: string | undefined;
} & OfWholeCall & Started) | ({
    readonly type: 'call.ended';
    readonly outcome: CallAnswer;
    readonly code?: number | undefined;
    readonly reason?: RefusalReason | undefined;
    readonly left?: 'input' | 'task' | undefined;
    readonly durationMs: number;
} & OfWholeCall) | ({
    readonly type: 'request.started';
} & OfRequest & Started) | ({
    readonly type: 'request.ended';
    readonly outcome: 'ok' | 'rpc_error' | 'unanswered';
    readonly code?: number | undefined;
    readonly shown?: number | undefined;
    readonly protocolVersion?: string | undefined;
    readonly durationMs: number;
} & OfRequest) | ({
    readonly type: 'call.refused';
    readonly workflow: string;
    readonly reason: RefusalReason;
    readonly state?: string | undefined;
    readonly actor?: string | undefined;
    readonly enforced?: false | undefined;
    readonly way?: readonly string[] | undefined;
} & NamedCall & Partial<NamedRun>) | ({
    readonly type: 'call.waited';
    readonly waitedMs: number;
    readonly granted: boolean;
    readonly state?: string | undefined;
} & Omit<OfCall, 'state'>) | ({
    readonly type: 'call.unrecorded';
} & OfCall) | ({
    readonly type: 'read.refused';
    readonly workflow: string;
    readonly method: string;
    readonly name: string;
    readonly reason: RefusalReason;
    readonly state?: string | undefined;
    readonly actor?: string | undefined;
    readonly requestId?: string | number | undefined;
} & Partial<NamedRun>) | ({
    readonly type: 'step.started';
    readonly waitedMs: number;
} & OfCall) | ({
    readonly type: 'step.committed';
    readonly outcome: 'succeeded' | 'failed' | 'input_required';
    readonly event: string | null;
    readonly to: string;
} & OfStep) | ({
    readonly type: 'step.failed';
    readonly kind: 'tool_error' | 'rpc_error' | 'not_ok' | 'cancelled';
} & OfStep) | ({
    readonly type: 'step.released';
    readonly why: 'input_required' | 'not_run' | 'cancelled' | 'withdrawn';
} & OfStep) | ({
    readonly type: 'step.unknown';
} & OfUnknown) | ({
    readonly type: 'step.unrecorded';
    readonly answered?: 'succeeded' | 'failed' | 'input_required' | undefined;
} & OfUnknown) | ({
    readonly type: 'step.held';
    readonly idempotencyKey: string;
    readonly sinceMs?: number | undefined;
    readonly kind?: string | undefined;
} & Omit<OfCall, 'call'>) | {
    readonly type: 'workflow.frozen' | 'workflow.unfrozen';
    readonly workflow: string;
    readonly tool?: string;
    readonly actor: string;
    readonly note: string;
} | {
    readonly type: 'workflow.observed' | 'workflow.enforced';
    readonly workflow: string;
    readonly living?: boolean;
    readonly actor: string;
    readonly note: string;
} | {
    readonly type: 'workflow.restored';
    readonly workflow: string;
    readonly found: 'none' | 'older';
} | ({
    readonly type: 'run.frozen' | 'run.unfrozen';
    readonly state: string;
    readonly actor: string;
    readonly note: string;
} & OfRun) | ({
    readonly type: 'run.begun';
    readonly state: string;
    readonly actor?: string | undefined;
} & OfRun) | ({
    readonly type: 'run.moved';
    readonly from: string;
    readonly to: string;
    readonly event: string | null;
    readonly tool?: string | undefined;
    readonly actor?: string | undefined;
} & OfRun) | ({
    readonly type: 'run.ended';
    readonly cause: RunEnd;
    readonly state?: string | undefined;
} & NamedRun & Partial<OfRun>) | {
    readonly type: 'session.unknown';
    readonly requests: number;
    readonly lost: number;
    readonly sinceMs: number;
} | ({
    readonly type: 'run.resolved';
    readonly tool: string;
    readonly outcome: 'succeeded' | 'failed';
    readonly state: string;
    readonly actor?: string | undefined;
    readonly note?: string | undefined;
} & OfRun) | ({
    readonly type: 'run.restarted';
    readonly from: string;
    readonly state: string;
    readonly actor?: string | undefined;
} & OfRun) | {
    readonly type: 'invalidated';
    readonly tool: string;
    readonly patterns: readonly string[];
    readonly requestId?: string | number | undefined;
} | {
    readonly type: 'store.slow';
    readonly operation: string;
    readonly durationMs: number;
} | ({
    readonly type: 'store.failed';
    readonly operation: string;
    readonly durationMs: number;
} & Failure) | ({
    readonly type: 'list.changed';
    readonly lists: readonly string[];
} & NamedRun) | ({
    readonly type: 'error';
} & Failure);

type FailOn = 'held' | 'unsettled' | 'stuck' | 'unreadable' | 'bus';

type FailureKind = 'tool_error' | 'rpc_error' | 'not_ok';

type IsVague<V> = string extends V ? true : false;

type NameIn<A> = A extends string ? Exclude<A, '*'> : never;

type NameOf<B> = NameIn<AtomOf<B>>;

type NotMoved = 'unknown-run' | 'busy' | 'held' | StopReason;

type Outcome = 'succeeded' | 'failed';

type PathsIn<V> = {
    [K in keyof V & string]: K | `${K}.${PathsOf<V[K]>}`;
}[keyof V & string];

type PathsOf<V> = IsVague<V> extends true ? string : V extends string ? V : PathsIn<V>;

type PrincipalOf = NamesCallers['principal'];

type StopReason = 'frozen';

type TagIn<A> = A extends StateTag<infer T> ? T : never;

type TagOf<B> = TagIn<AtomOf<B>>;

type TextsIn<V, K extends keyof V & string, All = K> = [
    K
] extends [
    never
] ? string : K extends K ? [
    All
] extends [
    K
] ? `${K}.${TextsOf<V[K]>}` : string : never;

type TextsOf<V> = IsVague<V> extends true ? string : V extends string ? V : TextsIn<V, keyof V & string>;

type ToldMethod = 'initialize' | 'tools/list' | 'prompts/list' | 'resources/list' | 'resources/templates/list';

type UnknownStep = Pick<ClaimView, 'tool' | 'idempotencyKey' | 'uncertain'> & {
    readonly key: RunKey;
};

type ValueOf<M> = M extends {
    getInitialSnapshot(scope: never, input?: never): {
        readonly value: infer Value;
    };
} ? Value : string;
