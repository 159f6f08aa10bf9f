/**
 * Runs that can be found: which are held, stuck, or a person's. Hides that a list may lag behind
 * its runs, so that each run is read before it is given.
 */
import { hasSessionEnded, type RunState, type WorkflowState } from '../run-life.ts';
import { unsettledIn, workflowRecord } from '../run-state.ts';
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
import { DocumentStore, knownOf } from './document-store.ts';
import {
  type IndexPlace,
  indexOfRun,
  type RunDocuments,
  type RunsFind,
  type RunsIndex,
  warnOfBroken,
} from './run-parts.ts';
import type { StoredRun } from './run-text.ts';

const SWEPT_AT_ONCE = 100;

/** A list, and which of its entries are meant. */
type Source = Pick<RunsFind, 'kind' | 'of' | 'labels'>;

/** A run that a list named, as it is now. */
interface Listed {
  readonly run: StoredRun;
  readonly now: number;
}

interface ListedPage {
  readonly listed: readonly Listed[];
  readonly next: IndexPlace | undefined;
}

class IndexedDocumentStore extends DocumentStore {
  readonly #index: RunsIndex;
  /** Absent where the backend does not count: it never goes through all runs instead. */
  readonly count?: (query: CountQuery) => Promise<RunsCount>;

  constructor(
    documents: RunDocuments & { readonly index: RunsIndex },
    now: () => number,
    chainTrail: boolean,
  ) {
    super(documents, now, chainTrail);
    this.#index = documents.index;
    const { count } = documents.index;
    if (count !== undefined) this.count = (query) => this.#count(count, query);
  }

  held({ workflow, ...page }: HeldQuery): Promise<RunsPage> {
    const source: Source = { kind: 'claimed', of: workflow, labels: ['hold'] };
    return this.#page([source], 0, page, workflow, ({ claim }, now) => {
      return claim?.uncertain === 'hold' && claim.leaseEnd <= now;
    });
  }

  unsettled({ workflow, ...page }: HeldQuery): Promise<RunsPage> {
    const source: Source = { kind: 'unsettled', of: workflow };
    return this.#page(
      [source],
      0,
      page,
      workflow,
      (each, now) => unsettledIn(each, now).length > 0,
    );
  }

  stuck({ workflow, states, forMs, ...page }: StuckQuery): Promise<RunsPage> {
    const open: Source = { kind: 'open', of: workflow, labels: states?.map(encodeText) };
    return this.#page([open], forMs, page, workflow, ({ snapshot, ended }, now) => {
      const { state, updatedAt } = snapshot;
      return !ended && updatedAt <= now - forMs && (states?.includes(state) ?? true);
    });
  }

  async *runs({ workflow: of, state, forMs = 0, onError }: RunsQuery): AsyncGenerator<string> {
    const labels = [encodeText(state)];
    const sources: Source[] = [
      { kind: 'open', of, labels },
      { kind: 'ended', of, labels },
    ];
    let next: IndexPlace | undefined;
    do {
      const upTo = (await this.now()) - forMs;
      const some = { limit: SWEPT_AT_ONCE, onError };
      const page = await this.#find(sources, upTo, next, some, ({ workflows }, now) => {
        const snapshot = workflows.get(of)?.snapshot;
        return snapshot?.state === state && snapshot.updatedAt <= now - forMs;
      });
      for (const { run } of page.listed) yield run.run;
      next = page.next;
    } while (next !== undefined);
  }

  async list({ principal, after, ...some }: ListQuery): Promise<KeysPage> {
    const sources: Source[] = [{ kind: 'owned', of: principal }];
    const isMeant = ({ session }: RunState) => session.principal === principal;
    const { listed, next } = await this.#find(sources, 0, placeOf(after), some, isMeant);
    const runs = listed.map(({ run }) => run.run);
    return { runs, ...(next && { next: JSON.stringify(next) }) };
  }

  async purge({ principal, onError = warnOfBroken }: PurgeQuery = {}): Promise<number> {
    return this.#index.purge(principal, await this.now(), onError);
  }

  async #page(
    sources: readonly Source[],
    forMs: number,
    { after, ...some }: PageQuery,
    name: string,
    isMeant: (workflow: WorkflowState, now: number) => boolean,
  ): Promise<RunsPage> {
    const now = await this.now();
    const { listed, next } = await this.#find(
      sources,
      now - forMs,
      placeOf(after),
      some,
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
    { limit, onError = warnOfBroken }: Pick<PageQuery, 'limit' | 'onError'>,
    isMeant: (run: RunState, now: number) => boolean,
  ): Promise<ListedPage> {
    const listed: Listed[] = [];
    let after = place;
    for (;;) {
      const wanted = limit - listed.length;
      const query = { upTo, after, limit: wanted + 1 };
      const named = sources.map(async (source) => {
        const found = await this.#index.find({ ...source, ...query });
        return found.map((each) => ({ ...each, ...source }));
      });
      const places = (await Promise.all(named)).flat().sort(byPlace);
      const given = places.slice(0, wanted);
      const found = await this.findAll(given.map(({ key }) => key));
      const gone = given.filter((_, at) => !found[at]?.kept && !found[at]?.broken);
      await Promise.all(gone.map(({ key }) => this.#index.forget?.(key)));
      for (const [at, each] of found.entries()) {
        if (each.broken) onError(each.broken, given[at]?.key ?? '');
        const run = knownOf(each);
        // An entry that is over would give the run a second time.
        const isEntry = run && indexOfRun(run).some((entry) => isAt(entry, given[at]));
        if (run && isEntry && isMeant(run, each.now)) listed.push({ run, now: each.now });
      }
      after = given.at(-1) ?? after;
      if (places.length <= wanted) return { listed, next: undefined };
      if (listed.length === limit) return { listed, next: after && placeOnly(after) };
    }
  }

  async #count(
    count: NonNullable<RunsIndex['count']>,
    { workflow: of, forMs }: CountQuery,
  ): Promise<RunsCount> {
    const now = await this.now();
    const latest = Number.MAX_SAFE_INTEGER;
    const [open, claimed, unknown, [oldest]] = await Promise.all([
      count({ kind: 'open', of, now, upTo: now - forMs }),
      count({ kind: 'claimed', of, now, upTo: now }),
      count({ kind: 'unsettled', of, now, upTo: now }),
      this.#index.find({ kind: 'since', of, upTo: latest, limit: 1 }),
    ]);
    const states = open.map(({ label, entries, upTo }) => {
      return { state: decodeText(label), runs: entries, stuck: upTo };
    });
    const over = claimed.find(({ label }) => label === 'hold')?.upTo ?? 0;
    const running = claimed.reduce((sum, { entries, upTo }) => sum + entries - upTo, 0);
    // The list of claims may still name a run that has expired; the counts do not.
    const hasClaims = claimed.some(({ entries }) => entries > 0);
    const unsettled = unknown.reduce((sum, { upTo }) => sum + upTo, 0);
    return {
      states,
      held: over,
      unsettled,
      running,
      ...(oldest && hasClaims && { oldestClaim: oldest.score }),
      now,
    };
  }
}

/** The store on a backend that keeps runs in parts, or as whole documents. */
export function storeOf(
  documents: RunDocuments,
  now: () => number,
  chainTrail: boolean,
): DocumentStore {
  const { index } = documents;
  return index === undefined
    ? new DocumentStore(documents, now, chainTrail)
    : new IndexedDocumentStore(Object.assign(documents, { index }), now, chainTrail);
}

function placeOf(after: string | undefined): IndexPlace | undefined {
  return after === undefined ? undefined : (JSON.parse(after) as IndexPlace);
}

function placeOnly({ score, key }: IndexPlace): IndexPlace {
  return { score, key };
}

function isAt(
  entry: Pick<RunsFind, 'kind' | 'of'> & Pick<IndexPlace, 'score'>,
  place: (Source & IndexPlace) | undefined,
): boolean {
  return entry.kind === place?.kind && entry.of === place.of && entry.score === place.score;
}

function byPlace(a: IndexPlace, b: IndexPlace): number {
  return a.score - b.score || (a.key < b.key ? -1 : 1);
}
