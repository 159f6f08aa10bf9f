import type { Clock } from '../clock.ts';
import { digestOf } from '../digest.ts';
import { InterlockError } from '../errors.ts';
import { showValue } from '../options.ts';
import type { CallerRequest } from '../session/callers.ts';
import type { Admission } from '../session/run.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Filter } from '../wire/filter.ts';
import { type HeadPort, headerFault, requestHeader } from '../wire/headers.ts';
import { isObject, type JsonObject, META_CLAIM } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { CacheHint, KeptPage, PageBytes } from '../wire/pages.ts';

/** What `fsmGate({ listCache })` takes. */
export interface ListCacheOptions {
  /**
   * For how long a list is answered without the upstream, in milliseconds. Default: what the
   * upstream says in `ttlMs`, where that is more than 0; else 5,000.
   */
  ttlMs?: number | undefined;
  /**
   * What else a list depends on, such as a header of yours: requests for which it returns different
   * strings never share a list. What it throws goes to `onError`, and that request to the upstream.
   * Default: nothing else.
   */
  vary?: VaryBy['vary'] | undefined;
  /**
   * Whether the upstream lists the same tools for every caller. Default: only where it says so
   * itself, by `cacheScope: 'public'`.
   */
  shared?: boolean | undefined;
}

interface VaryBy {
  // A method, so that functions which ask for more of a request are taken too.
  vary(req: CallerRequest): string | undefined;
}

const DEFAULT_TTL_MS = 5_000;
/** Owners are sessions, principals, and everybody together. */
const MOST_OWNERS = 10_000;
const MOST_PAGES_EACH = 200;
/** Of all pages that differ, and of where they are kept. */
const MOST_BYTES = 32 * 1024 * 1024;
/** About what an entry takes up beside its page and its key. */
const ENTRY_BYTES = 256;
const MOST_CLIENTS = 10_000;
const EVERYBODY = 'everybody';

/** Where one list is kept: whose it is, and what else tells it from other lists. */
interface Slot {
  readonly owner: string;
  readonly key: string;
}

/** One page as the upstream sent it. */
interface CachedPage {
  readonly page: PageBytes;
  /** Which middlewares saw it: a request that passed others is not answered with it. */
  readonly passed: string;
  readonly askedAt: number;
  readonly until: number;
}

/**
 * The upstream's lists of tools, so that it need not be asked again. It hides whose lists are kept
 * apart, for how long they are good, and how much of them is kept.
 */
export class ListCache {
  readonly #options: ListCacheOptions | undefined;
  readonly #clock: Clock;
  readonly #owners = new Map<string, Map<string, CachedPage>>();
  /** How many entries there are of each page: sessions mostly have the same. */
  readonly #uses = new Map<PageBytes, number>();
  #bytes = 0;
  /** Digests of what clients of sessions said of themselves when they shook hands. */
  readonly #clients = new Map<string, string>();
  #drops = 0;
  /** How often lists of one owner alone were dropped. */
  readonly #ownDrops = new Map<string, number>();
  /** Whether lists are kept although their upstream does not ask for it. */
  readonly isAsked: boolean;
  /** Whether a list may be kept, or be on its way. */
  isUsed: boolean;

  private constructor(options: ListCacheOptions | undefined, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
    this.isAsked = options !== undefined;
    this.isUsed = this.isAsked;
  }

  /**
   * Where nothing is said, only what a stateless-era upstream calls public is kept; `false` keeps
   * nothing at all.
   */
  static of(option: boolean | ListCacheOptions | undefined, clock: Clock): ListCache | undefined {
    if (option === false) return undefined;
    return new ListCache(option === true ? {} : option, clock);
  }

  /** Whether the other one, of another gate, keeps the same lists for the same requests. */
  isLike(other: ListCache): boolean {
    const [one, two] = [this.#options, other.#options];
    if (one === undefined || two === undefined) return one === two;
    return (
      one.ttlMs === two.ttlMs &&
      one.vary === two.vary &&
      (one.shared === true) === (two.shared === true)
    );
  }

  /** An owner asks for a list now; {@link keep} wants this back with the list that came. */
  ask(owner: string): ListRequest {
    this.isUsed = true;
    const ownDrops = this.#ownDrops.get(owner);
    return { at: this.#clock.now(), owner, drops: this.#drops, ownDrops };
  }

  /** The page that is kept at one of the places, for requests that have passed the same. */
  lookup(slots: readonly Slot[], passed: string): KeptPage | undefined {
    const now = this.#clock.now();
    for (const { owner, key } of slots) {
      const entry = this.#owners.get(owner)?.get(key);
      if (entry === undefined || entry.passed !== passed) continue;
      // A clock may go back.
      if (now >= entry.askedAt && now < entry.until)
        return { page: entry.page, ageMs: now - entry.askedAt };
      this.#remove(owner, key);
    }
    return undefined;
  }

  /** Keeps a page that came, unless lists were dropped since it was asked for. */
  keep(slot: Slot, page: PageBytes, passed: string, asked: ListRequest): void {
    const { owner, key } = slot;
    const ttlMs = this.#ttlOf(page.hint);
    if (ttlMs === 0 || asked.drops !== this.#drops) return;
    if (asked.ownDrops !== this.#ownDrops.get(asked.owner)) return;
    this.#remove(owner, key);
    const entries = this.#owners.get(owner) ?? new Map<string, CachedPage>();
    this.#owners.delete(owner);
    this.#owners.set(owner, entries);
    entries.set(key, { page, passed, askedAt: asked.at, until: asked.at + ttlMs });
    const uses = this.#uses.get(page) ?? 0;
    this.#uses.set(page, uses + 1);
    if (uses === 0) this.#bytes += page.size;
    this.#bytes += key.length + ENTRY_BYTES;
    this.#makeRoom(owner, entries);
  }

  /**
   * The upstream's lists are others now; or those of one owner alone are not asked for any more.
   */
  drop(owner?: string): void {
    // What was asked for before may come after.
    if (owner === undefined || this.#ownDrops.size >= MOST_OWNERS) {
      this.#drops++;
      this.#ownDrops.clear();
    } else this.#ownDrops.set(owner, (this.#ownDrops.get(owner) ?? 0) + 1);
    const owners = owner === undefined ? [...this.#owners.keys()] : [owner];
    for (const each of owners)
      for (const key of [...(this.#owners.get(each)?.keys() ?? [])]) this.#remove(each, key);
  }

  /** Whether a page of that hint is everybody's. */
  isShared({ isPublic }: CacheHint): boolean {
    return isPublic || this.#options?.shared === true;
  }

  vary(req: CallerRequest): string | undefined {
    const varied = this.#options?.vary?.(req);
    if (varied === undefined || typeof varied === 'string') return varied;
    // A promise that nothing waits for would end the process if it were rejected.
    Promise.resolve(varied).catch(() => {});
    throw new InterlockError(
      'ERR_INTERLOCK_CONFIG',
      `fsmGate(): listCache.vary() must return a string or undefined; it returned ${showValue(varied)}`,
    );
  }

  /** What the client of a session said of itself; only a handshake in this process tells that. */
  clientOf(session: string): string | undefined {
    return this.#clients.get(session);
  }

  noteClient(session: string, client: string): void {
    this.#clients.set(session, client);
    const [oldest] = this.#clients.keys();
    if (this.#clients.size > MOST_CLIENTS && oldest !== undefined) this.#clients.delete(oldest);
  }

  /** From now on its lists are its own, until it shakes hands again. */
  forgetClient(session: string): void {
    this.#clients.delete(session);
  }

  #ttlOf({ ttlMs, isPublic }: CacheHint): number {
    if (this.#options === undefined) return isPublic ? ttlMs : 0;
    return this.#options.ttlMs ?? (ttlMs > 0 ? ttlMs : DEFAULT_TTL_MS);
  }

  #makeRoom(owner: string, entries: Map<string, CachedPage>): void {
    const [first] = entries.keys();
    if (entries.size > MOST_PAGES_EACH && first !== undefined) this.#remove(owner, first);
    for (const [oldest, all] of this.#owners) {
      if (this.#owners.size <= MOST_OWNERS && this.#bytes <= MOST_BYTES) return;
      for (const key of [...all.keys()]) this.#remove(oldest, key);
    }
  }

  #remove(owner: string, key: string): void {
    const entries = this.#owners.get(owner);
    const entry = entries?.get(key);
    if (entries === undefined || entry === undefined) return;
    entries.delete(key);
    if (entries.size === 0) this.#owners.delete(owner);
    this.#bytes -= key.length + ENTRY_BYTES;
    const uses = (this.#uses.get(entry.page) ?? 1) - 1;
    if (uses > 0) this.#uses.set(entry.page, uses);
    else {
      this.#uses.delete(entry.page);
      this.#bytes -= entry.page.size;
    }
  }
}

type OnError = (error: unknown) => void;

/** When a list was asked for, by what can make it void until it comes. */
interface ListRequest {
  readonly at: number;
  readonly owner: string;
  readonly drops: number;
  readonly ownDrops: number | undefined;
}

/** What the cache does in one exchange: it answers and keeps lists, and sees sessions end. */
export class CachedLists implements Filter {
  readonly stage = 'gate';
  readonly #cache: ListCache;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  /** The most general place first. Empty where the request must not be answered from the cache. */
  readonly #slots: readonly Slot[];
  #asked: ListRequest | undefined;

  constructor(cache: ListCache, exchange: Exchange, admission: Admission, onError: OnError) {
    this.#cache = cache;
    this.#exchange = exchange;
    this.#admission = admission;
    this.#slots = cache.isAsked || admission.era === 'stateless' ? this.#findSlots(onError) : [];
    if (exchange.req.method === 'DELETE') this.#endSession();
  }

  #findSlots(onError: OnError): readonly Slot[] {
    try {
      return slotsOf(this.#cache, this.#exchange, this.#admission);
    } catch (error) {
      onError(error);
      return [];
    }
  }

  pageKey(): string {
    return 'cached';
  }

  onHead(): void {
    const { req, messages, tap } = this.#exchange;
    // An upstream that does not know the session any more may give its id to another one.
    if (req.method === 'DELETE' || tap.res.statusCode === 404) this.#endSession();
    const [asked] = messages;
    if (asked?.method !== 'initialize' || !this.#cache.isAsked) return;
    const session = tap.res.getHeader('mcp-session-id');
    if (typeof session !== 'string') return;
    this.#cache.drop(ownerNamed('session', session));
    this.#cache.noteClient(session, digestOf(saidIn(asked.message)));
  }

  findPage(passed: string): KeptPage | undefined {
    const own = this.#slots.at(-1);
    this.#asked = own && this.#isAgreed ? this.#cache.ask(own.owner) : undefined;
    return this.#asked && this.#cache.lookup(this.#slots, passed);
  }

  onPage(page: PageBytes, passed: string): void {
    const { res } = this.#exchange.tap;
    const slot = this.#cache.isShared(page.hint) ? this.#slots[0] : this.#slots.at(-1);
    if (slot === undefined || this.#asked === undefined) return;
    if (res.statusCode !== 200 || res.hasHeader('set-cookie') || !isKeyed(res)) return;
    // It may be the page that an earlier request of this id asked for.
    if (this.#admission.session.hasStrays) return;
    this.#cache.keep(slot, page, passed, this.#asked);
  }

  /** What is known of the session here may be forgotten before a stray answer comes. */
  onClose(): void {
    const [kind, name] = this.#admission.taskOwner;
    if (kind === 'session' && this.#admission.session.hasStrays)
      this.#cache.forgetClient(String(name));
  }

  /** Several gates that were asked to keep lists must have been asked the same. */
  get #isAgreed(): boolean {
    return this.#exchange.filters.every(
      (filter) =>
        !(filter instanceof CachedLists) ||
        filter === this ||
        !filter.#cache.isAsked ||
        filter.#cache.isLike(this.#cache),
    );
  }

  #endSession(): void {
    const [kind, name] = this.#admission.taskOwner;
    if (kind !== 'session' || !this.#cache.isAsked) return;
    this.#cache.forgetClient(String(name));
    this.#cache.drop(ownerNamed(kind, name));
  }
}

function ownerNamed(kind: 'session' | 'principal', name: string | null | undefined): string {
  return JSON.stringify([kind, name]);
}

const MEMBERS: ReadonlySet<string> = new Set(['jsonrpc', 'id', 'method', 'params']);
const PARAMS: ReadonlySet<string> = new Set(['cursor', '_meta']);
const META = {
  version: META_CLAIM,
  info: 'io.modelcontextprotocol/clientInfo',
  capabilities: 'io.modelcontextprotocol/clientCapabilities',
} as const;
const META_KEYS: ReadonlySet<string> = new Set([...Object.values(META), 'progressToken']);
/** What tells hosts, origins and versions apart, wherever a proxy puts the host. */
const KEY_HEADERS = [
  ...['host', ':authority', 'x-forwarded-host', 'forwarded'],
  ...['origin', 'mcp-protocol-version'],
];
const CREDENTIALS = ['authorization', 'cookie'];
/** What an answer may vary by: the key has it, or what is kept is answered as JSON all the same. */
const VARIED: ReadonlySet<string> = new Set([...KEY_HEADERS, 'accept', 'accept-encoding']);
/** What a token allows, under the names that are in use. Never the token's own bytes. */
const ALLOWING = [
  ...['scopes', 'scope', 'scp', 'roles', 'groups', 'permissions', 'aud', 'resource'],
  ...['clientId', 'client_id', 'azp'],
];

/**
 * Where a list may be kept that answers this request; nowhere, where the upstream might answer it
 * otherwise than the next one of the kind.
 */
function slotsOf(
  cache: ListCache,
  exchange: Exchange,
  { era, principal, taskOwner }: Admission,
): readonly Slot[] {
  const { req, messages, isBatch } = exchange;
  const [asked] = messages;
  if (isBatch || asked?.kind !== 'request' || asked.method !== 'tools/list') return [];
  const { value } = asked.message;
  const { params = {} } = value;
  const isPlain = isObject(params) && has(value, MEMBERS) && has(params, PARAMS);
  const { cursor, _meta: meta = {} } = isPlain ? params : {};
  if (!isPlain || !isObject(meta) || !has(meta, META_KEYS) || !acceptsBoth(req)) return [];
  if (cursor !== undefined && typeof cursor !== 'string') return [];
  if (headerFault(req, asked, era) !== undefined) return [];
  const credentials = CREDENTIALS.map((name) => req.headers[name]);
  const isSomebody = credentials.some((each) => each !== undefined);
  if (principal === undefined && (era === 'stateless' || isSomebody || req.auth !== undefined))
    return [];
  const [kind, name] = taskOwner;
  const isSession = era === 'session';
  // Nothing says which client it is.
  if (isSession && (kind !== 'session' || name === null)) return [];
  const client = isSession ? cache.clientOf(String(name)) : 'itself';
  const { originalUrl = req.url } = req as { originalUrl?: unknown };
  const sent = KEY_HEADERS.map((header) => req.headers[header]);
  const said = saidIn(asked.message);
  const common = digestOf([era, originalUrl, sent, cursor, cache.vary(req), said, client]);
  const owner = isSession ? ownerNamed(kind, name) : ownerNamed('principal', principal);
  // Where authentication in front left nothing, the upstream may read more in them.
  const caller = [principal, allowedBy(req.auth), isObject(req.auth) ? [] : credentials];
  const own = { owner, key: `${common} ${digestOf(caller)}` };
  return client === undefined ? [own] : [{ owner: EVERYBODY, key: common }, own];
}

function has(object: JsonObject, known: ReadonlySet<string>): boolean {
  return Object.keys(object).every((key) => known.has(key));
}

/** Versions, name and capabilities of a client, as it says them itself, for a digest. */
function saidIn(message: Message): readonly unknown[] {
  const params = message.at('params');
  const { protocolVersion, clientInfo, capabilities, _meta } = isObject(params) ? params : {};
  const meta = isObject(_meta) ? _meta : {};
  const inMeta = Object.values(META).map((key) => meta[key]);
  const said = [protocolVersion, clientInfo, capabilities, ...inMeta];
  // A digest takes what is absent for null, which an upstream may refuse.
  return said.map((each) => (each === undefined ? [] : [each]));
}

/** Whether the answer varies by nothing but what requests are kept apart by. */
function isKeyed(res: HeadPort): boolean {
  const names = String(res.getHeader('vary') ?? '')
    .toLowerCase()
    .split(',');
  return names.map((name) => name.trim()).every((name) => name === '' || VARIED.has(name));
}

/** An answer from the cache is JSON; a client must take that and streams (MCP, Transports). */
function acceptsBoth(req: Exchange['req']): boolean {
  const accept = requestHeader(req, 'accept')?.toLowerCase() ?? '';
  const isBoth = accept.includes('application/json') && accept.includes('text/event-stream');
  return isBoth && !/;\s*q\s*=\s*0(?:\.0*)?\s*(?:,|$)/.test(accept);
}

/** What a caller may do, so far as authentication in front left it, as text. */
function allowedBy(auth: unknown): string {
  if (!isObject(auth)) return '';
  const places = [auth, auth.payload, auth.extra].filter(isObject);
  const allowed = places.map((place) => ALLOWING.map((name) => place[name]));
  return JSON.stringify(allowed, (_, value) =>
    value instanceof Set || value instanceof Map ? [...value] : value,
  );
}
