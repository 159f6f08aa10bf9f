import type { HeadPort } from './ports.ts';
import type { ResponseObserver } from './response-observer.ts';
import type { ResponseOut } from './response-out.ts';
import type { MaybePromise } from './task-line.ts';

/**
 * Reads one kind of body. Its calls come one after another; what it throws or rejects makes the
 * response unreadable.
 */
export interface BodyReader {
  /** The status and headers are known. */
  begin(): MaybePromise<void>;
  write(bytes: Buffer): MaybePromise<void>;
  /** The upstream wants its headers on their way. */
  flush(): MaybePromise<void>;
  /** The upstream is done; `last` may be empty. */
  end(last: Buffer): MaybePromise<void>;
  /** An event of the middleware's own, where the body is a stream of events. */
  inject(event: Buffer): MaybePromise<void>;
}

/** What a reader works with. */
export interface ReaderContext {
  readonly res: HeadPort;
  readonly out: ResponseOut;
  readonly observer: ResponseObserver;
  readonly limits: ReaderLimits;
  /** Something else is sent in place of this body, which is only looked at. */
  isReplaced(): boolean;
  /** An event id went by: a client can resume this stream after it was cut. */
  onEventId(): void;
}

export interface ReaderLimits {
  /** The largest event or JSON body that is held for inspection, in bytes. */
  readonly maxMessageBytes: number;
  /** Whether headers wait for the first response: an `initialize` that fails mints no session. */
  readonly holdHead: boolean;
  /** Whether the request carried messages: then a JSON body of a success must be JSON-RPC. */
  readonly expectsMessages: boolean;
  /** Whether the request was a batch, whose answers are a batch too. */
  readonly isBatch: boolean;
}
