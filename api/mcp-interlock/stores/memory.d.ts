// What mcp-interlock/stores/memory exports. `npm run api` renews this file.
export { memoryStore } from 'mcp-interlock';

export interface MemoryStoreOptions {
    readonly maxRuns?: number | undefined;
    readonly now?: (() => number) | undefined;
    readonly chainTrail?: boolean | undefined;
}

export function isMemoryStore(store: AtomicStateStore): boolean;
