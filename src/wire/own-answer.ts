import type { JsonObject } from './json-rpc.ts';
import type { ResponsePort } from './ports.ts';
import type { ResponseObserver } from './response-observer.ts';
import type { ResponseOut } from './response-out.ts';
import { eventOf } from './sse-reader.ts';

/** What goes out in place of the upstream's body, or of the rest of it. */
export class OwnAnswer {
  readonly #res: ResponsePort;
  readonly #out: ResponseOut;
  readonly #isBatch: boolean;

  constructor(res: ResponsePort, out: ResponseOut, isBatch: boolean) {
    this.#res = res;
    this.#out = out;
    this.#isBatch = isBatch;
  }

  give(status: number, body: JsonObject | JsonObject[] | undefined): void | Promise<void> {
    this.#res.statusCode = status;
    return this.#out.endWith(body === undefined ? undefined : JSON.stringify(body));
  }

  /** The last messages: of a stream that has begun, or else in the shape of the request. */
  async giveLast(messages: JsonObject[], observer: ResponseObserver): Promise<void> {
    if (this.#out.ended) return;
    const all = [...observer.takeAnswers(), ...messages];
    if (this.#out.headSent) return this.#endStream(all);
    await this.give(all.length === 0 ? 202 : 200, this.#inShape(all));
  }

  /**
   * An error for whoever waits for a response; in the midst of a body that is no stream there is no
   * place for it.
   */
  async refuse(observer: ResponseObserver, isStream: boolean): Promise<void> {
    if (this.#out.ended) return;
    const hasBegun = this.#out.headSent;
    const messages = await observer.onUnreadable(hasBegun);
    if (hasBegun) return this.#endStream(isStream ? messages : []);
    await this.give(502, this.#inShape(messages));
  }

  async #endStream(messages: readonly JsonObject[]): Promise<void> {
    for (const message of messages) this.#out.writeEvent(eventOf(message));
    await this.#out.end();
  }

  #inShape(messages: JsonObject[]): JsonObject | JsonObject[] | undefined {
    return messages.length > 1 || (this.#isBatch && messages.length > 0) ? messages : messages[0];
  }
}
