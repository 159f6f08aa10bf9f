/**
 * Runs that can be found: which are held, stuck, or a person's. Hides that a list may lag behind
 * its runs, so that each run is read before it is given.
 */
import type { IndexPlace } from './document/documents.ts';
import {
  byPlace,
  entriesOf,
  type RunsFind,
  type RunsIndex,
  warnOfBroken,
} from './document/run-parts.ts';
import { hasSessionEnded, type RunState, type WorkflowState } from './run-life.ts';
import { unsettledIn, workflowRecord } from './run-state.ts';
import { decodeText, encodeText } from './sql-text.ts';
import type {
  AtomicStateStore,
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
} from './store.ts';

/** A list, and which of its entries are meant. */
type Source = Pick<RunsFind, 'kind' | 'of' | 'labels'>;

type NamedRun = RunState & { readonly run: string };

/** A run that a list named, as it is now. */
export interface SeenRun {
  /** Absent: there is none, or it cannot be read. */
  readonly run?: NamedRun | undefined;
  readonly broken?: Error | undefined;
  /** Whether nothing is there, not even a run that has expired. */
  readonly isGone: boolean;
  readonly now: number;
}

interface Listed {
  readonly run: NamedRun;
  readonly now: number;
}

interface ListedPage {
  readonly listed: readonly Listed[];
  readonly next: IndexPlace | undefined;
}

/** What the lists are made of. */
export interface ListSource {
  readonly index: Omit<RunsIndex, 'readAll'>;
  /** How many runs a sweep over all of them reads together. */
  readonly atOnce: number;
  /** In the order of the keys. */
  readonly look: (keys: readonly string[]) => Promise<readonly SeenRun[]>;
  readonly now: () => Promise<number>;
}

type Lists = Required<
  Pick<AtomicStateStore, 'held' | 'unsettled' | 'stuck' | 'runs' | 'list' | 'purge'>
> &
  Pick<AtomicStateStore, 'count'>;

/** The operations of a store on many runs. */
export function listsOf(source: ListSource): Lists {
  const lists = new RunLists(source);
  const { count } = source.index;
  return {
    held: (query) => lists.held(query),
    unsettled: (query) => lists.unsettled(query),
    stuck: (query) => lists.stuck(query),
    runs: (query) => lists.runs(query),
    list: (query) => lists.list(query),
    purge: (query) => lists.purge(query),
    // Absent where the backend does not count: it never goes through all runs instead.
    ...(count && { count: (query) => lists.count(count, query) }),
  };
}

class RunLists {
  readonly #source: ListSource;

  constructor(source: ListSource) {
    this.#source = source;
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
      const upTo = (await this.#source.now()) - forMs;
      const some = { limit: this.#source.atOnce, onError };
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
    return this.#source.index.purge(principal, await this.#source.now(), onError);
  }

  async #page(
    sources: readonly Source[],
    forMs: number,
    { after, ...some }: PageQuery,
    name: string,
    isMeant: (workflow: WorkflowState, now: number) => boolean,
  ): Promise<RunsPage> {
    const now = await this.#source.now();
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
        const found = await this.#source.index.find({ ...source, ...query });
        return found.map((each) => ({ ...each, ...source }));
      });
      const places = (await Promise.all(named)).flat().sort(byPlace);
      const given = places.slice(0, wanted);
      const found = await this.#source.look(given.map(({ key }) => key));
      const gone = given.filter((_, at) => found[at]?.isGone);
      await Promise.all(gone.map(({ key }) => this.#source.index.forget?.(key)));
      for (const [at, { run, broken, now }] of found.entries()) {
        if (broken) onError(broken, given[at]?.key ?? '');
        const place = given[at];
        // An entry that is over would give the run a second time.
        const isEntry =
          run && place && entriesOf(run, place).some(({ score }) => score === place.score);
        if (run && isEntry && isMeant(run, now)) listed.push({ run, now });
      }
      after = given.at(-1) ?? after;
      if (places.length <= wanted) return { listed, next: undefined };
      if (listed.length === limit) return { listed, next: after && placeOnly(after) };
    }
  }

  async count(
    count: NonNullable<RunsIndex['count']>,
    { workflow: of, forMs }: CountQuery,
  ): Promise<RunsCount> {
    const now = await this.#source.now();
    const latest = Number.MAX_SAFE_INTEGER;
    const [open, claimed, unknown, [oldest]] = await Promise.all([
      count({ kind: 'open', of, now, upTo: now - forMs }),
      count({ kind: 'claimed', of, now, upTo: now }),
      count({ kind: 'unsettled', of, now, upTo: now }),
      this.#source.index.find({ kind: 'since', of, upTo: latest, limit: 1 }),
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

function placeOf(after: string | undefined): IndexPlace | undefined {
  return after === undefined ? undefined : (JSON.parse(after) as IndexPlace);
}

function placeOnly({ score, key }: IndexPlace): IndexPlace {
  return { score, key };
}
