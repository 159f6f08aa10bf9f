// What mcp-interlock/runs exports. `npm run api` renews this file.

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

export interface BeginOptions extends GivenBeginning {
    readonly actor?: string | undefined;
}

export type Begun = {
    readonly begun: true;
    readonly state: string;
    readonly context: Json | undefined;
} | {
    readonly begun: false;
    readonly reason: NotMoved | 'begun';
};

export interface CheckRunsOptions {
    readonly old?: StateMachineGate<string, string> | undefined;
}

export interface CheckedRuns {
    readonly runs: number;
    readonly states: readonly RunsInState[];
    readonly unreadable: number;
    readonly faults: readonly UnreadableRuns[];
    readonly migrated: readonly MigratedRuns[];
    readonly unbound: readonly UnboundSteps[];
    readonly isCut: boolean;
    readonly compared: ComparedDeployment;
}

export interface ComparedDeployment {
    readonly with: 'given' | 'noted' | 'none' | 'unmade';
    readonly noted: readonly NotedRecord[];
    readonly tools: readonly ComparedTool[];
    readonly limits: readonly ComparedLimit[];
    readonly unread: number;
}

export interface ComparedLimit {
    readonly tool: string;
    readonly limit: string;
    readonly change: 'anew' | 'gone' | 'closed' | 'moved';
    readonly runs: SomeRuns;
}

export interface ComparedTool {
    readonly tool: string;
    readonly now?: string;
    readonly boundBy: 'both' | 'before' | 'after';
    readonly before: number;
    readonly after: number;
    readonly closed: SomeRuns;
    readonly opened: SomeRuns;
    readonly perhaps?: readonly string[];
}

export interface CountOptions {
    readonly forMs?: number | undefined;
}

export type Deleted = {
    readonly deleted: true;
} | {
    readonly deleted: false;
    readonly reason: 'unknown-run' | 'pinned';
};

export type Doubt = 'guard' | 'values' | 'outcome' | 'unreadable';

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

export interface FreezeAllOptions extends FreezeOptions {
    readonly tool?: string | undefined;
}

export interface FreezeOptions {
    readonly actor: string;
    readonly note: string;
}

export type Frozen = {
    readonly frozen: true;
    readonly state: string;
} | {
    readonly frozen: false;
    readonly reason: Extract<NotMoved, 'unknown-run' | 'frozen'>;
};

export interface GivenBeginning {
    readonly state?: string | undefined;
    readonly data?: Json | undefined;
    readonly facts?: readonly GivenFact[] | undefined;
}

export interface GivenFact {
    readonly tool?: string | undefined;
    readonly outside?: string | undefined;
    readonly by?: string | IssuedPrincipal | undefined;
    readonly outcome?: 'succeeded' | 'failed' | undefined;
    readonly at?: number | undefined;
    readonly arguments?: Json | undefined;
    readonly result?: Json | undefined;
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

export type HeldRun = RunView & {
    readonly claim: ClaimView;
};

export interface ListOptions extends PageOptions {
    readonly principal: string | IssuedPrincipal;
}

export interface ListedRun extends Pick<RunView, 'run' | 'state' | 'status' | 'frozen' | 'unsettled' | 'heldForMs' | 'unmovedForMs' | 'fault'> {
    readonly tool?: string;
    readonly idempotencyKey?: string;
}

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

export interface NotedRecord extends Pick<NotedGate, 'digest' | 'version' | 'first' | 'last'> {
    readonly isSame: boolean;
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

export interface PageOptions {
    readonly limit?: number | undefined;
    readonly after?: string | undefined;
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
    readonly result?: Json | undefined;
    readonly token?: string | undefined;
}

export interface ResolvedAll {
    readonly resolved: number;
    readonly runs: readonly ResolvedRun[];
}

export interface ResolvedRun {
    readonly run: string;
    readonly idempotencyKey: string;
    readonly outcome: Outcome | undefined;
    readonly resolution?: Resolution;
}

export type Restarted = {
    readonly restarted: true;
    readonly state: string;
} | {
    readonly restarted: false;
    readonly reason: NotMoved;
};

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
    check(options?: CheckRunsOptions): Promise<CheckedRuns>;
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
    answered(idempotencyKey: string): 'succeeded' | 'failed' | 'input_required' | undefined;
    get observed(): Observed | undefined;
    resolve(held: string | {
        readonly idempotencyKey: string;
    }, outcome: 'succeeded' | 'failed', options?: ResolveOptions<E>): Promise<Resolution>;
    resolveAll(options: ResolveAllOptions): Promise<ResolvedAll>;
    erase(principal: ListOptions['principal'], options?: EraseOptions): Promise<Erased>;
    purge(): Promise<number>;
    sweep(runs?: Iterable<string> | AsyncIterable<string>): Promise<number>;
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

export interface SendOptions {
    readonly actor?: string | undefined;
    readonly payload?: Json | undefined;
    readonly arguments?: {
        readonly [name: string]: Json;
    } | undefined;
    readonly result?: Json | undefined;
    readonly by?: string | IssuedPrincipal | undefined;
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

export interface SetFreeze extends Freeze {
    readonly at: number;
}

export interface SomeRuns {
    readonly runs: number;
    readonly such: readonly string[];
}

export interface Stopped extends SetFreeze {
    readonly tool?: string;
}

export interface StuckOptions<Q = StateExpression> extends PageOptions {
    readonly forMs: number;
    readonly state?: Q | undefined;
}

export interface UnboundSteps {
    readonly tool: string;
    readonly held: number;
    readonly running: number;
    readonly run: string;
}

export type Unfrozen = {
    readonly unfrozen: true;
    readonly state: string;
} | {
    readonly unfrozen: false;
    readonly reason: Exclude<NotMoved, 'frozen'> | 'not-frozen';
};

export type Unjudged = 'no-run' | 'unread' | 'crowded' | Doubt;

export interface UnreadableRuns extends RunsInState {
    readonly kind: UnreadableKind;
    readonly version: number;
    readonly reason: string;
    readonly run: string;
}

export type Updated = {
    readonly updated: true;
    readonly context: Json | undefined;
} | {
    readonly updated: false;
    readonly reason: NotMoved;
};

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

export function entryWords({ tool, event, from, to, outcome, }: Pick<TrailEntry, 'tool' | 'event' | 'from' | 'to' | 'outcome'>): string;

export function explain<S extends string, E extends string>(gate: StateMachineGate<S, E>, at?: ExplainedRun): Explained;

export function heldOutcomes<S extends string, E extends string>(gate: StateMachineGate<S, E>, { snapshot, claim }: ExplainedRun): readonly HeldOutcome[];

export function runsOf<S extends string, E extends string, T extends string, C extends string, X>(gate: StateMachineGate<S, E, T, C, X>, options: RunsOptions): Runs<E, StateExpression<S, T> | C>;

export function whatIf<S extends string, E extends string>(gate: StateMachineGate<S, E>, at: ExplainedRun | undefined, move: WhatIfMove): WhatIf;

export function workflowHealth(options: WorkflowHealthOptions): HealthHandler;

// Named by the above, and exported by no entry:

interface Authorizes {
    authorize(req: CallerRequest): boolean | Promise<boolean>;
}

interface GateNote {
    readonly digest: string;
    readonly version?: number;
    readonly tools: readonly string[];
    readonly windowMs: number;
    readonly made?: Json;
}

interface NotedGate extends GateNote {
    readonly first: number;
    readonly last: number;
}

type FailOn = 'held' | 'unsettled' | 'stuck' | 'unreadable' | 'bus';

type NotMoved = 'unknown-run' | 'busy' | 'held' | StopReason;

type Outcome = 'succeeded' | 'failed';

type UnreadableKind = 'unknown-state' | 'older-version' | 'newer-version' | 'newer-package' | 'older-package' | 'migrate-threw' | 'migrate-returned' | 'malformed';
