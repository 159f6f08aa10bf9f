import * as z from 'zod/mini';
import { configError, type InterlockError, quoteNames } from '../basics/errors.ts';
import {
  clockOption,
  flagOption,
  integerOption,
  lazyOptions,
  parseOptions,
} from '../basics/options.ts';
import { DocumentStore } from './document/document-store.ts';
import type { Documents, IndexedDocuments } from './document/documents.ts';
import { WholeRuns } from './document/whole-runs.ts';
import type {
  AtomicStateStore,
  HeldQuery,
  KeysPage,
  ListQuery,
  PurgeQuery,
  RunKey,
  RunsPage,
  RunsQuery,
  StuckQuery,
  SwitchRecord,
  TrailDraft,
} from './store.ts';

export type {
  Documents,
  FoundDocument,
  IndexCount,
  IndexCountQuery,
  IndexEntry,
  IndexedDocuments,
  IndexPlace,
  IndexQuery,
  NextDocument,
  Swapped,
} from './document/documents.ts';

export interface DocumentStoreOptions {
  /**
   * The clock of this process, in milliseconds since the epoch. The store goes by it where the
   * backend gives no time. Default `Date.now`.
   */
  readonly now?: (() => number) | undefined;
  /**
   * How many bytes a document of the backend may have. A claim leaves a quarter of them to its
   * commit. A larger document is refused with `ERR_INTERLOCK_STORE`. Default: 16,000,000.
   */
  readonly maxBytes?: number | undefined;
  /** Chains the trail of each run by hashes, which `verifyTrail()` checks. Default `false`. */
  readonly chainTrail?: boolean | undefined;
  /**
   * How many entries each trail keeps at least, from 50 on. `Infinity`: all, for as long as the run
   * lives. Eight of the older ones make a document. Default 128.
   */
  readonly trailLimit?: number | undefined;
}

/** A store on documents. */
export interface DocumentStateStore extends AtomicStateStore {
  append(key: RunKey, entry: TrailDraft): Promise<void>;
  anonymize(run: string): Promise<string | undefined>;
  readSwitch(workflow: string): Promise<SwitchRecord | undefined>;
  swapSwitch(workflow: string, expected: string | undefined, next: SwitchRecord): Promise<boolean>;
}

/** A store on documents that can be found. It has `count` where they have it. */
export interface IndexedDocumentStateStore extends DocumentStateStore {
  runs(query: RunsQuery): AsyncIterable<string>;
  held(query: HeldQuery): Promise<RunsPage>;
  unsettled(query: HeldQuery): Promise<RunsPage>;
  stuck(query: StuckQuery): Promise<RunsPage>;
  list(query: ListQuery): Promise<KeysPage>;
  purge(query?: PurgeQuery): Promise<number>;
}

const METHODS = ['read', 'swap', 'remove'] as const satisfies readonly (keyof Documents)[];

const optionsSchema = lazyOptions(() => ({
  now: clockOption(),
  maxBytes: z._default(integerOption(10_000), 16_000_000),
  chainTrail: flagOption(),
  trailLimit: z._default(
    z.custom<number>(
      (limit) => limit === Number.POSITIVE_INFINITY || (Number.isInteger(limit) && limit >= 50),
      'expected a whole number from 50 on, or Infinity',
    ),
    128,
  ),
}));

/**
 * A store of any backend that can compare and swap one document: all rules of claims, commits and
 * lives are here. With `find` it has an index of what is under way, and with `count` its numbers.
 *
 * A step takes two round trips of the backend, and three where this process does not know the run.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` where a method is missing or an option is wrong
 */
export function documentStore(
  documents: IndexedDocuments,
  options?: DocumentStoreOptions,
): IndexedDocumentStateStore;
export function documentStore(
  documents: Documents,
  options?: DocumentStoreOptions,
): DocumentStateStore;
export function documentStore(
  documents: Documents,
  options: DocumentStoreOptions = {},
): DocumentStateStore {
  const settings = parseOptions('documentStore() options', optionsSchema, options);
  const missing = METHODS.filter((name) => typeof documents?.[name] !== 'function');
  if (missing.length > 0) throw notDocuments(missing);
  return new DocumentStore(new WholeRuns(documents, settings), settings.now, settings.chainTrail);
}

function notDocuments(missing: readonly string[]): InterlockError {
  return configError(`documentStore(): the documents lack ${quoteNames(missing)}`);
}
