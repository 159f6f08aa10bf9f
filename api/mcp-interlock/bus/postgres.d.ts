// What mcp-interlock/bus/postgres exports. `npm run api` renews this file.

export interface PostgresBusClient {
    query(text: string, values?: unknown[]): Promise<{
        rows: unknown[];
    }>;
    on(event: 'notification', listener: (message: PostgresNotification) => void): unknown;
    on(event: 'error' | 'end', listener: (error: unknown) => void): unknown;
    release(destroy?: boolean): void;
    unref?(): void;
}

export interface PostgresBusOptions extends RemoteBusOptions {
    readonly pool: PostgresBusPool;
    readonly listenPool?: PostgresBusPool | undefined;
}

export interface PostgresBusPool {
    query(text: string, values?: unknown[]): Promise<{
        rows: unknown[];
    }>;
    connect(): Promise<PostgresBusClient>;
    connect(callback: (error: Error | undefined, client?: PostgresBusClient) => void): void;
    readonly options?: {
        readonly max?: number | undefined;
    };
}

export function postgresBus(options: PostgresBusOptions): NotificationBus;

// Named by the above, and exported by no entry:

interface PostgresNotification {
    readonly channel: string;
    readonly payload?: string | undefined;
}
