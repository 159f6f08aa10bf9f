// What mcp-interlock-check exports. `npm run api` renews this file.

export interface ArgumentsSchema {
    readonly type: 'object';
    readonly [keyword: string]: unknown;
}

export type BindingKind = 'step' | 'recorded' | 'free';

export type CallOutcome = 'success' | 'failure' | 'refused';

export interface CheckOptions {
    readonly tools?: readonly (string | ListedTool)[] | undefined;
    readonly sync?: {
        readonly policies?: readonly SyncPolicy<string>[] | undefined;
        readonly tools?: readonly {
            readonly policy?: SyncPolicy<string> | undefined;
        }[] | undefined;
    } | undefined;
    readonly outside?: readonly string[] | undefined;
    readonly idleMs?: number | undefined;
    readonly key?: NamesRuns | readonly NamesRuns[] | undefined;
    readonly ignore?: readonly string[] | undefined;
}

export interface CheckedTool {
    readonly tool: string;
    readonly kind: BindingKind;
}

export interface Disproven {
    readonly holds: false;
    readonly counterExample: readonly ProofStep[];
    readonly isCertain: boolean;
}

export interface EdgeTool {
    readonly name: string;
    readonly outcome: 'success' | 'failure';
    readonly isGuarded: boolean;
    readonly isPartial: boolean;
    readonly isChosen: boolean;
    readonly isPartly: boolean;
}

export const FINDING_CODES: {
    readonly 'rule-unmeetable': 'error';
    readonly 'limit-too-low': 'error';
    readonly 'argument-not-listed': 'warning';
    readonly 'text-unfolded': 'warning';
    readonly 'currency-mixed': 'warning';
    readonly 'limit-resettable': 'warning';
    readonly 'window-outlives-run': 'warning';
    readonly 'guesses-unlimited': 'warning';
    readonly 'tries-unlimited': 'note';
    readonly 'records-joined': 'note';
    readonly 'function-unnamed': 'note';
    readonly 'gate-unnamed': 'note';
    readonly 'state-unreachable': 'error';
    readonly 'tool-unavailable': 'error';
    readonly 'tool-not-listed': 'error';
    readonly 'tool-name': 'warning';
    readonly 'tool-rebound': 'warning';
    readonly 'tool-no-step': 'warning';
    readonly 'dead-end': 'warning';
    readonly 'event-unsent': 'warning';
    readonly 'event-unhandled': 'warning';
    readonly 'action-shadowed': 'warning';
    readonly 'idle-too-short': 'warning';
    readonly 'policy-shadowed': 'warning';
    readonly 'policy-unmatched': 'warning';
    readonly 'invalidation-unmatched': 'warning';
};

export interface Finding {
    readonly code: FindingCode;
    readonly severity: 'error' | 'warning' | 'note';
    readonly place: string;
    readonly message: string;
    readonly remedy: string;
}

export type FindingCode = keyof typeof FINDING_CODES;

export interface Findings extends ReadonlyArray<Finding> {
    readonly tools: readonly CheckedTool[];
    readonly notes: readonly Finding[];
}

export interface FirstRefusal {
    readonly tool: string;
    readonly reason: string;
    readonly state: string;
}

export interface FoldOptions {
    readonly near: readonly string[];
    readonly most: number;
}

export interface GraphCalls {
    readonly within?: number;
    readonly same?: Readonly<Record<string, string | {
        readonly result: string;
    }>>;
    readonly args?: GraphCondition;
    readonly result?: GraphCondition;
    readonly outcome?: 'failed' | 'any';
    readonly times?: number;
    readonly distinct?: string | {
        readonly result: string;
    };
    readonly unused?: true;
}

export type GraphCondition = Condition | true;

export interface GraphEdge {
    readonly id: string;
    readonly from: string;
    readonly to: string;
    readonly type: 'event' | 'deadline' | 'always' | 'done' | 'before' | 'unless' | 'undoes';
    readonly event: string;
    readonly isGuarded: boolean;
    readonly after?: number;
    readonly reenters?: true;
    readonly calls?: GraphCalls;
    readonly holds?: string;
    readonly consumes?: true | 'calls';
    readonly when?: GraphCondition;
    readonly says?: readonly string[];
    readonly tools: readonly EdgeTool[];
}

export interface GraphLimit {
    readonly times?: number;
    readonly sum?: string;
    readonly max?: string;
    readonly below?: string;
    readonly within?: number;
    readonly same?: readonly string[];
    readonly when?: GraphCondition;
    readonly outcome?: 'failed' | 'any';
    readonly says: string;
}

export interface GraphNode {
    readonly id: string;
    readonly label: string;
    readonly parent?: string;
    readonly type: 'atomic' | 'compound' | 'parallel' | 'final' | 'history' | 'tool' | 'any' | 'all' | 'folded';
    readonly inside?: readonly string[];
    readonly initial?: string;
    readonly tags?: readonly string[];
    readonly after?: number;
    readonly once?: true;
    readonly holds?: string;
}

export interface GraphStart {
    readonly state: string;
    readonly node: string;
}

export interface GraphTool {
    readonly name: string;
    readonly nodes: readonly string[];
    readonly partly: readonly string[];
    readonly stays: readonly string[];
    readonly staysPartly: readonly string[];
    readonly isPartial: boolean;
    readonly isGuarded: boolean;
    readonly limits?: readonly GraphLimit[];
}

export interface MermaidOptions {
    readonly state?: string | undefined;
    readonly most?: number | undefined;
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

export interface OrderProgress {
    readonly done: readonly string[];
    readonly of: number;
    readonly next: readonly string[];
    readonly missing: ReadonlyMap<string, readonly string[]>;
}

export type Proof = Proven | Disproven | Undecided;

export interface ProofOptions<E extends string = string> {
    readonly outside?: boolean | readonly E[] | undefined;
    readonly maxPositions?: number | undefined;
    readonly facts?: readonly GivenFact[] | undefined;
}

export interface ProofStep {
    readonly by: 'call' | 'deadline' | 'outside';
    readonly tool?: string;
    readonly outcome?: CallOutcome;
    readonly times?: number;
    readonly event?: string;
    readonly from: string;
    readonly to: string;
    readonly isGuarded: boolean;
    readonly turnsOn?: readonly ProofTurn[];
}

export type ProofTool<E extends string = string> = string | {
    readonly tool: string;
    readonly event: E;
};

export type ProofTurn = 'a window' | 'values' | 'a count' | 'a limit' | 'an unknown outcome';

export interface Proven {
    readonly holds: true;
}

export type Reachability = {
    readonly holds: true;
    readonly example: readonly ProofStep[];
    readonly ifGuardsAllow: boolean;
} | {
    readonly holds: false;
} | Undecided;

export interface Replay {
    readonly workflow: string;
    readonly calls: number;
    readonly runs: number;
    readonly refused: number;
    readonly waited: number;
    readonly unknown: number;
    readonly ended: number;
    readonly waits: number;
    readonly refusals: readonly ReplayedRefusal[];
    readonly doubts: readonly ReplayedDoubt[];
    readonly neverRefused: readonly string[];
    readonly neverCalled: readonly string[];
    readonly withoutRun: number;
    readonly unreadable: number;
    readonly dropped: number;
}

export interface ReplayCallsOptions extends ReplayOptions {
    readonly compareTo?: StateMachineGate<string, string> | undefined;
}

export interface ReplayDifference {
    readonly before: FirstRefusal | undefined;
    readonly after: FirstRefusal | undefined;
    readonly runs: number;
    readonly run: string;
}

export interface ReplayOptions {
    readonly lines: () => AsyncIterable<string> | Iterable<string>;
    readonly onProgress?: ((lines: number) => void) | undefined;
}

export interface ReplayedCalls extends Replay {
    readonly differences: readonly ReplayDifference[];
}

export interface ReplayedDoubt {
    readonly tool: string;
    readonly why: string;
    readonly calls: number;
    readonly run: string;
}

export interface ReplayedHistory {
    readonly calls: readonly string[];
    readonly runs: number;
    readonly run: string;
}

export interface ReplayedRefusal {
    readonly tool: string;
    readonly reason: string;
    readonly state: string;
    readonly says: readonly string[];
    readonly runs: number;
    readonly histories: readonly ReplayedHistory[];
}

export interface SuggestOptions {
    readonly reached: readonly string[];
    readonly readOnly?: readonly string[] | undefined;
}

export interface SuggestedRule {
    readonly kind: 'order' | 'same' | 'once';
    readonly tool: string;
    readonly after?: string;
    readonly same?: {
        readonly argument: string;
        readonly earlier: string;
        readonly from: 'args' | 'result';
    };
    readonly runs: number;
    readonly exceptions: number;
    readonly confidence: number;
    readonly isHabit: boolean;
    readonly examples: readonly string[];
}

export interface Suggestions {
    readonly rules: readonly SuggestedRule[];
    readonly runs: number;
    readonly good: number;
    readonly leftOut: number;
}

export interface ToolWithSchema {
    readonly name: string;
    readonly inputSchema?: Readonly<Record<string, unknown>> | undefined;
}

export interface TrailMessage {
    readonly role: 'assistant' | 'user';
    readonly content: string;
    readonly seq: number;
    readonly failure?: TryFailure | undefined;
}

export interface TrailPrompts {
    readonly messages: readonly TrailMessage[];
    readonly state: string;
    readonly output: NextToolSchema | undefined;
}

export interface TrailPromptsOptions {
    readonly omit?: readonly string[] | ((entry: TrailEntry) => boolean) | undefined;
    readonly tools?: readonly ToolWithSchema[] | undefined;
}

export interface TrailReplay {
    readonly state: string;
    readonly version: number;
    readonly moves: number;
    readonly faults: readonly TrailReplayFault[];
}

export interface TrailReplayFault {
    readonly index: number;
    readonly seq: number;
    readonly fault: 'missing' | 'from' | 'state' | 'event';
}

export interface TryFailure {
    readonly type: string;
    readonly errors: readonly Json$1[];
    readonly attempt: number;
}

export interface Undecided {
    readonly holds: undefined;
    readonly reason: string;
    readonly way?: readonly ProofStep[];
}

export interface WorkflowGraph {
    readonly id: string;
    readonly kind: WorkflowKind;
    readonly initial: readonly string[];
    readonly starts: readonly GraphStart[];
    readonly nodes: readonly GraphNode[];
    readonly edges: readonly GraphEdge[];
    readonly tools: readonly GraphTool[];
}

export type WorkflowKind = 'flat' | 'statechart' | 'order';

export function activeNodes<S extends string, E extends string>(gate: StateMachineGate<S, E>, state: string): readonly string[];

export function checkWorkflow<S extends string, E extends string>(gate: StateMachineGate<S, E>, options?: CheckOptions): Findings;

export function foldGraph(graph: WorkflowGraph, { near, most }: FoldOptions): WorkflowGraph;

export function never<S extends string, E extends string, T extends string>(gate: StateMachineGate<S, E, T>, tool: ProofTool<NoInfer<E>>, { in: states, ...options }: ProofOptions<NoInfer<E>> & {
    readonly in: BoundStates<NoInfer<S>, NoInfer<T>>;
}): Proof;

export function orderProgress(graph: WorkflowGraph, { active, available, }: {
    readonly active: readonly string[];
    readonly available: readonly string[];
}): OrderProgress;

export function precedes<S extends string, E extends string>(gate: StateMachineGate<S, E>, earlier: ProofTool<NoInfer<E>>, later: ProofTool<NoInfer<E>>, options?: ProofOptions<NoInfer<E>>): Proof;

export function reaches<S extends string, E extends string, T extends string>(gate: StateMachineGate<S, E, T>, states: BoundStates<NoInfer<S>, NoInfer<T>>, options?: ProofOptions<NoInfer<E>>): Reachability;

export function replayCalls<S extends string, E extends string>(gate: StateMachineGate<S, E>, { compareTo, ...options }: ReplayCallsOptions): Promise<ReplayedCalls>;

export function replayTrail<S extends string, E extends string>(gate: StateMachineGate<S, E>, entries: readonly TrailEntry[]): TrailReplay;

export function suggestRules(lines: AsyncIterable<string> | Iterable<string>, { reached, readOnly }: SuggestOptions): Promise<Suggestions>;

export function toMermaid<S extends string, E extends string>(gate: StateMachineGate<S, E>, options?: MermaidOptions): string;

export function trailToPrompts<S extends string, E extends string>(gate: StateMachineGate<S, E>, trail: readonly TrailEntry[], { omit, tools }?: TrailPromptsOptions): TrailPrompts;

export function workflowGraph<S extends string, E extends string>(gate: StateMachineGate<S, E>): WorkflowGraph;

// Named by the above, and exported by no entry:

const RUNS_BY: {
    readonly session: 'session';
    readonly request: 'conversation';
    readonly handle: 'handle';
    readonly managed: 'handle';
};

interface GivenFact {
    readonly tool?: string | undefined;
    readonly outside?: string | undefined;
    readonly by?: string | IssuedPrincipal | undefined;
    readonly outcome?: 'succeeded' | 'failed' | undefined;
    readonly at?: number | undefined;
    readonly arguments?: Json | undefined;
    readonly result?: Json | undefined;
}

interface IssuedPrincipal {
    readonly issuer: string;
    readonly subject: string;
}

interface ListedTool {
    readonly name: string;
    readonly inputSchema?: object | undefined;
    readonly annotations?: {
        readonly title?: string | undefined;
        readonly readOnlyHint?: boolean | undefined;
        readonly destructiveHint?: boolean | undefined;
        readonly idempotentHint?: boolean | undefined;
        readonly openWorldHint?: boolean | undefined;
    } | undefined;
}

interface NamesRuns {
    readonly kind: 'principal' | keyof typeof RUNS_BY;
}

interface StateTag<T extends string = string> {
    readonly tag: T;
}

type BoundStates<S extends string, T extends string> = StateExpression<S, T> | readonly StateExpression<S, T>[];

type Json = string | number | boolean | null | Json[] | {
    [key: string]: Json;
};

type StateExpression<S extends string = string, T extends string = string> = S | '*' | StateTag<T> | {
    readonly all: readonly StateExpression<S, T>[];
} | {
    readonly any: readonly StateExpression<S, T>[];
} | {
    readonly not: StateExpression<S, T>;
};
