// What mcp-interlock-inspector exports. `npm run api` renews this file.

export interface Abilities {
    readonly read: true;
    readonly write: boolean;
    readonly keys: boolean;
}

export type AmountOf = (step: HeldStep) => string | undefined;

export interface Authorization {
    readonly read: true;
    readonly write?: boolean | undefined;
    readonly keys?: boolean | undefined;
    readonly actor?: string | undefined;
}

export interface Bye {
    readonly why: 'closing' | 'unauthorized';
}

export interface Counts {
    readonly runs: number;
    readonly states: readonly StateCount[];
    readonly held: number;
    readonly unsettled?: number;
    readonly running: number;
    readonly unreadable: number;
    readonly stuck: number;
    readonly stuckAfterMs: number;
    readonly oldestClaimMs?: number;
}

export interface DeleteRequest {
    readonly digest: string;
}

export interface Done {
    readonly done: true;
    readonly state?: string;
}

export interface Failure {
    readonly error: {
        readonly code: FailureCode;
        readonly message: string;
    };
}

export type FailureCode = 'unauthorized' | 'read-only' | 'token' | 'cross-site' | 'bad-request' | 'unknown' | 'method' | 'conflict' | 'too-large' | 'media-type' | 'choose-event' | 'no-index' | 'no-switch' | 'unavailable' | 'internal';

export interface FreezeCallsRequest extends FreezeRequest {
    readonly tool?: string;
}

export interface FreezeRequest {
    readonly note: string;
}

export interface HeldStep {
    readonly workflow: string;
    readonly run: string;
    readonly tool: string;
    readonly idempotencyKey: string;
    readonly args: Json | undefined;
    readonly actor: string | undefined;
    readonly requestId: string | number | undefined;
    readonly since: number | undefined;
}

export interface Hello {
    readonly resumed: boolean;
    readonly delayMs: number;
}

export interface Inspector {
    (req: IncomingMessage, res: ServerResponse, next?: (error?: unknown) => void): void;
    close(): void;
}

export interface InspectorOptions {
    readonly runs: readonly Runs[];
    readonly authorize?: Authorizes['authorize'] | undefined;
    readonly basePath?: string | undefined;
    readonly secret?: string | Uint8Array | undefined;
    readonly share?: Share | undefined;
    readonly amount?: AmountOf | undefined;
    readonly look?: LookAt | undefined;
    readonly stuckAfterMs?: number | undefined;
    readonly pollMs?: number | undefined;
    readonly now?: (() => number) | undefined;
    readonly onError?: ((error: unknown) => void) | undefined;
}

export type Json = string | number | boolean | null | Json[] | {
    [key: string]: Json;
};

export type LiveEvent = keyof LiveEvents;

export interface LiveEvents {
    readonly hello: Hello;
    readonly workflow: WorkflowChanged;
    readonly stopped: StoppedChanged;
    readonly run: RunChanged;
    readonly bye: Bye;
}

export type LookAt = (step: HeldStep) => string | URL | undefined;

export interface ObservedHour {
    readonly from: number;
    readonly runs: number;
    readonly refused: number;
}

export interface ObservedRule {
    readonly tool: string;
    readonly reason: string;
    readonly runs: number;
    readonly calls: number;
    readonly at: number;
    readonly state: string;
    readonly says: readonly string[];
    readonly digest: string;
}

export interface ObservedRuns {
    readonly since: number;
    readonly runs: number;
    readonly refused: number;
    readonly calls: number;
    readonly unjudged: number;
    readonly rules: readonly ObservedRule[];
    readonly hours: readonly ObservedHour[];
}

export interface Overview {
    readonly workflows: readonly WorkflowSummary[];
}

export interface Refusal {
    readonly reason: string;
    readonly says: string;
    readonly path?: readonly string[];
}

export interface ResolutionChoice {
    readonly outcome: 'succeeded' | 'failed';
    readonly event?: string | null;
    readonly leadsTo?: string;
}

export interface ResolveManyRequest {
    readonly outcome: 'succeeded' | 'failed';
    readonly note: string;
    readonly runs: readonly {
        readonly id: string;
        readonly step: string;
    }[];
}

export interface ResolveRequest {
    readonly outcome: 'succeeded' | 'failed';
    readonly step: string;
    readonly event?: string;
    readonly note?: string;
    readonly payload?: Json;
}

export interface ResolvedBy {
    readonly tool: string;
    readonly outcome: 'succeeded' | 'failed';
    readonly actor?: string;
}

export interface ResolvedMany {
    readonly results: readonly ResolvedOne[];
}

export interface ResolvedOne {
    readonly id: string;
    readonly state?: string;
    readonly error?: Failure['error'];
}

export interface ResolvedStep extends ResolvedBy {
    readonly amount?: string;
    readonly note?: string;
    readonly agoMs: number;
}

export interface RestartRequest {
    readonly version: number;
}

export interface RunChanged {
    readonly workflow: string;
    readonly id: string;
    readonly digest: string;
    readonly what: 'moved' | 'step' | 'held' | 'ended' | 'refused' | 'changed';
    readonly state?: string;
    readonly active?: readonly string[];
    readonly tool?: string;
    readonly resolved?: ResolvedBy;
}

export interface RunDetail extends RunSummary, Standing {
    readonly now: number;
    readonly data?: Json;
    readonly leavesAt?: number;
    readonly leavesInMs?: number;
    readonly beginsAnew?: true;
    readonly frozen?: {
        readonly actor: string;
        readonly note: string;
    };
    readonly trail: TrailPage;
}

export interface RunPage {
    readonly runs: readonly RunSummary[];
    readonly next?: string;
}

export interface RunQuery {
    readonly list: 'held' | 'unsettled' | 'open' | 'resolved';
    readonly state?: string;
    readonly stuckForMs?: number;
    readonly limit?: number;
    readonly after?: string;
}

export interface RunSummary {
    readonly id: string;
    readonly digest: string;
    readonly key?: string;
    readonly state: string;
    readonly active: readonly string[];
    readonly status: 'idle' | 'running' | 'held';
    readonly ended: boolean;
    readonly version: number;
    readonly updatedAt?: number;
    readonly unmovedForMs?: number;
    readonly heldForMs?: number;
    readonly step?: StepNow;
    readonly unsettled?: readonly StepNow[];
    readonly sessionEnded?: true;
    readonly fault?: string;
    readonly resolved?: ResolvedStep;
}

export interface SearchPage {
    readonly runs: readonly RunSummary[];
    readonly looked: number;
    readonly unreached: readonly string[];
    readonly next?: string;
}

export interface SearchRequest {
    readonly text?: string;
    readonly withinMs?: number;
    readonly after?: string;
}

export interface SendRequest {
    readonly event: string;
    readonly payload?: Json;
    readonly version: number;
}

export interface SessionInfo {
    readonly can: Abilities;
    readonly actor: string;
    readonly token: string;
    readonly renewAfterMs: number;
    readonly development: boolean;
}

export type Share = (run: SharedRun) => Json | undefined;

export interface SharedRun {
    readonly workflow: string;
    readonly digest: string | undefined;
    readonly state: string;
    readonly context: Json;
}

export interface Standing {
    readonly state: string;
    readonly active: readonly string[];
    readonly ended: boolean;
    readonly tools: readonly ToolNow[];
    readonly unbound?: UnboundTools;
    readonly events: readonly string[];
}

export interface StateCount {
    readonly state: string;
    readonly active: readonly string[];
    readonly runs: number;
    readonly stuck: number;
}

export interface StepNow {
    readonly id: string;
    readonly tool: string;
    readonly sinceMs?: number;
    readonly leaseLeftMs?: number;
    readonly overdueMs?: number;
    readonly actor?: string;
    readonly requestId?: string | number;
    readonly idempotencyKey?: string;
    readonly args?: Json;
    readonly amount?: string;
    readonly look?: string;
    readonly answered?: 'succeeded' | 'failed' | 'input_required';
    readonly resolutions?: readonly ResolutionChoice[];
}

export interface StoppedCalls {
    readonly tool?: string;
    readonly actor: string;
    readonly note: string;
    readonly at: number;
}

export interface StoppedChanged {
    readonly workflow: string;
    readonly stopped: readonly StoppedCalls[];
}

export type TokenHeader = 'x-interlock-token';

export interface ToolNow {
    readonly tool: string;
    readonly shown: boolean;
    readonly refusal?: Refusal;
    readonly leadsTo: readonly string[];
    readonly partial: boolean;
}

export interface TrailItem {
    readonly seq: number;
    readonly version: number;
    readonly attempt: number;
    readonly at: number;
    readonly from: string;
    readonly to?: string;
    readonly fromActive: readonly string[];
    readonly toActive?: readonly string[];
    readonly event: string | null;
    readonly tool?: string;
    readonly outcome?: 'succeeded' | 'failed' | 'input_required' | 'not_run' | 'unknown' | 'refused';
    readonly kind?: string;
    readonly says: string;
    readonly actor?: string;
    readonly calledBy?: string;
    readonly note?: string;
    readonly args?: Json;
    readonly errors?: readonly Json[];
    readonly requestId?: string | number;
    readonly workflowVersion?: number;
}

export interface TrailPage {
    readonly entries: readonly TrailItem[];
    readonly before?: number;
}

export interface UnboundTools {
    readonly count: number;
    readonly names: readonly string[];
}

export interface UnfreezeCallsRequest extends FreezeCallsRequest {
    readonly at: number;
}

export interface WhatIf extends Standing {
    readonly at: string;
    readonly result: 'moved' | 'stayed' | 'unhandled' | 'refused' | 'choose-event';
    readonly event?: string;
    readonly refusal?: Refusal;
    readonly actions: readonly string[];
    readonly leavesInMs?: number;
    readonly data?: Json;
}

export type WhatIfMove = {
    readonly tool: string;
    readonly outcome: 'succeeded' | 'failed';
    readonly event?: string;
} | {
    readonly event: string;
    readonly payload?: Json;
} | {
    readonly deadline: true;
};

export interface WhatIfRequest {
    readonly from?: {
        readonly run: string;
    } | {
        readonly at: string;
    };
    readonly move?: WhatIfMove;
}

export interface WorkflowChanged {
    readonly workflow: WorkflowSummary;
}

export interface WorkflowDetail extends WorkflowSummary {
    readonly graph: WorkflowGraph;
    readonly tools: readonly string[];
    readonly start: Standing;
}

export interface WorkflowSummary {
    readonly key: string;
    readonly id: string;
    readonly version?: number;
    readonly counts?: Counts;
    readonly store: 'ok' | 'no-index' | 'unavailable';
    readonly stopped?: readonly StoppedCalls[];
    readonly observed?: ObservedRuns;
    readonly resolved?: number;
}

export function inspector(options: InspectorOptions): Inspector;

// Named by the above, and exported by no entry:

interface Authorizes {
    authorize(req: IncomingMessage): Authorization | false | Promise<Authorization | false>;
}
