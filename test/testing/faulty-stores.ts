import { randomUUID } from 'node:crypto';
import { HOUR } from '../../packages/testing/src/fixtures.ts';
import { memoryStore } from '../../src/stores/memory.ts';
import type {
  AtomicStateStore,
  ClaimRequest,
  ClaimResult,
  ClaimView,
  FoundRun,
  Freeze,
  FreezeRequest,
  FsmSnapshot,
  Json,
  RunKey,
  RunRecord,
  RunsPage,
  SessionRecord,
  SwitchRecord,
  TrailEntry,
  UnsettledStep,
  WorkflowRecord,
} from '../../src/stores/store.ts';
import { anchorOf, draftText, linkOf } from '../../src/stores/trail.ts';

/** The operations in which the faulty store differs from the sound one. */
export type Fault = (sound: WholeStore, clock: ProcessClock) => Partial<AtomicStateStore>;

/** How wrong the clock of the process is, and the time of the sound store. */
export interface ProcessClock {
  readonly offMs: number;
  readonly advance: (ms: number) => void;
}

/** A store with all operations, the optional ones too. */
export type WholeStore = Required<Omit<AtomicStateStore, 'unsettled' | 'evictedKeys'>> &
  Pick<AtomicStateStore, 'unsettled'>;

/** Stores that each break the contract in one way, by their faults. */
export const FAULTS: Readonly<Record<string, Fault>> = {
  'has claims that hold on one side only': () => {
    const side = memoryStore();
    return {
      claim: (request) => side.claim({ ...request, create: {} }),
      commit: (request) => side.commit(request),
    };
  },
  'removes what was opened since it looked': (store) => ({
    delete: async (run) => {
      const removed = await store.delete(run);
      for (let turn = 0; turn < 20; turn++) await null;
      await store.delete(run);
      return removed;
    },
  }),
  'opens over a run of another side, once this side has used one': (store) => {
    let isWarm = false;
    return {
      claim: (request) => {
        isWarm = true;
        return store.claim(request);
      },
      open: async (run, ...rest) => {
        if (isWarm) await store.delete(run);
        return store.open(run, ...rest);
      },
    };
  },
  'has one workflow in a run': (store) => ({
    claim: (request) => store.claim({ ...request, workflow: 'only' }),
    commit: (request) => store.commit({ ...request, workflow: 'only' }),
    history: ({ run }, limit) => store.history({ run, workflow: 'only' }, limit),
  }),
  'joins run and workflow with a colon': (store) => {
    const joined = memoryStore();
    const join = <T extends RunKey>(key: T): T => ({
      ...key,
      run: `${key.run}:${key.workflow}`,
      workflow: '',
    });
    return {
      claim: (request) => joined.claim({ ...join(request), create: {} }),
      commit: (request) => joined.commit(join(request)),
      history: (key, limit) => joined.history(join(key), limit),
      read: (...args) => store.read(...args),
    };
  },
  'starts every workflow in one state': (store) => ({
    claim: (request) => store.claim({ ...request, initial: { state: 'empty', updatedAt: 0 } }),
  }),
  'gives the initial snapshot each time': (store) => ({
    claim: async (request) => {
      const result = await store.claim(request);
      return result.status === 'unknown' ? result : { ...result, snapshot: request.initial };
    },
  }),
  'lets a committed token claim again': (store) => {
    const committed = new Set<string>();
    return {
      claim: (request) =>
        store.claim(committed.has(request.token) ? { ...request, token: randomUUID() } : request),
      commit: async (request) => {
        committed.add(request.token);
        return store.commit(request);
      },
    };
  },
  'counts versions by two': (store) => ({
    commit: async (request) => {
      const result = await store.commit(request);
      return result.status === 'committed' ? { ...result, version: result.version * 2 } : result;
    },
  }),
  'keeps no context but objects': (store) =>
    withContexts(store, (context) =>
      typeof context === 'object' && context !== null ? context : undefined,
    ),
  'turns empty lists into objects, as Lua does': (store) =>
    withContexts(store, (context) =>
      Array.isArray(context) && context.length === 0 ? {} : context,
    ),
  'drops empty objects': (store) =>
    withContexts(store, (context) => (JSON.stringify(context) === '{}' ? undefined : context)),
  'parses text that looks like JSON, as a client does': (store) =>
    withContexts(store, (context) => (context === '{"a":1}' ? { a: 1 } : context)),
  'lets a second claim in': (store) => ({
    claim: async (request) => {
      const result = await store.claim(request);
      return result.status === 'busy'
        ? { ...result, status: 'claimed', idempotencyKey: randomUUID() }
        : result;
    },
  }),
  'yields between the test and the lease': (store) => ({
    claim: async (request) => {
      const record = await store.read(request.run, request.ttlMs);
      await Promise.resolve();
      const wasFree = record && !record.workflows[request.workflow]?.claim;
      const result = await store.claim(request);
      return wasFree && result.status === 'busy'
        ? { status: 'claimed', snapshot: result.snapshot, idempotencyKey: randomUUID() }
        : result;
    },
  }),
  'does not look at the state': (store) => ({
    claim: (request) => store.claim({ ...request, states: undefined }),
  }),
  'looks at the state first': (store) => ({
    claim: async (request) => {
      const record = await store.read(request.run, request.ttlMs);
      const snapshot = record?.workflows[request.workflow]?.snapshot;
      const refused = snapshot && request.states && !request.states.includes(snapshot.state);
      return refused ? { status: 'state', snapshot } : store.claim(request);
    },
  }),
  'makes every run': (store) => ({
    claim: (request) => store.claim({ create: {}, ...defined(request) }),
  }),
  'never makes a run': (store) => ({
    claim: (request) => store.claim({ ...request, create: undefined }),
  }),
  'makes a lease ten times as long': (store) => ({
    claim: (request) => store.claim({ ...request, leaseMs: request.leaseMs * 10 }),
  }),
  'takes seconds for milliseconds': (store) => ({
    claim: (request) => store.claim({ ...request, leaseMs: request.leaseMs / 1_000 }),
  }),
  'holds nothing': (store) => ({
    claim: (request) => store.claim({ ...request, step: { ...request.step, uncertain: 'retry' } }),
  }),
  'holds everything': (store) => ({
    claim: (request) => store.claim({ ...request, step: { ...request.step, uncertain: 'hold' } }),
  }),
  'makes a new idempotency key each time': (store) => ({
    claim: async (request) => {
      const result = await store.claim(request);
      return result.status === 'claimed' ? { ...result, idempotencyKey: randomUUID() } : result;
    },
  }),
  'has one idempotency key for a tool': (store) => ({
    claim: (request) => store.claim({ ...request, step: { ...request.step, digest: '' } }),
  }),
  'remembers a key after the commit': (store) => {
    const keys = new Map<string, string>();
    return {
      claim: async (request) => {
        const result = await store.claim(request);
        if (result.status !== 'claimed') return result;
        const step = JSON.stringify([
          request.run,
          request.workflow,
          request.step.tool,
          request.step.digest,
        ]);
        const idempotencyKey = keys.get(step) ?? result.idempotencyKey;
        keys.set(step, idempotencyKey);
        return { ...result, idempotencyKey };
      },
    };
  },
  'commits for every token': (store) => ({
    commit: async (request) => {
      const holder = (await store.read(request.run, HOUR))?.workflows[request.workflow]?.claim;
      return store.commit({ ...request, token: holder?.token ?? request.token });
    },
  }),
  'loses a commit that comes twice': (store) => onceOnly(store),
  'does not say that a commit is repeated': (store) => ({
    commit: async (request) => {
      const result = await store.commit(request);
      return result.status === 'committed'
        ? { status: 'committed', version: result.version }
        : result;
    },
  }),
  'commits in no name but the token of the claim': (store) => ({
    commit: ({ as: _, ...request }) => store.commit(request),
  }),
  'commits in the name of another after the holder has': (store) => {
    const versions = new Map<string, number>();
    return {
      commit: async (request) => {
        const result = await store.commit(request);
        if (result.status === 'committed') versions.set(request.token, result.version);
        const version = versions.get(request.token);
        return result.status === 'lost' && version !== undefined && request.as !== undefined
          ? { status: 'committed', version }
          : result;
      },
    };
  },
  'does not commit after the lease': (store) => ({
    commit: async (request) => {
      const holder = (await store.read(request.run, HOUR))?.workflows[request.workflow]?.claim;
      return holder?.live === false ? { status: 'lost' } : store.commit(request);
    },
  }),
  'keeps the old context': (store) => ({
    commit: async (request) => {
      const old = (await store.read(request.run, HOUR))?.workflows[request.workflow]?.snapshot
        .context;
      return store.commit({
        ...request,
        snapshot: { ...(old !== undefined && { context: old }), ...request.snapshot },
      });
    },
  }),
  'writes no trail': () => ({ history: async () => [] }),
  'gives the newest entries first': (store) => ({
    history: async (...args) => (await store.history(...args)).reverse(),
  }),
  'gives the oldest entries': (store) => ({
    history: async (key, limit = 50) => (await store.history(key)).slice(0, limit),
  }),
  'forgets who moved the run': (store) => ({
    history: async (...args) =>
      (await store.history(...args)).map(({ actor: _, ...rest }) => rest as TrailEntry),
  }),
  'keeps ten trail entries': (store) => ({
    history: async (key, limit = 50) => store.history(key, Math.min(limit, 10)),
  }),
  'stamps seconds': (store) => ({
    history: async (...args) =>
      (await store.history(...args)).map((entry) => ({ ...entry, at: entry.at / 1_000 })),
  }),
  'renews for every token': (store) => ({
    renew: async (...args) => (await store.renew(...args)) || true,
  }),
  'renews nothing': () => ({ renew: async () => true }),
  'does not renew a lease that ended': (store) => ({
    renew: async (key, ...rest) => {
      const claim = (await store.read(key.run, HOUR))?.workflows[key.workflow]?.claim;
      return claim?.live === true && store.renew(key, ...rest);
    },
  }),
  'forgets the key of a try that was let go unbegun': (store) => ({
    release: (key, token, { entry } = {}) => store.release(key, token, { entry }),
  }),
  'forgets the key of a try that was saved unbegun': (store) => ({
    commit: (request) => store.commit({ ...request, settles: true }),
  }),
  'releases nothing': () => ({ release: async () => {} }),
  'releases for every token': (store) => ({
    release: async (key, _token, options) => {
      const holder = (await store.read(key.run, HOUR))?.workflows[key.workflow]?.claim;
      if (holder) await store.release(key, holder.token, options);
    },
  }),
  'lets a read or a claim make the expiry earlier': (store) => {
    const short = new Set<string>();
    return {
      read: async (run, ttlMs, ...rest) => {
        const isShort = short.has(run);
        if (ttlMs < 100) short.add(run);
        return isShort && ttlMs === HOUR ? undefined : store.read(run, ttlMs, ...rest);
      },
    };
  },
  'forgets a token that was released before its workflow began': (store) => ({
    release: async (key, ...rest) => {
      const { workflows = {} } = (await store.read(key.run, HOUR)) ?? {};
      if (Object.hasOwn(workflows, key.workflow)) await store.release(key, ...rest);
    },
  }),
  'remembers the last 16 tokens that committed': (store) => {
    const tokens: string[] = [];
    return {
      commit: (request) => {
        tokens.push(request.token);
        const isOld = tokens.indexOf(request.token) < tokens.length - 17;
        return store.commit({ ...request, ...(isOld && { token: randomUUID() }) });
      },
    };
  },
  'remembers the last 16 tokens that were released': (store) => {
    const tokens: string[] = [];
    return {
      release: (key, token, ...rest) => {
        tokens.push(token);
        return store.release(key, token, ...rest);
      },
      claim: (request) => {
        const at = tokens.indexOf(request.token);
        const isOld = at >= 0 && at < tokens.length - 16;
        return store.claim({ ...request, ...(isOld && { token: randomUUID() }) });
      },
    };
  },
  'forgets released tokens': (store) => ({
    release: async (key, token, options) => {
      const holder = (await store.read(key.run, HOUR))?.workflows[key.workflow]?.claim;
      if (holder?.token === token) await store.release(key, token, options);
    },
  }),
  'deletes nothing': () => ({ delete: async () => 'deleted' }),
  'starts over instead of ending': (store) => ({
    delete: async (run) => {
      const result = await store.delete(run);
      await store.open(run, {}, HOUR);
      return result;
    },
  }),
  'replaces a run that is opened again': (store) => ({
    open: async (run, ...rest) => {
      await store.delete(run);
      return store.open(run, ...rest);
    },
  }),
  'does not say that a run is taken': (store) => ({
    open: async (...args) => {
      await store.open(...args);
      return { status: 'opened' };
    },
  }),
  'takes a driver that opens a run twice for two': (store) => ({
    open: (run, session, ttlMs) => store.open(run, session, ttlMs),
  }),
  'takes the token of a claim for one that opens': (store) => {
    const tokens = new Map<string, string>();
    return {
      claim: (request) => {
        tokens.set(request.run, request.token);
        return store.claim(request);
      },
      open: async (run, session, ttlMs, token) =>
        token !== undefined && tokens.get(run) === token
          ? { status: 'opened' }
          : store.open(run, session, ttlMs, token),
    };
  },
  'reads a run before it opens it': (store) => ({
    open: async (run, session, ttlMs, token) => {
      const known = await store.read(run, HOUR);
      await Promise.resolve();
      const result = await store.open(run, session, ttlMs, token);
      return known ? result : { status: 'opened' };
    },
  }),
  'forgets the principal': (store) => ({
    open: (run, session, ...rest) => store.open(run, { ...session, principal: undefined }, ...rest),
  }),
  'takes an empty principal for none': (store) => ({
    open: (run, session, ...rest) =>
      store.open(run, { ...session, principal: session.principal || undefined }, ...rest),
  }),
  'forgets that it made the id up': (store) => ({
    open: (run, session, ...rest) => store.open(run, { ...session, minted: undefined }, ...rest),
  }),
  'forgets what the client called itself': (store) => ({
    open: (run, { clientInfo: _, ...session }, ...rest) => store.open(run, session, ...rest),
  }),
  'never expires': (store) => ({
    open: (run, session, _, token) => store.open(run, session, 1_000 * HOUR, token),
    claim: (request) => store.claim({ ...request, ttlMs: 1_000 * HOUR }),
    commit: (request) => store.commit({ ...request, ttlMs: 1_000 * HOUR }),
  }),
  'does not count a read as use': (store) => ({
    read: (run, _, about) => store.read(run, 1, about),
  }),
  'does not keep what a commit says of the end': (store) => ({
    commit: ({ ended: _, ...request }) => store.commit(request),
  }),
  'takes an end for good': (store) => {
    const ended = new Set<string>();
    return {
      commit: (request) => {
        if (request.ended) ended.add(request.run);
        return store.commit({ ...request, ended: ended.has(request.run) });
      },
    };
  },
  'keeps a run alive that is looked at after its end': (store) => ({
    read: (run, ttlMs) => store.read(run, ttlMs),
  }),
  'keeps a run alive that is claimed after its end': (store) => ({
    claim: async (request) => {
      const result = await store.claim(request);
      await store.read(request.run, request.ttlMs);
      return result;
    },
  }),
  'lets a run expire in spite of a commit after its end': (store) => ({
    commit: (request) => store.commit({ ...request, ttlMs: request.ended ? 1 : request.ttlMs }),
  }),
  'lets one workflow end the whole run': (store) => ({
    read: async (run, ttlMs, about) => {
      const workflows = Object.entries((await store.read(run, 1, about))?.workflows ?? {});
      const ended = workflows.find(([, { ended }]) => ended)?.[0];
      return store.read(run, ttlMs, ended ?? about);
    },
  }),
  'begins a workflow anew with the keys of old tries': (store) => ({
    commit: (request) =>
      store.commit({ ...request, settles: request.settles === 'all' ? true : request.settles }),
  }),
  'has case-insensitive run keys': (store) => withRunKeys(store, (run) => run.toLowerCase()),
  'cuts run keys at NUL': (store) => withRunKeys(store, (run) => run.split('\u0000')[0] ?? ''),
  'trims run keys': (store) => withRunKeys(store, (run) => run.trim()),
  'normalises run keys': (store) => withRunKeys(store, (run) => run.normalize()),
  'writes run keys as UTF-8': (store) => withRunKeys(store, (run) => Buffer.from(run).toString()),
  'says the time in seconds': (store) => withTimes(store, (now) => now / 1_000),
  'says what time it was at its start': (store) => {
    let start: number | undefined;
    return withTimes(store, (now) => {
      start ??= now;
      return start;
    });
  },
  'has a clock that goes back': (store) => {
    let ahead = 10_000;
    return withTimes(store, (now) => {
      ahead -= 200;
      return now + ahead;
    });
  },
  'has a clock on each side': (store) => {
    const skew = sides.has(store) ? 20_000 : 0;
    sides.add(store);
    return withTimes(store, (now) => now + skew);
  },
  'keeps the time that a caller gives to a new workflow': (store) =>
    withFirstTimes(store, ({ initial }) => initial.updatedAt),
  'stamps a new workflow at each claim': (store) => withFirstTimes(store, (_request, now) => now),
  'lists runs in any state': (store) => ({
    runs: async function* ({ workflow }) {
      for (const state of ['payment', 'done', 'empty']) yield* store.runs({ workflow, state });
    },
  }),
  'lists the runs of every workflow': (store) => {
    const workflows = new Set<string>();
    return {
      claim: async (request) => {
        workflows.add(request.workflow);
        return store.claim(request);
      },
      runs: async function* (query) {
        for (const workflow of workflows) yield* store.runs({ ...query, workflow });
      },
    };
  },
  'lists runs that have just come into the state': (store) => ({
    runs: ({ workflow, state }) => store.runs({ workflow, state }),
  }),
  'lists the newest runs first': (store) => ({
    runs: async function* (query) {
      const runs: string[] = [];
      for await (const run of store.runs(query)) runs.unshift(run);
      yield* runs;
    },
  }),
  'lists every run that ever moved': (store) => {
    const runs = new Set<string>();
    return {
      commit: async (request) => {
        runs.add(request.run);
        return store.commit(request);
      },
      runs: async function* () {
        yield* runs;
      },
    };
  },
  'lists a hundred runs': (store) => ({
    runs: async function* (query) {
      let left = 100;
      for await (const run of store.runs(query)) if (left-- > 0) yield run;
    },
  }),
  'lists run keys in small letters': (store) => ({
    runs: async function* (query) {
      for await (const run of store.runs(query)) yield run.toLowerCase();
    },
  }),
  'numbers entries by the version': (store) =>
    withEntries(store, (entry) => ({ ...entry, seq: entry.version })),
  'takes each entry for a move': (store) =>
    withEntries(store, (entry) => ({ ...entry, version: entry.seq })),
  'counts no attempts': (store) => withEntries(store, (entry) => ({ ...entry, attempt: 1 })),
  'counts refused calls as attempts': (store) =>
    withEntries(store, (entry) =>
      entry.outcome === 'refused' ? { ...entry, attempt: entry.attempt + 1 } : entry,
    ),
  'drops what a release says': (store) => ({
    release: (key, token, { settles } = {}) => store.release(key, token, { settles }),
  }),
  'writes the entry of a release without the claim': (store) => ({
    release: async (key, token, options = {}) => {
      const { seq } = (await store.history(key)).at(-1) ?? { seq: 0 };
      await store.release(key, token, options);
      const isWritten = (await store.history(key)).at(-1)?.seq !== seq;
      if (options.entry && !isWritten) await store.append(key, options.entry);
    },
  }),
  'takes claims over in silence': (store) => ({
    claim: ({ entry: _, ...request }) => store.claim(request),
  }),
  'writes takeovers of which nothing is known': (store) => ({
    claim: ({ entry = {}, ...request }) => store.claim({ ...request, entry }),
  }),
  'takes every claim after the lease for a takeover': (store) => ({
    claim: async (request) => {
      const claim = (await store.read(request.run, HOUR))?.workflows[request.workflow]?.claim;
      const result = await store.claim(request);
      if (claim?.live === false && claim.entry && result.status !== 'unknown')
        await store.append(request, { from: '', event: null, outcome: 'unknown', ...claim.entry });
      return result;
    },
  }),
  'says of a claim only that it is there': (store) => ({
    read: async (...args) => {
      const record = await store.read(...args);
      const workflows = Object.entries(record?.workflows ?? {}).map(
        ([name, { claim, ...rest }]) => {
          const { since: _, until: __, entry: ___, ...view } = claim ?? {};
          return [name, { ...rest, ...(claim && { claim: view as ClaimView }) }] as const;
        },
      );
      return record && { ...record, workflows: Object.fromEntries(workflows) };
    },
  }),
  'drops refused calls': () => ({ append: async () => {} }),
  'lets the run go where a call is refused': (store) => ({
    append: async (key, entry) => {
      await store.append(key, entry);
      const holder = (await store.read(key.run, HOUR))?.workflows[key.workflow]?.claim;
      if (holder) await store.release(key, holder.token);
    },
  }),
  'makes a run for a refused call': (store) => ({
    append: async (key, entry) => {
      await store.open(key.run, {}, HOUR);
      await store.append(key, entry);
    },
  }),
  'makes a workflow for a refused call': (store) => ({
    append: async (key, entry) => {
      const token = randomUUID();
      const step = { tool: '', digest: '', uncertain: 'hold' } as const;
      const initial = { state: entry.from, updatedAt: 0 };
      const times = { leaseMs: 1_000, ttlMs: HOUR };
      await store.claim({ ...key, token, step, initial, states: undefined, ...times });
      await store.release(key, token, { entry });
    },
  }),
  'turns the ids of requests into text': (store) =>
    withEntries(store, ({ requestId, ...entry }) => ({
      ...entry,
      ...(requestId !== undefined && { requestId: `${requestId}` }),
    })),
  'drops what is empty': (store) =>
    withEntries(store, (entry) => {
      const members = Object.entries(entry).filter(([, value]) => value !== '' && value !== null);
      return { event: null, ...Object.fromEntries(members) } as unknown as TrailEntry;
    }),
  'keeps no hashes': (store) => withEntries(store, ({ hash: _, ...entry }) => entry),
  'chains each entry to nothing': (store) =>
    withEntries(store, (entry) => ({
      ...entry,
      hash: linkOf('', entry, draftText(entry)),
    })),
  'begins its chain anew at times': (store) =>
    withEntries(store, (entry) => {
      const isFirst = entry.seq % 40 === 0;
      return isFirst ? { ...entry, hash: linkOf('', entry, draftText(entry)) } : entry;
    }),
  'has an index without a list': () => ({ list: undefined as never }),
  'has no index on the other side': (store) => {
    const isOther = indexed.has(store);
    indexed.add(store);
    return isOther ? { held: nothing, stuck: nothing } : {};
  },
  'gives the last of the held first': (store) => ({
    held: async (query) => {
      const page = await store.held({ ...query, limit: 1_000 });
      return { ...page, runs: page.runs.toReversed().slice(0, query.limit) };
    },
  }),
  'takes every lease that is over for held': (store) => ({
    held: async ({ workflow, limit }) => {
      const { runs } = await store.stuck({ workflow, forMs: 0, limit: 1_000 });
      return { runs: runs.filter(({ claim }) => claim?.live === false).slice(0, limit) };
    },
  }),
  'gives only the keys of held runs': (store) => ({
    held: async (query) => {
      const { runs, ...page } = await store.held(query);
      return { ...page, runs: runs.map(({ run, snapshot }) => ({ run, snapshot })) };
    },
  }),
  'gives only the keys of stuck runs': (store) => ({
    stuck: async (query) => {
      const { runs, ...page } = await store.stuck(query);
      const bare = ({ run, snapshot: { context: _, ...snapshot } }: FoundRun) => ({
        run,
        snapshot,
      });
      return { ...page, runs: runs.map(bare) };
    },
  }),
  'lists a run for ever that was held or stuck once': (store) => {
    const seen = { held: new Map<string, FoundRun>(), stuck: new Map<string, FoundRun>() };
    const remembered = async (
      listing: keyof typeof seen,
      query: { readonly workflow: string },
      page: Promise<RunsPage>,
    ): Promise<RunsPage> => {
      for (const each of (await page).runs)
        seen[listing].set(JSON.stringify([query.workflow, each.run]), each);
      const ofWorkflow = ([key]: readonly [string, FoundRun]) =>
        JSON.parse(key)[0] === query.workflow;
      return { runs: [...seen[listing]].filter(ofWorkflow).map(([, each]) => each) };
    };
    return {
      held: (query) => remembered('held', query, store.held({ ...query, limit: 1_000 })),
      stuck: (query) => remembered('stuck', query, store.stuck({ ...query, limit: 1_000 })),
    };
  },
  'gives the last of the stuck first': (store) => ({
    stuck: async (query) => {
      const page = await store.stuck({ ...query, limit: 1_000, after: undefined });
      return { runs: page.runs.toReversed().slice(0, query.limit) };
    },
  }),
  'takes an attempt for a move': (store) => {
    const touched = new Map<string, number>();
    return {
      claim: async (request) => {
        const result = await store.claim(request);
        if (result.status === 'claimed') touched.set(request.run, result.now ?? 0);
        return result;
      },
      stuck: async ({ forMs, ...query }) => {
        const page = await store.stuck({ forMs, ...query });
        const isOld = ({ run }: FoundRun) => (touched.get(run) ?? 0) <= (page.now ?? 0) - forMs;
        return { ...page, runs: page.runs.filter(isOld) };
      },
    };
  },
  'finds runs stuck in any state': (store) => ({
    stuck: (query) => store.stuck({ ...query, states: undefined }),
  }),
  'finds no run stuck that never moved': (store) => ({
    stuck: async (query) => {
      const page = await store.stuck(query);
      return { ...page, runs: page.runs.filter(({ snapshot }) => snapshot.version !== 0) };
    },
  }),
  'counts every run as stuck': (store) => ({
    count: (query) => store.count({ ...query, forMs: 0 }),
  }),
  'counts no more than ten runs': (store) => ({
    count: async (query) => {
      const { states, ...rest } = await store.count(query);
      return {
        ...rest,
        states: states.map((each) => ({ ...each, runs: Math.min(10, each.runs) })),
      };
    },
  }),
  'counts every claim as running': (store) => ({
    count: async (query) => {
      const { held, running, ...rest } = await store.count(query);
      return { ...rest, held, running: held + running };
    },
  }),
  'lists the runs of all principals': (store) => {
    const principals = new Set<string>();
    return {
      open: (run, session, ...rest) => {
        principals.add(session.principal ?? '');
        return store.open(run, session, ...rest);
      },
      list: async ({ limit }) => {
        const runs = new Set<string>();
        for (const principal of principals)
          for (const run of (await store.list({ principal, limit: 1_000 })).runs) runs.add(run);
        return { runs: [...runs].slice(0, limit) };
      },
    };
  },
  'gives a first page only': (store) => ({
    held: async (query) => ({ runs: (await store.held(query)).runs }),
    stuck: async (query) => ({ runs: (await store.stuck(query)).runs }),
    list: async (query) => ({ runs: (await store.list(query)).runs }),
  }),
  'keeps alive what it lists': (store) => ({
    stuck: async (query) => {
      const page = await store.stuck(query);
      for (const { run } of page.runs) await store.read(run, HOUR);
      return page;
    },
  }),
  'gives out its own objects': (store) => {
    const contexts = new Map<string, unknown>();
    return {
      commit: async (request) => {
        contexts.set(request.run, request.snapshot.context);
        return store.commit(request);
      },
      read: async (run, ...rest) => {
        const record = await store.read(run, ...rest);
        const checkout = record?.workflows.checkout;
        if (!record || !checkout || !contexts.has(run)) return record;
        const snapshot = { ...checkout.snapshot, context: contexts.get(run) as never };
        return {
          ...record,
          workflows: { ...record.workflows, checkout: { ...checkout, snapshot } },
        };
      },
    };
  },
  'lets a held run expire': (store) => withoutRuns(store, (run) => isHeldPastItsEnd(store, run)),
  'ends a run with its session, in spite of a held step': (store) => {
    const ended = new Set<string>();
    return {
      ...withoutRuns(store, async (run) => ended.has(run)),
      end: async (run, options) => {
        const result = await store.end(run, options);
        if (result === 'ended') ended.add(run);
        return result;
      },
    };
  },
  'lets a run expire in mid-step': (store) => ({
    read: async (...args) => {
      const record = await store.read(...args);
      const isOver = record?.sessionEnded || (await isHeldPastItsEnd(store, args[0]));
      return isOver ? undefined : record;
    },
    claim: async (request) => {
      const granted = await store.claim(request);
      // The sound store prolongs the run with the lease.
      if (granted.status === 'claimed' && request.ttlMs < request.leaseMs)
        await store.end(request.run);
      return granted;
    },
  }),
  'does not say that a session ended': (store) => {
    const silent = <T extends Pick<RunRecord, 'sessionEnded'>>({ sessionEnded: _, ...rest }: T) =>
      rest;
    return {
      read: async (...args) => {
        const record = await store.read(...args);
        return record && silent(record);
      },
      held: async (query) => {
        const page = await store.held(query);
        return { ...page, runs: page.runs.map(silent) };
      },
    };
  },
  'lists no held run whose session ended': (store) => ({
    held: async (query) => {
      const page = await store.held(query);
      return { ...page, runs: page.runs.filter(({ sessionEnded }) => !sessionEnded) };
    },
  }),
  'claims for a client whose session ended': (store) => ({
    claim: async (request) => {
      const { session, sessionEnded } = (await store.read(request.run, HOUR)) ?? {};
      return store.claim(sessionEnded ? { ...request, create: session } : request);
    },
  }),
  'records for a client whose session ended': (store) => ({
    record: async (request) => {
      const { session, sessionEnded } = (await store.read(request.run, HOUR)) ?? {};
      return store.record(sessionEnded ? { ...request, create: session } : request);
    },
  }),
  'never lets a session live again': (store) => ({
    claim: async (request) => {
      const record = await store.read(request.run, HOUR);
      return store.claim(record?.sessionEnded ? { ...request, create: undefined } : request);
    },
  }),
  'asks a holder for its session when it claims again': (store) => ({
    claim: async (request) => {
      const { sessionEnded } = (await store.read(request.run, HOUR)) ?? {};
      return sessionEnded && !request.create ? { status: 'unknown' } : store.claim(request);
    },
  }),
  'drops the evidence once its step is settled': (store) => {
    const settled = new Set<string>();
    const note = async (run: string) => {
      if ((await store.read(run, HOUR))?.sessionEnded) settled.add(run);
    };
    return {
      ...withoutRuns(store, async (run) => settled.has(run)),
      commit: async (request) => {
        const result = await store.commit(request);
        await note(request.run);
        return result;
      },
      release: async (key, ...rest) => {
        await store.release(key, ...rest);
        await note(key.run);
      },
    };
  },
  'keeps settled evidence for ever': (store) => {
    const evidence = new Map<string, RunRecord>();
    return {
      read: async (run, ...rest) => {
        const record = await store.read(run, ...rest);
        if (record?.sessionEnded) evidence.set(run, record);
        return record ?? evidence.get(run);
      },
    };
  },
  'opens a run again whose session ended': (store) => ({
    open: async (run, ...rest) => {
      const { sessionEnded } = (await store.read(run, HOUR)) ?? {};
      return sessionEnded ? { status: 'opened' } : store.open(run, ...rest);
    },
  }),
  'ends an evicted run as any other': (store) => ({
    end: async (run, { ifUnclaimed, evict } = {}) => {
      if (evict === 'unbegun') return store.end(run, { evict });
      return store.end(run, { ifUnclaimed: ifUnclaimed || evict !== undefined });
    },
  }),
  'evicts a run that has begun before those that have not': (store) => ({
    end: (run, options) => store.end(run, { ...options, ...(options?.evict && { evict: 'any' }) }),
  }),
  'begins an evicted run anew': (store) => ({
    claim: async (request) => {
      const { sessionEnded } = (await store.read(request.run, HOUR)) ?? {};
      if (request.create && sessionEnded === 'evicted') await store.delete(request.run);
      return store.claim(request);
    },
  }),
  'ends no session': (store) => ({
    end: async (run) => ((await store.read(run, HOUR)) ? 'ended' : 'unknown'),
  }),
  'ends a session in spite of claims': (store) => ({ end: (run) => store.end(run) }),
  'takes a claim for gone once its lease is over': (store) => ({
    end: async (run, { ifUnclaimed = false } = {}) => {
      const workflows = Object.values((await store.read(run, HOUR))?.workflows ?? {});
      const isLive = workflows.some(({ claim }) => claim?.live);
      return store.end(run, { ifUnclaimed: ifUnclaimed && isLive });
    },
  }),
  'reads whether a session is unclaimed before it ends it': (store) => ({
    end: async (run, { ifUnclaimed = false } = {}) => {
      const workflows = Object.values((await store.read(run, HOUR))?.workflows ?? {});
      const isClaimed = workflows.some(({ claim }) => claim !== undefined);
      await Promise.resolve();
      return ifUnclaimed && isClaimed ? 'claimed' : store.end(run);
    },
  }),
  'drops the step that runs when its session ends': (store) => ({
    end: async (run, options) => {
      const { ifUnclaimed } = options ?? {};
      if (!ifUnclaimed) await releaseAll(store, run);
      return store.end(run, options);
    },
  }),
  'deletes a pinned run': (store) => ({
    delete: async (run) => {
      await releaseAll(store, run);
      return store.delete(run);
    },
  }),
  'says of each delete that it is done': (store) => ({
    delete: async (run) => {
      await store.delete(run);
      return 'deleted';
    },
  }),
  'purges held runs': (store) => {
    const runs = new Set<string>();
    return {
      claim: async (request) => {
        runs.add(request.run);
        return store.claim(request);
      },
      purge: async () => {
        for (const run of runs) {
          if (!(await isHeldPastItsEnd(store, run))) continue;
          await releaseAll(store, run);
          await store.end(run);
          runs.delete(run);
        }
        return 0;
      },
      ...withoutRuns(store, async (run) => {
        const record = await store.read(run, HOUR);
        return record?.sessionEnded === true && !record.workflows.checkout?.claim;
      }),
    };
  },
  'purges runs that live': (store) => {
    const runs = new Set<string>();
    return {
      claim: async (request) => {
        runs.add(request.run);
        return store.claim(request);
      },
      purge: async () => {
        for (const run of runs) await store.delete(run);
        return runs.size;
      },
    };
  },
  'does not say how many runs it purged': () => ({ purge: async () => undefined as never }),
  'grants a seventeenth key': (store) => ({
    claim: async (request) => {
      const result = await store.claim(request);
      return result.status === 'unsettled'
        ? { ...result, status: 'claimed', idempotencyKey: randomUUID() }
        : result;
    },
  }),
  'drops a key for a newer one': (store) => {
    const steps = new Map<string, ClaimRequest>();
    return {
      claim: async (request) => {
        const result = await store.claim(request);
        const oldest = [...steps.values()].find(({ run }) => run === request.run);
        if (request.step.uncertain === 'retry') steps.set(request.step.digest, request);
        if (result.status !== 'unsettled' || !oldest) return result;
        const again = { ...oldest, token: randomUUID() };
        await store.claim(again);
        await store.release(again, again.token);
        return store.claim(request);
      },
    };
  },
  'lets a key go with the time to live of its claim': (store) => ({
    claim: ({ keyMs: _, ...request }) => store.claim(request),
  }),
  'lets no step go on where 16 keys are unsettled': (store) => ({
    claim: async (request) => {
      const probe = { ...request.step, digest: randomUUID(), uncertain: 'retry' } as const;
      const result = await store.claim({
        ...request,
        token: randomUUID(),
        step: probe,
        leaseMs: 0,
      });
      return result.status === 'unsettled' ? result : store.claim(request);
    },
  }),
  'records over a claim': (store) => ({
    record: async (request) => {
      const claim = (await store.read(request.run, HOUR))?.workflows[request.workflow]?.claim;
      if (claim) await store.release(request, claim.token);
      return store.record(request);
    },
  }),
  'records nothing beside a claim': (store) => ({
    record: async (request) => {
      const record = await store.read(request.run, HOUR);
      const { claim, snapshot } = record?.workflows[request.workflow] ?? {};
      return claim && snapshot ? { status: 'moved', snapshot } : store.record(request);
    },
  }),
  'records from any version': (store) => ({
    record: async (request) => {
      const result = await store.record(request);
      if (result.status !== 'moved') return result;
      return store.record({ ...request, from: result.snapshot.version ?? 0 });
    },
  }),
  'reads the version before it records': (store) => ({
    record: async (request) => {
      const workflow = (await store.read(request.run, HOUR))?.workflows[request.workflow];
      await Promise.resolve();
      const isNewest = (workflow?.snapshot.version ?? 0) === request.from;
      const result = await store.record(request);
      return isNewest && result.status === 'moved'
        ? store.record({ ...request, from: result.snapshot.version ?? 0 })
        : result;
    },
  }),
  'does not know a record again': (store) => ({
    record: (request) => store.record({ ...request, token: randomUUID() }),
  }),
  'makes a run for each record': (store) => ({
    record: (request) => store.record({ create: {}, ...request }),
  }),
  'makes no run for a record': (store) => ({
    record: (request) => store.record({ ...request, create: undefined }),
  }),
  'loses what is recorded': (store) => ({
    record: async ({ from }) => ({ status: 'recorded', version: from + 1 }),
    commit: ({ from: _, ...request }) => store.commit(request),
  }),
  'commits from any version': (store) => ({
    commit: ({ from: _, ...request }) => store.commit(request),
  }),
  'lets the claim go where a commit comes from an old version': (store) => ({
    commit: async (request) => {
      const result = await store.commit(request);
      if (result.status === 'moved') await store.release(request, request.token);
      return result;
    },
  }),
  'looks at the version before the token of a commit': (store) => ({
    commit: async (request) => {
      const workflow = (await store.read(request.run, HOUR))?.workflows[request.workflow];
      const { snapshot } = workflow ?? {};
      return snapshot && request.from !== undefined && request.from !== snapshot.version
        ? { status: 'moved', snapshot }
        : store.commit(request);
    },
  }),
  'renews without holding': (store) => ({
    renew: (key, token, leaseMs) => store.renew(key, token, leaseMs),
  }),
  'holds for every token': (store) => ({
    renew: async (key, token, leaseMs, options) => {
      const claim = (await store.read(key.run, HOUR))?.workflows[key.workflow]?.claim;
      const held = options?.hold === undefined ? token : (claim?.token ?? token);
      return (await store.renew(key, held, leaseMs, options)) && held === token;
    },
  }),
  'leaves the principal in an anonymized run': (store) => withLeftovers(store, 'principal'),
  'leaves the trail in an anonymized run': (store) => withLeftovers(store, 'trail'),
  'leaves who called in an anonymized run': (store) => withLeftovers(store, 'caller'),
  'leaves an anonymized run under its key too': (store) => withLeftovers(store, 'key'),
  'anonymizes a run that is not held': (store) => ({
    anonymize: async (run) =>
      (await store.anonymize(run)) ?? ((await store.read(run, HOUR)) && `unnamed ${run}`),
  }),
  'brings back a removed run that it has just used': (store) => {
    const used = new Map<string, SessionRecord>();
    const bringBack = async (run: string) => {
      const session = used.get(run);
      const record = await store.read(run, HOUR);
      if (!session || record?.session.principal === session.principal) return;
      await store.delete(run);
      await store.open(run, session, HOUR);
    };
    const after = <T extends RunKey, Rest extends unknown[], Result>(
      operation: (key: T, ...rest: Rest) => Promise<Result>,
    ) => {
      return async (key: T, ...rest: Rest) => {
        await bringBack(key.run);
        return operation(key, ...rest);
      };
    };
    return {
      open: async (run, session, ...rest) => {
        const result = await store.open(run, session, ...rest);
        if (result.status === 'opened') used.set(run, session);
        return result;
      },
      claim: after((request) => store.claim(request)),
      commit: after((request) => store.commit(request)),
      renew: after((key, ...rest: Rest<'renew'>) => store.renew(key, ...rest)),
      release: after((key, ...rest: Rest<'release'>) => store.release(key, ...rest)),
      record: after((request) => store.record(request)),
      freeze: after((request) => store.freeze(request)),
      append: after((key, ...rest: Rest<'append'>) => store.append(key, ...rest)),
    };
  },
  'goes by the clock of its process': (store, { offMs, advance }) => {
    // The store does all of its work before it first yields.
    const byOwnClock = <T>(ask: () => T): T => {
      advance(offMs);
      const answer = ask();
      advance(-offMs);
      return answer;
    };
    return {
      claim: (request) => byOwnClock(() => store.claim(request)),
      renew: (...args) => byOwnClock(() => store.renew(...args)),
    };
  },
  'lists what it found the time before': (store) => {
    const found = new Map<string, unknown>();
    const late = <Query, Page>(list: (query: Query) => Promise<Page>) => {
      return async (query: Query) => {
        const page = await list(query);
        const before = (found.get(JSON.stringify(query)) ?? page) as Page;
        found.set(JSON.stringify(query), page);
        return before;
      };
    };
    return {
      held: late((query) => store.held(query)),
      stuck: late((query) => store.stuck(query)),
    };
  },
  'chains its trails without their run': (store) => withAnchor(store, () => ''),
  'chains its trails by their workflow alone': (store) =>
    withAnchor(store, ({ workflow }) => workflow),
  'chains its trails by their run alone': (store) => withAnchor(store, ({ run }) => run),
  'hashes no payloads': (store) =>
    withEntries(store, (entry) => {
      const { payload: _, previous = '', ...rest } = entry;
      return { ...entry, hash: linkOf(previous, entry, draftText(rest)) };
    }),
  'freezes nothing': (store) => ({
    freeze: async (request) => {
      const result = await store.freeze({ ...request, freeze: undefined });
      const { freeze } = request;
      if (result.status === 'unknown') return result;
      return { ...result, status: 'changed', ...(freeze && { frozen: freeze }) };
    },
  }),
  'lets a claim into a frozen run': (store) => ({
    claim: async (request) => {
      const { freeze: _, ...result } = { freeze: 0, ...(await store.claim(request)) };
      return result.status === 'frozen'
        ? { ...result, status: 'claimed', idempotencyKey: randomUUID() }
        : (result as ClaimResult);
    },
  }),
  'freezes each workflow of a run': (store) => ({
    claim: async (request) => {
      const workflows = Object.values((await store.read(request.run, HOUR))?.workflows ?? {});
      const { frozen, snapshot } = workflows.find(({ frozen }) => frozen) ?? {};
      if (frozen && snapshot) return { status: 'frozen', freeze: frozen, snapshot };
      return store.claim(request);
    },
  }),
  'moves what it freezes': (store) =>
    withFrozen(store, ({ snapshot, ...rest }) => ({
      ...rest,
      snapshot: { ...snapshot, version: (snapshot.version ?? 0) + 1 },
    })),
  'lets a second freeze replace the first': (store) => ({
    freeze: async (request) => {
      const result = await store.freeze(request);
      if (result.status !== 'unchanged' || !request.freeze) return result;
      await store.freeze({ ...request, token: randomUUID(), freeze: undefined });
      return store.freeze(request);
    },
  }),
  'does not know a freeze again': (store) => ({
    freeze: (request) => store.freeze({ ...request, token: randomUUID() }),
  }),
  'does not know a thaw again once nothing needs the run': (store) => ({
    freeze: async (request) => {
      const record = await store.read(request.run, HOUR);
      const isNeeded = Object.values(record?.workflows ?? {}).some(
        ({ claim, frozen }) => claim ?? frozen,
      );
      const isOver = record?.sessionEnded && !isNeeded && !request.create;
      return isOver ? { status: 'unknown' } : store.freeze(request);
    },
  }),
  'makes a run for each freeze': (store) => ({
    freeze: (request) => store.freeze({ create: {}, ...request }),
  }),
  'makes no run for a freeze': (store) => ({
    freeze: (request) => store.freeze({ ...request, create: undefined }),
  }),
  'lets a claim go where it freezes': (store) => ({
    freeze: async (request) => {
      await releaseAll(store, request.run);
      return store.freeze(request);
    },
  }),
  'looks at a freeze before the token': (store) => ({
    claim: async (request) => {
      const record = await store.read(request.run, HOUR);
      const { frozen, snapshot } = record?.workflows[request.workflow] ?? {};
      if (!frozen || !snapshot || record?.sessionEnded) return store.claim(request);
      return { status: 'frozen', freeze: frozen, snapshot };
    },
  }),
  'looks at a claim before the freeze': (store) => ({
    claim: async (request) => {
      const result = await store.claim(request);
      const record = await store.read(request.run, HOUR);
      const claim = record?.workflows[request.workflow]?.claim;
      if (result.status !== 'frozen' || !claim) return result;
      const { snapshot } = result;
      return claim.live
        ? { status: 'busy', snapshot, remainingMs: 1 }
        : { status: 'held', snapshot, claim };
    },
  }),
  'lets a run go on once a step of it is saved': (store) => {
    const thaw = async (key: RunKey) => {
      await store.freeze({ ...ofOperator(key), freeze: undefined });
    };
    return {
      commit: async (request) => {
        const result = await store.commit(request);
        await thaw(request);
        return result;
      },
      release: async (key, ...rest) => {
        await store.release(key, ...rest);
        await thaw(key);
      },
    };
  },
  'records nothing in a frozen run': (store) => ({
    record: async (request) => {
      const record = await store.read(request.run, HOUR);
      const { frozen, snapshot } = record?.workflows[request.workflow] ?? {};
      return frozen && snapshot ? { status: 'moved', snapshot } : store.record(request);
    },
  }),
  'counts a freeze as an attempt': (store) =>
    withEntries(store, (entry) =>
      entry.event === 'freeze' ? { ...entry, attempt: entry.attempt + 1 } : entry,
    ),
  'writes no freeze into the trail': (store) => ({
    history: async (...args) =>
      (await store.history(...args)).filter(({ event }) => event !== 'freeze'),
  }),
  'writes each freeze that it is asked for': (store) => ({
    freeze: async (request) => {
      const { length } = await store.history(request);
      const result = await store.freeze(request);
      const isWritten = (await store.history(request)).length > length;
      if (!isWritten) await store.append(request, request.entry);
      return result;
    },
  }),
  'cuts what an operator says at NUL': (store) =>
    withFrozen(store, ({ frozen, ...rest }) => ({
      ...rest,
      ...(frozen && { frozen: { ...frozen, note: frozen.note.split('\u0000')[0] ?? '' } }),
    })),
  'gives out the freeze that it was given': (store) => {
    const given = new Map<string, Freeze>();
    return {
      ...withFrozen(store, ({ frozen, ...rest }, run) => {
        const own = given.get(run);
        return { ...rest, ...(frozen && { frozen: own ?? frozen }) };
      }),
      freeze: (request) => {
        if (request.freeze) given.set(request.run, request.freeze);
        return store.freeze(request);
      },
    };
  },
  'lets a frozen run expire': (store) =>
    withoutRuns(store, async (run) => {
      const { sessionEnded, workflows } = (await store.read(run, HOUR)) ?? {};
      return sessionEnded === true && Object.values(workflows ?? {}).some(({ frozen }) => frozen);
    }),
  'ends an unclaimed session in spite of a freeze': (store) => ({
    end: async (run, { ifUnclaimed = false } = {}) => {
      const workflows = Object.values((await store.read(run, HOUR))?.workflows ?? {});
      const isClaimed = workflows.some(({ claim }) => claim !== undefined);
      return store.end(run, { ifUnclaimed: ifUnclaimed && isClaimed });
    },
  }),
  'drops a run that goes on after its session ended': (store) => ({
    freeze: async (request) => {
      const result = await store.freeze(request);
      const record = await store.read(request.run, HOUR);
      if (record?.sessionEnded && !request.freeze) await store.delete(request.run);
      return result;
    },
  }),
  'keeps a run that was frozen once': (store) => {
    const frozen = new Set<string>();
    return {
      freeze: (request) => {
        frozen.add(request.run);
        return store.freeze(request);
      },
      end: async (run, options) => (frozen.has(run) ? 'claimed' : store.end(run, options)),
    };
  },
  'freezes a run that nothing needs': (store) => ({
    freeze: async (request) => {
      const { session, sessionEnded } = (await store.read(request.run, HOUR)) ?? {};
      return store.freeze(sessionEnded ? { ...request, create: session } : request);
    },
  }),
  'deletes no frozen run': (store) => ({
    delete: async (run) => {
      const workflows = Object.values((await store.read(run, HOUR))?.workflows ?? {});
      return workflows.some(({ frozen }) => frozen) ? 'pinned' : store.delete(run);
    },
  }),
  'leaves an anonymized run frozen': (store) => ({
    anonymize: async (run) => {
      const workflows = Object.entries((await store.read(run, HOUR))?.workflows ?? {});
      const name = await store.anonymize(run);
      for (const [workflow, { frozen }] of workflows)
        if (name && frozen) await store.freeze({ ...ofOperator({ run: name, workflow }) });
      return name;
    },
  }),
  'lists runs without their freeze': (store) => {
    const bare = ({ frozen: _, ...found }: FoundRun) => found;
    return {
      held: async (query) => {
        const page = await store.held(query);
        return { ...page, runs: page.runs.map(bare) };
      },
    };
  },
  'reads whether a run is frozen before it freezes it': (store) => ({
    freeze: async (request) => {
      const record = await store.read(request.run, HOUR);
      await Promise.resolve();
      const result = await store.freeze(request);
      const wasFree = record && !record.workflows[request.workflow]?.frozen;
      return wasFree && result.status === 'unchanged' ? { ...result, status: 'changed' } : result;
    },
  }),
  'freezes on one side only': (store) => {
    const frozen = new Set<string>();
    return {
      freeze: (request) => {
        frozen.add(request.run);
        return store.freeze(request);
      },
      claim: async (request) => {
        const result = await store.claim(request);
        if (result.status !== 'frozen' || frozen.has(request.run)) return result;
        const { snapshot } = result;
        return { status: 'claimed', snapshot, idempotencyKey: randomUUID() };
      },
    };
  },
  'reads switches and writes none': () => ({ swapSwitch: undefined as never }),
  'has one switch': (store) => withSwitchNames(store, () => 'the only one'),
  'has case-insensitive names of switches': (store) =>
    withSwitchNames(store, (name) => name.toLowerCase()),
  'writes names of switches as UTF-8': (store) =>
    withSwitchNames(store, (name) => Buffer.from(name).toString()),
  'has switches on one side only': () => {
    const side = memoryStore() as WholeStore;
    return {
      readSwitch: (workflow) => side.readSwitch(workflow),
      swapSwitch: (...args) => side.swapSwitch(...args),
    };
  },
  'replaces a switch whatever its revision': (store) => ({
    swapSwitch: async (workflow, _expected, next) => {
      const { revision } = (await store.readSwitch(workflow)) ?? {};
      return store.swapSwitch(workflow, revision, next);
    },
  }),
  'does not know a write of a switch again': (store) => ({
    swapSwitch: async (workflow, expected, next) => {
      const { revision } = (await store.readSwitch(workflow)) ?? {};
      return revision === expected && store.swapSwitch(workflow, expected, next);
    },
  }),
  'reads a switch before it writes it': (store) => ({
    swapSwitch: async (workflow, expected, next) => {
      const { revision } = (await store.readSwitch(workflow)) ?? {};
      await Promise.resolve();
      return revision === expected || store.swapSwitch(workflow, expected, next);
    },
  }),
  'removes a switch with the run of its name': (store) => {
    const removed = new Set<string>();
    return {
      delete: (run) => {
        removed.add(run);
        return store.delete(run);
      },
      readSwitch: async (name) => (removed.has(name) ? undefined : store.readSwitch(name)),
    };
  },
  'keeps no switch with an empty value': (store) => ({
    readSwitch: async (workflow) => {
      const found = await store.readSwitch(workflow);
      return found?.value ? found : undefined;
    },
  }),
  'gives out the value of a switch that it was given': (store) => {
    const given = new Map<string, SwitchRecord>();
    return {
      swapSwitch: async (workflow, expected, next) => {
        const isTaken = await store.swapSwitch(workflow, expected, next);
        if (isTaken) given.set(workflow, next);
        return isTaken;
      },
      readSwitch: async (workflow) => given.get(workflow) ?? store.readSwitch(workflow),
    };
  },
  'forgets what a step would use': (store) => withUses(store, () => undefined),
  'says null where a step would use nothing': (store) => withUses(store, (use = null) => use),
  'turns empty lists into objects in what a step would use': (store) =>
    withUses(store, (use) => (Array.isArray(use) && use.length === 0 ? {} : use)),
  'forgets what a step would use that is held': (store) => ({
    claim: async (request) => {
      const result = await store.claim(request);
      if (result.status !== 'held') return result;
      const { use: _, ...claim } = result.claim;
      return { ...result, claim };
    },
  }),
  'forgets what a step would use when its lease is renewed': (store) => {
    const renewed = new Set<string>();
    return {
      ...withUses(store, (use, { run }) => (renewed.has(run) ? undefined : use)),
      renew: ({ run, workflow }, ...rest) => {
        renewed.add(run);
        return store.renew({ run, workflow }, ...rest);
      },
    };
  },
  'takes what a step would use out of an anonymized run': (store) =>
    withUses(store, (use, { run }) => (run.startsWith('anonymous ') ? undefined : use)),
  'gives out what a step would use as it was given': (store) => {
    const given = new Map<string, Json | undefined>();
    return withUses(store, (use, { run }, asked) => {
      if (asked) given.set(run, asked.use);
      return use === undefined ? use : given.get(run);
    });
  },
  'gives out what an unsettled step would use as it keeps it': (store) => {
    const kept = new Map<string, Json>();
    return withTold(store, (steps, { run }) => {
      const use = kept.get(run) ?? structuredClone(steps[0]?.use);
      if (use !== undefined) kept.set(run, use);
      return steps.map((step) => (use === undefined ? step : { ...step, use }));
    });
  },
  'tells no claim of unsettled steps': (store) => withTold(store, () => []),
  'tells no claim what unsettled steps would use': (store) =>
    withTold(store, (steps) => steps.map(({ use: _, ...step }) => step)),
  'tells no claim of the step that it takes over': (store) =>
    withTold(store, (steps) => steps.slice(0, -1)),
  'tells the newest unsettled step first': (store) =>
    withTold(store, (steps) => steps.toReversed()),
  'tells a claim of unsettled steps only the first time': (store) => {
    const tokens = new Set<string>();
    return withTold(store, (steps, { token }) => {
      const isFirst = !tokens.has(token);
      tokens.add(token);
      return isFirst ? steps : [];
    });
  },
  'tells a step of no earlier try': (store) =>
    withTold(store, (steps, { step }) => steps.filter(({ digest }) => digest !== step.digest)),
  'tells of the first try of a step': (store) => {
    const first = new Map<string, UnsettledStep>();
    return withTold(store, (steps) =>
      steps.map((step) => {
        const known = first.get(step.idempotencyKey) ?? step;
        first.set(step.idempotencyKey, known);
        return known;
      }),
    );
  },
  'tells of the steps of any workflow': (store) => {
    const asked = new Map<string, ClaimRequest>();
    return {
      claim: async (request) => {
        const other = asked.get(request.run);
        asked.set(request.run, request);
        const result = await store.claim(request);
        if (result.status !== 'claimed' || !other || other.workflow === request.workflow)
          return result;
        const probe = { ...other, token: randomUUID(), leaseMs: 0 };
        const elsewhere = await store.claim(probe);
        await store.release(probe, probe.token, { settles: false });
        const steps = elsewhere.status === 'claimed' ? (elsewhere.unsettled ?? []) : [];
        const unsettled = [...(result.unsettled ?? []), ...steps];
        return unsettled.length === 0 ? result : { ...result, unsettled };
      },
    };
  },
  'tells a claim that it is unsettled itself once its lease has ended': (store) => ({
    claim: async (request) => {
      const record = await store.read(request.run, HOUR);
      const claim = record?.workflows[request.workflow]?.claim;
      const result = await store.claim(request);
      if (result.status !== 'claimed' || claim?.live !== false || claim.token !== request.token)
        return result;
      const { tool, digest, idempotencyKey, since = 0 } = claim;
      return { ...result, unsettled: [{ tool, digest, idempotencyKey, since }] };
    },
  }),
  'tells of a step for ever that was unsettled once': (store) => {
    const seen = new Map<string, UnsettledStep>();
    return withTold(store, (steps, { run, workflow }) => {
      for (const step of steps)
        seen.set(JSON.stringify([run, workflow, step.idempotencyKey]), step);
      const start = JSON.stringify([run, workflow]).slice(0, -1);
      return [...seen].filter(([key]) => key.startsWith(start)).map(([, step]) => step);
    });
  },
  'tells of eight unsettled steps': (store) => withTold(store, (steps) => steps.slice(-8)),
  'tells of unsettled steps on one side only': (store) => {
    const isOther = told.has(store);
    told.add(store);
    return isOther ? withTold(store, () => []) : {};
  },
};

/** Stores of which one view tells of unsettled steps already. */
const told = new WeakSet<AtomicStateStore>();

/** Changes what claims say that their steps would use, where they are read or held. */
function withUses(
  store: WholeStore,
  change: (use: Json | undefined, key: RunKey, asked?: ClaimRequest['step']) => Json | undefined,
): Partial<AtomicStateStore> {
  const changed = ({ use, ...claim }: ClaimView, key: RunKey): ClaimView => {
    const next = change(use, key);
    return next === undefined ? claim : { ...claim, use: next };
  };
  return {
    claim: async (request) => {
      change(undefined, request, request.step);
      const result = await store.claim(request);
      if (result.status !== 'held') return result;
      return { ...result, claim: changed(result.claim, request) };
    },
    read: async (run, ...rest) => {
      const record = await store.read(run, ...rest);
      if (!record) return record;
      const workflows: Record<string, WorkflowRecord> = Object.create(null);
      for (const [workflow, { claim, ...each }] of Object.entries(record.workflows))
        workflows[workflow] = claim ? { ...each, claim: changed(claim, { run, workflow }) } : each;
      return { ...record, workflows };
    },
  };
}

/** Changes of which unsettled steps a claim is told. */
function withTold(
  store: WholeStore,
  change: (steps: readonly UnsettledStep[], request: ClaimRequest) => readonly UnsettledStep[],
): Partial<AtomicStateStore> {
  return {
    claim: async (request) => {
      const result = await store.claim(request);
      if (result.status !== 'claimed') return result;
      const { unsettled: steps = [], ...rest } = result;
      const unsettled = change(steps, request);
      return unsettled.length === 0 ? rest : { ...rest, unsettled };
    },
  };
}

/** What an operator asks for, for faults that freeze by themselves. */
function ofOperator(key: RunKey): FreezeRequest {
  const freeze = { actor: 'mary', note: '' };
  const initial = { state: 'empty', updatedAt: 0 };
  const entry = { from: '', event: 'freeze', ...freeze };
  return { ...key, token: randomUUID(), freeze, initial, entry, ttlMs: HOUR };
}

/** Changes what a read says of the workflows that are frozen. */
function withFrozen(
  store: WholeStore,
  change: (workflow: WorkflowRecord, run: string) => WorkflowRecord,
): Partial<AtomicStateStore> {
  return {
    read: async (run, ...rest) => {
      const record = await store.read(run, ...rest);
      if (!record) return record;
      const workflows: Record<string, WorkflowRecord> = Object.create(null);
      for (const [name, workflow] of Object.entries(record.workflows))
        workflows[name] = workflow.frozen ? change(workflow, run) : workflow;
      return { ...record, workflows };
    },
  };
}

function withSwitchNames(
  store: WholeStore,
  change: (name: string) => string,
): Partial<AtomicStateStore> {
  return {
    readSwitch: (name) => store.readSwitch(change(name)),
    swapSwitch: (name, ...rest) => store.swapSwitch(change(name), ...rest),
  };
}

/** What an operation is given after the run's key. */
type Rest<Name extends 'renew' | 'release' | 'append'> =
  Parameters<WholeStore[Name]> extends [RunKey, ...infer Others] ? Others : never;

/** Each operation on a run that is gone answers as for one that never was. */
function withoutRuns(
  store: WholeStore,
  isGone: (run: string) => Promise<boolean>,
): Partial<AtomicStateStore> {
  const unknown = { status: 'unknown' } as const;
  return {
    open: async (run, ...rest) =>
      (await isGone(run)) ? { status: 'opened' } : store.open(run, ...rest),
    read: async (run, ...rest) => ((await isGone(run)) ? undefined : store.read(run, ...rest)),
    claim: async (request) => ((await isGone(request.run)) ? unknown : store.claim(request)),
    commit: async (request) => ((await isGone(request.run)) ? unknown : store.commit(request)),
    history: async (key, limit) => ((await isGone(key.run)) ? [] : store.history(key, limit)),
  };
}

/** Does not move the expiry, unlike a read. */
async function isHeldPastItsEnd(store: WholeStore, run: string): Promise<boolean> {
  const { runs } = await store.held({ workflow: 'checkout', limit: 1_000 });
  return runs.some((each) => each.run === run && each.sessionEnded === true);
}

async function releaseAll(store: WholeStore, run: string): Promise<void> {
  const workflows = Object.entries((await store.read(run, HOUR))?.workflows ?? {});
  for (const [workflow, { claim }] of workflows)
    if (claim) await store.release({ run, workflow }, claim.token);
}

/** Leaves a part of a run behind when it is anonymized. */
function withLeftovers(
  store: WholeStore,
  part: 'principal' | 'trail' | 'caller' | 'key',
): Partial<AtomicStateStore> {
  const before = new Map<string, { readonly record: RunRecord; readonly trail: TrailEntry[] }>();
  return {
    anonymize: async (run) => {
      const record = await store.read(run, HOUR);
      const trail = await store.history({ run, workflow: 'checkout' });
      const name = await store.anonymize(run);
      if (record && name !== undefined) {
        before.set(name, { record, trail });
        if (part === 'key') await store.open(run, record.session, HOUR);
      }
      return name;
    },
    history: async (key, limit) => {
      const left = part === 'trail' ? before.get(key.run)?.trail : undefined;
      return [...(left ?? []), ...(await store.history(key, limit))];
    },
    read: async (run, ...rest) => {
      const record = await store.read(run, ...rest);
      const left = before.get(run)?.record;
      if (!record || !left) return record;
      if (part === 'principal') return { ...record, session: left.session };
      return part === 'caller' ? { ...record, workflows: left.workflows } : record;
    },
  };
}

/** Chains each trail anew, from what `anchor` says. */
function withAnchor(store: WholeStore, anchor: (key: RunKey) => string): Partial<AtomicStateStore> {
  return {
    history: async (key, limit) => {
      const trail = await store.history(key, limit);
      if (trail[0]?.seq !== 1) return trail;
      let previous = anchorOf({ run: '', workflow: anchor(key) });
      return trail.map((entry) => {
        const linked = { ...entry, previous };
        previous = linkOf(previous, entry, draftText(entry));
        return { ...linked, hash: previous };
      });
    },
  };
}

/** Stores of which there is one view already. */
const sides = new WeakSet<AtomicStateStore>();

const indexed = new WeakSet<AtomicStateStore>();

const nothing = async (): Promise<RunsPage> => ({ runs: [] });

/** Not a fault: a store need not have a clock. */
export const withoutClock = (store: WholeStore): Partial<AtomicStateStore> =>
  withTimes(store, () => undefined);

function withEntries(
  store: AtomicStateStore,
  change: (entry: TrailEntry) => TrailEntry,
): Partial<AtomicStateStore> {
  return { history: async (...args) => (await store.history(...args)).map(change) };
}

function withTimes(
  store: AtomicStateStore,
  change: (now: number) => number | undefined,
): Partial<AtomicStateStore> {
  const changed = <T extends { readonly now?: number }>({ now = Number.NaN, ...rest }: T) => {
    const next = change(now);
    return { ...rest, ...(next !== undefined && { now: next }) };
  };
  return {
    claim: async (request) => {
      const result = await store.claim(request);
      return result.status === 'unknown' ? result : (changed(result) as ClaimResult);
    },
    read: async (...args) => {
      const record = await store.read(...args);
      return record && (changed(record) as RunRecord);
    },
  };
}

/** Gives another time to the snapshot of a workflow that has not moved. */
function withFirstTimes(
  store: AtomicStateStore,
  timeOf: (request: ClaimRequest, now: number | undefined) => number | undefined,
): Partial<AtomicStateStore> {
  return {
    claim: async (request) => {
      const result = await store.claim(request);
      if (result.status === 'unknown' || result.snapshot.version !== 0) return result;
      const updatedAt = timeOf(request, result.now) ?? Number.NaN;
      return { ...result, snapshot: { ...result.snapshot, updatedAt } };
    },
  };
}

function withRunKeys(
  store: WholeStore,
  change: (run: string) => string,
): Partial<AtomicStateStore> {
  const changed = <T extends RunKey>(key: T): T => ({ ...key, run: change(key.run) });
  return {
    open: (run, ...rest) => store.open(change(run), ...rest),
    read: (run, ...rest) => store.read(change(run), ...rest),
    claim: (request) => store.claim(changed(request)),
    commit: (request) => store.commit(changed(request)),
    record: (request) => store.record(changed(request)),
    renew: (key, ...rest) => store.renew(changed(key), ...rest),
    release: (key, ...rest) => store.release(changed(key), ...rest),
    append: (key, entry) => store.append(changed(key), entry),
    end: (run, ...rest) => store.end(change(run), ...rest),
    delete: (run) => store.delete(change(run)),
    history: (key, limit) => store.history(changed(key), limit),
  };
}

function onceOnly(store: AtomicStateStore): Partial<AtomicStateStore> {
  const committed = new Set<string>();
  return {
    commit: async (request) => {
      if (committed.has(request.token)) return { status: 'lost' };
      committed.add(request.token);
      return store.commit(request);
    },
  };
}

/** Without `create: undefined`, so that a default applies. */
function defined({ create, ...rest }: ClaimRequest): ClaimRequest {
  return create === undefined ? rest : { create, ...rest };
}

function withContexts(
  store: AtomicStateStore,
  change: (context: Json | undefined) => Json | undefined,
): Partial<AtomicStateStore> {
  const changed = ({ context, ...rest }: FsmSnapshot): FsmSnapshot => {
    const next = change(context);
    return next === undefined ? rest : { ...rest, context: next };
  };
  return {
    claim: async (request) => {
      const result = await store.claim(request);
      return result.status === 'unknown'
        ? result
        : { ...result, snapshot: changed(result.snapshot) };
    },
    read: async (...args) => {
      const record = await store.read(...args);
      const workflows = Object.entries(record?.workflows ?? {}).map(
        ([name, { snapshot, ...rest }]) =>
          [name, { ...rest, snapshot: changed(snapshot) }] as const,
      );
      return record && { ...record, workflows: Object.fromEntries(workflows) };
    },
  };
}
