import type { BodyReader, ReaderContext } from './body-reader.ts';
import type { JsonObject } from './json-rpc.ts';
import type { RecalledPage } from './pages.ts';
import { Payload } from './payload.ts';
import {
  formatEvent,
  parseEvent,
  type SingleData,
  type SseEvent,
  SseSplitter,
  singleDataOf,
  withoutByteOrderMark,
} from './sse.ts';
import { after, inOrder, type MaybePromise } from './task-line.ts';

/** Passes a stream of events on, one by one as they come. */
export class SseReader implements BodyReader {
  readonly #context: ReaderContext;
  readonly #splitter = new SseSplitter();
  #isFirst = true;
  #begun = false;
  /** What waits for the first response, since the headers depend on it. */
  #held: Buffer[] | undefined;
  #heldBytes = 0;

  constructor(context: ReaderContext) {
    this.#context = context;
    this.#held = context.limits.holdHead ? [] : undefined;
  }

  begin(): void {
    this.#context.res.removeHeader('content-length');
  }

  write(bytes: Buffer): MaybePromise<void> {
    const blocks = this.#splitter.push(bytes);
    return after(
      inOrder(blocks, (block) => this.#look(block)),
      () => this.#limit(this.#splitter.heldBytes),
    );
  }

  flush(): MaybePromise<void> {
    if (this.#held === undefined) return this.#begin();
  }

  inject(event: Buffer): MaybePromise<void> {
    return this.#send(event);
  }

  async end(last: Buffer): Promise<void> {
    const { observer, out, isReplaced } = this.#context;
    await this.write(last);
    // An event that no blank line ended is never dispatched by a client, so nobody needs to see it
    // whole.
    const rest = this.#splitter.rest();
    if (rest.length > 0 && !observer.wants(rest)) await this.#send(rest);
    const added = await observer.onEnd();
    if (isReplaced()) return;
    await this.#begin();
    for (const message of added) out.writeEvent(eventOf(message));
    if (!observer.staysOpen()) await out.end();
  }

  #look(block: Buffer): MaybePromise<void> {
    const { observer } = this.#context;
    this.#limit(block.length);
    // A byte order mark counts only in front of everything, and something may come to stand in
    // front of it.
    const bytes = this.#isFirst ? withoutByteOrderMark(block) : block;
    this.#isFirst = false;
    if (observer.wants(bytes)) return this.#inspect(bytes);
    // What nobody looks at, nobody waits for.
    return after(this.#begin(), () => this.#send(bytes));
  }

  #inspect(bytes: Buffer): MaybePromise<void> {
    const single = singleDataOf(bytes);
    if (single?.event.type !== 'message') return this.#read(bytes);
    return after(this.#context.observer.recall(single.data), (known) =>
      known === undefined ? this.#read(bytes, single.data) : this.#passKnown(single, known),
    );
  }

  /** A page that became the same before. */
  #passKnown({ event, with: block }: SingleData, page: RecalledPage): MaybePromise<void> {
    const { onEventId, observer } = this.#context;
    if (event.hasId) onEventId();
    return after(this.#send(block(page.bytes)), () => observer.onSent(page.id));
  }

  #read(bytes: Buffer, data?: Buffer): MaybePromise<void> {
    const { observer, onEventId } = this.#context;
    const event = parseEvent(bytes.toString());
    if (event.hasId) onEventId();
    // An event without data primes a resumption; one of another type is no message (MCP,
    // Transports, "Sending Messages").
    if (!event.data || event.type !== 'message') return this.#send(bytes);
    const payload = Payload.parse(event.data);
    if (payload === undefined) return this.#leaveOut();
    const responses = payload.messages
      .map(({ value }) => value)
      .filter(({ method }) => method === undefined);
    const ids = responses.map(({ id }) => id);
    return after(
      inOrder(payload.messages, (message) => observer.onMessage(message)),
      () => {
        if (data !== undefined) observer.remember(data, payload);
        return after(ids.length > 0 ? this.#begin() : undefined, () =>
          this.#pass(payload, event, bytes, ids),
        );
      },
    );
  }

  #pass(
    payload: Payload,
    event: SseEvent,
    bytes: Buffer,
    ids: readonly unknown[],
  ): MaybePromise<void> {
    if (this.#context.isReplaced()) return;
    const { changed, messages } = payload;
    const own = changed ? Buffer.from(formatEvent(payload.textWith(), event.otherLines)) : bytes;
    const before = messages.flatMap((message) => message.before).map(eventOf);
    const passed = messages.every((message) => message.dropped) ? before : [...before, own];
    return after(this.#send(passed.length === 1 ? own : Buffer.concat(passed)), () => {
      for (const id of ids) this.#context.observer.onSent(id);
    });
  }

  /** No client can read it, and it could be part of the very list that must be filtered. */
  #leaveOut(): void {
    this.#context.observer.onError(
      new Error('an event of a response is not JSON-RPC, and was left out'),
    );
  }

  /** The headers, the middleware's own answers, and what waited for them. */
  #begin(): MaybePromise<void> {
    if (this.#begun || this.#context.isReplaced()) return;
    this.#begun = true;
    const { out, observer } = this.#context;
    return after(out.sendHead(), () => {
      for (const answer of observer.takeAnswers()) out.writeEvent(eventOf(answer));
      for (const bytes of this.#held ?? []) out.writeEvent(bytes);
      this.#held = undefined;
    });
  }

  #send(bytes: Buffer): MaybePromise<void> {
    if (this.#context.isReplaced()) return;
    if (this.#held === undefined)
      return after(this.#begin(), () => this.#context.out.writeEvent(bytes));
    this.#held.push(Buffer.from(bytes));
    this.#heldBytes += bytes.length;
    this.#limit(this.#heldBytes);
  }

  #limit(bytes: number): void {
    const { maxMessageBytes } = this.#context.limits;
    if (bytes > maxMessageBytes) {
      throw new Error(`an event of a response is larger than maxMessageBytes, ${maxMessageBytes}`);
    }
  }
}

/**
 * A message of the middleware's own as an event. It carries no id: no client may resume after it.
 */
export function eventOf(message: JsonObject): Buffer {
  return Buffer.from(formatEvent(JSON.stringify(message)));
}
