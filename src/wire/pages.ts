import type { Incoming } from './incoming.ts';
import { isObject, type RequestId } from './json-rpc.ts';
import { memberSpans, rootSpan } from './json-text.ts';
import type { Message, Payload } from './message.ts';
import { after, inOrder, type MaybePromise } from './task-line.ts';

/** What is remembered at most, in bytes of both what came and what it became. */
const MOST_BYTES = 8 * 1024 * 1024;
const MOST_PAGES = 256;

/** What the answer to `tools/list` consists of. With anything else in it, other parts may have a say. */
const MEMBERS: ReadonlySet<string> = new Set(['jsonrpc', 'id', 'result']);
const RESULT_MEMBERS: ReadonlySet<string> = new Set([
  ...['tools', 'nextCursor', 'ttlMs', 'cacheScope', 'resultType', '_meta'],
]);
const TOOLS = Buffer.from('"tools"');

/** The bytes of one page of tools, with a place for the id of the request that it answers. */
export class PageBytes {
  readonly #head: Buffer;
  readonly #tail: Buffer;

  private constructor(head: Buffer, tail: Buffer) {
    this.#head = head;
    this.#tail = tail;
  }

  /** `undefined` where the text has not one id, but none or several. */
  static of(text: string): PageBytes | undefined {
    const members = memberSpans(text, rootSpan(text).start);
    const [id, ...more] = members.filter(({ key }) => key === 'id');
    if (id === undefined || more.length > 0) return undefined;
    return new PageBytes(Buffer.from(text.slice(0, id.start)), Buffer.from(text.slice(id.end)));
  }

  /** Without the id. */
  get size(): number {
    return this.#head.length + this.#tail.length;
  }

  /** Whether those bytes are this page with that id, written as JSON. */
  isIn(bytes: Uint8Array, id: Uint8Array): boolean {
    const at = this.#head.length;
    return (
      bytes.length === this.size + id.length &&
      this.#tail.compare(bytes, at + id.length) === 0 &&
      this.#head.compare(bytes, 0, at) === 0 &&
      Buffer.compare(bytes.subarray(at, at + id.length), id) === 0
    );
  }

  with(id: Uint8Array): Buffer {
    const bytes = Buffer.allocUnsafe(this.size + id.length);
    bytes.set(this.#head);
    bytes.set(id, this.#head.length);
    bytes.set(this.#tail, this.#head.length + id.length);
    return bytes;
  }
}

/** A page as the upstream sent it, and what the middlewares made of it. */
interface KnownPage {
  readonly sent: PageBytes;
  readonly shown: PageBytes;
}

/**
 * What pages of tools have become before. An upstream mostly sends the same page again and again:
 * it need not be read, filtered and written each time. The oldest pages are forgotten first.
 */
export class PageMemory {
  readonly #pages = new Map<string, KnownPage>();
  #bytes = 0;

  /** What these bytes became under that key, whatever their id; `undefined` unless it is known. */
  recall(key: string, sent: Uint8Array, id: Uint8Array): Buffer | undefined {
    const known = this.#pages.get(placeOf(key, sent.length - id.length));
    return known?.sent.isIn(sent, id) ? known.shown.with(id) : undefined;
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

/** A page that became the same before, and the id of the request that it answers. */
export interface RecalledPage {
  readonly id: RequestId;
  readonly bytes: Buffer;
}

/** As much of a part as a page is remembered by. */
interface PageStage {
  readonly pages?: PageMemory;
  pageKey?(): MaybePromise<string | undefined>;
  onMessage?(message: Message): unknown;
}

/**
 * The page of tools that one request asks for: remembered with what all parts together make of it,
 * or not at all.
 */
export class AskedPage {
  readonly #id: RequestId;
  readonly #idBytes: Buffer;
  #key: string | undefined;
  #memory: PageMemory | undefined;

  /** `undefined` where anything else is asked for, or more. */
  static of(messages: readonly Incoming[]): AskedPage | undefined {
    const [asked] = messages;
    if (asked?.method !== 'tools/list' || asked.id === undefined || messages.length > 1) return;
    return new AskedPage(asked.id);
  }

  private constructor(id: RequestId) {
    this.#id = id;
    this.#idBytes = Buffer.from(JSON.stringify(id));
  }

  /** What the parts made of these bytes before, where they would do it again. */
  recall(parts: readonly PageStage[], sent: Buffer): MaybePromise<RecalledPage | undefined> {
    this.#key = undefined;
    this.#memory = parts.find(({ pages }) => pages !== undefined)?.pages;
    const memory = this.#memory;
    if (memory === undefined || !sent.includes(TOOLS)) return undefined;
    return after(keyOf(parts), (key) => {
      this.#key = key;
      const bytes = key && memory.recall(key, sent, this.#idBytes);
      return bytes ? { id: this.#id, bytes } : undefined;
    });
  }

  /** The parts have seen the page: what they made of it is remembered, where that can be. */
  keep(sent: Buffer, payload: Payload): void {
    const [message] = payload.messages;
    if (this.#key === undefined || message === undefined || !isWhole(payload, message)) return;
    const before = PageBytes.of(sent.toString());
    const shown = before?.isIn(sent, this.#idBytes) ? PageBytes.of(payload.textWith()) : undefined;
    if (before !== undefined && shown !== undefined)
      this.#memory?.keep(this.#key, { sent: before, shown });
  }
}

/** `undefined` where one of the parts makes of a page what hangs on more than its key. */
function keyOf(parts: readonly PageStage[]): MaybePromise<string | undefined> {
  const keys: string[] = [];
  const seeing = parts.filter(({ onMessage }) => onMessage !== undefined);
  const asked = inOrder(seeing, (part) =>
    after(part.pageKey?.(), (key) => {
      if (key !== undefined) keys.push(key);
    }),
  );
  return after(asked, () => (keys.length === seeing.length ? keys.join('\n') : undefined));
}

/** Whether nothing but a page is there, and nothing else goes out with it. */
function isWhole(payload: Payload, { value, before, dropped }: Message): boolean {
  if (payload.isBatch || dropped || before.length > 0) return false;
  const { result } = value;
  return (
    isObject(result) &&
    Array.isArray(result.tools) &&
    Object.keys(value).every((key) => MEMBERS.has(key)) &&
    Object.keys(result).every((key) => RESULT_MEMBERS.has(key))
  );
}

const names = new WeakMap<object, string>();
let lastName = 0;

/** A name for an object, by which a part's key may tell it from all others of the process. */
export function nameOf(object: object): string {
  const name = names.get(object) ?? String(++lastName);
  names.set(object, name);
  return name;
}
