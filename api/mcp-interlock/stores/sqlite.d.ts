// What mcp-interlock/stores/sqlite exports. `npm run api` renews this file.

export interface SqliteDatabase {
    exec(sql: string): unknown;
    prepare(sql: string): SqliteStatement;
}

export interface SqliteStatement {
    all(...values: unknown[]): unknown[];
    run(...values: unknown[]): unknown;
}

export interface SqliteStore extends AtomicStateStore {
    append(key: RunKey, entry: TrailDraft): Promise<void>;
    runs(query: RunsQuery): AsyncIterable<string>;
    held(query: HeldQuery): Promise<RunsPage>;
    stuck(query: StuckQuery): Promise<RunsPage>;
    count(query: CountQuery): Promise<RunsCount>;
    list(query: ListQuery): Promise<KeysPage>;
    anonymize(run: string): Promise<string | undefined>;
    purge(query?: PurgeQuery): Promise<number>;
}

export interface SqliteStoreOptions {
    readonly database: SqliteDatabase;
    readonly now?: (() => number) | undefined;
    readonly busyTimeoutMs?: number | undefined;
    readonly chainTrail?: boolean | undefined;
}

export type SqliteValue = string | number | null;

export function sqliteStore(options: SqliteStoreOptions): SqliteStore;
