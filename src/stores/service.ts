/**
 * What keeps the services apart that share a store. Hides under which names a store has the runs
 * and switches of a service, and on which stores a gate needs an id.
 */
import { configError, type InterlockError } from '../basics/errors.ts';
import { ANONYMOUS_RUN } from '../basics/names.ts';
import { isAdaptedStore } from './adapt.ts';
import { isMemoryStore } from './memory.ts';
import type {
  AtomicStateStore,
  CommitRequest,
  RunKey,
  RunRecord,
  RunsPage,
  TransactionalStateStore,
  WorkflowRecord,
} from './store.ts';

/** `memory`: this process has the runs alone. `plain`: they are in a `load` and `save` store. */
export type Keeping = 'memory' | 'plain' | 'shared';

export function keepingOf(store: AtomicStateStore): Keeping {
  if (isMemoryStore(store)) return 'memory';
  return isAdaptedStore(store) ? 'plain' : 'shared';
}

/**
 * Why a gate cannot keep its runs in a store; `undefined` where it can. Two services whose gates
 * have no id would keep the runs of a user under one key.
 */
export function faultOfKeeping(
  { isNamed, id }: { readonly isNamed: boolean; readonly id: string },
  keeping: Keeping,
  onWarning: (warning: string) => void,
): InterlockError | undefined {
  if (isNamed || keeping === 'memory') return undefined;
  const words =
    `a gate has no id, so the store keeps its runs and switches as those of ${JSON.stringify(id)}, ` +
    'and so does any other service on that store. Give the gate an id of its own, such as ' +
    "new StateMachineGate({ id: 'checkout', … }) or fromOrder(rules, { id: 'checkout' })";
  if (keeping === 'shared') return configError(words);
  onWarning(words);
  return undefined;
}

/** The store as one service sees it: its own runs and switches, and no others. */
export function inService(store: AtomicStateStore, service: string | undefined): AtomicStateStore {
  if (service === undefined) return store;
  const names = new ServiceNames(service);
  const { append, runs, held, unsettled, stuck, count, list, anonymize, purge } = store;
  const { readSwitch, swapSwitch, evictedKeys } = store;
  const commitIn = 'commitIn' in store ? (store as TransactionalStateStore<unknown>).commitIn : 0;
  return {
    contract: store.contract,
    open: (run, ...rest) => store.open(names.run(run), ...rest),
    read: async (run, ttlMs, about) =>
      names.record(
        await store.read(
          names.run(run),
          ttlMs,
          about === undefined ? about : names.workflow(about),
        ),
      ),
    claim: (request) => store.claim(names.key(request)),
    commit: (request) => store.commit(names.key(request)),
    renew: (key, ...rest) => store.renew(names.key(key), ...rest),
    record: (request) => store.record(names.key(request)),
    freeze: (request) => store.freeze(names.key(request)),
    release: (key, ...rest) => store.release(names.key(key), ...rest),
    end: (run, ...rest) => store.end(names.run(run), ...rest),
    delete: (run) => store.delete(names.run(run)),
    history: (key, ...rest) => store.history(names.key(key), ...rest),
    ...(commitIn && {
      commitIn: (client: unknown, request: CommitRequest) =>
        commitIn.call(store, client, names.key(request)),
    }),
    ...(append && { append: (key, entry) => append.call(store, names.key(key), entry) }),
    ...(runs && {
      async *runs(query) {
        for await (const run of runs.call(store, names.query(query))) yield names.bare(run);
      },
    }),
    ...(held && { held: async (query) => names.page(await held.call(store, names.query(query))) }),
    ...(unsettled && {
      unsettled: async (query) => names.page(await unsettled.call(store, names.query(query))),
    }),
    ...(stuck && {
      stuck: async (query) => names.page(await stuck.call(store, names.query(query))),
    }),
    ...(count && { count: (query) => count.call(store, names.query(query)) }),
    ...(list && {
      list: async (query) => {
        let { after } = query;
        for (;;) {
          const { runs: found, next } = await list.call(store, { ...query, after });
          const own = found.filter((run) => names.has(run)).map((run) => names.bare(run));
          if (own.length > 0 || next === undefined) return { runs: own, ...(next && { next }) };
          after = next;
        }
      },
    }),
    ...(anonymize && { anonymize: (run) => anonymize.call(store, names.run(run)) }),
    ...(purge && { purge: (query) => purge.call(store, query) }),
    ...(evictedKeys && { evictedKeys: () => evictedKeys.call(store) }),
    ...(readSwitch && { readSwitch: (name) => readSwitch.call(store, names.workflow(name)) }),
    ...(swapSwitch && {
      swapSwitch: (name, ...rest) => swapSwitch.call(store, names.workflow(name), ...rest),
    }),
  };
}

/** The names of one service's runs and workflows in a store. */
class ServiceNames {
  readonly #run: string;
  readonly #workflow: string;

  constructor(service: string) {
    // No session id has a space, and no workflow's id a slash.
    this.#run = `service:${service} `;
    this.#workflow = `${service}/`;
  }

  /** A run whose owner was erased has a random key, which is no service's. */
  run(run: string): string {
    return run.startsWith(ANONYMOUS_RUN) ? run : this.#run + run;
  }

  workflow(id: string): string {
    return this.#workflow + id;
  }

  has(run: string): boolean {
    return run.startsWith(this.#run);
  }

  bare(run: string): string {
    return this.has(run) ? run.slice(this.#run.length) : run;
  }

  key<Key extends RunKey>(key: Key): Key {
    return { ...key, run: this.run(key.run), workflow: this.workflow(key.workflow) };
  }

  query<Query extends { readonly workflow: string }>(query: Query): Query {
    return { ...query, workflow: this.workflow(query.workflow) };
  }

  page({ runs, ...page }: RunsPage): RunsPage {
    return { ...page, runs: runs.map((each) => ({ ...each, run: this.bare(each.run) })) };
  }

  record(record: RunRecord | undefined): RunRecord | undefined {
    if (record === undefined) return undefined;
    // Without a prototype, so that a workflow may be called `__proto__`.
    const workflows: Record<string, WorkflowRecord> = Object.create(null);
    for (const [name, each] of Object.entries(record.workflows))
      workflows[name.slice(this.#workflow.length)] = each;
    return { ...record, workflows };
  }
}
