import type { FsmSnapshot, FsmStateStore } from '../../src/stores/store.ts';

/**
 * The smallest store that a user writes: JSON under a key. It lists its calls, and fails where a
 * test says so.
 */
export class JsonStateStore implements FsmStateStore {
  /** The saved texts, which tests read, spoil and evict. */
  readonly texts: Map<string, string>;
  readonly calls: string[] = [];
  /** What a call throws, by its name, such as `save checkout:run`, until the test removes it. */
  readonly failures = new Map<string, Error>();
  /** Thrown after the save has arrived. */
  readonly lateFailures = new Map<string, Error>();

  constructor(texts = new Map<string, string>()) {
    this.texts = texts;
  }

  async load(key: string): Promise<FsmSnapshot | undefined> {
    this.#record(`load ${key}`);
    const text = this.texts.get(key);
    return text === undefined ? undefined : JSON.parse(text);
  }

  async save(key: string, snapshot: FsmSnapshot): Promise<void> {
    this.#record(`save ${key}`);
    this.texts.set(key, JSON.stringify(snapshot));
    const failure = this.lateFailures.get(`save ${key}`);
    if (failure) throw failure;
  }

  /** The calls since the last look. */
  takeCalls(): string[] {
    return this.calls.splice(0);
  }

  saved(key: string): unknown {
    const text = this.texts.get(key);
    return text === undefined ? undefined : JSON.parse(text);
  }

  #record(call: string): void {
    this.calls.push(call);
    const failure = this.failures.get(call);
    if (failure) throw failure;
  }
}
