// What mcp-interlock/stores exports. `npm run api` renews this file.

export interface AdaptOptions {
    readonly now?: (() => number) | undefined;
    readonly onWarning?: ((warning: string) => void) | undefined;
    readonly deadlineMs?: number | undefined;
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

export interface CallNote {
    readonly tool?: string | undefined;
    readonly digest?: string | undefined;
    readonly args?: Json | undefined;
    readonly actor?: string | undefined;
    readonly requestId?: string | number | undefined;
    readonly workflowVersion?: number | undefined;
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

export interface CountQuery {
    readonly workflow: string;
    readonly forMs: number;
}

export type DeleteResult = 'deleted' | 'pinned' | 'unknown';

export interface EndOptions {
    readonly ifUnclaimed?: boolean | undefined;
    readonly evict?: 'unbegun' | 'any' | undefined;
}

export type EndResult = 'ended' | 'claimed' | 'begun' | 'unknown';

export interface FoundRun extends WorkflowRecord {
    readonly run: string;
    readonly sessionEnded?: true;
}

export interface Freeze {
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

export interface HeldQuery extends PageQuery {
    readonly workflow: string;
}

export type Json = string | number | boolean | null | Json[] | {
    [key: string]: Json;
};

export interface KeysPage {
    readonly runs: readonly string[];
    readonly next?: string;
}

export interface ListQuery extends PageQuery {
    readonly principal: string;
}

export interface ManyRunsQuery {
    readonly onError?: ((error: unknown, kept: string) => void) | undefined;
}

export interface MoveDraft extends TrailDraft {
    readonly to: string;
}

export type OpenResult = {
    readonly status: 'opened';
} | {
    readonly status: 'taken';
};

export interface PageQuery extends ManyRunsQuery {
    readonly limit: number;
    readonly after?: string | undefined;
}

export interface PurgeQuery extends ManyRunsQuery {
    readonly principal?: string | undefined;
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

export interface ReleaseOptions {
    readonly settles?: boolean | undefined;
    readonly entry?: TrailDraft | undefined;
}

export interface RenewOptions {
    readonly hold?: string | undefined;
}

export interface RunKey {
    readonly run: string;
    readonly workflow: string;
}

export interface RunRecord {
    readonly session: SessionRecord;
    readonly workflows: Readonly<Record<string, WorkflowRecord>>;
    readonly sessionEnded?: true | 'evicted';
    readonly now?: number;
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

export interface RunsPage {
    readonly runs: readonly FoundRun[];
    readonly next?: string;
    readonly now?: number;
}

export interface RunsQuery extends ManyRunsQuery {
    readonly workflow: string;
    readonly state: string;
    readonly forMs?: number | undefined;
}

export interface SeenSnapshot {
    readonly snapshot: FsmSnapshot;
    readonly now?: number;
    readonly unsettled?: readonly UnsettledStep[];
}

export interface SessionRecord {
    readonly principal?: string | undefined;
    readonly minted?: boolean | undefined;
    readonly clientInfo?: ClientInfo | undefined;
}

export type StateStore = FsmStateStore | AtomicStateStore;

export interface StepDescription {
    readonly tool: string;
    readonly digest: string;
    readonly uncertain: Uncertain;
    readonly use?: Json | undefined;
}

export interface StuckQuery extends HeldQuery {
    readonly states?: readonly string[] | undefined;
    readonly forMs: number;
}

export interface SwitchRecord {
    readonly value: Json;
    readonly revision: string;
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

export type TrailOutcome = 'succeeded' | 'failed' | 'input_required' | 'not_run' | 'unknown' | 'refused';

export interface TransactionalStateStore<Client> extends AtomicStateStore {
    commitIn(client: Client, request: CommitRequest): Promise<CommitResult>;
}

export type Uncertain = 'hold' | 'retry';

export interface UnsettledStep {
    readonly tool: string;
    readonly digest: string;
    readonly idempotencyKey: string;
    readonly since: number;
    readonly use?: Json;
}

export interface WorkflowRecord {
    readonly snapshot: FsmSnapshot;
    readonly claim?: ClaimView;
    readonly unsettled?: readonly UnsettledStep[];
    readonly frozen?: Freeze;
    readonly ended?: boolean;
}

export function adaptStateStore(store: FsmStateStore, options?: AdaptOptions): AtomicStateStore;

export function verifyTrail(entries: readonly TrailEntry[], { from, newest }: VerifyTrailOptions): TrailFault[];

// Named by the above, and exported by no entry:

interface VerifyTrailOptions {
    readonly from: RunKey;
    readonly newest?: string | undefined;
}
