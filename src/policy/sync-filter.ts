/**
 * Shows policies to the model: directives in the descriptions of tools, and a note in the answer
 * that made data stale. Hides how a note is written once, also where an answer is replayed.
 */
import { putNewest } from '../basics/clock.ts';
import type { Events } from '../basics/events.ts';
import { ownText } from '../basics/names.ts';
import { LateResponses } from '../wire/call.ts';
import type { Exchange } from '../wire/exchange.ts';
import { type Filter, TOOLS_MARK } from '../wire/filter.ts';
import { requestHeader } from '../wire/headers.ts';
import { isObject, isRequestId, type JsonObject, type RequestId } from '../wire/json-rpc.ts';
import type { ElementEdit, Message } from '../wire/message.ts';
import { type PageMemory, type ToolHints, uniqueNameOf } from '../wire/pages.ts';
import type { MaybePromise } from '../wire/task-line.ts';
import type {
  CacheDirective,
  InvalidationEvent,
  PolicyEngine,
  ResourceNotification,
  StateSyncConfig,
} from './engine.ts';

/** What all requests of one mounted `stateSync()` share. */
export interface SyncConfig extends Pick<StateSyncConfig, 'onInvalidation' | 'notificationSink'> {
  readonly engine: PolicyEngine;
  readonly placement: 'append' | 'prepend';
  readonly now: () => number;
  readonly notes: LateNotes;
  readonly hints: ToolHints;
  readonly pages: PageMemory;
}

/** A call that makes data stale if it succeeds. */
interface Mutation {
  readonly id: RequestId;
  readonly tool: string;
  readonly patterns: readonly string[];
  isReported: boolean;
}

/** Decorates the lists and the successful changes of one exchange. */
export class SyncFilter implements Filter {
  readonly stage = 'sync';
  readonly config: SyncConfig;
  readonly #exchange: Exchange;
  readonly #events: Events;
  /** By id; `undefined` where the exchange has none. */
  #mutations: Map<RequestId, Mutation> | undefined;

  constructor(config: SyncConfig, exchange: Exchange, events: Events) {
    this.config = config;
    this.#exchange = exchange;
    this.#events = events;
    for (const request of exchange.requests) {
      const { id, method } = request;
      const tool = method === 'tools/call' ? request.named : undefined;
      if (typeof tool !== 'string' || id === undefined) continue;
      const patterns = staleAfter(tool, config);
      if (patterns === undefined) continue;
      this.#mutations ??= new Map();
      this.#mutations.set(id, { id, tool, patterns, isReported: false });
    }
  }

  wants(bytes: Buffer): boolean {
    return (
      this.#mutations !== undefined || bytes.includes(TOOLS_MARK) || this.#replays !== undefined
    );
  }

  onMessage(message: Message): MaybePromise<void> {
    const { id, method, result } = message.value;
    if (method !== undefined || !isObject(result)) return;
    if (Array.isArray(result.tools)) {
      this.config.hints.note(message.pageAsSent('tools'));
      message.editElements(['result', 'tools'], (tool) => this.#decorated(tool));
    }
    if (!isRequestId(id)) return;
    const mutation = this.#mutations?.get(id);
    if (mutation !== undefined) this.#markStale(mutation, message);
    else return this.#replays?.apply(id, message);
  }

  get pages(): PageMemory {
    return this.config.pages;
  }

  pageKey(): string {
    return `${uniqueNameOf(this.config)} ${this.config.hints.version}`;
  }

  /** A response that is still missing comes on the stream that the client resumes. */
  onEnd(): JsonObject[] {
    if (this.#exchange.tap.resumable && this.#mutations !== undefined) {
      for (const [, mutation] of this.#mutations) this.#expectReplay(mutation);
    }
    return [];
  }

  onClose(): void {
    this.onEnd();
  }

  get #replays() {
    return this.#exchange.req.method === 'GET' ? this.config.notes.find(this.#exchange) : undefined;
  }

  #decorated(tool: unknown): ElementEdit {
    if (!isObject(tool) || typeof tool.name !== 'string') return 'keep';
    const directive = this.config.engine.resolve(tool.name)?.cacheControl;
    if (directive === undefined) return 'keep';
    const plain = typeof tool.description === 'string' ? tool.description : undefined;
    const description = decorateDescription(plain, directive);
    return description === plain ? 'keep' : { description };
  }

  /** Adds the note. A change that failed, or is not complete, made nothing stale. */
  #markStale(mutation: Mutation, message: Message): void {
    const { result } = message.value;
    if (!isObject(result) || result.isError === true || result.task !== undefined) return;
    if (result.resultType !== undefined && result.resultType !== 'complete') return;
    const { tool, patterns } = mutation;
    const block = { type: 'text', text: invalidationText(tool, patterns) };
    const where = this.config.placement === 'append' ? 'end' : 'start';
    message.insert(['result', 'content'], block, where);
    if (!mutation.isReported) {
      mutation.isReported = true;
      this.#notify(mutation);
    }
  }

  #expectReplay(mutation: Mutation): void {
    const notes = this.config.notes.open(this.#exchange);
    notes.expect(mutation.id, 'sync', (again) => this.#markStale(mutation, again));
  }

  /** Notifies the app once. What its functions throw, or reject with, is ignored. */
  #notify({ tool, patterns, id: requestId }: Mutation): void {
    if (this.#events.isOn) this.#events.publish({ type: 'invalidated', tool, patterns, requestId });
    const { onInvalidation, notificationSink, now } = this.config;
    try {
      onInvalidation?.(invalidationEvent(tool, patterns, now()));
    } catch {}
    if (notificationSink === undefined) return;
    for (const pattern of patterns) {
      try {
        Promise.resolve(notificationSink(staleNotification(pattern))).catch(() => {});
      } catch {}
    }
  }
}

/**
 * What a success of a tool makes stale. Tools that only read, and that a glob such as `cart.*`
 * matches, make nothing stale. Nor does a tool that invalidates itself alone: its answer is new.
 */
function staleAfter(tool: string, { engine, hints }: SyncConfig): readonly string[] | undefined {
  const patterns = engine.resolve(tool)?.invalidates;
  if (patterns === undefined || patterns.every((pattern) => pattern === tool)) return undefined;
  return hints.isReadOnly(tool) && engine.matchOf(tool) !== tool ? undefined : patterns;
}

const MAX_SESSIONS = 10_000;

/** The notes for answers that may be replayed, by session. The oldest sessions are forgotten. */
export class LateNotes {
  readonly #sessions = new Map<string, LateResponses>();

  /** The notes of this exchange's session, if it has any. */
  find(exchange: Exchange): LateResponses | undefined {
    return this.#sessions.get(sessionOf(exchange));
  }

  /** The notes of this exchange's session. Makes them where there are none. */
  open(exchange: Exchange): LateResponses {
    const known = this.find(exchange);
    if (known !== undefined) return known;
    const opened = new LateResponses();
    putNewest(this.#sessions, sessionOf(exchange), opened, MAX_SESSIONS);
    return opened;
  }
}

function sessionOf(exchange: Exchange): string {
  return requestHeader(exchange.req, 'mcp-session-id') ?? '';
}

const TAGS: Readonly<Record<CacheDirective, string>> = {
  'no-store': '[Cache-Control: no-store]',
  immutable: '[Cache-Control: immutable]',
};

/**
 * A tool's description with its directive at the end, such as `… [Cache-Control: no-store]`. It
 * replaces a directive that is there already, so decorating twice changes nothing.
 */
export function decorateDescription(
  description: string | undefined,
  directive: CacheDirective,
): string {
  const plain = withoutTags(description ?? '');
  return plain === '' ? TAGS[directive] : `${plain} ${TAGS[directive]}`;
}

function withoutTags(description: string): string {
  let text = description.trimEnd();
  let tag = tagAtEnd(text);
  while (tag !== undefined) {
    text = text.slice(0, -tag.length).trimEnd();
    tag = tagAtEnd(text);
  }
  return text;
}

function tagAtEnd(text: string): string | undefined {
  return Object.values(TAGS).find((tag) => text.endsWith(tag));
}

/** How much of a name to put into a text, in UTF-16 units. */
const LONGEST_NAME = 128;

/**
 * Control, format and default-ignorable characters, line separators, lone surrogates and square
 * brackets. By them a name could end its line or its brackets, or hide text.
 */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}[\]]/gu;

/**
 * Says to a model what went stale:
 * `[System: Cache invalidated for tasks.*, sprints.* — caused by tasks.update]`. Always one line in
 * one pair of brackets.
 */
export function invalidationText(causedBy: string, patterns: readonly string[]): string {
  const stale = patterns.map(legible).join(', ');
  return `[System: Cache invalidated for ${stale} — caused by ${legible(causedBy)}]`;
}

/** A name without unsafe characters, cut to length: a cut may leave half of a surrogate pair. */
function legible(name: string): string {
  return ownText(name.replace(UNSAFE, ''), LONGEST_NAME).replace(/\p{Cs}$/u, '');
}

/** The resource that names a stale pattern, such as `interlock://stale/sprints.*`. */
export function staleUri(pattern: string): string {
  return `interlock://stale/${encodeURIComponent(pattern.replace(/\p{Cs}/gu, '\uFFFD'))}`;
}

/** The notification that the data of a pattern have changed. */
export function staleNotification(pattern: string): ResourceNotification {
  return { method: 'notifications/resources/updated', params: { uri: staleUri(pattern) } };
}

/** What `onInvalidation` is given. `now` is in milliseconds since the epoch. */
export function invalidationEvent(
  causedBy: string,
  patterns: readonly string[],
  now: number,
): InvalidationEvent {
  return Object.freeze({
    causedBy,
    patterns: Object.freeze([...patterns]),
    timestamp: new Date(now).toISOString(),
  });
}
