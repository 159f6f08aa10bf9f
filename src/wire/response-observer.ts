import type { JsonObject } from './json-rpc.ts';
import type { Message } from './message.ts';
import type { RecalledPage } from './pages.ts';
import type { Payload } from './payload.ts';
import type { HeadPort } from './ports.ts';
import type { MaybePromise } from './task-line.ts';

/**
 * How a response's body is treated: `sse` event by event as it streams, `json` whole, `raw` not at
 * all; `stream` and `empty` when the middleware answers instead of the upstream; `unreadable` when
 * it ought to be inspected and cannot be.
 */
export type BodyMode = 'pending' | 'sse' | 'json' | 'raw' | 'stream' | 'empty' | 'unreadable';

/**
 * What the exchange decides about a response while it passes. Whatever throws or rejects here makes
 * the response unreadable.
 */
export interface ResponseObserver {
  /** The upstream's status and headers are known, and nothing is sent. */
  classify(res: HeadPort): BodyMode;
  /** Right before the headers go. Last chance to change them; may wait. */
  onHead(): MaybePromise<void>;
  /**
   * Whether these bytes could hold a message that somebody must see. Cheap; `true` when in doubt.
   */
  wants(bytes: Buffer): boolean;
  onMessage(message: Message): MaybePromise<void>;
  /** What became of the very same bytes before, where they are a page that is remembered. */
  recall(bytes: Buffer): MaybePromise<RecalledPage | undefined>;
  /** These bytes were just passed on in that form; tells what to recall from now on. */
  remember(bytes: Buffer, payload: Payload): void;
  /** A response with this id went out on a stream. Must not throw. */
  onSent(id: unknown): void;
  /** The upstream is done. What is returned still goes out, as further messages. */
  onEnd(): MaybePromise<JsonObject[]>;
  /** Whether an event stream goes on although the upstream is done. */
  staysOpen(): boolean;
  /** The middleware's answers that belong into this response, handed out once. */
  takeAnswers(): JsonObject[];
  /**
   * What the client is told instead of a body that nobody could inspect, or of the rest of a stream
   * that has begun.
   */
  onUnreadable(hasBegun: boolean): MaybePromise<JsonObject[]>;
  /** The client left while its departure is kept from the upstream. Must not throw. */
  onDepart(): void;
  /**
   * The connection closed, or the upstream finished after the client had left. Called once. Must
   * not throw.
   */
  onClose(): void;
  /** Must not throw. */
  onError(error: unknown): void;
}
