// What mcp-interlock/stores/postgres exports. `npm run api` renews this file.

export interface PostgresClient {
    query(text: string, values?: unknown[]): Promise<{
        rows: unknown[];
    }>;
}

export interface PostgresPool extends PostgresClient {
    connect(): Promise<PostgresPoolClient>;
}

export interface PostgresPoolClient extends PostgresClient {
    release(error?: Error | boolean): void;
}

export interface PostgresStore extends TransactionalStateStore<PostgresClient> {
    migrate(): Promise<void>;
    commitIn(client: PostgresClient, request: CommitRequest): Promise<CommitResult>;
    purge(query?: PurgeQuery): Promise<number>;
    append(key: RunKey, entry: TrailDraft): Promise<void>;
    runs(query: RunsQuery): AsyncIterable<string>;
    held(query: HeldQuery): Promise<RunsPage>;
    stuck(query: StuckQuery): Promise<RunsPage>;
    count(query: CountQuery): Promise<RunsCount>;
    list(query: ListQuery): Promise<KeysPage>;
    anonymize(run: string): Promise<string | undefined>;
    readSwitch(workflow: string): Promise<SwitchRecord | undefined>;
    swapSwitch(workflow: string, expected: string | undefined, next: SwitchRecord): Promise<boolean>;
}

export interface PostgresStoreOptions {
    readonly pool: PostgresPool;
    readonly schema?: string | undefined;
    readonly tablePrefix?: string | undefined;
    readonly chainTrail?: boolean | undefined;
}

export function postgresStore(options: PostgresStoreOptions): PostgresStore;
