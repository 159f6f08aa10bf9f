import type { FsmSnapshot, FsmStateStore } from '../../src/stores/store.ts';

/**
 * The smallest store that people write: JSON under a key. Counts, remembers and fails as a test
 * asks.
 */
export class JsonStateStore implements FsmStateStore {
  /** What is saved, for tests to look at, to spoil and to evict. */
  readonly texts: Map<string, string>;
  readonly calls: string[] = [];
  /**
   * Thrown instead of the call that this names, such as `save checkout:run`, until the test takes
   * it away.
   */
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

  /** The calls since the last time this was asked. */
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
