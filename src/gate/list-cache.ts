import type { Clock } from '../basics/clock.ts';
import { digestOf } from '../basics/digest.ts';
import { wrongAnswer } from '../basics/options.ts';
import type { CallerRequest } from '../session/callers.ts';
import type { Admission } from '../session/run.ts';
import type { Exchange } from '../wire/exchange.ts';
import type { Filter } from '../wire/filter.ts';
import { type HeadPort, headerFault, requestHeader } from '../wire/headers.ts';
import { isObject, type JsonObject, META_CLAIM, META_CLIENT } from '../wire/json-rpc.ts';
import type { Message } from '../wire/message.ts';
import type { CacheHint, KeptPage, PageBytes } from '../wire/pages.ts';

/** What `fsmGate({ listCache })` takes. */
export interface ListCacheOptions {
  /**
   * How long a list is kept, in milliseconds. Default: the upstream's `ttlMs` where that is more
   * than 0, else 5,000.
   */
  ttlMs?: number | undefined;
  /**
   * Says what else a list depends on, such as what your app knows of the user. Requests for which
   * it returns different strings never share a list. If it throws, `onError` gets the error, and
   * the upstream answers. Default: nothing else.
   */
  vary?: VaryBy['vary'] | undefined;
  /**
   * Whether the upstream lists the same tools for every caller. Default: where it says so itself,
   * by `cacheScope: 'public'`.
   */
  shared?: boolean | undefined;
}

interface VaryBy {
  // A method, so that its type also takes functions that want more of a request.
  vary(req: CallerRequest): string | undefined;
}

const DEFAULT_TTL_MS = 5_000;
/** An owner is a session, a principal, or all callers together. */
const MOST_OWNERS = 10_000;
const MOST_PAGES_EACH = 200;
/** Of all pages, each counted once, and their keys. */
const MOST_BYTES = 32 * 1024 * 1024;
/** About what a kept page takes up beside its bytes and its key. */
const ENTRY_BYTES = 256;
const MOST_CLIENTS = 10_000;
const ALL_CALLERS = 'all callers';

/** Where one list is kept: whose it is, and everything else that it depends on. */
interface Slot {
  readonly owner: string;
  readonly key: string;
}

/** One page as the upstream sent it. */
interface CachedPage {
  readonly page: PageBytes;
  /**
   * The middlewares that the request had passed: only a request that passed the same may get it.
   */
  readonly passed: string;
  readonly askedAt: number;
  readonly until: number;
}

/**
 * Keeps the upstream's lists of tools, to answer without it. It hides which callers share a list,
 * how long a list is good, and how many are kept.
 */
export class ListCache {
  readonly #options: ListCacheOptions | undefined;
  readonly #clock: Clock;
  readonly #owners = new Map<string, Map<string, CachedPage>>();
  /** In how many slots each page is kept: most sessions have the same page. */
  readonly #uses = new Map<PageBytes, number>();
  #bytes = 0;
  /** By session, a digest of what its client said of itself in `initialize`. */
  readonly #clients = new Map<string, string>();
  #drops = 0;
  /** How often the lists of one owner alone were dropped. */
  readonly #ownDrops = new Map<string, number>();
  /**
   * Whether the app asks to keep lists; else only those are kept that the upstream calls public.
   */
  readonly isAsked: boolean;
  /** Whether a list may be kept, or may be on its way from the upstream. */
  isUsed: boolean;

  private constructor(options: ListCacheOptions | undefined, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
    this.isAsked = options !== undefined;
    this.isUsed = this.isAsked;
  }

  /** `undefined` keeps only what a stateless-era upstream calls public; `false` keeps nothing. */
  static of(option: boolean | ListCacheOptions | undefined, clock: Clock): ListCache | undefined {
    if (option === false) return undefined;
    return new ListCache(option === true ? {} : option, clock);
  }

  /** Whether another gate's cache keeps the same lists for the same requests. */
  isLike(other: ListCache): boolean {
    const [one, two] = [this.#options, other.#options];
    if (one === undefined || two === undefined) return one === two;
    return (
      one.ttlMs === two.ttlMs &&
      one.vary === two.vary &&
      (one.shared === true) === (two.shared === true)
    );
  }

  /** Notes that an owner asks for a list now. Give this to {@link keep} with the list that came. */
  ask(owner: string): ListRequest {
    this.isUsed = true;
    const ownDrops = this.#ownDrops.get(owner);
    return { at: this.#clock.now(), owner, drops: this.#drops, ownDrops };
  }

  /** A page in one of the slots, for a request that has passed these middlewares. */
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

  /** Keeps a page, unless its owner's lists were dropped after it was asked for. */
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

  /** Forgets all lists, because the upstream's changed; or those of one owner, who is gone. */
  drop(owner?: string): void {
    // A list that was asked for before may come later, and must not be kept.
    if (owner === undefined || this.#ownDrops.size >= MOST_OWNERS) {
      this.#drops++;
      this.#ownDrops.clear();
    } else this.#ownDrops.set(owner, (this.#ownDrops.get(owner) ?? 0) + 1);
    const owners = owner === undefined ? [...this.#owners.keys()] : [owner];
    for (const each of owners)
      for (const key of [...(this.#owners.get(each)?.keys() ?? [])]) this.#remove(each, key);
  }

  /** Whether all callers share a page with that hint. */
  isShared({ isPublic }: CacheHint): boolean {
    return isPublic || this.#options?.shared === true;
  }

  vary(req: CallerRequest): string | undefined {
    const varied = this.#options?.vary?.(req);
    if (varied === undefined || typeof varied === 'string') return varied;
    throw wrongAnswer('fsmGate(): listCache.vary() must return a string or undefined', varied);
  }

  /** The digest of a session's client; unknown where `initialize` came to another process. */
  clientOf(session: string): string | undefined {
    return this.#clients.get(session);
  }

  noteClient(session: string, client: string): void {
    this.#clients.set(session, client);
    const [oldest] = this.#clients.keys();
    if (this.#clients.size > MOST_CLIENTS && oldest !== undefined) this.#clients.delete(oldest);
  }

  /** From now on the session shares no list, until it is initialized again. */
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

/** When a list was asked for, and how many drops came before: a drop after it makes it void. */
interface ListRequest {
  readonly at: number;
  readonly owner: string;
  readonly drops: number;
  readonly ownDrops: number | undefined;
}

/** The cache's part in one exchange: answers a list or keeps it, and sees sessions end. */
export class CachedLists implements Filter {
  readonly stage = 'gate';
  readonly #cache: ListCache;
  readonly #exchange: Exchange;
  readonly #admission: Admission;
  /** The most widely shared slot first. Empty where the upstream must answer. */
  readonly #slots: readonly Slot[];
  #asked: ListRequest | undefined;

  constructor(cache: ListCache, exchange: Exchange, admission: Admission, onError: OnError) {
    this.#cache = cache;
    this.#exchange = exchange;
    this.#admission = admission;
    let slots: readonly Slot[] = [];
    try {
      const isUsed = cache.isAsked || admission.era === 'stateless';
      if (isUsed) slots = slotsOf(cache, exchange, admission);
    } catch (error) {
      onError(error);
    }
    this.#slots = slots;
    if (exchange.req.method === 'DELETE') this.#endSession();
  }

  pageKey(): string {
    return 'cached';
  }

  onHead(): void {
    const { req, messages, tap } = this.#exchange;
    // An upstream that has forgotten the session may give its id to another client.
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
    const control = namesIn(res, 'cache-control');
    const isPrivate = control.includes('private');
    const isShared = !isPrivate && this.#cache.isShared(page.hint);
    const slot = isShared ? this.#slots[0] : this.#slots.at(-1);
    if (slot === undefined || this.#asked === undefined) return;
    if (res.statusCode !== 200 || res.hasHeader('set-cookie')) return;
    // The answer may vary by something that the key leaves out.
    if (namesIn(res, 'vary').some((name) => name !== '' && !VARIED.has(name))) return;
    // What the page says of itself does not outdo the headers that it comes with.
    if (control.includes('no-store') || (isPrivate && !this.#cache.isAsked)) return;
    // The page may answer an earlier request that had the same id.
    if (this.#admission.session.hasStrays) return;
    this.#cache.keep(slot, page, passed, this.#asked);
  }

  /**
   * This process may forget the stray request before its answer comes: share nothing until then.
   */
  onClose(): void {
    const [kind, name] = this.#admission.taskOwner;
    if (kind === 'session' && this.#admission.session.hasStrays)
      this.#cache.forgetClient(String(name));
  }

  /** Gates on one route that are asked to keep lists must keep the same ones. */
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
  info: META_CLIENT,
  capabilities: 'io.modelcontextprotocol/clientCapabilities',
} as const;
const META_KEYS: ReadonlySet<string> = new Set([...Object.values(META), 'progressToken']);
/**
 * Headers that no list depends on. Requests that differ in another one never share a list: an
 * upstream may read its address, a path or a caller's key there.
 */
const HARMLESS: ReadonlySet<string> = new Set([
  // Those that this module reads itself.
  ...['accept', 'accept-encoding', 'authorization', 'cookie', 'mcp-session-id'],
  // Those of one connection, one body or one cache.
  ...['connection', 'keep-alive', 'te', 'expect', 'content-length', 'content-type'],
  ...['transfer-encoding', 'date', 'priority', 'cache-control', 'pragma', 'last-event-id'],
  // Those that name one request, or where it came from.
  ...['traceparent', 'tracestate', 'x-request-id', 'x-correlation-id', 'x-amzn-trace-id'],
  ...['b3', 'x-b3-traceid', 'x-b3-spanid', 'x-b3-parentspanid', 'x-b3-sampled', 'cf-ray'],
  ...['x-cloud-trace-context', 'x-forwarded-for', 'x-real-ip'],
]);
const CREDENTIALS = ['authorization', 'cookie'];
/** What an answer may vary by and still be kept. Kept answers are JSON in every case. */
const VARIED: ReadonlySet<string> = new Set([
  ...['host', ':authority', 'x-forwarded-host', 'forwarded', 'origin', 'mcp-protocol-version'],
  ...['accept', 'accept-encoding'],
]);
/** The common names for what a token allows. The token's own bytes are never used. */
const ALLOWING = [
  ...['scopes', 'scope', 'scp', 'roles', 'groups', 'permissions', 'aud', 'resource'],
  ...['clientId', 'client_id', 'azp'],
];

/**
 * Where a list that answers this request may be kept. None, where the upstream might answer a
 * similar request with another list.
 */
function slotsOf(
  cache: ListCache,
  exchange: Exchange,
  { era, identity: { principal }, taskOwner }: Admission,
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
  const hasCredentials = credentials.some((each) => each !== undefined);
  if (principal === undefined && (era === 'stateless' || hasCredentials || req.auth !== undefined))
    return [];
  const [kind, name] = taskOwner;
  const isSession = era === 'session';
  // Nothing in the request says which client sent it.
  if (isSession && (kind !== 'session' || name === null)) return [];
  const client = isSession ? cache.clientOf(String(name)) : 'itself';
  const { originalUrl = req.url } = req as { originalUrl?: unknown };
  const sent = Object.entries(req.headers).filter(([header]) => !HARMLESS.has(header));
  const said = saidIn(asked.message);
  const common = digestOf([
    era,
    originalUrl,
    Object.fromEntries(sent),
    cursor,
    cache.vary(req),
    said,
    client,
  ]);
  const owner = isSession ? ownerNamed(kind, name) : ownerNamed('principal', principal);
  // If no middleware in front has read the credentials, the upstream may read anything in them.
  const caller = [principal, allowedBy(req.auth), isObject(req.auth) ? [] : credentials];
  const own = { owner, key: `${common} ${digestOf(caller)}` };
  return client === undefined ? [own] : [{ owner: ALL_CALLERS, key: common }, own];
}

function has(object: JsonObject, known: ReadonlySet<string>): boolean {
  return Object.keys(object).every((key) => known.has(key));
}

/** What a client says of itself, for a digest: versions, name and capabilities. */
function saidIn(message: Message): readonly unknown[] {
  const params = message.at('params');
  const { protocolVersion, clientInfo, capabilities, _meta } = isObject(params) ? params : {};
  const meta = isObject(_meta) ? _meta : {};
  const inMeta = Object.values(META).map((key) => meta[key]);
  const said = [protocolVersion, clientInfo, capabilities, ...inMeta];
  // A digest takes an absent member for null, but an upstream may answer the two differently.
  return said.map((each) => (each === undefined ? [] : [each]));
}

/** The names in a header that is a list, without their values, in lower case. */
function namesIn(res: HeadPort, header: string): readonly string[] {
  const members = String(res.getHeader(header) ?? '').split(',');
  return members.map((member) => (member.split('=')[0] ?? '').trim().toLowerCase());
}

/** Whether the client takes JSON, as a kept answer is, and streams: MCP asks for both. */
function acceptsBoth(req: Exchange['req']): boolean {
  const accept = requestHeader(req, 'accept')?.toLowerCase() ?? '';
  const isBoth = accept.includes('application/json') && accept.includes('text/event-stream');
  return isBoth && !/;\s*q\s*=\s*0(?:\.0*)?\s*(?:,|$)/.test(accept);
}

/** What the caller may do, as authentication in front of the gate has left it. */
function allowedBy(auth: unknown): string {
  if (!isObject(auth)) return '';
  const places = [auth, auth.payload, auth.extra].filter(isObject);
  const allowed = places.map((place) => ALLOWING.map((name) => place[name]));
  return JSON.stringify(allowed, (_, value) =>
    value instanceof Set || value instanceof Map ? [...value] : value,
  );
}
