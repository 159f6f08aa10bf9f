// What mcp-interlock/stores/sqlite exports. `npm run api` renews this file.

export interface SqliteDatabase {
    exec(sql: string): unknown;
    prepare(sql: string): SqliteStatement;
}

export interface SqliteStatement {
    all(...values: unknown[]): unknown[];
    run(...values: unknown[]): unknown;
}

export interface SqliteStore extends IndexedDocumentStateStore {
    count(query: CountQuery): Promise<RunsCount>;
}

export interface SqliteStoreOptions {
    readonly database: SqliteDatabase;
    readonly now?: (() => number) | undefined;
    readonly busyTimeoutMs?: number | undefined;
    readonly chainTrail?: boolean | undefined;
}

export type SqliteValue = string | number | null;

export function sqliteStore(options: SqliteStoreOptions): SqliteStore;
