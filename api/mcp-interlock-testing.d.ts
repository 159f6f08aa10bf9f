// What mcp-interlock-testing exports. `npm run api` renews this file.

export type AnyGate = StateMachineGate<string, string, string, string, unknown>;

export interface AssertGatedOptions {
    readonly headers?: Readonly<Record<string, string>> | undefined;
    readonly path?: string | undefined;
}

export type ClientEra = 'session' | 'stateless';

export interface DescribeStateStoreOptions {
    readonly describe: (name: string, body: () => void) => unknown;
    readonly it: (name: string, body: () => Promise<void>, timeoutMs: number) => unknown;
    readonly scope?: StoreScope | undefined;
    readonly chainTrail?: boolean | undefined;
    readonly maxBytes?: number | undefined;
    readonly timeoutMs?: number | undefined;
}

export interface Gated {
    readonly eras: readonly ClientEra[];
    readonly tool: string;
}

export type GatedTarget = string | URL | NodeApp | {
    fetch(request: Request): Response | Promise<Response>;
} | ((request: Request) => Response | Promise<Response>);

export const NO_ANSWER: unique symbol;

export type NodeApp = RequestListener & {
    listen(...args: never[]): unknown;
};

export interface RpcError {
    readonly code: number;
    readonly message: string;
    readonly data?: unknown;
}

export type StoreScope = 'processes' | 'restarts' | 'process';

export interface StoreUnderTest {
    readonly store: StateStore;
    readonly advance?: ((ms: number) => Promise<void> | void) | undefined;
    readonly reopen?: (() => Promise<StateStore>) | undefined;
    readonly reopenWithClock?: ((offMs: number) => Promise<StateStore>) | undefined;
    readonly documents?: Documents | undefined;
    close(): Promise<void>;
}

export interface TestAnswer {
    readonly outcome: 'ok' | 'tool_error' | 'rpc_error' | 'refused' | 'unknown';
    readonly text: string;
    readonly ran: boolean;
    readonly result?: ToolResult;
    readonly error?: RpcError;
    readonly refusal?: TestRefusal;
}

export class TestClock implements Clock {
    #private;
    constructor(now: number, begin: () => Promise<void>);
    readonly now: () => number;
    readonly after: (ms: number, task: () => void) => (() => void);
    advance(ms: number): Promise<void>;
}

export class TestGate<E extends string = string, C extends string = string, X = Json | undefined> {
    #private;
    readonly clock: TestClock;
    readonly errors: readonly unknown[];
    readonly warnings: readonly string[];
    constructor(gates: readonly [
        AnyGate,
        ...AnyGate[]
    ], options: Parsed);
    call(tool: string, args?: Readonly<Record<string, unknown>>, result?: TestOutcome): Promise<TestAnswer>;
    list(): Promise<string[]>;
    refusal(answer?: TestAnswer | undefined): TestRefusal | undefined;
    run(): Promise<string>;
    runs(): Runs<E>;
    runs(gate: AnyGate): Runs;
    state(): Promise<C>;
    state(gate: AnyGate): Promise<string>;
    context(): Promise<X>;
    context(gate: AnyGate): Promise<Json | undefined>;
    history(gate?: AnyGate): Promise<TrailEntry[]>;
    send(event: E, options?: SendOptions): Promise<Sent>;
    resolve(outcome: 'succeeded' | 'failed', options?: ResolveOptions<E>): Promise<Resolution>;
    close(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}

export interface TestGateOptions<C extends string = string, X = Json | undefined> {
    readonly tools?: readonly (string | TestTool)[] | undefined;
    readonly principal?: string | undefined;
    readonly state?: C | undefined;
    readonly facts?: readonly GivenFact[] | undefined;
    readonly context?: X | undefined;
    readonly run?: string | undefined;
    readonly now?: number | undefined;
    readonly session?: Omit<SessionStoreOptions, 'clock' | 'principal'> | undefined;
    readonly gate?: Omit<FsmGateOptions, 'clock'> | undefined;
    readonly sync?: StateSyncOptions | undefined;
}

export type TestOutcome = TestResult | Promise<TestResult> | ((args: Readonly<Record<string, unknown>>, step: CurrentStep | undefined) => TestResult | Promise<TestResult>);

export interface TestRefusal extends Refusal {
    readonly text: string;
}

export type TestResult = string | ToolResult | Error | typeof NO_ANSWER;

export interface TestTool {
    readonly name: string;
    readonly description?: string | undefined;
    readonly inputSchema?: object | undefined;
    readonly annotations?: object | undefined;
    readonly [member: string]: unknown;
}

export function assertGated<S extends string, E extends string>(gate: StateMachineGate<S, E>, target: GatedTarget, options?: AssertGatedOptions): Promise<Gated>;

export function describeStateStore(name: string, makeStore: () => Promise<StoreUnderTest>, options: DescribeStateStoreOptions): void;

export function testGate<S extends string, E extends string, T extends string, C extends string, X>(gate: StateMachineGate<S, E, T, C, X>, options?: TestGateOptions<NoInfer<C>, NoInfer<X>>): TestGate<E, C, X>;

export function testGate(gates: readonly [
    AnyGate,
    ...AnyGate[]
], options?: Omit<TestGateOptions, 'state' | 'facts' | 'context'>): TestGate;

// Named by the above, and exported by no entry:

interface Parsed {
    readonly tools: readonly (string | TestTool)[];
    readonly principal?: string | undefined;
    readonly state?: string | undefined;
    readonly facts?: readonly GivenFact[] | undefined;
    readonly context?: unknown;
    readonly run?: string | undefined;
    readonly now: number;
    readonly session: SessionStoreOptions;
    readonly gate: FsmGateOptions;
    readonly sync?: StateSyncOptions | undefined;
}
