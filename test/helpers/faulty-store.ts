import type { AtomicStateStore } from '../../src/stores/index.ts';
import { MemoryStore } from '../../src/stores/memory-store.ts';

type Operation = keyof AtomicStateStore;

/**
 * `lost`: the store never does it. `done`: the store does it, and its answer is lost. `hang`: no
 * answer ever comes. `late`: the store does and answers it when the test says so.
 */
type Fault = 'lost' | 'done' | 'hang' | 'late';

/** A real store that counts its calls, and fails or hangs where a test says so. */
export class FaultyStore implements AtomicStateStore {
  readonly contract = 1;
  readonly asked: Operation[] = [];
  /** Answers the calls that are late. */
  readonly late: (() => void)[] = [];
  /** The fault of the next so many calls of an operation. */
  readonly faults = new Map<Operation, { times: number; when: Fault }>();
  readonly #inner: AtomicStateStore;

  constructor(inner: AtomicStateStore) {
    this.#inner = inner;
    const { held, unsettled, stuck, count, list, anonymize, purge, readSwitch, swapSwitch } = inner;
    if (anonymize)
      this.anonymize = (run) => this.#call('anonymize', () => anonymize.call(inner, run));
    if (purge) this.purge = (query) => this.#call('purge', () => purge.call(inner, query));
    if (unsettled)
      this.unsettled = (query) => this.#call('unsettled', () => unsettled.call(inner, query));
    if (held) this.held = (query) => this.#call('held', () => held.call(inner, query));
    if (stuck) this.stuck = (query) => this.#call('stuck', () => stuck.call(inner, query));
    if (count) this.count = (query) => this.#call('count', () => count.call(inner, query));
    if (list) this.list = (query) => this.#call('list', () => list.call(inner, query));
    // A process notes its gate once, beside its first step.
    const isNote = (name: string): boolean => name.startsWith('gates:');
    if (readSwitch)
      this.readSwitch = (name) =>
        isNote(name)
          ? readSwitch.call(inner, name)
          : this.#call('readSwitch', () => readSwitch.call(inner, name));
    if (swapSwitch)
      this.swapSwitch = (name, ...rest) =>
        isNote(name)
          ? swapSwitch.call(inner, name, ...rest)
          : this.#call('swapSwitch', () => swapSwitch.call(inner, name, ...rest));
    // Gates need no id on a store in memory, and this one is as much in memory as the real one.
    // biome-ignore lint/correctness/noConstructorReturn: it is this store, as a store in memory
    if (inner instanceof MemoryStore) return this.#inMemory(inner);
  }

  #inMemory(inner: AtomicStateStore): this {
    return new Proxy(inner as this, {
      get: (_, name) => {
        const value: unknown = Reflect.get(this, name);
        return typeof value === 'function' ? value.bind(this) : value;
      },
      set: (_, name, value) => Reflect.set(this, name, value),
      has: (_, name) => Reflect.has(this, name),
    });
  }

  fail(operation: Operation, times = Number.POSITIVE_INFINITY, when: Fault = 'lost'): void {
    this.faults.set(operation, { times, when });
  }

  heal(): void {
    this.faults.clear();
  }

  /**
   * The calls since the last look, but for those of a switch: a process asks for it twice a second
   * at most, however many calls there are.
   */
  take(): Operation[] {
    return this.asked.splice(0).filter((each) => each !== 'readSwitch');
  }

  /** How many calls of that operation there were since the last look. */
  times(operation: Operation): number {
    return this.asked.filter((each) => each === operation).length;
  }

  open: AtomicStateStore['open'] = (...args) => this.#call('open', () => this.#inner.open(...args));
  read: AtomicStateStore['read'] = (...args) => this.#call('read', () => this.#inner.read(...args));
  claim: AtomicStateStore['claim'] = (...args) =>
    this.#call('claim', () => this.#inner.claim(...args));
  commit: AtomicStateStore['commit'] = (...args) =>
    this.#call('commit', () => this.#inner.commit(...args));
  renew: AtomicStateStore['renew'] = (...args) =>
    this.#call('renew', () => this.#inner.renew(...args));
  record: AtomicStateStore['record'] = (...args) =>
    this.#call('record', () => this.#inner.record(...args));
  freeze: AtomicStateStore['freeze'] = (...args) =>
    this.#call('freeze', () => this.#inner.freeze(...args));
  release: AtomicStateStore['release'] = (...args) =>
    this.#call('release', () => this.#inner.release(...args));
  append: NonNullable<AtomicStateStore['append']> = (...args) =>
    this.#call('append', async () => this.#inner.append?.(...args));
  end: AtomicStateStore['end'] = (...args) => this.#call('end', () => this.#inner.end(...args));
  delete: AtomicStateStore['delete'] = (...args) =>
    this.#call('delete', () => this.#inner.delete(...args));
  history: AtomicStateStore['history'] = (...args) =>
    this.#call('history', () => this.#inner.history(...args));
  readonly unsettled?: NonNullable<AtomicStateStore['unsettled']>;
  readonly held?: NonNullable<AtomicStateStore['held']>;
  readonly stuck?: NonNullable<AtomicStateStore['stuck']>;
  readonly count?: NonNullable<AtomicStateStore['count']>;
  readonly list?: NonNullable<AtomicStateStore['list']>;
  readonly anonymize?: NonNullable<AtomicStateStore['anonymize']>;
  readonly purge?: NonNullable<AtomicStateStore['purge']>;
  readonly readSwitch?: NonNullable<AtomicStateStore['readSwitch']>;
  readonly swapSwitch?: NonNullable<AtomicStateStore['swapSwitch']>;

  async #call<T>(operation: Operation, run: () => Promise<T>): Promise<T> {
    this.asked.push(operation);
    const fault = this.faults.get(operation);
    if (fault === undefined || fault.times <= 0) return run();
    fault.times -= 1;
    if (fault.when === 'late') {
      await new Promise<void>((resolve) => this.late.push(resolve));
      return run();
    }
    if (fault.when === 'hang') return new Promise(() => {});
    if (fault.when === 'done') await run();
    throw new Error('connect ECONNREFUSED redis://admin:hunter2@10.0.0.7:6379');
  }
}
