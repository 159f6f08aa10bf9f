import { setImmediate as nextTurn } from 'node:timers/promises';
import { onTestFinished, vi } from 'vitest';
import { NOTE } from '../../src/stores/document/run-text.ts';
import {
  type DocumentStoreOptions,
  type Documents,
  documentStore,
  type FoundDocument,
  type IndexCount,
  type IndexCountQuery,
  type IndexPlace,
  type IndexQuery,
  type NextDocument,
  type Swapped,
} from '../../src/stores/document.ts';
import { setUp, Transactions } from '../../src/stores/sqlite/database.ts';
import { SqliteDocuments } from '../../src/stores/sqlite/documents.ts';
import type { AtomicStateStore } from '../../src/stores/store.ts';
import { ManualTime } from './manual-clock.ts';
import { makeSqliteFile } from './sqlite-file.ts';

/**
 * What becomes of one write. `answer lost`: it happens and throws. `request lost`: it throws, and
 * nothing happens. `late`: the same, but it happens after the next write of its key. `refused`: it
 * answers `false`, and nothing happens.
 */
export type WriteFault = 'answer lost' | 'request lost' | 'late' | 'refused';
export const WRITE_FAULTS: readonly WriteFault[] = [
  'answer lost',
  'request lost',
  'late',
  'refused',
];

interface Call {
  readonly method: 'read' | 'swap' | 'remove' | 'find' | 'count';
  readonly key: string;
  /** What a write gives to the backend. */
  readonly bytes: number;
}

/** Real documents whose answers, times and delays a test controls. */
export class ControlledDocuments implements Required<Documents> {
  readonly calls: Call[] = [];
  /** How many times a call waited for one that had to be answered before. */
  rounds = 0;
  /** The faults of the next writes, in their order. */
  faults: (WriteFault | undefined)[] = [];
  /** What happens before a call of a method. */
  before: (method: Call['method'], key: string) => Promise<void> | void = () => {};
  /** Whether the backend cannot be asked. */
  isAway = false;
  /** Replaces what a read gives. */
  changed: (found: FoundDocument | undefined) => FoundDocument | undefined = (found) => found;
  /** The clock that the backend tells; absent: it tells none. */
  now: (() => number) | undefined;
  readonly #inner: SqliteDocuments;
  readonly #late: { readonly key: string; readonly arrive: () => Promise<unknown> }[] = [];
  #round: Promise<void> | undefined;

  constructor(inner: SqliteDocuments, now: (() => number) | undefined) {
    this.#inner = inner;
    this.now = now;
  }

  /** What was counted since the last look. */
  take() {
    const [rounds, calls] = [this.rounds, this.calls.splice(0)];
    this.rounds = 0;
    return { rounds, calls, bytes: calls.reduce((sum, { bytes }) => sum + bytes, 0) };
  }

  /** Lets all requests arrive that are still under way. */
  async settle(): Promise<void> {
    for (const { arrive } of this.#late.splice(0)) await arrive();
  }

  async read(key: string): Promise<FoundDocument | undefined> {
    await this.#begin({ method: 'read', key, bytes: 0 });
    return this.#timed(this.changed(await this.#inner.read(key)) ?? {});
  }

  async swap(key: string, expected: string | undefined, next: NextDocument): Promise<Swapped> {
    const { document, ...rest } = next;
    const bytes = Buffer.byteLength(document) + Buffer.byteLength(JSON.stringify(rest));
    await this.#begin({ method: 'swap', key, bytes });
    const swap = () => this.#inner.swap(key, expected, next);
    return this.#timed((await this.#write(key, swap)) ?? { swapped: false });
  }

  async remove(key: string, expected: string): Promise<boolean> {
    await this.#begin({ method: 'remove', key, bytes: 0 });
    return (await this.#write(key, () => this.#inner.remove(key, expected))) ?? false;
  }

  async find(query: IndexQuery): Promise<readonly IndexPlace[]> {
    await this.#begin({ method: 'find', key: query.list, bytes: 0 });
    return this.#inner.find(query);
  }

  async count(query: IndexCountQuery): Promise<readonly IndexCount[]> {
    await this.#begin({ method: 'count', key: query.list, bytes: 0 });
    return this.#inner.count(query);
  }

  async #begin(call: Call): Promise<void> {
    this.calls.push(call);
    if (this.#round === undefined) {
      this.rounds += 1;
      this.#round = nextTurn().then(() => {
        this.#round = undefined;
      });
    }
    await this.#round;
    await this.before(call.method, call.key);
    if (this.isAway) throw new Error('connect ECONNREFUSED');
  }

  async #write<T>(key: string, write: () => Promise<T>): Promise<T | undefined> {
    const fault = this.faults.shift();
    if (fault === 'refused') return undefined;
    if (fault === 'request lost') throw new Error('write EPIPE');
    if (fault === 'late') {
      this.#late.push({ key, arrive: write });
      throw new Error('read ETIMEDOUT');
    }
    const answer = await write();
    for (const late of this.#late.filter((each) => each.key === key)) {
      this.#late.splice(this.#late.indexOf(late), 1);
      await late.arrive();
    }
    if (fault === 'answer lost') throw new Error('read ECONNRESET');
    return answer;
  }

  #timed<T extends object>(answer: T): T {
    return this.now === undefined ? answer : { ...answer, now: this.now() };
  }
}

export type WholeDocumentStore = Required<Omit<AtomicStateStore, 'unsettled'>> &
  Pick<AtomicStateStore, 'unsettled'>;

interface ProcessOptions extends Omit<DocumentStoreOptions, 'now'> {
  /** By how many milliseconds the clock of the process is off. */
  readonly offMs?: number;
}

/** A file with documents, and processes that use it. A test moves all of their clocks. */
export function openDocuments({ tellsTime = false } = {}) {
  const file = makeSqliteFile();
  const time = new ManualTime();
  /** How long the machine slept: a monotonic clock does not count that. */
  let slept = 0;
  /** By how much the clock of the backend alone was set. */
  let jumped = 0;
  const backendNow = () => time.now() + jumped;
  const monotonic = vi.spyOn(performance, 'now').mockImplementation(() => time.now() - slept);
  const close = () => {
    monotonic.mockRestore();
    file.remove();
  };
  const database = file.connect();
  const rows = (table: string) =>
    database.prepare(`SELECT key FROM ${table} ORDER BY key`).all() as { key: string }[];
  return {
    time,
    database,
    close,
    /** Runs a process with caches of its own. */
    start({ offMs = 0, ...options }: ProcessOptions = {}) {
      const connection = file.connect();
      const transactions = new Transactions(connection, 2_000);
      const real = setUp(connection, 2_000, () => {
        return new SqliteDocuments(connection, transactions, backendNow);
      });
      // No test here cuts the power.
      connection.exec('PRAGMA synchronous = OFF');
      const documents = new ControlledDocuments(real, tellsTime ? backendNow : undefined);
      const now = () => time.now() + offMs;
      const store = documentStore(documents, { ...options, now }) as WholeDocumentStore;
      return { documents, store };
    },
    sleep(ms: number) {
      time.advance(ms);
      slept += ms;
    },
    jump(ms: number) {
      jumped += ms;
    },
    /** The keys of all documents but the note of the layout, and of all entries of the index. */
    left: () => {
      const keys = [...rows('workflow_documents'), ...rows('workflow_index')].map(({ key }) => key);
      return keys.filter((key) => key !== NOTE);
    },
  };
}

/** As {@link openDocuments}, until the test is over. */
export function documentsOfTest(options?: Parameters<typeof openDocuments>[0]) {
  const opened = openDocuments(options);
  onTestFinished(opened.close);
  return opened;
}
