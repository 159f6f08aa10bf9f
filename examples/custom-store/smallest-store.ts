import type { FsmSnapshot, FsmStateStore } from 'mcp-interlock';

/** What is used of a client of Redis, of a KV service, of a table with two columns. */
export interface KeyValue {
  get(key: string): Promise<string | null>;
  set(key: string, value: string): Promise<unknown>;
}

/**
 * The least that is a store. Steps are exact within one process only, and the middleware warns of
 * that.
 */
export function smallestStore(backend: KeyValue): FsmStateStore {
  return {
    async load(key) {
      const text = await backend.get(`fsm:${key}`);
      return text === null ? undefined : (JSON.parse(text) as FsmSnapshot);
    },
    async save(key, snapshot) {
      await backend.set(`fsm:${key}`, JSON.stringify(snapshot));
    },
  };
}
