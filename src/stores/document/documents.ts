/** What a backend must do for {@link documentStore}. Only types. */

/** A document as it is kept. A key without one has neither `document` nor `revision`. */
export interface FoundDocument {
  readonly document?: string | undefined;
  /** The one of its last {@link Documents.swap}: `next.revision`, or the answer's own. */
  readonly revision?: string | undefined;
  /**
   * What time it is for the backend, in whole milliseconds since the epoch. Give it also where
   * there is no document. Without it the store goes by the clocks of the processes.
   */
  readonly now?: number | undefined;
}

/** The document that {@link Documents.swap} writes. */
export interface NextDocument {
  /** JSON in UTF-8, without NUL. */
  readonly document: string;
  /** Unguessable, made for this one write; 12 characters of base64url. */
  readonly revision: string;
  /**
   * From then on the backend may remove the document, at any time and without being asked.
   * Milliseconds since the epoch, by the backend's clock. `undefined`: never.
   */
  readonly expiresAt: number | undefined;
  /** All entries of the document in the index. They replace those of the revision before. */
  readonly index: readonly IndexEntry[];
  /** Which of them are new, or other than those of the revision `expected`. */
  readonly put: readonly IndexEntry[];
  /** The lists in which the revision `expected` has an entry, and this one has none. */
  readonly drop: readonly string[];
}

/** Under what a document can be found. A document has at most one entry for a list. */
export interface IndexEntry {
  /** At most 60 characters of `[a-z0-9-]`. */
  readonly list: string;
  /** Any text without NUL, which has no order; often a state's name. */
  readonly label: string;
  /** A whole number of milliseconds; the list is in the order of it. */
  readonly score: number;
}

/** What became of {@link Documents.swap}. */
export interface Swapped {
  /** `false`: the document has another revision, or there is one where none was expected. */
  readonly swapped: boolean;
  /**
   * The backend's own name for what it wrote, such as an ETag, if it goes by that. It must never
   * repeat for this key, not even after a removal. Absent: `next.revision`.
   */
  readonly revision?: string | undefined;
  /** As {@link FoundDocument.now}. With it the store notices a clock that jumped. */
  readonly now?: number | undefined;
}

/** Which documents {@link Documents.find} gives. */
export interface IndexQuery {
  readonly list: string;
  /** Only entries with exactly this label. Absent: with any. */
  readonly label?: string | undefined;
  /** Only entries with at most this score. */
  readonly upTo: number;
  /** Only entries behind this one, in the order of scores and, of one score, of keys. */
  readonly after?: IndexPlace | undefined;
  /** How many at most, from 1 to 1,001. */
  readonly limit: number;
}

/** A place in a list. */
export interface IndexPlace {
  readonly score: number;
  readonly key: string;
}

/** What {@link Documents.count} counts. */
export interface IndexCountQuery {
  readonly list: string;
  /** Documents with an `expiresAt` at or before this time do not count. */
  readonly now: number;
  /** See {@link IndexCount.upTo}. */
  readonly upTo: number;
}

/** How many entries of a list have one label. */
export interface IndexCount {
  readonly label: string;
  readonly entries: number;
  /** How many of them have at most the score `upTo` of the query. */
  readonly upTo: number;
}

/**
 * A backend that keeps documents under keys and can compare and swap one of them. `find` and
 * `count` are optional. A promise that rejects means that the backend could not be asked, or that
 * its answer was lost. Keys are at most 100 characters of `[a-z0-9-]`, and no two differ by case.
 */
export interface Documents {
  /**
   * The document under a key, as the last `swap` anywhere left it: a strongly consistent read,
   * never one of a replica that may lag.
   */
  read(key: string): Promise<FoundDocument | undefined>;

  /**
   * Writes the document if it still has the revision `expected`, or if there is none and `expected`
   * is `undefined`. One atomic operation: of many who expect the same, exactly one gets `true`. It
   * resolves once the write is as durable as the backend makes it.
   *
   * The index may lag. An entry too many does no harm, since each run is read before it is given; a
   * missing one hides a run. Without a transaction for both: add the new entries first, then write
   * the document, then remove the entries that are over.
   */
  swap(key: string, expected: string | undefined, next: NextDocument): Promise<Swapped>;

  /**
   * Removes the document if it has this revision, in one atomic operation, and with it its index.
   *
   * @param lists the lists in which it has an entry
   */
  remove(key: string, expected: string, lists: readonly string[]): Promise<boolean>;

  /**
   * The first documents of a list: those with the lowest scores, and of one score those whose keys
   * come first, byte by byte. May lag, and may name documents that are gone.
   */
  find?(query: IndexQuery): Promise<readonly IndexPlace[]>;

  /** Counts the entries of a list by their labels, without going through them one by one. */
  count?(query: IndexCountQuery): Promise<readonly IndexCount[]>;
}

/** Documents that can be found. */
export type IndexedDocuments = Documents & Required<Pick<Documents, 'find'>>;
