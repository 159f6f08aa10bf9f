// What mcp-interlock/stores/postgres exports. `npm run api` renews this file.

export interface PostgresClient {
    query(text: string, values?: unknown[]): Promise<{
        rows: unknown[];
    }>;
}

export interface PostgresPool extends PostgresClient {
    readonly totalCount?: number;
    readonly idleCount?: number;
    readonly options?: {
        readonly max?: number;
    };
    connect(): Promise<PostgresPoolClient>;
}

export interface PostgresPoolClient extends PostgresClient {
    release(error?: Error | boolean): void;
}

export interface PostgresStore extends Required<Omit<AtomicStateStore, 'evictedKeys'>> {
    migrate(): Promise<void>;
    commitIn(client: PostgresClient, request: CommitRequest): Promise<CommitResult>;
    purge(query?: PurgeQuery): Promise<number>;
}

export interface PostgresStoreOptions {
    readonly pool: PostgresPool;
    readonly schema?: string | undefined;
    readonly tablePrefix?: string | undefined;
    readonly chainTrail?: boolean | undefined;
}

export function postgresStore(options: PostgresStoreOptions): PostgresStore;
