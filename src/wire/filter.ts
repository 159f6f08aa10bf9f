import type { Call } from './call.ts';
import type { HeadPort } from './headers.ts';
import { isObject, type JsonObject, type RequestId } from './json-rpc.ts';
import { type Message, Payload } from './message.ts';
import { type KeptPage, type KnownPage, PageBytes, type PageMemory } from './pages.ts';
import { after, inOrder, type MaybePromise } from './task-line.ts';

/**
 * A middleware's part in an exchange. A response runs through the filters by stage, not in the
 * order of mounting: so a step's outcome is saved before `stateSync()` decorates the result.
 */
export interface Filter {
  readonly stage: 'session' | 'gate' | 'sync';
  /** Whether these bytes could hold a message for this filter. Cheap; `true` when in doubt. */
  wants?(bytes: Buffer): boolean;
  /**
   * Called right before the headers are sent: the last chance to change them. Where we have opened
   * the answer ourselves, once the upstream gives its head, which goes nowhere.
   */
  onHead?(): MaybePromise<void>;
  onMessage?(message: Message): MaybePromise<void>;
  /** The upstream is done. The returned messages are sent after its last one. */
  onEnd?(): MaybePromise<JsonObject[]>;
  /**
   * Whether the event stream stays open although the upstream is done. A filter that answers `true`
   * ends the stream later, through the tap.
   */
  staysOpen?(): boolean;
  /** The app was given the request, and then could not hand it on: nothing of it ran. */
  onNotForwarded?(): Promise<unknown>;
  /**
   * Whether an error answer is held back until it is whole, of any media type but an event stream.
   * Then `onEnd` can say what it proves, and its messages replace it.
   */
  holdsErrors?(): boolean;
  /** The response cannot be read. The client gets an error in its place. */
  onUnreadable?(): MaybePromise<void>;
  /** The client left, and the upstream does not know. */
  onDepart?(): void;
  /**
   * The connection closed, or the upstream finished after the client had left. Called again where
   * the headers come after that.
   */
  onClose?(): void;
  /**
   * Decides, by the upstream's status and headers, whether the filter answers in its place: with a
   * stream, or with headers alone.
   */
  takesOver?(res: HeadPort): 'stream' | 'empty' | undefined;
  /**
   * Called right before a page of tools passes. With the same page and the same key this filter
   * does the same, and learns nothing new. `undefined` where that depends on more. Where a filter
   * with `onMessage` has no key, no page is remembered.
   */
  pageKey?(): MaybePromise<string | undefined>;
  /** Drops the state that was read for the key: it is too old for the next page. */
  forgetKey?(): void;
  /** What the filters made of a page before goes out again, in place of `onMessage`. */
  onRecall?(page: KnownPage): void;
  /** Remembers pages. The first filter's memory counts. */
  readonly pages?: PageMemory;
  /**
   * A page of the upstream's, to answer `tools/list` with. Only the first filter that has this
   * method is asked.
   *
   * @param passed the names of the middlewares that the request has passed so far
   */
  findPage?(passed: string): KeptPage | undefined;
  /** Gives the same filter each page that the upstream sent for such a request. */
  onPage?(page: PageBytes, passed: string): void;
}

// --- What a filter looks for in bytes before it reads them ------------------------------------

/** A list of tools has it, unless it has {@link ESCAPED_ASCII}. */
export const TOOLS_MARK = Buffer.from('"tools"');
/** A text that has it may spell any mark in escapes. */
export const ESCAPED_ASCII = Buffer.from('\\u00');

// --- A request for a page of tools ------------------------------------------------------------

/** The members of a plain answer to `tools/list`. One with more is not remembered. */
const MEMBERS: ReadonlySet<string> = new Set(['jsonrpc', 'id', 'result']);
const RESULT_MEMBERS: ReadonlySet<string> = new Set([
  ...['tools', 'nextCursor', 'ttlMs', 'cacheScope', 'resultType', '_meta'],
]);

/** What the filters made of a page before, and the id of the request that it answers. */
interface RecalledPage {
  readonly id: RequestId;
  readonly bytes: Buffer;
}

/** A whole answer in pieces, which must not be written to. */
export type Answer = readonly Uint8Array[] | undefined;

/**
 * A request for one page of tools. What all filters together made of the page is remembered, or
 * nothing. Where a filter has kept the upstream's page, the upstream need not be asked.
 */
export class AskedPage {
  readonly #id: RequestId;
  readonly #idBytes: Buffer;
  #passed = '';
  #key: string | undefined;

  /** `undefined` where the messages are not one request for `tools/list`. */
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
   * @param passed the names of the middlewares that the request has passed. A filter gives a page
   * only to a request that has passed the same ones as the page's own.
   */
  answer(filters: readonly Filter[], passed: string): MaybePromise<Answer> {
    this.#passed = passed;
    const kept = keeperOf(filters)?.findPage?.(passed);
    const memory = pageMemoryOf(filters);
    if (kept === undefined || memory === undefined) return undefined;
    const answer = after(pageKeyOf(filters), (key) =>
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
    if (known !== undefined) {
      for (const filter of filters) filter.onRecall?.(known);
      return known.shown.pieces(this.#idBytes, ageMs);
    }
    const payload = Payload.parse(page.with(this.#idBytes).toString());
    const [message] = payload?.messages ?? [];
    if (payload === undefined || message === undefined) return undefined;
    const seen = inOrder(filters, (filter) => filter.onMessage?.(message));
    return after(seen, () => {
      const made = shownIn(payload);
      if (made !== undefined) memory.keep(key, { sent: page, ...made });
      return made?.shown.pieces(this.#idBytes, ageMs);
    });
  }

  /** What the filters made of the same bytes before, and would make again. */
  recall(filters: readonly Filter[], sent: Buffer): MaybePromise<RecalledPage | undefined> {
    this.#key = undefined;
    const memory = pageMemoryOf(filters);
    if (memory === undefined || !sent.includes(TOOLS_MARK)) return undefined;
    return after(pageKeyOf(filters), (key) => {
      this.#key = key;
      const known = key === undefined ? undefined : memory.recall(key, sent, this.#idBytes);
      if (known === undefined) return undefined;
      forgetKeys(filters);
      for (const filter of filters) filter.onRecall?.(known);
      this.#pass(filters, known.sent);
      return { id: this.#id, bytes: known.shown.with(this.#idBytes) };
    });
  }

  /** Remembers what the filters made of the page, where it depends on their keys alone. */
  keep(filters: readonly Filter[], sent: Buffer, payload: Payload): void {
    forgetKeys(filters);
    const made = this.#key === undefined ? undefined : shownIn(payload);
    const read = made && PageBytes.of(sent.toString());
    const memory = pageMemoryOf(filters);
    if (this.#key === undefined || made === undefined || !read?.isIn(sent, this.#idBytes)) return;
    const page = memory?.one(read) ?? read;
    memory?.keep(this.#key, { sent: page, ...made });
    this.#pass(filters, page);
  }

  #pass(filters: readonly Filter[], page: PageBytes): void {
    keeperOf(filters)?.onPage?.(page, this.#passed);
  }
}

function pageMemoryOf(filters: readonly Filter[]): PageMemory | undefined {
  return filters.find(({ pages }) => pages !== undefined)?.pages;
}

function keeperOf(filters: readonly Filter[]): Filter | undefined {
  return filters.find(({ findPage }) => findPage !== undefined);
}

function forgetKeys(filters: readonly Filter[]): void {
  for (const filter of filters) filter.forgetKey?.();
}

/** The filters' keys together; `undefined` where one that changes messages has none. */
function pageKeyOf(filters: readonly Filter[]): MaybePromise<string | undefined> {
  const keys: string[] = [];
  const seeing = filters.filter(({ onMessage }) => onMessage !== undefined);
  const asked = inOrder(seeing, (filter) =>
    after(filter.pageKey?.(), (key) => {
      if (key !== undefined) keys.push(key);
    }),
  );
  return after(asked, () => (keys.length === seeing.length ? keys.join('\n') : undefined));
}

/** The page as it goes out; `undefined` where other messages or members go out with it. */
function shownIn(payload: Payload): Omit<KnownPage, 'sent'> | undefined {
  const [message, ...more] = payload.messages;
  if (message === undefined || more.length > 0 || payload.isBatch) return undefined;
  const { value, before, dropped } = message;
  const { result } = value;
  if (!isObject(result) || !Array.isArray(result.tools)) return undefined;
  const isPage =
    Object.keys(value).every((key) => MEMBERS.has(key)) &&
    Object.keys(result).every((key) => RESULT_MEMBERS.has(key));
  if (!isPage || dropped || before.length > 0) return undefined;
  const shown = PageBytes.of(payload.textWith());
  return shown && { shown, tools: result.tools.length };
}
