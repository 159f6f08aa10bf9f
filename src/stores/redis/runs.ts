/**
 * Runs in Redis. Hides the keys, the arguments of the scripts, and that the index is in buckets.
 */
import { createHash } from 'node:crypto';
import { InterlockError } from '../../basics/errors.ts';
import type { IndexPlace } from '../document/documents.ts';
import type {
  FlowChange,
  FoundParts,
  KeptRun,
  PartMark,
  RunDocuments,
  RunIndexEntry,
  RunsFind,
  RunsIndex,
  RunsTally,
  RunWrite,
  TrailQuery,
  WrittenRun,
} from '../document/run-parts.ts';
import {
  byPlace,
  changeOf,
  type FoundFlow,
  foundIn,
  revisionOf,
  runOfParts,
  warnOfBroken,
  withFlows,
} from '../document/run-parts.ts';
import { LAYOUT, newRevision } from '../document/run-text.ts';
import type { Json, SwitchRecord, TrailEntry } from '../store.ts';
import * as scripts from './scripts.ts';
import { LAST_TIME, type Script } from './scripts.ts';

/** Lets the server run a script by its digest or, with `bySource`, by its text. One round trip. */
export type Evaluate = (
  script: Script,
  bySource: boolean,
  keys: string[],
  args: string[],
) => Promise<unknown>;

export interface RedisRunsSettings {
  readonly prefix: string;
  readonly trailLimit: number;
  /** When the server saves snapshots, as its setting `save` says it. May reject. */
  readonly savePoints?: (() => Promise<unknown>) | undefined;
}

interface Reply {
  readonly status: string;
  readonly lines: readonly string[];
}

/** One server, by a bucket that it has. A dash is what it does not say. */
interface Server {
  readonly bucket: number;
  readonly memory: string;
  readonly policy: string;
  readonly evicted: string;
  readonly saves: string;
}

/**
 * Every run is in one bucket, together with that bucket's index, so that one script writes both.
 */
export const BUCKETS = 64;
const READABLE = /^[\w.:-]{1,64}$/;

/** In characters of base64url: 96 bits of a digest. */
const ID_LENGTH = 16;

/** For how long the store trusts an answer that no server evicts its index, in milliseconds. */
const POLICY_MS = 60_000;

export class RedisRuns implements RunDocuments {
  readonly index: RunsIndex = {
    readAll: (keys) => this.#readAll(keys),
    find: (query) => this.#find(query),
    count: (query) => this.#count(query),
    purge: (principal) => this.#purge(principal),
    forget: async (key) => {
      await this.#ask(scripts.FORGET, this.#keysOf('run', key), [key]);
    },
  };
  readonly #evaluate: Evaluate;
  readonly #settings: RedisRunsSettings;
  /** By number of its bucket, what its keys begin with. */
  readonly #starts: readonly string[];
  /** Whether one script may have keys of several buckets, which a cluster refuses. */
  #joinsBuckets = true;
  #policy: Promise<void> | undefined;
  #policySeenAt = 0;
  #knowsSavePoints = false;

  constructor(evaluate: Evaluate, settings: RedisRunsSettings) {
    this.#evaluate = evaluate;
    this.#settings = settings;
    // Redis Cluster hashes only the text in braces.
    const start = (bucket: number) => `${settings.prefix}:{b${String(bucket).padStart(2, '0')}}:`;
    this.#starts = allBuckets().map(start);
  }

  /**
   * A short name of harmless characters stays readable. Any other becomes a digest of its UTF-16
   * units, because UTF-8 cannot hold half a surrogate pair.
   */
  keyOf(run: string): string {
    return READABLE.test(run) ? run : `#${digestOf(run)}`;
  }

  async read(key: string, trail?: TrailQuery): Promise<FoundParts> {
    const [found = {}] = await this.#readAll([key], trail);
    return found;
  }

  async swap(write: RunWrite): Promise<WrittenRun> {
    const { key, before, isNew, judgesAll } = write;
    const { life, flows, kept } = changeOf(write);
    const { trailLimit } = this.#settings;
    const parts = flows.map((flow) => partArguments(idOf(flow.workflow), '', flow, trailLimit));
    if (life) {
      const owner = idOf(write.next.session.principal ?? '');
      const part = { ...life, texts: { head: life.text }, settled: '', entries: [] };
      parts.push(partArguments('life', owner, part, trailLimit));
    }
    // What replaces a run of another birth judges all of it.
    const isWhole = judgesAll || isNew;
    const judged = isWhole ? [...(before?.flows.keys() ?? [])] : write.flows;
    const whole = isWhole ? String(judged.length) : '';
    const args = [
      ...[isNew ? 'make' : '', whole, write.revision],
      ...expectations(before, judged),
      ...[String(parts.length), ...parts.flat()],
    ];
    const asked = () => this.#ask(scripts.SWAP, this.#keysOf('run', key), args);
    let reply = await asked();
    if (reply.status === 'unnoted') {
      await this.#note();
      reply = await asked();
    }
    const now = Number(reply.lines[0]);
    if (expectStatus('swap', reply, 'swapped', 'lost') === 'swapped')
      return { swapped: true, kept, now };
    const [, extent, ...lines] = reply.lines;
    const known = extent === 'some' ? before : undefined;
    return { swapped: false, ...foundIn(key, () => this.#parsed(key, lines, known)), now };
  }

  async remove(key: string, kept: KeptRun): Promise<boolean> {
    const judged = [...kept.flows.keys()];
    const args = ['remove', String(judged.length), '', ...expectations(kept, judged)];
    const reply = await this.#ask(scripts.SWAP, this.#keysOf('run', key), args);
    return expectStatus('remove', reply, 'swapped', 'lost') === 'swapped';
  }

  async readSwitch(workflow: string): Promise<SwitchRecord | undefined> {
    const keys = this.#keysOf('switch', this.keyOf(workflow));
    const reply = await this.#ask(scripts.READ_SWITCH, keys, []);
    if (expectStatus('switch', reply, 'switch', 'none') === 'none') return undefined;
    const [revision, name, value] = reply.lines.map((line) => JSON.parse(line) as Json);
    if (name !== workflow) throw faulty('a key has the switch of another workflow');
    return { revision: revision as string, value: value as Json };
  }

  async swapSwitch(
    workflow: string,
    expected: string | undefined,
    { revision, value }: SwitchRecord,
  ): Promise<boolean> {
    const next = [revision, workflow, value].map((each) => JSON.stringify(each));
    const args = [expected === undefined ? '' : JSON.stringify(expected), ...next];
    const keys = this.#keysOf('switch', this.keyOf(workflow));
    const reply = await this.#ask(scripts.SWAP_SWITCH, keys, args);
    if (expectStatus('switch', reply, 'swapped', 'kept', 'unnoted') !== 'unnoted')
      return reply.status === 'swapped';
    await this.#note();
    return this.swapSwitch(workflow, expected, { revision, value });
  }

  async now(): Promise<number> {
    const { lines } = await this.#ask(scripts.READ, [], ['', '0']);
    return Number(lines[0]);
  }

  /**
   * Writes the index anew. It goes through all keys of each server; lists reject until it is done.
   * Resolves to how many runs it found. Warns of one that cannot be read, and leaves it out.
   *
   * @throws InterlockError `ERR_INTERLOCK_STORE` where a run or an index has another layout
   */
  async rebuild(): Promise<number> {
    const servers = await this.#servers();
    // First of all, because it changes nothing where a run has another layout.
    for (const { bucket } of servers)
      for await (const names of this.#scan(bucket)) await this.#readAll(names);
    await this.#inBuckets(scripts.RESET, []);
    let count = 0;
    for (const { bucket } of servers)
      for await (const names of this.#scan(bucket)) {
        const written = await Promise.all(names.map((name) => this.#reindex(name)));
        count += written.filter(Boolean).length;
      }
    await this.#inBuckets(scripts.COMPLETE, []);
    return count;
  }

  /** Writes all parts of a run as they are, and with them its index; whether there is one. */
  async #reindex(key: string): Promise<boolean> {
    for (;;) {
      const { kept, broken } = await this.read(key);
      if (broken) warnOfBroken(broken);
      if (kept === undefined) return false;
      const flows = [...kept.flows.keys()];
      const rest = { isNew: false, life: true, judgesAll: true, isStep: false, isClaim: false };
      const write = { key, before: kept, next: kept.run, revision: newRevision(), flows, ...rest };
      if ((await this.swap(write)).swapped) return true;
    }
  }

  async #readAll(keys: readonly string[], trail?: TrailQuery): Promise<FoundParts[]> {
    const found = new Map<string, FoundParts>();
    const args = trail ? [idOf(trail.workflow), String(trail.limit)] : ['', '0'];
    const readPart = async (part: readonly string[]): Promise<void> => {
      const keys = part.flatMap((key) => {
        const [run = '', , members = ''] = this.#keysOf('run', key);
        return [run, members];
      });
      const reply = await this.#ask(scripts.READ, keys, args);
      expectStatus('read', reply, 'runs');
      const now = Number(reply.lines[0]);
      let at = 1;
      for (const key of part) {
        const end = at + 1 + Number(reply.lines[at]);
        const lines = reply.lines.slice(at + 1, end);
        at = end;
        const run = foundIn(key, () => this.#parsed(key, lines));
        const entries = trail && lines.slice(4 + scripts.LINES.length * Number(lines[3]));
        found.set(key, { ...run, now, entries: entries?.map(parseEntry) });
      }
    };
    await this.#together(keys, (key) => bucketOf(key), readPart);
    return keys.map((key) => found.get(key) ?? {});
  }

  /** Reads the lines of a run: of all of it, or of workflows beside those that are known. */
  #parsed(key: string, lines: readonly string[], known?: KeptRun): KeptRun | undefined {
    const [layout = '', revisions = '', text = '', count] = lines;
    if (layout === '' && text === '') return undefined;
    checkLayout(layout);
    const size = scripts.LINES.length;
    const flows = Array.from({ length: Number(count) }, (_, at): FoundFlow => {
      const [revisions = '', head = '', claim, lease, data, settled] = lines.slice(4 + size * at);
      return { revisions, head, claim, lease, data, settled };
    });
    return known ? withFlows(known, flows) : runOfParts(this, key, { text, revisions }, flows);
  }

  async #find({ kind, of, labels, upTo, after, limit }: RunsFind): Promise<IndexPlace[]> {
    const list = `${kind}:${idOf(of)}`;
    const start = `${list}:${kind === 'owned' ? '' : 'LABEL'}:`;
    const from = after ? `(${start}${timeText(after.score)}:${after.key}` : `[${start}`;
    const to = `[${start}${timeText(upTo)};`;
    const policy = this.#checkPolicy();
    const wanted = labels?.map(labelId) ?? ['*'];
    const args = [from, to, String(limit), kind === 'owned' ? '' : list, ...wanted];
    const replies = await this.#inBuckets(scripts.FIND, args, 'found');
    await policy;
    const places = replies.flatMap(({ lines }) => lines.map(placeOf));
    // As Redis sorts them: names are ASCII, so their order is the same.
    return places.sort(byPlace).slice(0, limit);
  }

  async #count({ kind, of, upTo }: Pick<RunsFind, 'kind' | 'of' | 'upTo'>): Promise<RunsTally[]> {
    const tallies = new Map<string, { label: string; entries: number; upTo: number }>();
    // First, because it changes nothing where a bucket of a cluster has another layout.
    await this.#checkPolicy();
    const args = [`${kind}:${idOf(of)}`, String(upTo)];
    for (const { lines } of await this.#inBuckets(scripts.COUNT, args, 'counts')) {
      for (let at = 0; at < lines.length; at += 4) {
        const [entries, upToThen, id = '', text = ''] = lines.slice(at, at + 4);
        const label = text === '' ? id : (JSON.parse(text) as string);
        const tally = tallies.get(label) ?? { label, entries: 0, upTo: 0 };
        tally.entries += Number(entries);
        tally.upTo += Number(upToThen);
        tallies.set(label, tally);
      }
    }
    return [...tallies.values()];
  }

  async #purge(principal: string | undefined): Promise<number> {
    const owned = principal === undefined ? '' : `owned:${idOf(principal)}::`;
    let purged = 0;
    for (let isDone = false; !isDone; ) {
      const replies = await this.#inBuckets(scripts.PURGE, [owned], 'purged');
      for (const { lines } of replies) purged += Number(lines[0]);
      isDone = replies.every(({ lines }) => lines[1] === '0');
    }
    return purged;
  }

  /**
   * Makes the layout of the buckets that have none this one. One bucket decides, where processes of
   * two layouts come at once.
   */
  async #note(): Promise<void> {
    await this.#warnIfVolatile(await this.#servers());
    await this.#ask(scripts.NOTE, this.#bucketKeys(0), []);
    await this.#inBuckets(scripts.NOTE, []);
  }

  /** Rejects where a server may evict a part of the index, which the store would not notice. */
  #checkPolicy(): Promise<void> {
    const now = Date.now();
    if (this.#policy !== undefined && Math.abs(now - this.#policySeenAt) < POLICY_MS)
      return this.#policy;
    this.#policySeenAt = now;
    const checked = this.#servers().then((servers) => {
      for (const { memory, policy } of servers)
        if (policy.startsWith('allkeys') && Number(memory) > 0) throw evictingServer(policy);
    });
    checked.catch(() => {
      this.#policy = undefined;
    });
    this.#policy = checked;
    return checked;
  }

  /** How many keys all servers have evicted; `undefined` where one does not say. */
  async evictedKeys(): Promise<number | undefined> {
    const servers = await this.#servers();
    await this.#warnIfVolatile(servers);
    const sum = servers.reduce((all, { evicted }) => all + Number(evicted), 0);
    return Number.isNaN(sum) ? undefined : sum;
  }

  async #servers(): Promise<readonly Server[]> {
    const servers = new Map<string, Server>();
    const askServer = async (buckets: readonly number[]): Promise<void> => {
      const [bucket = 0] = buckets;
      const keys = buckets.flatMap((each) => this.#bucketKeys(each));
      const reply = await this.#ask(scripts.SERVER, keys, []);
      expectStatus('server', reply, 'server');
      const [id = '-', memory = '-', policy = '-', evicted = '-', saves = '-'] = reply.lines;
      const server = { bucket, memory, policy, evicted, saves };
      servers.set(id === '-' ? `bucket ${bucket}` : id, server);
    };
    await this.#together(allBuckets(), (bucket) => bucket, askServer);
    return [...servers.values()];
  }

  /** Warns who serves runs, by the first one and by probes, and no one who only lists them. */
  async #warnIfVolatile(servers: readonly Server[]): Promise<void> {
    if (this.#knowsSavePoints || !servers.some(({ saves }) => saves === 'ask')) return;
    this.#knowsSavePoints = true;
    // No script may ask for settings.
    const saves = await this.#settings.savePoints?.().catch(() => undefined);
    if (saves === '') process.emitWarning(VOLATILE, 'InterlockWarning');
  }

  /** The names of the runs on one server, some at a time. */
  async *#scan(bucket: number): AsyncGenerator<readonly string[]> {
    const start = `${this.#settings.prefix}:{b`;
    const pattern = `${start.replace(/[\\*?[\]]/g, '\\$&')}[0-9][0-9]}:run:*`;
    let cursor = '0';
    do {
      const reply = await this.#ask(scripts.SCAN, this.#bucketKeys(bucket), [cursor, pattern]);
      expectStatus('scan', reply, 'keys');
      const [next = '0', ...keys] = reply.lines;
      cursor = next;
      yield keys.map((each) => each.slice(start.length + '00}:run:'.length));
    } while (cursor !== '0');
  }

  #inBuckets(script: Script, args: string[], status = 'ok'): Promise<readonly Reply[]> {
    const replies: Reply[] = [];
    const askPart = async (buckets: readonly number[]): Promise<void> => {
      const keys = buckets.flatMap((bucket) => this.#bucketKeys(bucket));
      let reply = await this.#ask(script, keys, args);
      // Many expired runs leave the index first.
      while (reply.status === 'again') reply = await this.#ask(script, keys, args);
      if (reply.status === 'lostindex') throw lostIndex();
      expectStatus('index', reply, status);
      replies.push(reply);
    };
    return this.#together(allBuckets(), (bucket) => bucket, askPart).then(() => replies);
  }

  /** Asks about all of them by one script, or by one for each bucket of a cluster. */
  async #together<T>(
    all: readonly T[],
    bucketOf: (each: T) => number,
    ask: (part: readonly T[]) => Promise<void>,
  ): Promise<void> {
    if (this.#joinsBuckets) {
      try {
        await ask(all);
        return;
      } catch (error) {
        if (!isError(error, 'CROSSSLOT') || all.length === 1) throw error;
        this.#joinsBuckets = false;
      }
    }
    const parts = new Map<number, T[]>();
    for (const each of all) {
      const bucket = bucketOf(each);
      const part = parts.get(bucket);
      if (part === undefined) parts.set(bucket, [each]);
      else part.push(each);
    }
    await Promise.all([...parts.values()].map(ask));
  }

  async #ask(script: Script, keys: string[], args: string[]): Promise<Reply> {
    try {
      return parseReply(await this.#evaluate(script, false, keys, args));
    } catch (error) {
      if (!isError(error, 'NOSCRIPT')) throw error;
      return parseReply(await this.#evaluate(script, true, keys, args));
    }
  }

  #keysOf(kind: 'run' | 'switch', key: string): string[] {
    const bucket = bucketOf(key);
    return [`${this.#starts[bucket]}${kind}:${key}`, ...this.#bucketKeys(bucket)];
  }

  #bucketKeys(bucket: number): string[] {
    const start = this.#starts[bucket];
    return [`${start}index`, `${start}members`];
  }
}

const VOLATILE =
  'the Redis of the runs keeps nothing on its disk: it has neither an append-only file nor ' +
  'snapshots. Restarted, it has lost all runs, with their limits and held steps. Set ' +
  'appendonly yes and appendfsync always; see mcp-interlock/docs/operate/stores.md#redis';

function allBuckets(): number[] {
  return Array.from({ length: BUCKETS }, (_, bucket) => bucket);
}

/** FNV-1a, folded: it spreads even names that only count up. */
export function bucketOf(key: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < key.length; i += 1) hash = Math.imul(hash ^ key.charCodeAt(i), 0x01000193);
  return ((hash >>> 16) ^ (hash >>> 8) ^ hash) & (BUCKETS - 1);
}

function digestOf(text: string): string {
  return createHash('sha256').update(text, 'utf16le').digest('base64url');
}

/** The newest ids of workflows and principals, since each step asks for some. */
const ids = new Map<string, string>();

function idOf(name: string): string {
  let id = ids.get(name);
  if (id !== undefined) return id;
  id = digestOf(name).slice(0, ID_LENGTH);
  if (ids.size >= 1_000) ids.clear();
  // A client may choose the name, and its length.
  if (name.length <= 200) ids.set(name, id);
  return id;
}

/** A short label of harmless characters is its own id, and costs no text beside it. */
const PLAIN_LABEL = /^[\w.-]{0,32}$/;

function labelId(label: string): string {
  return PLAIN_LABEL.test(label) ? label : `#${idOf(label)}`;
}

function boundedTime(time: number): string {
  return String(Math.min(Math.max(time, 0), LAST_TIME));
}

function timeText(time: number): string {
  return boundedTime(time).padStart(15, '0');
}

/** An entry of the index, of which the script knows the run and the workflow or principal. */
function indexText({ kind, label, score }: RunIndexEntry): string {
  const start = `${kind} ${labelId(label)} ${boundedTime(score)}`;
  return PLAIN_LABEL.test(label) ? start : `${start} ${JSON.stringify(label)}`;
}

const PLACE = /^[a-z]+:[^:]*:[^:]*:(\d{15}):(.*)$/su;

function placeOf(member: string): IndexPlace {
  const [, time, key = ''] = PLACE.exec(member) ?? [];
  return { score: Number(time), key };
}

/**
 * What a script puts of a part.
 *
 * @param of whose lists its entries are in; empty for those of the workflow that it is
 */
function partArguments(
  id: string,
  of: string,
  {
    expiresAt,
    texts,
    settled,
    entries,
    index,
  }: Pick<FlowChange, 'expiresAt' | 'texts' | 'settled' | 'entries' | 'index'>,
  trailLimit: number,
): string[] {
  const changed = Object.entries(texts);
  return [
    ...[id, of, expiresAt === undefined ? 'never' : String(expiresAt)],
    ...[String(changed.length), ...changed.flatMap(([name, text]) => [name, text ?? ''])],
    ...[settled, String(entries.length)],
    ...(entries[0] === undefined ? [] : [String(entries[0].seq), String(trailLimit)]),
    ...entries.map((entry) => JSON.stringify(entry)),
    index.map(indexText).join('\t'),
  ];
}

/** The judged parts with their revisions; an empty one where none may be there. */
function expectations(before: KeptRun | undefined, flows: readonly string[]): string[] {
  const of = (mark: PartMark | undefined): string => revisionOf(mark) ?? '';
  const judged = flows.flatMap((name) => [idOf(name), of(before?.flows.get(name))]);
  return [String(flows.length + 1), 'life', of(before?.life), ...judged];
}

function parseEntry(line: string): TrailEntry {
  return JSON.parse(line) as TrailEntry;
}

/**
 * A reply is text, which some drivers give as bytes. Any other value comes from a driver that could
 * not ask the server, and must not count as an answer.
 */
function parseReply(raw: unknown): Reply {
  const text = Buffer.isBuffer(raw) ? raw.toString() : raw;
  if (typeof text !== 'string')
    throw new TypeError(`The store's script replied with ${typeof raw}, not with text`);
  const [status = '', ...lines] = text.split('\n');
  if (status === 'format') checkLayout(lines[0] ?? '');
  return { status, lines };
}

function expectStatus<Status extends string>(
  operation: string,
  reply: Reply,
  ...known: readonly Status[]
): Status {
  const status = known.find((each) => each === reply.status);
  if (status !== undefined) return status;
  const given = JSON.stringify(reply.status.slice(0, 40));
  throw new Error(`The store's ${operation} script gave an unknown reply: ${given}`);
}

function checkLayout(layout: string): void {
  if (layout === String(LAYOUT)) return;
  throw faulty(
    `what Redis has under this prefix is in format ${layout || '0'}, by another version of ` +
      `mcp-interlock; this version knows format ${LAYOUT} alone. All is left as it is: ` +
      'let processes of that version serve it, or give this one another prefix',
  );
}

function lostIndex(): InterlockError {
  return faulty(
    'the index of the runs lacks keys that were evicted or deleted, or is being made anew: ' +
      'call rebuildIndex() of the store once, and await it',
  );
}

function evictingServer(policy: string): InterlockError {
  return faulty(
    `the server evicts keys of any kind (maxmemory-policy ${policy}), ` +
      'so the index may lack held runs without a sign of it. ' +
      'Set noeviction, or volatile-lru or another volatile one, ' +
      'and call rebuildIndex() of the store once',
  );
}

function faulty(message: string): InterlockError {
  return new InterlockError('ERR_INTERLOCK_STORE', message);
}

/** Looks at the beginning only: some drivers append the command, and so texts of the client's. */
function isError(error: unknown, code: 'NOSCRIPT' | 'CROSSSLOT'): boolean {
  if (!(error instanceof Error)) return false;
  return new RegExp(`^(Command failed: )?(ReplyError: )?(ERR )?${code}\\b`).test(error.message);
}
