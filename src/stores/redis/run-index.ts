/**
 * The listings over all runs of a store. Hides that the index is in buckets: how much each of them
 * is asked for, and how their answers become one page.
 */
import { InterlockError } from '../../errors.ts';
import type {
  CountQuery,
  FoundRun,
  HeldQuery,
  KeysPage,
  ListQuery,
  PageQuery,
  RunsCount,
  RunsPage,
  RunsQuery,
  SessionRecord,
  StuckQuery,
  WorkflowRecord,
} from '../store.ts';
import {
  BUCKETS,
  checkFormat,
  expectStatus,
  type IndexKeys,
  isKey,
  type Keys,
  parseSession,
  parseWorkflow,
  principalScore,
  type Reply,
  type RunName,
} from './format.ts';
import * as scripts from './index-scripts.ts';
import { durationText, type Script } from './scripts.ts';

type Ask = (script: Script, keys: string[], args: string[]) => Promise<Reply>;

/** A run's place in a listing. Its time counts from the scripts' own epoch. */
interface ListingPlace {
  readonly time: number;
  readonly name: string;
}

/** The question to the script LIST. */
interface Listing {
  readonly kind: 'held' | 'stuck' | 'standing' | 'crowded' | 'owned';
  /** Empty: runs of all workflows. */
  readonly workflow: string;
  readonly forMs?: number;
  readonly principal?: string;
  /** Empty: all states of workflows that have not ended. */
  readonly states?: readonly string[] | undefined;
}

/** A bucket's part of a listing, as far as it is known. */
interface Part {
  readonly bucket: number;
  places: ListingPlace[];
  isWhole: boolean;
}

/** A run of a listing, as the script LOOK gives it. */
interface Looked {
  readonly run: string;
  readonly session: SessionRecord;
  readonly isOver: boolean;
  /** `undefined` where the run has no such workflow, or the question named none. */
  readonly record: WorkflowRecord | undefined;
}

export interface RunIndexOptions {
  readonly prefix: string;
  /** Whether one script may have keys of several buckets, which a cluster refuses. */
  readonly joinsBuckets: boolean;
}

const START: ListingPlace = { time: -1, name: '' };
/** How many runs a sweep looks at together. */
const SWEPT = 200;
/** For how long the store trusts an answer that no server evicts its index, in milliseconds. */
const POLICY_MS = 60_000;

export class RunIndex {
  readonly #ask: Ask;
  readonly #keys: Keys;
  readonly #options: RunIndexOptions;
  #policy: Promise<void> | undefined;
  #policySeenAt = 0;

  constructor(ask: Ask, keys: Keys, options: RunIndexOptions) {
    this.#ask = ask;
    this.#keys = keys;
    this.#options = options;
  }

  async held({ workflow, ...page }: HeldQuery): Promise<RunsPage> {
    const isHeld = ({ claim }: FoundRun) => claim?.uncertain === 'hold' && !claim.live;
    return this.#page({ kind: 'held', workflow }, page, isHeld);
  }

  async stuck({ workflow, states, forMs, ...page }: StuckQuery): Promise<RunsPage> {
    if (states?.length === 0) return { runs: [] };
    const isStuck = ({ ended, snapshot }: FoundRun, now: number) =>
      !ended &&
      snapshot.updatedAt <= now - forMs &&
      (states === undefined || states.includes(snapshot.state));
    return this.#page({ kind: 'stuck', workflow, forMs, states }, page, isStuck);
  }

  async *standing({ workflow, state, forMs = 0 }: RunsQuery): AsyncGenerator<string> {
    const listing: Listing = { kind: 'standing', workflow, forMs, states: [state] };
    let after: string | undefined;
    let latest: number | undefined;
    let isPast = false;
    const stands = ({ snapshot }: FoundRun, now: number): boolean => {
      latest ??= now - forMs;
      // This run came into the state after the sweep began, and so did all later ones.
      isPast ||= snapshot.updatedAt > latest;
      return snapshot.state === state && snapshot.updatedAt <= latest;
    };
    do {
      const page = await this.#page(listing, { limit: SWEPT, after }, stands);
      for (const { run } of page.runs) yield run;
      after = isPast ? undefined : page.next;
    } while (after !== undefined);
  }

  async owned({ principal, ...page }: ListQuery): Promise<KeysPage> {
    const listing: Listing = { kind: 'owned', workflow: '', principal: principalScore(principal) };
    const { places, next } = await this.#places(listing, page);
    const { looked } = await this.#look(places, '');
    const runs = looked.filter(({ session }) => session.principal === principal);
    return { runs: runs.map(({ run }) => run), ...(next !== undefined && { next }) };
  }

  async count(query: CountQuery): Promise<RunsCount> {
    const args = [JSON.stringify(query.workflow), durationText(query.forMs)];
    const states = new Map<string, { runs: number; stuck: number }>();
    const add = (state: string, runs: number, stuck: number): void => {
      const counted = states.get(state) ?? { runs: 0, stuck: 0 };
      states.set(state, { runs: counted.runs + runs, stuck: counted.stuck + stuck });
    };
    let [now, held, running, oldest] = [0, 0, 0, Number.POSITIVE_INFINITY];
    let isCrowded = false;
    await this.#askBuckets(
      scripts.COUNT,
      args,
      allBuckets(),
      () => [],
      (_, head, lines) => {
        now = Math.max(now, Number(head[2]));
        held += Number(head[3]);
        running += Number(head[4]);
        oldest = Math.min(oldest, Number(head[5]) || oldest);
        for (const line of lines) {
          const [, runs, stuck, state = ''] = /^(\d+) (\d+) (.*)$/su.exec(line) ?? [];
          if (state === '') isCrowded = true;
          else add(JSON.parse(state) as string, Number(runs), Number(stuck));
        }
      },
    );
    if (isCrowded) await this.#countCrowd(query, add);
    return {
      states: [...states].map(([state, counts]) => ({ state, ...counts })),
      held,
      running,
      ...(Number.isFinite(oldest) && { oldestClaim: oldest }),
      now,
    };
  }

  async purge(principal: string | undefined): Promise<number> {
    const score = principal === undefined ? '' : principalScore(principal);
    const purgeAll = async (buckets: readonly number[]): Promise<number> => {
      let purged = 0;
      for (;;) {
        const reply = await this.#ask(scripts.PURGE, this.#indexKeys(buckets), [score]);
        expectStatus('purge', reply, 'purged');
        purged += Number(reply.lines[0]);
        if (reply.lines[1] === '0') return purged;
      }
    };
    const purged = await Promise.all(this.#together(allBuckets()).map(purgeAll));
    return purged.reduce((sum, each) => sum + each, 0);
  }

  /**
   * Makes the buckets that have no format those of this one. One bucket decides, where processes of
   * two formats come at once.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where a bucket is of another format.
   */
  async note(): Promise<void> {
    // First of all, because it changes nothing where a bucket is of another format.
    await this.#servers();
    const [first = [], ...others] = this.#together(allBuckets());
    const noteIn = (buckets: readonly number[]): Promise<void> =>
      this.#done(scripts.NOTE, this.#indexKeys(buckets), []);
    await noteIn(first);
    await Promise.all(others.map(noteIn));
  }

  async rebuild(): Promise<number> {
    // First of all, because it changes nothing where a bucket or a run is of another format.
    const servers = await this.#servers();
    for (const [key] of servers.values()) {
      for await (const names of this.#scan(key)) {
        const places = names.map((name) => ({ ...START, name }));
        await this.#look(places, '');
      }
    }
    const indexes = this.#together(allBuckets()).map((part) => this.#indexKeys(part));
    await Promise.all(indexes.map((keys) => this.#done(scripts.RESET, keys, [])));
    let found = 0;
    for (const [key] of servers.values()) {
      for await (const names of this.#scan(key)) {
        found += names.length;
        const reindex = (group: readonly RunName[]): Promise<void> => {
          const ofGroup = group.map(({ name }) => name);
          return this.#done(scripts.REINDEX, allKeys(group), ofGroup);
        };
        await Promise.all(this.#grouped(names.map((name) => this.#keys.named(name))).map(reindex));
      }
    }
    await Promise.all(indexes.map((keys) => this.#done(scripts.COMPLETE, keys, [])));
    return found;
  }

  async #page(
    listing: Listing,
    page: PageQuery,
    isListed: (row: FoundRun, now: number) => boolean,
  ): Promise<RunsPage> {
    const { places, next } = await this.#places(listing, page);
    const { looked, now } = await this.#look(places, listing.workflow);
    const found = looked.flatMap(({ run, record, isOver }): FoundRun[] =>
      record ? [{ run, ...record, ...(isOver && { sessionEnded: true }) }] : [],
    );
    const runs = found.filter((each) => isListed(each, now));
    return { runs, ...(next !== undefined && { next }), now };
  }

  /** Asks every bucket for a part, and asks again where a part turns out to be too short. */
  async #places(
    listing: Listing,
    { limit, after }: PageQuery,
  ): Promise<{ readonly places: readonly ListingPlace[]; readonly next?: string }> {
    const start = after === undefined ? START : parsePlace(after);
    const parts: Part[] = allBuckets().map((bucket) => ({ bucket, places: [], isWhole: false }));
    let share = Math.min(limit + 1, 8 + Math.ceil((2 * limit) / BUCKETS));
    let asked = parts;
    for (;;) {
      await this.#extend(listing, asked, start, share);
      const merged = parts.flatMap(({ places }) => places).sort(comparePlaces);
      const end = merged[limit];
      const isShort = ({ places, isWhole }: Part): boolean => {
        const last = places.at(-1);
        return !isWhole && (!end || !last || comparePlaces(last, end) < 0);
      };
      asked = parts.filter(isShort);
      if (asked.length > 0) {
        share = Math.min(limit + 1, share * 2);
        continue;
      }
      const last = merged[limit - 1];
      return {
        places: merged.slice(0, limit),
        ...(end && last && { next: JSON.stringify([last.time, last.name]) }),
      };
    }
  }

  async #extend(
    listing: Listing,
    parts: Part[],
    start: ListingPlace,
    share: number,
  ): Promise<void> {
    const { kind, workflow, forMs = 0, principal = '', states = [] } = listing;
    const args = [
      kind,
      JSON.stringify(workflow),
      durationText(forMs),
      String(share),
      principal,
      String(states.length),
      ...states.map((state) => JSON.stringify(state)),
    ];
    const partOf = new Map(parts.map((part) => [part.bucket, part]));
    const from = (bucket: number): string[] => {
      const { time, name } = partOf.get(bucket)?.places.at(-1) ?? start;
      return [String(time), name];
    };
    await this.#askBuckets(
      scripts.LIST,
      args,
      parts.map(({ bucket }) => bucket),
      from,
      (bucket, [, hasMore], lines) => {
        const part = partOf.get(bucket);
        if (part === undefined) return;
        part.isWhole = hasMore === '0';
        for (const line of lines) {
          const space = line.indexOf(' ');
          part.places.push({ time: Number(line.slice(0, space)), name: line.slice(space + 1) });
        }
      },
    );
  }

  /**
   * Asks each of the buckets, again and again while one has expired runs to remove first.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where the index may lack a run.
   */
  async #askBuckets(
    script: Script,
    args: readonly string[],
    buckets: readonly number[],
    argsOf: (bucket: number) => readonly string[],
    onAnswer: (bucket: number, head: readonly string[], lines: readonly string[]) => void,
  ): Promise<void> {
    const policy = this.#checkPolicy();
    let asked = buckets;
    while (asked.length > 0) {
      const again: number[] = [];
      const askPart = async (part: readonly number[]): Promise<void> => {
        const all = [...args, ...part.flatMap(argsOf)];
        const reply = await this.#ask(script, this.#indexKeys(part), all);
        expectStatus('listing', reply, 'lists', 'counts');
        let line = 0;
        for (const bucket of part) {
          const head = (reply.lines[line] ?? '').split(' ');
          const end = line + 1 + Number(head.at(-1));
          if (head[0] === 'lost') throw lostIndex();
          if (head[0] === 'again') again.push(bucket);
          else onAnswer(bucket, head, reply.lines.slice(line + 1, end));
          line = end;
        }
      };
      await Promise.all(this.#together(asked).map(askPart));
      asked = again;
    }
    await policy;
  }

  /** The runs at these places that still exist, in the order of the places. */
  async #look(
    places: readonly ListingPlace[],
    workflow: string,
  ): Promise<{ readonly looked: readonly Looked[]; readonly now: number }> {
    const runs = new Map<string, Looked>();
    let now = 0;
    const lookAt = async (group: readonly RunName[]): Promise<void> => {
      const names = group.map(({ name }) => name);
      const reply = await this.#ask(scripts.LOOK, allKeys(group), [
        JSON.stringify(workflow),
        ...names,
      ]);
      expectStatus('look', reply, 'runs');
      const [time, ...lines] = reply.lines;
      now = Math.max(now, Number(time));
      for (const [index, name] of names.entries()) {
        const from = index * scripts.LOOKED_AT;
        const run = parseLooked(name, lines.slice(from, from + scripts.LOOKED_AT), Number(time));
        if (run !== undefined) runs.set(name, run);
      }
    };
    const groups = this.#grouped(places.map(({ name }) => this.#keys.named(name)));
    await Promise.all(groups.map(lookAt));
    const looked = places.flatMap(({ name }) => runs.get(name) ?? []);
    return { looked, now };
  }

  /** Counts the states that share the last number, by looking at their runs. */
  async #countCrowd(
    { workflow, forMs }: CountQuery,
    add: (state: string, runs: number, stuck: number) => void,
  ): Promise<void> {
    let after: string | undefined;
    do {
      const listing: Listing = { kind: 'crowded', workflow };
      const page = await this.#page(listing, { limit: SWEPT, after }, ({ ended }) => !ended);
      for (const { snapshot } of page.runs)
        add(snapshot.state, 1, snapshot.updatedAt <= (page.now ?? 0) - forMs ? 1 : 0);
      after = page.next;
    } while (after !== undefined);
  }

  /** Rejects where a server may evict a part of the index, which the store would not notice. */
  #checkPolicy(): Promise<void> {
    const now = Date.now();
    if (this.#policy !== undefined && Math.abs(now - this.#policySeenAt) < POLICY_MS)
      return this.#policy;
    this.#policySeenAt = now;
    const checked = this.#servers().then((servers) => {
      for (const [, memory, policy] of servers.values())
        if (policy.startsWith('allkeys') && Number(memory) > 0) throw evictingServer(policy);
    });
    checked.catch(() => {
      this.#policy = undefined;
    });
    this.#policy = checked;
    return checked;
  }

  /** Each server once: a key that it has, its limit of memory and its eviction policy. */
  async #servers(): Promise<
    Map<string, readonly [key: IndexKeys, memory: string, policy: string]>
  > {
    const servers = new Map<string, readonly [IndexKeys, string, string]>();
    const askServer = async (buckets: readonly number[]): Promise<void> => {
      const [first = 0] = buckets;
      const key = this.#keys.index(first);
      const reply = await this.#ask(scripts.SERVER, this.#indexKeys(buckets), []);
      expectStatus('server', reply, 'server');
      const [id = '-', memory = '-', policy = '-'] = reply.lines;
      servers.set(id === '-' ? `bucket ${first}` : id, [key, memory, policy]);
    };
    await Promise.all(this.#together(allBuckets()).map(askServer));
    return servers;
  }

  /** The names of the runs on one server, some at a time. */
  async *#scan(key: IndexKeys): AsyncGenerator<readonly string[]> {
    const start = `${this.#options.prefix}:{b`;
    const pattern = `${start.replace(/[\\*?[\]]/g, '\\$&')}[0-9][0-9]}:run:*`;
    let cursor = '0';
    do {
      const reply = await this.#ask(scripts.SCAN, [...key], [cursor, pattern]);
      expectStatus('scan', reply, 'keys');
      const [next = '0', ...keys] = reply.lines;
      cursor = next;
      yield keys.map((each) => each.slice(start.length + '00}:run:'.length));
    } while (cursor !== '0');
  }

  async #done(script: Script, keys: string[], args: string[]): Promise<void> {
    expectStatus('index', await this.#ask(script, keys, args), 'ok');
  }

  #indexKeys(buckets: readonly number[]): string[] {
    return buckets.flatMap((bucket) => [...this.#keys.index(bucket)]);
  }

  /** The buckets in groups, one for each script. */
  #together(buckets: readonly number[]): readonly (readonly number[])[] {
    return this.#options.joinsBuckets ? [buckets] : buckets.map((bucket) => [bucket]);
  }

  /** The runs in groups, one for each script. */
  #grouped(names: readonly RunName[]): readonly (readonly RunName[])[] {
    const groups = new Map<number, RunName[]>();
    for (const name of names) {
      const of = this.#options.joinsBuckets ? 0 : name.bucket;
      const group = groups.get(of);
      if (group === undefined) groups.set(of, [name]);
      else group.push(name);
    }
    return [...groups.values()];
  }
}

function allBuckets(): number[] {
  return Array.from({ length: BUCKETS }, (_, bucket) => bucket);
}

/** As Redis sorts them: names are ASCII, so their order is the same. */
function comparePlaces(a: ListingPlace, b: ListingPlace): number {
  return a.time - b.time || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
}

/** @throws Error for a text that no page gave. */
function parsePlace(after: string): ListingPlace {
  const [time, name] = JSON.parse(after) as [number, string];
  return { time: Number(time), name: String(name) };
}

function allKeys(names: readonly RunName[]): string[] {
  return names.flatMap(({ keys }) => [...keys]);
}

function parseLooked(
  name: string,
  [session = '', format, key = '', expires, sessionEnded, ...fields]: readonly string[],
  now: number,
): Looked | undefined {
  if (session === '' && format === '') return undefined;
  checkFormat(Number(format));
  return {
    run: isKey(name) ? name : (JSON.parse(key) as string),
    session: parseSession(session),
    isOver: sessionEnded === '1' || Number(expires) <= now,
    record: fields[0] === '' ? undefined : parseWorkflow(fields, now),
  };
}

function lostIndex(): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    'the index of the runs lacks keys that were evicted or deleted, or is being made anew: ' +
      'call rebuildIndex() of the store once, and await it',
  );
}

function evictingServer(policy: string): InterlockError {
  return new InterlockError(
    'ERR_INTERLOCK_STORE',
    `the server evicts keys of any kind (maxmemory-policy ${policy}), ` +
      'so the index may lack held runs without a sign of it. ' +
      'Set noeviction, or volatile-lru or another volatile one, ' +
      'and call rebuildIndex() of the store once',
  );
}
