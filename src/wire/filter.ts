import type { Call } from './call.ts';
import type { HeadPort } from './headers.ts';
import { isObject, type JsonObject, type RequestId } from './json-rpc.ts';
import { type Message, Payload } from './message.ts';
import { type KeptPage, PageBytes, type PageMemory } from './pages.ts';
import { after, inOrder, type MaybePromise } from './task-line.ts';

/**
 * What one middleware does in an exchange. Responses run through the filters in the order of their
 * stages, however the middlewares are mounted: what a step came to is known before anybody
 * decorates it.
 */
export interface Filter {
  readonly stage: 'session' | 'gate' | 'sync';
  /**
   * Whether these bytes could hold a message that this filter must see. Cheap; `true` when in
   * doubt.
   */
  wants?(bytes: Buffer): boolean;
  /** Right before the headers go. Last chance to change them; may wait. */
  onHead?(): MaybePromise<void>;
  onMessage?(message: Message): MaybePromise<void>;
  /** The upstream is done; what is returned is sent after its last message. */
  onEnd?(): MaybePromise<JsonObject[]>;
  /**
   * Whether an event stream goes on although the upstream is done; whoever says so ends it through
   * the tap.
   */
  staysOpen?(): boolean;
  /** The host says that nothing of the request was sent on, though it was handed to it. */
  onNotForwarded?(): Promise<unknown>;
  /** The response cannot be read; the client is told so. */
  onUnreadable?(): MaybePromise<void>;
  /** The client left while its departure is kept from the upstream. */
  onDepart?(): void;
  /**
   * The connection closed, or the upstream finished after the client had left. Told again where
   * headers come after that.
   */
  onClose?(): void;
  /**
   * Answers instead of the upstream, whose status and headers are known: with a stream, or with
   * nothing but headers.
   */
  takesOver?(res: HeadPort): 'stream' | 'empty' | undefined;
  /**
   * Asked right before a page of tools passes. Of the same page and the same key this filter makes
   * the same, and learns nothing new; `undefined` where that hangs on more. A filter that sees
   * messages and has no key keeps pages from being remembered.
   */
  pageKey?(): MaybePromise<string | undefined>;
  /** The page has passed, or none does: what was read for its key is too old for the next one. */
  forgetKey?(): void;
  /** Where what becomes of pages is remembered; that of the first filter counts. */
  readonly pages?: PageMemory;
  /**
   * A page that was kept, to answer `tools/list` with. Only the first filter that has this is
   * asked.
   * `passed` names the middlewares that the request has passed so far.
   */
  findPage?(passed: string): KeptPage | undefined;
  /** The same filter is told of each page that came for such a request. */
  onPage?(page: PageBytes, passed: string): void;
}

const STAGES = ['session', 'gate', 'sync'] as const;

/**
 * The filters with one more, in the order of their stages; within one, in the order of mounting.
 */
export function withFilter(filters: readonly Filter[], filter: Filter): Filter[] {
  const later = filters.findIndex(
    ({ stage }) => STAGES.indexOf(stage) > STAGES.indexOf(filter.stage),
  );
  return filters.toSpliced(later === -1 ? filters.length : later, 0, filter);
}

/** Whether one of them must see these bytes. */
export function anyWants(filters: readonly Filter[], bytes: Buffer): boolean {
  for (const filter of filters) if (filter.wants?.(bytes)) return true;
  return false;
}

/** What they still have to say, as further messages. */
export function lastWords(filters: readonly Filter[]): MaybePromise<readonly JsonObject[]> {
  let last: readonly JsonObject[] = [];
  const asked = inOrder(filters, (filter) => {
    if (filter.onEnd === undefined) return;
    return after(filter.onEnd(), (more) => {
      if (more.length > 0) last = [...last, ...more];
    });
  });
  return asked === undefined ? last : asked.then(() => last);
}

/** Tells each of them of the connection, at which nothing may be thrown. */
export function tell(
  of: { readonly filters: readonly Filter[]; onError(error: unknown): void },
  event: (filter: Filter) => void,
): void {
  for (const filter of of.filters) {
    try {
      event(filter);
    } catch (error) {
      of.onError(error);
    }
  }
}

// --- Pages of tools ---

/** What the answer to `tools/list` consists of. With more in it, other filters may have a say. */
const MEMBERS: ReadonlySet<string> = new Set(['jsonrpc', 'id', 'result']);
const RESULT_MEMBERS: ReadonlySet<string> = new Set([
  ...['tools', 'nextCursor', 'ttlMs', 'cacheScope', 'resultType', '_meta'],
]);
const TOOLS = Buffer.from('"tools"');

/** A page that became the same before, and the id of the request that it answers. */
export interface RecalledPage {
  readonly id: RequestId;
  readonly bytes: Buffer;
}

/** A whole answer, in pieces that must not be written to. */
export type Answer = readonly Uint8Array[] | undefined;

/**
 * The page of tools that one request asks for: remembered with what all filters together make of
 * it, or not at all. Where a filter keeps the upstream's pages, the upstream is not even asked.
 */
export class AskedPage {
  readonly #id: RequestId;
  readonly #idBytes: Buffer;
  #passed = '';
  #key: string | undefined;

  /** `undefined` where anything else is asked for, or more. */
  static of(messages: readonly Call[]): AskedPage | undefined {
    const [asked] = messages;
    if (asked?.method !== 'tools/list' || asked.id === undefined || messages.length > 1) return;
    return new AskedPage(asked.id);
  }

  private constructor(id: RequestId) {
    this.#id = id;
    this.#idBytes = Buffer.from(JSON.stringify(id));
  }

  /**
   * The answer, where the upstream need not be asked.
   *
   * @param passed which middlewares the request has passed: all that the kept page had, or it is
   * not the whole answer
   */
  answer(filters: readonly Filter[], passed: string): MaybePromise<Answer> {
    this.#passed = passed;
    const kept = keeperOf(filters)?.findPage?.(passed);
    const memory = memoryOf(filters);
    if (kept === undefined || memory === undefined) return undefined;
    const answer = after(keyOf(filters), (key) =>
      key === undefined ? undefined : this.#answerWith(kept, filters, key, memory),
    );
    return after(answer, (given) => {
      forgetKeys(filters);
      return given;
    });
  }

  #answerWith(
    { page, ageMs }: KeptPage,
    filters: readonly Filter[],
    key: string,
    memory: PageMemory,
  ): MaybePromise<Answer> {
    const known = memory.recallPage(key, page);
    if (known !== undefined) return known.shown.pieces(this.#idBytes, ageMs);
    const payload = Payload.parse(page.with(this.#idBytes).toString());
    const [message] = payload?.messages ?? [];
    if (payload === undefined || message === undefined) return undefined;
    const seen = inOrder(filters, (filter) => filter.onMessage?.(message));
    return after(seen, () => {
      const shown = shownIn(payload);
      if (shown !== undefined) memory.keep(key, { sent: page, shown });
      return shown?.pieces(this.#idBytes, ageMs);
    });
  }

  /** What the filters made of these bytes before, where they would do it again. */
  recall(filters: readonly Filter[], sent: Buffer): MaybePromise<RecalledPage | undefined> {
    this.#key = undefined;
    const memory = memoryOf(filters);
    if (memory === undefined || !sent.includes(TOOLS)) return undefined;
    return after(keyOf(filters), (key) => {
      this.#key = key;
      const known = key === undefined ? undefined : memory.recall(key, sent, this.#idBytes);
      if (known === undefined) return undefined;
      forgetKeys(filters);
      this.#tell(filters, known.sent);
      return { id: this.#id, bytes: known.shown.with(this.#idBytes) };
    });
  }

  /** The filters have seen the page: what they made of it is remembered, where that can be. */
  keep(filters: readonly Filter[], sent: Buffer, payload: Payload): void {
    forgetKeys(filters);
    const shown = this.#key === undefined ? undefined : shownIn(payload);
    const read = shown && PageBytes.of(sent.toString());
    const memory = memoryOf(filters);
    if (this.#key === undefined || shown === undefined || !read?.isIn(sent, this.#idBytes)) return;
    const page = memory?.one(read) ?? read;
    memory?.keep(this.#key, { sent: page, shown });
    this.#tell(filters, page);
  }

  #tell(filters: readonly Filter[], page: PageBytes): void {
    keeperOf(filters)?.onPage?.(page, this.#passed);
  }
}

function memoryOf(filters: readonly Filter[]): PageMemory | undefined {
  return filters.find(({ pages }) => pages !== undefined)?.pages;
}

function keeperOf(filters: readonly Filter[]): Filter | undefined {
  return filters.find(({ findPage }) => findPage !== undefined);
}

function forgetKeys(filters: readonly Filter[]): void {
  for (const filter of filters) filter.forgetKey?.();
}

/** `undefined` where one of the filters makes of a page what hangs on more than its key. */
function keyOf(filters: readonly Filter[]): MaybePromise<string | undefined> {
  const keys: string[] = [];
  const seeing = filters.filter(({ onMessage }) => onMessage !== undefined);
  const asked = inOrder(seeing, (filter) =>
    after(filter.pageKey?.(), (key) => {
      if (key !== undefined) keys.push(key);
    }),
  );
  return after(asked, () => (keys.length === seeing.length ? keys.join('\n') : undefined));
}

/** The page as it goes out; `undefined` where anything but it is there, or goes out with it. */
function shownIn(payload: Payload): PageBytes | undefined {
  const [message, ...more] = payload.messages;
  if (message === undefined || more.length > 0 || payload.isBatch) return undefined;
  const { value, before, dropped } = message;
  const { result } = value;
  const isPage =
    isObject(result) &&
    Array.isArray(result.tools) &&
    Object.keys(value).every((key) => MEMBERS.has(key)) &&
    Object.keys(result).every((key) => RESULT_MEMBERS.has(key));
  return isPage && !dropped && before.length === 0 ? PageBytes.of(payload.textWith()) : undefined;
}
