// What mcp-interlock/stores/memory exports. `npm run api` renews this file.
export { MemoryStoreOptions } from 'mcp-interlock';
export { memoryStore } from 'mcp-interlock';

export function isMemoryStore(store: AtomicStateStore): boolean;
