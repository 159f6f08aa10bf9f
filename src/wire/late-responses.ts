import { idKey, type RequestId } from './json-rpc.ts';
import type { Message } from './message.ts';
import { inOrder, type MaybePromise } from './task-line.ts';

/** Does to a response, wherever it arrives, what its request's own exchange would have done. */
export type LateResponse = (message: Message) => MaybePromise<void>;

const MAX_REQUESTS = 100;

/**
 * Responses that come, or come again, on another stream than their request's: a client that lost a
 * stream resumes it with a GET and `Last-Event-ID` (MCP 2025-11-25, Transports, "Resumability and
 * Redelivery"). The oldest are forgotten first.
 */
export class LateResponses {
  readonly #requests = new Map<string, Map<string, LateResponse>>();

  get size(): number {
    return this.#requests.size;
  }

  /** One `part` has one say about a response; saying it again replaces it. */
  expect(id: RequestId, part: string, apply: LateResponse): void {
    const key = idKey(id);
    const parts = this.#requests.get(key) ?? new Map<string, LateResponse>();
    this.#requests.set(key, parts.set(part, apply));
    const [oldest] = this.#requests.keys();
    if (this.#requests.size > MAX_REQUESTS && oldest !== undefined) this.#requests.delete(oldest);
  }

  apply(id: RequestId, message: Message): MaybePromise<void> {
    const parts = this.#requests.get(idKey(id));
    if (parts !== undefined) return inOrder([...parts.values()], (apply) => apply(message));
  }
}
