import type { ServerResponse } from 'node:http';
import type { ResponseObserver } from './response-observer.ts';
import type { ResponseOut } from './response-out.ts';
import { after, type MaybePromise } from './task-line.ts';

/** Reads one kind of body. Its calls come one after another; what it throws or rejects makes the response unreadable. */
export interface BodyReader {
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
  readonly res: ServerResponse;
  readonly out: ResponseOut;
  readonly observer: ResponseObserver;
  readonly maxMessageBytes: number;
  /** The request was a batch, whose answers are a batch too. */
  readonly isBatch: boolean;
  /** Something else is sent in place of this body: nothing of it counts any more. */
  isReplaced(): boolean;
  /** An event id went by: a client can resume this stream after it was cut. */
  onEventId(): void;
}

/** A body that is nobody's business: it passes as it came. */
export function rawReader({ out, observer }: ReaderContext): BodyReader {
  return {
    write: (bytes) => after(out.sendHead(), () => out.write(bytes)),
    flush: () => out.flush(),
    async end(last) {
      await observer.onEnd();
      await out.end(last);
    },
    inject() {},
  };
}

/** A stream of the middleware's own, whatever the upstream writes. */
export function ownStreamReader({ out }: ReaderContext): BodyReader {
  return { ...IGNORE, inject: (event) => out.writeEvent(event) };
}

/** The upstream's body is not read at all. */
export const IGNORE: BodyReader = { write() {}, flush() {}, end() {}, inject() {} };
