import type { BodyReader, ReaderContext } from './body-reader.ts';
import { JsonReader } from './json-reader.ts';
import type { BodyMode } from './response-observer.ts';
import { SseReader } from './sse-reader.ts';
import { after } from './task-line.ts';

/** The upstream's body is not read at all. */
export const IGNORE: BodyReader = { begin() {}, write() {}, flush() {}, end() {}, inject() {} };

export function readerFor(mode: BodyMode, context: ReaderContext): BodyReader {
  switch (mode) {
    case 'sse':
      return new SseReader(context);
    case 'json':
      return new JsonReader(context);
    case 'raw':
      return rawReader(context);
    case 'stream':
      return ownStream(context);
    case 'empty':
      return { ...IGNORE, begin: () => context.out.endWith(undefined) };
    default:
      return UNREADABLE;
  }
}

const UNREADABLE: BodyReader = {
  ...IGNORE,
  begin() {
    throw new Error('a response is of a type or an encoding that cannot be inspected');
  },
};

/** A body that is nobody's business: it passes as it came. */
function rawReader({ out, observer }: ReaderContext): BodyReader {
  return {
    ...IGNORE,
    write: (bytes) => after(out.sendHead(), () => out.write(bytes)),
    flush: () => out.sendHead(),
    async end(last) {
      await observer.onEnd();
      await out.end(last);
    },
  };
}

/** A stream of the middleware's own, whatever the upstream writes. */
function ownStream({ out }: ReaderContext): BodyReader {
  return {
    ...IGNORE,
    begin() {
      out.dropBodyHeaders();
      return after(out.sendHead(), () => out.flush());
    },
    inject: (event) => out.writeEvent(event),
  };
}
