import type { Exchange } from '../wire/exchange.ts';
import { requestHeader } from '../wire/headers.ts';
import { LateResponses } from '../wire/late-responses.ts';

const MAX_SESSIONS = 10_000;

/**
 * What is remembered for replays of responses, by the session id that requests carry. The oldest
 * sessions are forgotten first.
 */
export class LateNotes {
  readonly #sessions = new Map<string, LateResponses>();

  /** The notes of this exchange's session, if there are any. */
  find(exchange: Exchange): LateResponses | undefined {
    return this.#sessions.get(sessionOf(exchange));
  }

  /** The same, begun where there are none. */
  open(exchange: Exchange): LateResponses {
    const known = this.find(exchange);
    if (known !== undefined) return known;
    const opened = new LateResponses();
    this.#sessions.set(sessionOf(exchange), opened);
    const [oldest] = this.#sessions.keys();
    if (this.#sessions.size > MAX_SESSIONS && oldest !== undefined) this.#sessions.delete(oldest);
    return opened;
  }
}

function sessionOf(exchange: Exchange): string {
  return requestHeader(exchange.req, 'mcp-session-id') ?? '';
}
