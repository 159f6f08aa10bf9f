/**
 * Documents that can be found: which runs are held, stuck, or a person's. Hides that a list may lag
 * behind its documents, so that each run is read before it is given.
 */
import {
  hasSessionEnded,
  type RunState,
  unsettledIn,
  type WorkflowState,
  workflowRecord,
} from '../run-state.ts';
import { decodeText, encodeText } from '../sql-text.ts';
import type {
  CountQuery,
  HeldQuery,
  KeysPage,
  ListQuery,
  PageQuery,
  PurgeQuery,
  RunsCount,
  RunsPage,
  RunsQuery,
  StuckQuery,
} from '../store.ts';
import { DocumentStore, type DocumentStoreSettings, knownOf } from './document-store.ts';
import type {
  Documents,
  IndexEntry,
  IndexedDocuments,
  IndexPlace,
  IndexQuery,
} from './documents.ts';
import { indexOfRun, LISTS, type StoredRun } from './run-text.ts';

const SWEPT_AT_ONCE = 100;

/** A list, and which of its entries are meant. */
type Source = Pick<IndexQuery, 'list' | 'label'>;

/** A run that a list named, as it is now. */
interface Listed {
  readonly run: StoredRun;
  readonly now: number;
}

interface ListedPage {
  readonly listed: readonly Listed[];
  readonly next: IndexPlace | undefined;
}

export class IndexedDocumentStore extends DocumentStore {
  readonly #documents: IndexedDocuments;
  /** Absent where the backend does not count: it never goes through all runs instead. */
  readonly count?: (query: CountQuery) => Promise<RunsCount>;

  constructor(documents: IndexedDocuments, settings: DocumentStoreSettings) {
    super(documents, settings);
    this.#documents = documents;
    const { count } = documents;
    if (count !== undefined) this.count = (query) => this.#count(count.bind(documents), query);
  }

  held({ workflow, ...page }: HeldQuery): Promise<RunsPage> {
    const source = { list: LISTS.claimed(workflow), label: 'hold' };
    return this.#page([source], 0, page, workflow, ({ claim }, now) => {
      return claim?.uncertain === 'hold' && claim.leaseEnd <= now;
    });
  }

  unsettled({ workflow, ...page }: HeldQuery): Promise<RunsPage> {
    const source = { list: LISTS.unsettled(workflow) };
    return this.#page(
      [source],
      0,
      page,
      workflow,
      (each, now) => unsettledIn(each, now).length > 0,
    );
  }

  stuck({ workflow, states, forMs, ...page }: StuckQuery): Promise<RunsPage> {
    const list = LISTS.open(workflow);
    const sources = states?.map((state) => ({ list, label: encodeText(state) })) ?? [{ list }];
    return this.#page(sources, forMs, page, workflow, ({ snapshot, ended }, now) => {
      const { state, updatedAt } = snapshot;
      return !ended && updatedAt <= now - forMs && (states?.includes(state) ?? true);
    });
  }

  async *runs({ workflow: name, state, forMs = 0 }: RunsQuery): AsyncGenerator<string> {
    const label = encodeText(state);
    const lists = [LISTS.open(name), LISTS.ended(name)];
    const sources = lists.map((list) => ({ list, label }));
    let next: IndexPlace | undefined;
    do {
      const upTo = (await this.now()) - forMs;
      const page = await this.#find(sources, upTo, next, SWEPT_AT_ONCE, ({ workflows }, now) => {
        const snapshot = workflows.get(name)?.snapshot;
        return snapshot?.state === state && snapshot.updatedAt <= now - forMs;
      });
      for (const { run } of page.listed) yield run.run;
      next = page.next;
    } while (next !== undefined);
  }

  async list({ principal, limit, after }: ListQuery): Promise<KeysPage> {
    const sources = [{ list: LISTS.owned(principal) }];
    const { listed, next } = await this.#find(
      sources,
      0,
      placeOf(after),
      limit,
      ({ session }) => session.principal === principal,
    );
    const runs = listed.map(({ run }) => run.run);
    return { runs, ...(next && { next: JSON.stringify(next) }) };
  }

  async purge({ principal }: PurgeQuery = {}): Promise<number> {
    const list = principal === undefined ? LISTS.removable : LISTS.owned(principal);
    await this.assertLayout();
    let purged = 0;
    let after: IndexPlace | undefined;
    for (;;) {
      const upTo = principal === undefined ? await this.now() : 0;
      const places = await this.#documents.find({ list, upTo, after, limit: SWEPT_AT_ONCE });
      const swept = await Promise.all(places.map(({ key }) => this.sweep(key)));
      purged += swept.filter(Boolean).length;
      after = places.at(-1);
      if (after === undefined) return purged;
    }
  }

  async #page(
    sources: readonly Source[],
    forMs: number,
    { limit, after }: PageQuery,
    name: string,
    isMeant: (workflow: WorkflowState, now: number) => boolean,
  ): Promise<RunsPage> {
    const now = await this.now();
    const { listed, next } = await this.#find(
      sources,
      now - forMs,
      placeOf(after),
      limit,
      ({ workflows }, at) => {
        const workflow = workflows.get(name);
        return workflow !== undefined && isMeant(workflow, at);
      },
    );
    const runs = listed.map(({ run, now: at }) => ({
      run: run.run,
      ...workflowRecord(run.workflows.get(name) as WorkflowState, at),
      ...(hasSessionEnded(run, at) && { sessionEnded: true as const }),
    }));
    return { runs, ...(next && { next: JSON.stringify(next) }), now };
  }

  /** The first runs of some lists behind a place, each read anew. */
  async #find(
    sources: readonly Source[],
    upTo: number,
    place: IndexPlace | undefined,
    limit: number,
    isMeant: (run: RunState, now: number) => boolean,
  ): Promise<ListedPage> {
    await this.assertLayout();
    const listed: Listed[] = [];
    let after = place;
    for (;;) {
      const wanted = limit - listed.length;
      const query = { upTo, after, limit: wanted + 1 };
      const named = sources.map(async (source) => {
        const found = await this.#documents.find({ ...source, ...query });
        return found.map((each) => ({ ...each, list: source.list }));
      });
      const places = (await Promise.all(named)).flat().sort(byPlace);
      const given = places.slice(0, wanted);
      const found = await Promise.all(given.map(({ key }) => this.find(key)));
      for (const [at, each] of found.entries()) {
        const run = knownOf(each);
        // An entry that is over would give the run a second time.
        const isEntry = run && indexOfRun(run).some((entry) => isAt(entry, given[at]));
        if (run && isEntry && isMeant(run, each.now)) listed.push({ run, now: each.now });
      }
      after = given.at(-1) ?? after;
      if (places.length <= wanted) return { listed, next: undefined };
      if (listed.length === limit) return { listed, next: after };
    }
  }

  async #count(
    count: NonNullable<Documents['count']>,
    { workflow, forMs }: CountQuery,
  ): Promise<RunsCount> {
    await this.assertLayout();
    const now = await this.now();
    const [open, claimed, unknown, [oldest]] = await Promise.all([
      count({ list: LISTS.open(workflow), now, upTo: now - forMs }),
      count({ list: LISTS.claimed(workflow), now, upTo: now }),
      count({ list: LISTS.unsettled(workflow), now, upTo: now }),
      this.#documents.find({
        list: LISTS.since(workflow),
        upTo: Number.MAX_SAFE_INTEGER,
        limit: 1,
      }),
    ]);
    const states = open.map(({ label, entries, upTo }) => {
      return { state: decodeText(label), runs: entries, stuck: upTo };
    });
    const over = claimed.find(({ label }) => label === 'hold')?.upTo ?? 0;
    const running = claimed.reduce((sum, { entries, upTo }) => sum + entries - upTo, 0);
    const unsettled = unknown.reduce((sum, { upTo }) => sum + upTo, 0);
    return {
      states,
      held: over,
      unsettled,
      running,
      ...(oldest && { oldestClaim: oldest.score }),
      now,
    };
  }
}

function placeOf(after: string | undefined): IndexPlace | undefined {
  return after === undefined ? undefined : (JSON.parse(after) as IndexPlace);
}

function isAt(entry: IndexEntry, place: Pick<IndexEntry, 'list' | 'score'> | undefined): boolean {
  return entry.list === place?.list && entry.score === place.score;
}

function byPlace(a: IndexPlace, b: IndexPlace): number {
  return a.score - b.score || (a.key < b.key ? -1 : 1);
}
