/**
 * What a client receives while its call waits for another one. Hides when it is notified, whom that
 * could harm, and how the upstream's own progress goes on from ours.
 */
import type { Clock } from '../basics/clock.ts';
import type { Call } from './call.ts';
import type { Filter } from './filter.ts';
import { acceptsEventStream, type RequestPort, requestHeader } from './headers.ts';
import { isLongId, isObject, isRequestId, notification, type RequestId } from './json-rpc.ts';
import type { Message } from './message.ts';
import type { Tap } from './tap.ts';

/** How long a call waits before its client is notified, and between two notifications. */
const EVERY_MS = 5_000;
const PROGRESS = 'notifications/progress';
const ALLOWED_ORIGIN = 'access-control-allow-origin';
/** In the bytes of each progress notification. A slash may be escaped, and this has none. */
const MARK = Buffer.from('progressToken');
/** For the user and the model. It names no tool, since one may be secret. */
const WORDS = 'Waiting for another call of this run';

/** The request whose call waits. An `Exchange` is one. */
interface WaitingRequest {
  readonly req: RequestPort;
  readonly messages: readonly Call[];
  readonly isBatch: boolean;
  readonly tap: Tap;
  join(filter: Filter): void;
}

/**
 * Notifies the client of one call that it waits, by the call's progress token. "The progress value
 * MUST increase with each notification" (MCP 2025-11-25, Utilities, "Progress"). So what the
 * upstream reports on the same stream is raised above ours, with its total.
 */
export class WaitNotice implements Filter {
  readonly stage = 'session';
  readonly #request: WaitingRequest;
  readonly #token: RequestId;
  readonly #clock: Clock;
  /** A call may wait many times, each time for a moment. */
  #dueAt: number;
  #sent = 0;
  /** By how much the upstream's progress is raised. */
  #raise: number | undefined;

  private constructor(request: WaitingRequest, token: RequestId, clock: Clock) {
    this.#request = request;
    this.#token = token;
    this.#clock = clock;
    this.#dueAt = clock.now() + EVERY_MS;
  }

  /**
   * `undefined` where the client did not ask for it, or could lose its answer by it. Some clients
   * read no batch in an event. A page of another origin reads nothing without CORS headers, which
   * the handler may have meant to set.
   */
  static of(request: WaitingRequest, clock: Clock): WaitNotice | undefined {
    const { req, messages, isBatch, tap } = request;
    const token = messages[0]?.message.at('params', '_meta', 'progressToken');
    if (isBatch || !isRequestId(token) || isLongId(token)) return undefined;
    const isReadable =
      requestHeader(req, 'origin') === undefined || tap.res.hasHeader(ALLOWED_ORIGIN);
    if (!isReadable || !acceptsEventStream(req)) return undefined;
    return new WaitNotice(request, token, clock);
  }

  /** The call waits until the returned function is called. */
  begin(): () => void {
    let stop = (): void => {};
    const sleep = (): void => {
      const now = this.#clock.now();
      // The clock may be set back.
      this.#dueAt = Math.min(this.#dueAt, now + EVERY_MS);
      stop = this.#clock.after(Math.max(0, this.#dueAt - now), () => {
        this.#notify();
        sleep();
      });
    };
    sleep();
    return () => stop();
  }

  #notify(): void {
    this.#dueAt = this.#clock.now() + EVERY_MS;
    if (this.#sent === 0) this.#request.join(this);
    this.#sent += 1;
    const params = { progressToken: this.#token, progress: this.#sent, message: WORDS };
    this.#request.tap.notifyAhead(notification(PROGRESS, params));
  }

  wants(bytes: Buffer): boolean {
    return bytes.includes(MARK);
  }

  onMessage(message: Message): void {
    const { method, params } = message.value;
    if (method !== PROGRESS || !isObject(params) || params.progressToken !== this.#token) return;
    const { progress, total } = params;
    if (typeof progress !== 'number') return;
    // Servers begin with 0 or more, so that the first one is above ours.
    this.#raise ??= this.#sent + 1 - Math.min(0, progress);
    message.set(['params', 'progress'], progress + this.#raise);
    if (typeof total === 'number') message.set(['params', 'total'], total + this.#raise);
  }
}
