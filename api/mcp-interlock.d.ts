// What mcp-interlock exports. `npm run api` renews this file.

export interface ActionContext {
    readonly run?: string | undefined;
    readonly workflow: string;
    readonly event: string | null;
    readonly from: string;
    readonly to: string;
    readonly context?: Json | undefined;
}

export type Begin = (run: BeginningRun) => Json | BeginsIn | undefined | Promise<Json | BeginsIn | undefined>;

export interface BindableTool<S extends string = string, E extends string = string, T extends string = never, X = Json | undefined> {
    readonly name: string;
    readonly bindings: readonly Binding<S, E, T, X>[];
}

export interface Binding<S extends string = string, E extends string = string, T extends string = never, X = Json | undefined> extends BindingOptions<E, X> {
    readonly tool: string;
    readonly states: readonly StateExpression<S, T>[];
}

export interface BindingOptions<E extends string = string, X = Json | undefined, S extends string = string, T extends string = string> extends Renamed {
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
    readonly when?: ArgumentsTest | undefined;
    readonly uncertain?: Uncertain | undefined;
    readonly readOnly?: boolean | undefined;
    readonly whileHeld?: boolean | undefined;
}

export class BusUnavailable extends Error {
    readonly name = "BusUnavailable";
}

export type CacheDirective = 'no-store' | 'immutable';

export interface CallRecorder extends EventListener {
    flush(): Promise<void>;
    readonly dropped: number;
}

export interface CallerRequest {
    readonly method?: string | undefined;
    readonly url?: string | undefined;
    readonly headers: IncomingHttpHeaders;
    readonly auth?: unknown;
}

export interface Clock {
    now(): number;
    after(ms: number, task: () => void): () => void;
}

export interface Condition {
    readonly any?: readonly Condition[] | undefined;
    readonly not?: Condition | undefined;
    readonly [path: string]: Scalar | Comparison | Condition | readonly Condition[] | undefined;
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

export interface ErrorAnswer {
    readonly status: number;
    readonly headers: Readonly<Record<string, string>>;
    readonly body: string;
    readonly error: AnsweredError | undefined;
}

export type ErrorRule = 'failed' | 'unknown' | ((result: ToolResult | undefined, error: unknown) => 'failed' | 'unknown');

export type EventListener = (event: InterlockEvent) => void;

export interface FailedCall<X = Json | undefined, S extends string = string, T extends string = string> extends EndedFacts<X, S, T> {
    readonly result?: ToolResult | undefined;
    readonly error?: unknown;
}

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
    readonly limits?: readonly SharedLimit[] | undefined;
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

export interface InterlockOptions<D extends string = CacheDirective> extends SessionStoreOptions {
    readonly gates: readonly (StateMachineGate<string, string> | GateOfRoute)[];
    readonly policies?: readonly SyncPolicy<D>[] | StateSyncOptions<D> | undefined;
}

export interface InvalidationEvent {
    readonly causedBy: string;
    readonly patterns: readonly string[];
    readonly timestamp: string;
}

export type Limit = Counted & Chosen & (Times | Sum);

export interface ListCacheOptions {
    ttlMs?: number | undefined;
    vary?: VaryBy['vary'] | undefined;
    shared?: boolean | undefined;
}

export interface Loop {
    readonly run: string;
    readonly workflow: string;
    readonly tool: string;
    readonly state: string;
    readonly calls: number;
    readonly max: number;
}

export interface LoopShieldOptions {
    readonly max: number;
    readonly mode?: 'repeated' | 'consecutive' | undefined;
    readonly sameArguments?: boolean | undefined;
    readonly unbound?: boolean | undefined;
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

export interface Middleware {
    (req: IncomingMessage, res: ServerResponse, next: (error?: unknown) => void): void;
    readonly [PLAN]: object;
}

export type Migrate = (stored: StoredRun) => Pick<StoredRun, 'state' | 'context'> & Partial<Pick<StoredRun, 'version'>>;

export interface Move<S extends string = string> extends TransitionResult<S> {
    event: string;
    run?: string;
}

export interface NotificationBus {
    publish(message: string): Promise<void>;
    subscribe(listener: (message: string) => void, signal?: AbortSignal): Promise<() => Promise<void>>;
    hears?(): boolean;
}

export interface OrderOptions<N extends string = string, D extends string = string, O extends string = string> extends Omit<GateOptions, 'onAction' | 'starts' | 'version' | 'migrate'> {
    readonly id?: string | undefined;
    readonly needs?: {
        readonly [name in D]: OrderRequirement<N, D, O> | readonly OrderRequirement<N, D, O>[];
    } | undefined;
    readonly outside?: {
        readonly [name in O]: OutsideFact;
    } | undefined;
    readonly results?: 'structured' | 'text' | undefined;
}

export type OrderRequirement<N extends string = string, D extends string = string, O extends string = string> = N | Prerequisite<N> | OutsidePrerequisite<O> | (About & {
    readonly need: D;
}) | (About & {
    readonly all: readonly OrderRequirement<N, D, O>[];
}) | (About & {
    readonly any: readonly OrderRequirement<N, D, O>[];
});

export interface OrderRule<N extends string = string, D extends string = string, O extends string = string> extends Renamed {
    readonly after?: OrderRequirement<N, D, O> | readonly OrderRequirement<N, D, O>[] | undefined;
    readonly notAfter?: N | Prior<N> | OutsidePrior<O> | readonly (N | Prior<N> | OutsidePrior<O>)[] | undefined;
    readonly limit?: Limit | readonly Limit[] | undefined;
    readonly caller?: Condition | undefined;
    readonly undoneBy?: N | readonly N[] | undefined;
    readonly once?: boolean | undefined;
    readonly from?: string | undefined;
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

export type OrderRules<K extends string = string, M extends string = string, D extends string = string, O extends string = string> = {
    readonly [tool in K]: OrderRule<M, D, O>;
};

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

export interface ReadOptions<X = Json | undefined, S extends string = string, T extends string = string> {
    readonly guard?: Guard<X, S, T> | undefined;
    readonly visible?: VisibleTest<X, S, T> | undefined;
}

export interface ReadRefusal extends Omit<Refusal, 'tool' | 'reason'> {
    readonly prompt?: string | undefined;
    readonly resource?: string | undefined;
    readonly reason: ReadRefusalReason;
}

export interface RecordCallsOptions {
    write: (lines: string) => unknown;
    key: string | Uint8Array;
    clear?: ((value: RecordedValue) => boolean | 'name') | undefined;
    maxQueued?: number | undefined;
    maxQueuedBytes?: number | undefined;
    waitUntil?: ((writing: Promise<unknown>) => void) | undefined;
    onError?: ((error: unknown) => void) | undefined;
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

export interface ResolvedPolicy {
    readonly cacheControl?: CacheDirective;
    readonly invalidates?: readonly string[];
}

export interface ResourceNotification {
    readonly method: 'notifications/resources/updated';
    readonly params: {
        readonly uri: string;
    };
}

export interface RunFacts<X = Json | undefined, S extends string = string, T extends string = string> {
    readonly state: string;
    readonly context: X;
    readonly principal: string | undefined;
    matches(state: StateExpression<S, T>): boolean;
}

export interface RunKeyRequest {
    readonly http: CallerRequest;
    readonly principal: string | undefined;
    readonly method: string;
    readonly tool: string | undefined;
    readonly meta: Readonly<Record<string, unknown>>;
}

export type RunKeyStrategy = SessionKey | PrincipalKey | RequestKey | HandleKey | ManagedHandle;

export class SessionKey {
    readonly kind = "session";
    runKey(sessionId: string): string;
}

export interface SessionMiddleware extends Middleware {
    readonly [SESSIONS]: object;
    close(options?: CloseOptions): Promise<void>;
}

export interface SessionStoreOptions extends CommonOptions {
    store?: StateStore | undefined;
    service?: string | undefined;
    key?: RunKeyStrategy | readonly RunKeyStrategy[] | undefined;
    withoutSession?: 'refuse' | 'pass' | undefined;
    enforce?: boolean | undefined;
    principal?: PrincipalOf | undefined;
    claims?: ClaimsOf | undefined;
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

export type StateExpression<S extends string = string, T extends string = string> = S | '*' | StateTag<T> | {
    readonly all: readonly StateExpression<S, T>[];
} | {
    readonly any: readonly StateExpression<S, T>[];
} | {
    readonly not: StateExpression<S, T>;
};

export interface StateMachineGate<S extends string = string, E extends string = string, T extends string = never, C extends string = S, X = Json | undefined> extends Gate<S, E, T, C, X> {
}

export const StateMachineGate: StateMachineGateConstructor;

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

export type StepSource = {
    readonly _meta?: object | undefined;
    readonly requestId: string | number;
} | {
    readonly mcpReq: {
        readonly _meta?: object | undefined;
    };
} | IncomingMessage | Request;

export class StoreUnavailable extends Error {
    readonly name = "StoreUnavailable";
}

export interface StoredRun {
    readonly state: string;
    readonly context?: Json | undefined;
    readonly version: number;
}

export interface SucceededCall<X = Json | undefined, S extends string = string, T extends string = string> extends EndedFacts<X, S, T> {
    readonly result: ToolResult;
}

export interface SummarizedRun {
    readonly state: string;
    readonly context: Json | undefined;
    readonly principal: string | undefined;
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

export interface TransitionResult<S extends string = string> {
    changed: boolean;
    previousState: S;
    currentState: S;
}

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

export class UnrecordedSuccess extends Error {
    readonly name = "UnrecordedSuccess";
    readonly run: string;
    readonly workflow: string;
    readonly tool: string;
    constructor(run: string, workflow: string, tool: string, options: ErrorOptions);
}

export interface ViewedRun<X = Json | undefined, S extends string = string, T extends string = string> extends RunFacts<X, S, T> {
    readonly run?: string | undefined;
}

export type Visibility = 'hide' | 'stable' | 'auto';

export type VisibleTest<X = Json | undefined, S extends string = string, T extends string = string> = (run: ViewedRun<X, S, T>) => boolean;

export type XStateContext<M> = M extends {
    getInitialSnapshot(scope: never, input?: never): {
        readonly context: infer Context;
    };
} ? AsJson<Context> : Json | undefined;

export function beginIn(start: string | GivenBeginning, data?: Json): BeginsIn;

export function conversationKey(options?: ConversationKeyOptions): RequestKey;

export function currentStep(source: StepSource, options?: CurrentStepOptions): CurrentStep | undefined;

export function currentStep(): CurrentStep | undefined;

export function detectOverlaps(policies: readonly SyncPolicy<string>[]): OverlapWarning[];

export function fsmGate<S extends string, E extends string>(gate: StateMachineGate<S, E>, options?: FsmGateOptions): Middleware;

export function handleKey(argument: string, options: HandleKeyOptions): HandleKey;

export function initFsmEngine(): Promise<boolean>;

export function interlock<D extends string>(options: InterlockOptions<D> & (string extends D ? unknown : never)): SessionMiddleware;

export function interlock(options: InterlockOptions): SessionMiddleware;

export function localBus(options?: LocalBusOptions): NotificationBus;

export function managedHandle(options: ManagedHandleOptions): ManagedHandle;

export function matchGlob(pattern: string, name: string): boolean;

export function memoryStore(options?: MemoryStoreOptions): AtomicStateStore;

export function notForwarded(request: IncomingMessage | Request): Promise<void>;

export function principalKey(): PrincipalKey;

export function recordCalls(options: RecordCallsOptions): CallRecorder;

export function runDigest(run: string): string;

export function runKey(options: RunKeyOptions): RequestKey;

export function sessionKey(): SessionKey;

export function sessionStore(options?: SessionStoreOptions): SessionMiddleware;

export function stateSync<D extends string>(options: StateSyncOptions<D> & (string extends D ? unknown : never)): Middleware;

export function stateSync(options: StateSyncOptions): Middleware;

export function tool<X = Json | undefined>(name: string): ToolDeclaration<never, never, never, X>;

export function unboundTools<S extends string, E extends string>(gate: StateMachineGate<S, E>): readonly string[] | undefined;

// Named by the above, and exported by no entry:

class BeginsIn {
    readonly given: GivenBeginning;
}

class Gate<S extends string = string, E extends string = string, T extends string = never, C extends string = S, X = Json | undefined> {
    #private;
    static fromOrder<K extends string, M extends string, D extends string, N extends string, O extends string>(rules: OrderRules<K, M, D, O>, options?: OrderOptions<N, D, O>): Gate<K | M | N | O, K | M | N | O, never, string>;
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
    clone(): StateMachineGate<S, E, T, C, X>;
    init(): Promise<boolean>;
    dispose(): void;
}

const PLAN: unique symbol;

const SENT: unique symbol;

const SESSIONS: unique symbol;

interface AnsweredError {
    readonly code: number;
    readonly message: string;
    readonly data?: unknown;
}

interface BeginningRun {
    readonly run: string;
    readonly principal: string | undefined;
}

interface Chosen {
    readonly when?: ArgumentsCondition | undefined;
    readonly whenCaller?: Condition | undefined;
    readonly as?: string | undefined;
}

interface Claims {
    readonly [name: string]: unknown;
}

interface ClaimsCallers {
    claims(req: CallerRequest): Claims | undefined;
}

interface CloseOptions {
    drainMs?: number | undefined;
}

interface CommonOptions {
    maxBodyBytes?: number | undefined;
    maxBatch?: number | undefined;
    maxMessageBytes?: number | undefined;
    onError?: ((error: unknown) => void) | undefined;
    onWarning?: ((warning: string) => void) | undefined;
    onEvent?: EventListener | undefined;
}

interface Comparison {
    readonly eq?: Scalar | undefined;
    readonly ne?: Scalar | undefined;
    readonly gt?: number | undefined;
    readonly gte?: number | undefined;
    readonly lt?: number | undefined;
    readonly lte?: number | undefined;
    readonly in?: readonly Scalar[] | undefined;
    readonly exists?: boolean | undefined;
}

interface Consuming {
    readonly consumes?: boolean | 'calls' | undefined;
    readonly atMost?: {
        readonly [path: string]: string | AmountOf;
    } | undefined;
}

interface ConversationKeyOptions {
    names?: readonly string[] | undefined;
    anonymous?: boolean | undefined;
}

interface Counted {
    readonly within?: Duration | undefined;
    readonly same?: LimitedBy | undefined;
    readonly outcome?: 'succeeded' | 'failed' | 'any' | undefined;
}

interface CurrentStepOptions {
    gate?: {
        readonly id: string;
    } | undefined;
}

interface EarlierSum {
    readonly sum: string | AmountOf;
    readonly of: string;
    readonly same?: 'all' | readonly string[] | {
        readonly [path: string]: EarlierValue;
    } | undefined;
    readonly within?: Duration | undefined;
}

interface EndedFacts<X, S extends string, T extends string> extends RunFacts<X, S, T> {
    readonly tool: string;
    readonly args: Readonly<Record<string, unknown>>;
}

interface EventWithPayload<E extends string = string> {
    readonly type: E;
    readonly payload?: Json | undefined;
}

interface FailedAnswer {
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

interface Failure {
    readonly message: string;
    readonly code?: string | undefined;
    readonly causedBy?: string | undefined;
    readonly error: unknown;
}

interface GateOfRoute extends FsmGateOptions {
    readonly gate: StateMachineGate<string, string>;
}

interface HandleKeyOptions {
    createdBy: string | readonly string[];
    field?: string | undefined;
}

interface IssuedPrincipal {
    readonly issuer: string;
    readonly subject: string;
}

interface KnownOfUnknown {
    readonly ran: boolean;
    readonly answered?: Answered | undefined;
    readonly waits: boolean;
    readonly cause?: unknown;
}

interface LimitedTool<N extends string = string> extends Chosen {
    readonly tool: N;
    readonly sum?: string | undefined;
    readonly text?: boolean | undefined;
    readonly scale?: string | undefined;
    readonly same?: {
        readonly [path: string]: string;
    } | undefined;
}

interface LocalBusOptions {
    readonly onError?: ((error: unknown) => void) | undefined;
}

interface ManagedHandleOptions {
    start: string;
    argument: string;
    description?: string | undefined;
}

interface NamedRun {
    readonly run: string;
    readonly runKey: string;
}

interface NamedTool {
    readonly tool: string;
    readonly requestId?: string | number | undefined;
    readonly call?: number | undefined;
}

interface NamesCallers {
    principal(req: CallerRequest): string | undefined;
}

interface OfRequest {
    readonly request: number;
    readonly method: ReportedMethod;
    readonly requestId: string | number;
}

interface OfRun extends NamedRun {
    readonly workflow: string;
}

interface OfStep extends OfTool {
    readonly durationMs: number;
    readonly storeMs: number;
    readonly isLate: boolean;
}

interface OfTool extends OfRun, NamedTool {
    readonly state: string;
    readonly actor?: string | undefined;
}

interface OfUnknown extends OfStep {
    readonly why: string;
    readonly isHeld: boolean;
    readonly idempotencyKey: string;
}

interface OfWhole extends Partial<NamedRun> {
    readonly [SENT]?: SentValue | undefined;
    readonly call: number;
    readonly tool: string;
    readonly requestId: string | number;
}

interface OutsideFact {
    readonly who: string;
}

interface OutsidePrerequisite<O extends string = string> extends OutsidePrior<O>, Consuming {
    readonly differs?: readonly 'caller'[] | undefined;
}

interface OutsidePrior<O extends string = string> extends Omit<Prior, 'tool' | 'outcome' | 'distinct' | 'byCaller'> {
    readonly outside: O;
    readonly distinct?: EarlierValue | undefined;
}

interface OverlapWarning {
    readonly shadowingIndex: number;
    readonly shadowedIndex: number;
    readonly message: string;
}

interface Prerequisite<N extends string = string> extends Prior<N>, Consuming {
}

interface Prior<N extends string = string> {
    readonly tool: N;
    readonly within?: Duration | undefined;
    readonly same?: 'all' | readonly string[] | {
        readonly [path: string]: EarlierValue;
    } | undefined;
    readonly when?: ArgumentsCondition | undefined;
    readonly whenCaller?: Condition | undefined;
    readonly args?: ArgumentsCondition | undefined;
    readonly byCaller?: Condition | undefined;
    readonly result?: ResultCondition | undefined;
    readonly outcome?: 'succeeded' | 'failed' | 'any' | undefined;
    readonly times?: number | undefined;
    readonly as?: string | undefined;
    readonly distinct?: EarlierValue | undefined;
}

interface RecordedValue {
    readonly tool: string;
    readonly part: 'args' | 'result';
    readonly pointer: string;
    readonly value: Json;
}

interface RefusedPart {
    readonly part: 'arguments' | 'after' | 'notAfter' | 'once' | 'limit' | 'caller';
    readonly tool?: string | undefined;
    readonly outside?: string | undefined;
    readonly who?: string | undefined;
    readonly paths?: readonly string[] | undefined;
    readonly withinMs?: number | undefined;
    readonly retryAfterMs?: number | undefined;
    readonly says: string;
}

interface Renamed {
    readonly renamed?: readonly string[] | undefined;
    readonly args?: {
        readonly [path: string]: string;
    } | undefined;
}

interface RunKeyOptions {
    name: string;
    of: RunIdOf;
    anonymous?: boolean | undefined;
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

interface StateMachineGateConstructor {
    new <M extends XStateMachine>(machine: M, options?: GateOptions): StateMachineGate<XStatePaths<M>, XStateEvents<M>, XStateTags<M>, XStateTexts<M>, XStateContext<M>>;
    new <S extends string, E extends string, N extends string>(config: WidenedConfig<S, E, N> & (string extends N ? unknown : never), options?: GateOptions): StateMachineGate<S, E>;
    new <S extends string = string, E extends string = string>(config: FsmConfig<S, E>, options?: GateOptions): StateMachineGate<S, E>;
    fromOrder<const K extends string, const M extends string = never, const D extends string = never, const N extends string = never, const P extends string = never, const O extends string = never>(rules: OrderRules<K, M, D, O>, options?: OrderOptions<N, D | P, O>): StateMachineGate<K | M | N | O, K | M | N | O, never, string>;
    readonly prototype: Gate;
}

interface Sum {
    readonly sum: string | {
        readonly path: string;
        readonly text?: boolean | undefined;
        readonly negative?: boolean | undefined;
    };
    readonly max?: number | EarlierSum | undefined;
    readonly below?: number | undefined;
    readonly times?: undefined;
}

interface Times {
    readonly times: number;
    readonly sum?: undefined;
    readonly max?: undefined;
    readonly below?: undefined;
}

interface TraceContext {
    readonly traceparent?: string | undefined;
    readonly tracestate?: string | undefined;
    readonly baggage?: string | undefined;
}

interface VaryBy {
    vary(req: CallerRequest): string | undefined;
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

interface XStateMachine {
    readonly id: string;
    readonly config: object;
    readonly root: object;
    readonly implementations: object;
    getInitialSnapshot(scope: never, input?: never): object;
    getTransitionData(snapshot: never, event: never): unknown;
    resolveState(config: never): object;
    transition(snapshot: never, event: never, scope: never): object;
}

type About = Pick<Prior, 'when' | 'whenCaller'>;

type ActionListener = (action: FsmAction, context: ActionContext) => void | Promise<void>;

type AmountOf = {
    readonly text?: boolean | undefined;
    readonly negative?: boolean | undefined;
    readonly scale?: string | undefined;
} & ({
    readonly args: string;
} | {
    readonly result: string;
});

type Answered = 'succeeded' | 'failed' | 'input_required';

type ArgumentsCondition = Condition | ((args: Readonly<Record<string, unknown>>) => boolean);

type ArgumentsTest = (args: Record<string, unknown>) => boolean;

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

type ClaimsOf = ClaimsCallers['claims'];

type ClientOf = NamesCallers['principal'];

type EarlierValue = string | {
    readonly args: string;
    readonly fold?: readonly Fold[] | undefined;
} | {
    readonly result: string;
    readonly fold?: readonly Fold[] | undefined;
};

type ErrorListener = (error: unknown) => void;

type EventBody = ({
    readonly type: 'call.started';
    readonly client?: string | undefined;
} & OfWhole & Started) | ({
    readonly type: 'call.ended';
    readonly outcome: ToolAnswer;
    readonly code?: number | undefined;
    readonly reason?: RefusalReason | undefined;
    readonly left?: 'input' | 'task' | undefined;
    readonly durationMs: number;
} & OfWhole) | ({
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
} & NamedTool & Partial<NamedRun>) | ({
    readonly type: 'call.waited';
    readonly waitedMs: number;
    readonly granted: boolean;
    readonly state?: string | undefined;
} & Omit<OfTool, 'state'>) | ({
    readonly type: 'call.unrecorded';
} & OfTool) | ({
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
} & OfTool) | ({
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
    readonly answered?: Answered | undefined;
} & OfUnknown) | ({
    readonly type: 'step.held';
    readonly idempotencyKey: string;
    readonly sinceMs?: number | undefined;
    readonly kind?: string | undefined;
} & Omit<OfTool, 'call'>) | {
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

type EventSource<E extends string, Call> = E | ((call: Call) => E | EventWithPayload<E> | undefined);

type FailureKind = 'tool_error' | 'rpc_error' | 'not_ok';

type Fold = 'space' | 'nfkc' | 'case';

type IsVague<V> = string extends V ? true : false;

type LimitedBy = 'all' | readonly string[] | {
    readonly [path: string]: string | {
        readonly args: string;
        readonly fold?: readonly Fold[] | undefined;
    };
};

type LoopListener = (loop: Loop) => void;

type NameIn<A> = A extends string ? Exclude<A, '*'> : never;

type NameOf<B> = NameIn<AtomOf<B>>;

type PathsIn<V> = {
    [K in keyof V & string]: K | `${K}.${PathsOf<V[K]>}`;
}[keyof V & string];

type PathsOf<V> = IsVague<V> extends true ? string : V extends string ? V : PathsIn<V>;

type PrincipalOf = NamesCallers['principal'];

type ReadRefusalReason = Extract<RefusalReason, 'state' | 'guard' | 'unavailable' | 'unreadable' | 'no-run'> | StopReason;

type ReportedMethod = 'initialize' | 'tools/list' | 'prompts/list' | 'resources/list' | 'resources/templates/list';

type ResultCondition = Condition | ((result: unknown) => boolean);

type ResultTest = (result: ToolResult) => boolean;

type RunEnd = 'final' | 'session' | 'quota' | 'deleted' | 'unknown';

type RunIdOf = (request: RunKeyRequest) => string | undefined;

type Scalar = string | number | boolean | null;

type SharedLimit<N extends string = string> = Counted & (Times | Sum) & {
    readonly of: readonly (N | LimitedTool<N>)[];
    readonly from?: string | undefined;
};

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

type ToolAnswer = 'ok' | 'tool_error' | 'rpc_error' | 'refused' | 'unknown' | 'unanswered';

type TransitionListener<S extends string = string> = (move: Move<S>) => void;

type UnknownStep = Pick<ClaimView, 'tool' | 'idempotencyKey' | 'uncertain'> & {
    readonly key: RunKey;
};

type ValueOf<M> = M extends {
    getInitialSnapshot(scope: never, input?: never): {
        readonly value: infer Value;
    };
} ? Value : string;

type VisibilityOf = (client: ClientInfo) => Visibility;

type WhenEnded = 'keep' | 'restart';

type XStateEvents<M> = M extends {
    getTransitionData(snapshot: never, event: infer Event): unknown;
} ? [
    Event
] extends [
    never
] ? string : Event extends {
    readonly type: infer Type extends string;
} ? Type : never : string;

type XStatePaths<M> = PathsOf<ValueOf<M>>;

type XStateTags<M> = M extends {
    getInitialSnapshot(scope: never, input?: never): {
        hasTag(tag: infer Tag extends string): boolean;
    };
} ? Tag : string;

type XStateTexts<M> = TextsOf<ValueOf<M>>;
