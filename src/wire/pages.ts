import { NOTHING } from './body.ts';
import { isObject } from './json-rpc.ts';
import { type MemberSpan, memberSpans, rootSpan } from './json-text.ts';

/** The most bytes of pages that are remembered, both as they came and as they went out. */
const MOST_BYTES = 16 * 1024 * 1024;
const MOST_PAGES = 256;
const MOST_LENGTHS = 16;
/** Up to so many bytes, to copy a page is cheaper than to send it in pieces. */
const SHORT = 32 * 1024;

/** How a client may cache a page (MCP 2026-07-28, "Caching"). */
export interface CacheHint {
  /** In milliseconds; 0 where the page gives no time. */
  readonly ttlMs: number;
  /** Whether the page is the same for every caller. */
  readonly isPublic: boolean;
}

/** The place of a value that differs in each answer. */
interface Hole {
  readonly of: 'id' | 'ttlMs';
  /** The value as it was written in the page. */
  readonly was: Buffer;
}

/**
 * The bytes of one page of tools. It has holes for the id of the request that it answers, and for
 * the time that the client may cache it.
 */
export class PageBytes {
  readonly hint: CacheHint;
  /** In bytes, without the id. */
  readonly size: number;
  /** The bytes around the holes: one piece more than holes. */
  readonly #pieces: readonly Buffer[];
  readonly #holes: readonly Hole[];

  private constructor(pieces: readonly Buffer[], holes: readonly Hole[], hint: CacheHint) {
    this.#pieces = pieces;
    this.#holes = holes;
    this.hint = hint;
    const times = holes.flatMap(({ of, was }) => (of === 'id' ? [] : [was]));
    this.size = [...pieces, ...times].reduce((sum, { length }) => sum + length, 0);
  }

  /** `undefined` where a member that matters is missing or repeated. */
  static of(text: string): PageBytes | undefined {
    const members = memberSpans(text, rootSpan(text).start);
    const id = only(members, 'id');
    const result = only(members, 'result');
    if (id === undefined || result === undefined) return undefined;
    const inResult = memberSpans(text, result.start);
    const [ttl, scope] = [only(inResult, 'ttlMs'), only(inResult, 'cacheScope')];
    if (inResult.length > new Set(inResult.map(({ key }) => key)).size) return undefined;
    const isTime = ttl !== undefined && /^\d{1,15}$/.test(text.slice(ttl.start, ttl.end));
    // From a time in another form, the page's age cannot be subtracted.
    if (ttl !== undefined && !isTime) return undefined;
    const spans = [{ of: 'id' as const, at: id }];
    const all = isTime ? [...spans, { of: 'ttlMs' as const, at: ttl }] : spans;
    const sorted = all.sort((one, other) => one.at.start - other.at.start);
    const pieces: Buffer[] = [];
    const holes: Hole[] = [];
    let from = 0;
    for (const { of, at } of sorted) {
      pieces.push(Buffer.from(text.slice(from, at.start)));
      holes.push({ of, was: Buffer.from(text.slice(at.start, at.end)) });
      from = at.end;
    }
    pieces.push(Buffer.from(text.slice(from)));
    return new PageBytes(pieces, holes, {
      ttlMs: isTime ? Number(text.slice(ttl.start, ttl.end)) : 0,
      isPublic: scope !== undefined && text.slice(scope.start, scope.end) === '"public"',
    });
  }

  /** Whether the bytes are this page with that id, which is written as JSON. */
  isIn(bytes: Uint8Array, id: Uint8Array): boolean {
    let at = 0;
    for (const piece of this.#filled(id)) {
      if (Buffer.compare(bytes.subarray(at, at + piece.length), piece) !== 0) return false;
      at += piece.length;
    }
    return at === bytes.length;
  }

  with(id: Uint8Array): Buffer {
    return Buffer.concat(this.#filled(id));
  }

  isSame(other: PageBytes): boolean {
    return (
      this === other ||
      (this.size === other.size &&
        this.#pieces.length === other.#pieces.length &&
        this.#pieces.every((piece, at) => piece.equals(other.#pieces[at] ?? NOTHING)) &&
        this.#holes.every(({ of, was }, at) => {
          const hole = other.#holes[at];
          return of === hole?.of && (of === 'id' || was.equals(hole.was));
        }))
    );
  }

  /**
   * The page with that id, in pieces. Long pieces are not copied: do not write to them.
   *
   * @param ageMs how long the page was kept; the client may cache it for so much less
   */
  pieces(id: Uint8Array, ageMs: number): readonly Uint8Array[] {
    const pieces = this.#filled(id, ageMs);
    return this.size > SHORT ? pieces : [Buffer.concat(pieces)];
  }

  #filled(id: Uint8Array, ageMs = 0): Uint8Array[] {
    return this.#pieces.flatMap((piece, at) => {
      const hole = this.#holes[at];
      if (hole === undefined) return [piece];
      if (hole.of === 'id') return [piece, id];
      const left = Math.max(0, Math.ceil(Number(hole.was) - ageMs));
      return [piece, ageMs === 0 ? hole.was : Buffer.from(String(left))];
    });
  }
}

function only(members: readonly MemberSpan[], name: string): MemberSpan | undefined {
  const [member, ...more] = members.filter(({ key }) => key === name);
  return more.length === 0 ? member : undefined;
}

/** A page as the upstream sent it, and as the middlewares showed it. */
export interface KnownPage {
  readonly sent: PageBytes;
  readonly shown: PageBytes;
  /** How many tools they showed. */
  readonly tools: number;
}

/**
 * Remembers what the filters made of pages of tools. Most upstreams send the same page again and
 * again, which need not be parsed, filtered and written each time. The oldest pages are forgotten
 * first.
 */
export class PageMemory {
  readonly #pages = new Map<string, KnownPage>();
  /** The last page of each length. */
  readonly #sent = new Map<number, PageBytes>();
  #bytes = 0;

  /**
   * An earlier page of the same bytes, or else this one. So runs in different states share one
   * object, which is fast to compare.
   */
  one(page: PageBytes): PageBytes {
    const known = this.#sent.get(page.size);
    if (known?.isSame(page)) return known;
    if (page.size > MOST_BYTES / MOST_LENGTHS) return page;
    this.#sent.set(page.size, page);
    const [oldest] = this.#sent.keys();
    if (this.#sent.size > MOST_LENGTHS && oldest !== undefined) this.#sent.delete(oldest);
    return page;
  }

  /** The page with these bytes and any id, where it was kept under this key. */
  recall(key: string, sent: Uint8Array, id: Uint8Array): KnownPage | undefined {
    const known = this.#pages.get(placeOf(key, sent.length - id.length));
    return known?.sent.isIn(sent, id) ? known : undefined;
  }

  /** The same for a page that is at hand. */
  recallPage(key: string, sent: PageBytes): KnownPage | undefined {
    const known = this.#pages.get(placeOf(key, sent.size));
    return known?.sent.isSame(sent) ? known : undefined;
  }

  keep(key: string, page: KnownPage): void {
    const place = placeOf(key, page.sent.size);
    this.#forget(place);
    if (sizeOf(page) > MOST_BYTES) return;
    this.#pages.set(place, page);
    this.#bytes += sizeOf(page);
    for (const oldest of this.#pages.keys()) {
      if (this.#pages.size <= MOST_PAGES && this.#bytes <= MOST_BYTES) break;
      this.#forget(oldest);
    }
  }

  #forget(place: string): void {
    const page = this.#pages.get(place);
    if (page !== undefined) this.#bytes -= sizeOf(page);
    this.#pages.delete(place);
  }
}

/** Pages of one key with different lengths are kept side by side, such as those of cursors. */
function placeOf(key: string, length: number): string {
  return `${length} ${key}`;
}

function sizeOf({ sent, shown }: KnownPage): number {
  return sent.size + shown.size;
}

/** A page of the upstream's, and for how long it was kept. */
export interface KeptPage {
  readonly page: PageBytes;
  readonly ageMs: number;
}

const names = new WeakMap<object, string>();
let lastName = 0;

/** A name for an object, which no other object of the process has: for use in keys. */
export function uniqueNameOf(object: object): string {
  const name = names.get(object) ?? String(++lastName);
  names.set(object, name);
  return name;
}

/** The most tools that are remembered, in case that an upstream keeps making up new ones. */
const MAX_TOOLS = 10_000;

/** What a tool's annotations promise: `readOnlyHint`, `idempotentHint`, or neither. */
type ToolHint = 'read-only' | 'idempotent' | 'none';

/**
 * Remembers the annotations of the tools that lists have shown (MCP, Tools, "ToolAnnotations"). A
 * tool that no list has shown yet has no hint.
 */
export class ToolHints {
  readonly #hints = new Map<string, ToolHint>();
  #changes = 0;

  /** Grows each time that a page changes a hint. */
  get version(): number {
    return this.#changes;
  }

  /** Remembers the hints of one page. */
  note(tools: readonly unknown[]): void {
    for (const tool of tools) {
      if (!isObject(tool) || typeof tool.name !== 'string') continue;
      const hint = hintOf(tool.annotations);
      if (this.#hints.get(tool.name) === hint) continue;
      if (this.#hints.size >= MAX_TOOLS && !this.#hints.has(tool.name)) continue;
      this.#hints.set(tool.name, hint);
      this.#changes++;
    }
  }

  /** Whether the tool promises to change nothing. */
  isReadOnly(tool: string): boolean {
    return this.#hints.get(tool) === 'read-only';
  }

  /** Whether the tool may run again with the same arguments. */
  isRepeatable(tool: string): boolean {
    return (this.#hints.get(tool) ?? 'none') !== 'none';
  }
}

function hintOf(annotations: unknown): ToolHint {
  if (!isObject(annotations)) return 'none';
  if (annotations.readOnlyHint === true) return 'read-only';
  return annotations.idempotentHint === true ? 'idempotent' : 'none';
}
