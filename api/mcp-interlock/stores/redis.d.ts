// What mcp-interlock/stores/redis exports. `npm run api` renews this file.

export interface IoredisClient {
    evalsha(sha1: string, keyCount: number, ...keysAndArguments: string[]): Promise<unknown>;
    eval(script: string, keyCount: number, ...keysAndArguments: string[]): Promise<unknown>;
}

export interface NodeRedisClient {
    evalSha(sha1: string, options: {
        keys: string[];
        arguments: string[];
    }): Promise<unknown>;
    eval(script: string, options: {
        keys: string[];
        arguments: string[];
    }): Promise<unknown>;
}

export interface RedisStoreOptions extends ScriptedStoreOptions {
    readonly client: NodeRedisClient | IoredisClient;
}

export function redisStore(options: RedisStoreOptions): ScriptedStateStore;

// Named by the above, and exported by no entry:

interface ScriptedStoreOptions {
    readonly prefix?: string | undefined;
    readonly trailLimit?: number | undefined;
    readonly chainTrail?: boolean | undefined;
}

type ScriptedStateStore = Required<AtomicStateStore> & {
    rebuildIndex(): Promise<number>;
};
