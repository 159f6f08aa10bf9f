// What mcp-interlock/bus/redis exports. `npm run api` renews this file.

export interface IoredisPubSub {
    publish(channel: string, message: string): Promise<unknown>;
    duplicate(first?: object, second?: object): IoredisPubSub;
    subscribe(channel: string): Promise<unknown>;
    unsubscribe(channel: string): Promise<unknown>;
    ping(): Promise<unknown>;
    on(event: 'message', listener: (channel: string, message: string) => void): unknown;
    on(event: 'ready' | 'error' | 'end', listener: (error: unknown) => void): unknown;
    off(event: 'message', listener: (channel: string, message: string) => void): unknown;
    off(event: 'ready', listener: () => void): unknown;
    disconnect(): void;
    readonly status: string;
    readonly isCluster: boolean;
    readonly stream?: {
        unref?(): void;
    };
}

export interface NodeRedisPubSub {
    publish(channel: string, message: string): Promise<unknown>;
    duplicate(overrides?: object): NodeRedisPubSub;
    connect(): Promise<unknown>;
    subscribe(channel: string, listener: (message: unknown) => void): Promise<unknown>;
    unsubscribe(channel: string, listener: (message: unknown) => void): Promise<unknown>;
    ping(): Promise<unknown>;
    on(event: 'connect' | 'error', listener: (error: unknown) => void): unknown;
    destroy(): void;
    readonly options?: {
        readonly socket?: object | undefined;
    } | undefined;
    readonly isOpen: boolean;
    readonly isReady?: boolean;
    unref?(): void;
}

export interface RedisBusOptions extends RemoteBusOptions {
    readonly client: RedisPubSub;
    readonly subscriber?: RedisPubSub | undefined;
}

export function redisBus(options: RedisBusOptions): NotificationBus;

// Named by the above, and exported by no entry:

interface RemoteBusOptions {
    readonly channel?: string | undefined;
    readonly heartbeatMs?: number | undefined;
    readonly onError?: ((error: unknown) => void) | undefined;
}

type RedisPubSub = NodeRedisPubSub | IoredisPubSub;
