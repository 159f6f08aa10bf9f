/**
 * Sees a request and its response on their way, and changes nothing of either. Hides how bytes are
 * copied, unpacked and read behind them.
 */
import type { ServerResponse } from 'node:http';
import * as zlib from 'node:zlib';
import { bytesOf, NOTHING } from './body.ts';
import type { Call } from './call.ts';
import { type HeaderList, isJsonType, pairsOf, type RequestPort } from './headers.ts';
import { type Message, Payload } from './message.ts';
import { parseSseEvent, SseSplitter, withoutByteOrderMark } from './sse.ts';

/** How much a witness holds in memory. What is larger passes unread. */
export interface WitnessLimits {
  readonly maxBodyBytes: number;
  readonly maxBatch: number;
  readonly maxMessageBytes: number;
}

/** A request as it came. */
export interface SeenRequest {
  readonly req: RequestPort;
  /** What handlers get: Node's request, or the `Request` of the Fetch API. */
  readonly source: object;
  /** None where it has no body, or one that was not read. */
  readonly messages: readonly Call[];
  readonly isBatch: boolean;
  /** Whether it has a body that could not be read, or is too large. */
  readonly isUnread: boolean;
}

/** Gets the response to a request. What it throws goes to the witness's `onError`. */
export interface ResponseWatcher {
  /** The upstream has given its status and headers, and they are about to be sent. */
  onHead?(head: SeenHead): void;
  /** A message of the response has gone out. */
  onMessage(message: Message): void;
  /** The response is over. `isRead`: all of it was read. */
  onEnd(isRead: boolean): void;
}

/** The head of a response. A header that the upstream has not set may be added. */
export interface SeenHead {
  readonly status: number;
  get(name: string): string | undefined;
  add(name: string, value: string): void;
}

/**
 * Shows the response to a watcher. It goes its own way, in the same pieces at the same time.
 *
 * V8 adds properties slowly to a response that Express has given a hidden class of its own. To
 * redefine one first turns it into a dictionary, which grows fast.
 */
export function watchResponse(
  res: ServerResponse,
  watcher: ResponseWatcher,
  limits: WitnessLimits,
  onError: (error: unknown) => void,
): void {
  const { destroyed, writeHead, write, end } = res;
  const copy = new ResponseCopy(watcher, limits.maxMessageBytes, onError);
  Object.defineProperty(res, 'destroyed', { value: destroyed, writable: true, enumerable: false });
  Object.assign(res, WATCHING, { [WATCHED]: { copy, writeHead, write, end } });
  res.once('close', () => copy.end(res.writableEnded));
}

const WATCHED = Symbol('mcp-interlock.watched');

type Watched = ServerResponse & {
  readonly [WATCHED]: { readonly copy: ResponseCopy } & Pick<
    ServerResponse,
    'writeHead' | 'write' | 'end'
  >;
};

/** What all watched responses share. Arguments go on as they came. */
const WATCHING = {
  writeHead(this: Watched, ...given: unknown[]): unknown {
    const { copy, writeHead } = this[WATCHED];
    copy.head(headOf(this, given));
    return Reflect.apply(writeHead, this, given);
  },
  write(this: Watched, ...given: unknown[]): unknown {
    const { copy, write } = this[WATCHED];
    const goesOn = Reflect.apply(write, this, given);
    copy.push(bytesOf(given[0], given[1]) ?? NOTHING);
    return goesOn;
  },
  end(this: Watched, ...given: unknown[]): unknown {
    const { copy, end } = this[WATCHED];
    // Where the head was not given before, Node gives it now.
    const ended = Reflect.apply(end, this, given);
    copy.push(bytesOf(given[0], given[1]) ?? NOTHING, true);
    copy.end(true);
    return ended;
  },
};

/**
 * The same for a response of the Fetch API. A body of JSON is read whole, so that the host can
 * state its length as it would have.
 */
export async function watchFetched(
  response: Response,
  watcher: ResponseWatcher,
  limits: WitnessLimits,
  onError: (error: unknown) => void,
): Promise<Response> {
  const copy = new ResponseCopy(watcher, limits.maxMessageBytes, onError);
  const { status, statusText, body } = response;
  const headers = new Headers(response.headers);
  copy.head({
    status,
    get: (name) => headers.get(name) ?? undefined,
    add: (name, value) => headers.set(name, value),
  });
  const init = { status, statusText, headers };
  if (body === null) {
    copy.end(true);
    return new Response(null, init);
  }
  const reader = body.getReader();
  const begun: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  const isJson = isJsonType(headers.get('content-type'));
  while (isJson && size <= limits.maxMessageBytes) {
    const { done, value } = await reader.read();
    if (done) {
      const whole = Buffer.concat(begun);
      copy.push(whole, true);
      copy.end(true);
      return new Response(whole, init);
    }
    begun.push(new Uint8Array(value));
    size += value.length;
  }
  const rest = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of begun) controller.enqueue(chunk);
    },
    async pull(controller) {
      const { done, value } = await reader.read();
      if (done) {
        controller.close();
        copy.end(begun.length === 0);
        return;
      }
      controller.enqueue(value);
      if (begun.length === 0) copy.push(Buffer.from(value));
    },
    async cancel(reason) {
      copy.end(false);
      await reader.cancel(reason);
    },
  });
  return new Response(rest, init);
}

/** A copy of a response, as far as it is read. */
class ResponseCopy {
  readonly #watcher: ResponseWatcher;
  readonly #most: number;
  readonly #onError: (error: unknown) => void;
  #kind: 'none' | 'json' | 'events' | undefined;
  #unpacked: zlib.Gunzip | zlib.BrotliDecompress | zlib.Inflate | undefined;
  #splitter: SseSplitter | undefined;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #isFirstEvent = true;
  #isRead = true;
  #isOver = false;
  #isFinished = false;

  constructor(watcher: ResponseWatcher, most: number, onError: (error: unknown) => void) {
    this.#watcher = watcher;
    this.#most = most;
    this.#onError = onError;
  }

  head(head: SeenHead): void {
    if (this.#kind !== undefined) return;
    const type = head.get('content-type');
    const isEvents = type?.toLowerCase().startsWith('text/event-stream') === true;
    this.#kind = isEvents ? 'events' : isJsonType(type) ? 'json' : 'none';
    this.#guard(() => this.#watcher.onHead?.(head));
    const encoding = head.get('content-encoding')?.toLowerCase() ?? 'identity';
    if (encoding === 'identity' || this.#kind === 'none') return;
    const make = UNPACKERS[encoding];
    if (make === undefined) {
      this.#giveUp();
      return;
    }
    this.#unpacked = make();
    this.#unpacked.on('data', (bytes: Buffer) => this.#read(bytes, true));
    this.#unpacked.on('error', () => this.#giveUp());
    this.#unpacked.on('end', () => this.#finish());
  }

  /** @param isLast whether it is ended at once: else the writer may use its memory again */
  push(bytes: Buffer, isLast = false): void {
    if (bytes.length === 0 || !this.#isRead || this.#isOver || this.#kind === 'none') return;
    if (this.#unpacked !== undefined) this.#unpacked.write(Buffer.from(bytes));
    else this.#read(bytes, isLast);
  }

  /** @param isWhole whether the upstream has ended it */
  end(isWhole: boolean): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (!isWhole) this.#giveUp();
    if (this.#unpacked !== undefined && this.#isRead) this.#unpacked.end();
    else this.#finish();
  }

  #read(bytes: Buffer, isOurs: boolean): void {
    if (!this.#isRead) return;
    this.#guard(() => {
      if (this.#kind === 'events') {
        this.#splitter ??= new SseSplitter();
        for (const block of this.#splitter.push(bytes)) this.#readEvent(block);
        if (this.#splitter.bufferedBytes > this.#most) this.#giveUp();
        return;
      }
      this.#bytes += bytes.length;
      if (this.#bytes > this.#most) this.#giveUp();
      else this.#chunks.push(isOurs ? bytes : Buffer.from(bytes));
    });
  }

  #readEvent(block: Buffer): void {
    const { data, type } = parseSseEvent(
      (this.#isFirstEvent ? withoutByteOrderMark(block) : block).toString(),
    );
    this.#isFirstEvent = false;
    if (data === undefined || type !== 'message') return;
    this.#report(Payload.parse(data));
  }

  #report(payload: Payload | undefined): void {
    for (const message of payload?.messages ?? []) this.#watcher.onMessage(message);
  }

  /** The rest of it passes unread. */
  #giveUp(): void {
    this.#isRead = false;
    this.#chunks = [];
    this.#unpacked?.removeAllListeners('end');
    this.#unpacked?.destroy();
    if (this.#isOver) this.#finish();
  }

  #finish(): void {
    if (!this.#isOver || this.#isFinished) return;
    this.#isFinished = true;
    this.#guard(() => {
      if (this.#isRead && this.#kind === 'json') this.#report(Payload.parse(textOf(this.#chunks)));
    });
    this.#guard(() => this.#watcher.onEnd(this.#isRead));
  }

  #guard(task: () => void): void {
    try {
      task();
    } catch (error) {
      this.#onError(error);
    }
  }
}

function textOf([first = NOTHING, ...others]: readonly Buffer[]): string {
  return (others.length === 0 ? first : Buffer.concat([first, ...others])).toString();
}

const UNPACKERS: Readonly<
  Record<string, () => zlib.Gunzip | zlib.BrotliDecompress | zlib.Inflate>
> = {
  gzip: () => zlib.createGunzip(),
  'x-gzip': () => zlib.createGunzip(),
  deflate: () => zlib.createInflate(),
  br: () => zlib.createBrotliDecompress(),
};

/** The head as `writeHead` is about to give it: its own headers count before those set before. */
function headOf(res: ServerResponse, [status, ...given]: readonly unknown[]): SeenHead {
  const headers = given.find((each) => typeof each === 'object' && each !== null) ?? {};
  const own = pairsOf(headers as HeaderList);
  return {
    status: Number(status),
    get(name) {
      const listed = own.findLast((each) => each[0].toLowerCase() === name.toLowerCase());
      const value = listed?.[1] ?? res.getHeader(name);
      return value === undefined ? undefined : String(value);
    },
    add: (name, value) => void res.setHeader(name, value),
  };
}
