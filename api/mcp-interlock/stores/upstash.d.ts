// What mcp-interlock/stores/upstash exports. `npm run api` renews this file.

export interface UpstashClient {
    evalsha(sha1: string, keys: string[], args: string[]): Promise<unknown>;
    eval(script: string, keys: string[], args: string[]): Promise<unknown>;
}

export interface UpstashStoreOptions extends ScriptedStoreOptions {
    readonly redis: UpstashClient;
}

export function upstashStore(options: UpstashStoreOptions): ScriptedStateStore;
