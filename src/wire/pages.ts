import { isObject } from './json-rpc.ts';
import { type MemberSpan, memberSpans, rootSpan } from './json-text.ts';

/** What is remembered at most, in bytes of both what came and what it became. */
const MOST_BYTES = 16 * 1024 * 1024;
const MOST_PAGES = 256;
const MOST_LENGTHS = 16;
/** Of so many bytes a copy is cheaper than another piece. */
const SHORT = 32 * 1024;

const NOTHING = Buffer.alloc(0);

/** What a page says of how it may be kept (MCP 2026-07-28, "Caching"). */
export interface CacheHint {
  /** In milliseconds; 0 where it says nothing that can be understood. */
  readonly ttlMs: number;
  /** Whether it is the same for every caller. */
  readonly isPublic: boolean;
}

/** What stands in a page that is another value in each answer. */
interface Hole {
  readonly of: 'id' | 'ttlMs';
  /** As it was written in the page that it was cut from. */
  readonly was: Buffer;
}

/**
 * The bytes of one page of tools, with a place for the id of the request that it answers, and one
 * for how long the client may keep it.
 */
export class PageBytes {
  readonly hint: CacheHint;
  /** Without the id. */
  readonly size: number;
  /** One more than there are holes. */
  readonly #pieces: readonly Buffer[];
  readonly #holes: readonly Hole[];

  private constructor(pieces: readonly Buffer[], holes: readonly Hole[], hint: CacheHint) {
    this.#pieces = pieces;
    this.#holes = holes;
    this.hint = hint;
    const times = holes.flatMap(({ of, was }) => (of === 'id' ? [] : [was]));
    this.size = [...pieces, ...times].reduce((sum, { length }) => sum + length, 0);
  }

  /** `undefined` where one of the members that matter does not stand there just once. */
  static of(text: string): PageBytes | undefined {
    const members = memberSpans(text, rootSpan(text).start);
    const id = only(members, 'id');
    const result = only(members, 'result');
    if (id === undefined || result === undefined) return undefined;
    const inResult = memberSpans(text, result.start);
    const [ttl, scope] = [only(inResult, 'ttlMs'), only(inResult, 'cacheScope')];
    if (inResult.length > new Set(inResult.map(({ key }) => key)).size) return undefined;
    const isTime = ttl !== undefined && /^\d{1,15}$/.test(text.slice(ttl.start, ttl.end));
    // One that is written otherwise could not be lessened by the page's age.
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

  /** Whether those bytes are this page with that id, written as JSON. */
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
   * The same in pieces, of which the long ones are this page's own.
   *
   * @param ageMs for how long it was kept: the client may keep it for so much less
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

/** A page as the upstream sent it, and what the middlewares made of it. */
export interface KnownPage {
  readonly sent: PageBytes;
  readonly shown: PageBytes;
}

/**
 * What pages of tools have become before. An upstream mostly sends the same page again and again:
 * it need not be read, filtered and written each time. The oldest pages are forgotten first.
 */
export class PageMemory {
  readonly #pages = new Map<string, KnownPage>();
  /** The last page of each length. */
  readonly #sent = new Map<number, PageBytes>();
  #bytes = 0;

  /**
   * The page, or an earlier one of the same bytes: runs in different states share it, and telling
   * it from others costs nothing.
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

  /** The page that these bytes are, whatever their id, where it was seen under that key. */
  recall(key: string, sent: Uint8Array, id: Uint8Array): KnownPage | undefined {
    const known = this.#pages.get(placeOf(key, sent.length - id.length));
    return known?.sent.isIn(sent, id) ? known : undefined;
  }

  /** The same for a page that is kept. */
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

/** Pages of one key that differ in length stand side by side, such as those of several cursors. */
function placeOf(key: string, length: number): string {
  return `${length} ${key}`;
}

function sizeOf({ sent, shown }: KnownPage): number {
  return sent.size + shown.size;
}

/** A page of the upstream's that was kept, and for how long. */
export interface KeptPage {
  readonly page: PageBytes;
  readonly ageMs: number;
}

const names = new WeakMap<object, string>();
let lastName = 0;

/** A name for an object, by which a key may tell it from all others of the process. */
export function nameOf(object: object): string {
  const name = names.get(object) ?? String(++lastName);
  names.set(object, name);
  return name;
}

/** Never more tools than this are remembered of an upstream that keeps making up new ones. */
const MAX_TOOLS = 10_000;

/** What a tool may do, by its annotations: `readOnlyHint`, `idempotentHint`, or neither. */
type ToolHint = 'read-only' | 'idempotent' | 'none';

/**
 * What lists have taught this process of their tools' annotations (MCP, Tools, "ToolAnnotations").
 * A tool that no list has shown yet has no hint.
 */
export class ToolHints {
  readonly #hints = new Map<string, ToolHint>();
  #changes = 0;

  /**
   * Another number each time that a page changed what is known: an earlier one may say otherwise.
   */
  get version(): number {
    return this.#changes;
  }

  /** Takes note of one page. */
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

  /** Whether it changes nothing. */
  isReadOnly(tool: string): boolean {
    return this.#hints.get(tool) === 'read-only';
  }

  /** Whether it may run once more with the same arguments. */
  isRepeatable(tool: string): boolean {
    return (this.#hints.get(tool) ?? 'none') !== 'none';
  }
}

function hintOf(annotations: unknown): ToolHint {
  if (!isObject(annotations)) return 'none';
  if (annotations.readOnlyHint === true) return 'read-only';
  return annotations.idempotentHint === true ? 'idempotent' : 'none';
}
