// What mcp-interlock/stores/document exports. `npm run api` renews this file.

export interface DocumentStateStore extends AtomicStateStore {
    append(key: RunKey, entry: TrailDraft): Promise<void>;
    anonymize(run: string): Promise<string | undefined>;
    readSwitch(workflow: string): Promise<SwitchRecord | undefined>;
    swapSwitch(workflow: string, expected: string | undefined, next: SwitchRecord): Promise<boolean>;
}

export interface DocumentStoreOptions {
    readonly now?: (() => number) | undefined;
    readonly maxBytes?: number | undefined;
    readonly chainTrail?: boolean | undefined;
    readonly trailLimit?: number | undefined;
}

export interface Documents {
    read(key: string): Promise<FoundDocument | undefined>;
    swap(key: string, expected: string | undefined, next: NextDocument): Promise<Swapped>;
    remove(key: string, expected: string, lists: readonly string[]): Promise<boolean>;
    find?(query: IndexQuery): Promise<readonly IndexPlace[]>;
    count?(query: IndexCountQuery): Promise<readonly IndexCount[]>;
}

export interface FoundDocument {
    readonly document?: string | undefined;
    readonly revision?: string | undefined;
    readonly now?: number | undefined;
}

export interface IndexCount {
    readonly label: string;
    readonly entries: number;
    readonly upTo: number;
}

export interface IndexCountQuery {
    readonly list: string;
    readonly now: number;
    readonly upTo: number;
}

export interface IndexEntry {
    readonly list: string;
    readonly label: string;
    readonly score: number;
}

export interface IndexPlace {
    readonly score: number;
    readonly key: string;
}

export interface IndexQuery {
    readonly list: string;
    readonly label?: string | undefined;
    readonly upTo: number;
    readonly after?: IndexPlace | undefined;
    readonly limit: number;
}

export interface IndexedDocumentStateStore extends DocumentStateStore {
    runs(query: RunsQuery): AsyncIterable<string>;
    held(query: HeldQuery): Promise<RunsPage>;
    unsettled(query: HeldQuery): Promise<RunsPage>;
    stuck(query: StuckQuery): Promise<RunsPage>;
    list(query: ListQuery): Promise<KeysPage>;
    purge(query?: PurgeQuery): Promise<number>;
}

export type IndexedDocuments = Documents & Required<Pick<Documents, 'find'>>;

export interface NextDocument {
    readonly document: string;
    readonly revision: string;
    readonly expiresAt: number | undefined;
    readonly index: readonly IndexEntry[];
    readonly put: readonly IndexEntry[];
    readonly drop: readonly string[];
}

export interface Swapped {
    readonly swapped: boolean;
    readonly revision?: string | undefined;
    readonly now?: number | undefined;
}

export function documentStore(documents: IndexedDocuments, options?: DocumentStoreOptions): IndexedDocumentStateStore;

export function documentStore(documents: Documents, options?: DocumentStoreOptions): DocumentStateStore;
