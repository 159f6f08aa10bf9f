import { isAscii, isUtf8, transcode } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { namesOtherCharset, type RequestPort, requestHeader, setRequestHeader } from './headers.ts';
import { isObject } from './json-rpc.ts';
import { type JsonText, parseJson } from './json-text.ts';
import { after, type MaybePromise } from './task-line.ts';

/** A request, with the properties that body parsers and hosts may have set. */
type ParsedRequest = IncomingMessage & { body?: unknown; rawBody?: unknown };

/** Why a body is refused, with its HTTP status. */
interface Unfit {
  readonly status: 400 | 413 | 415;
  readonly message: string;
}

/** Why there is no body. `aborted`: the client left before all of it came. */
export type BodyFailure = 'aborted' | Unfit;

/** A body as the upstream shall read it. Text and value are made when they are read. */
export interface Amended {
  readonly text: string;
  readonly value: unknown;
}

/** A request's body, read once. */
export interface BodyPort {
  readonly value: unknown;
  /** As in {@link JsonText}; `undefined` where there is only a parsed value. */
  readonly text: string | undefined;
  /** The request's other copies of the body, which the upstream may read, where they differ. */
  readonly others: readonly JsonText[];
  /** Replaces what the upstream will read. */
  replace(amended: Amended): void;
}

/** No bytes. */
export const NOTHING = Buffer.alloc(0);

/** The bytes of a chunk that is written; `undefined` where it is none. */
export function bytesOf(chunk: unknown, encoding: unknown): Buffer | undefined {
  if (typeof chunk === 'string')
    return Buffer.from(chunk, typeof encoding === 'string' ? (encoding as BufferEncoding) : 'utf8');
  if (chunk instanceof Uint8Array)
    return Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  return undefined;
}

type Bytes = Uint8Array | string;

/**
 * A request's body, read once and put back for the upstream. It is `req.body`, where a parser or
 * the host has set that, or else what came on the stream. The upstream may still read `req.rawBody`
 * or the stream. So all copies are read, and all are replaced together.
 */
export class RequestBody implements BodyPort {
  readonly value: unknown;
  readonly text: string | undefined;
  readonly others: readonly JsonText[];
  readonly #req: ParsedRequest;
  /** `req.body` as it was; `undefined` where it was only a placeholder. */
  readonly #parsed: unknown;
  readonly #inStream: boolean;

  private constructor(
    req: ParsedRequest,
    { value, text }: { readonly value: unknown; readonly text?: string },
    others: readonly JsonText[],
    [parsed, inStream]: readonly [parsed: unknown, inStream: boolean],
  ) {
    this.#req = req;
    this.value = value;
    this.text = text;
    this.others = others;
    this.#parsed = parsed;
    this.#inStream = inStream;
  }

  /** Answers in the same tick, unless the stream must be read. */
  static read(req: ParsedRequest, limit: number): MaybePromise<RequestBody | BodyFailure> {
    const unfit = unfitMedia(req);
    if (unfit !== undefined) return unfit;
    let parsed: unknown;
    let raw: unknown;
    try {
      // Read once: on some hosts these are getters that parse, and throw on bad JSON.
      [parsed, raw] = [req.body, req.rawBody];
    } catch {
      return notJson();
    }
    if (isPlaceholder(req, parsed)) parsed = undefined;
    if (parsed !== undefined && !isUnread(req)) return RequestBody.#of(req, parsed, raw, limit);
    return after(readStream(req, limit), (read) => {
      if (!Buffer.isBuffer(read)) return read;
      // A host may have set `req.body` without any stream behind it.
      const isThere = parsed === undefined || read.length > 0;
      return RequestBody.#of(req, parsed, raw, limit, isThere ? read : undefined);
    });
  }

  static #of(
    req: ParsedRequest,
    parsed: unknown,
    raw: unknown,
    limit: number,
    streamed?: Buffer,
  ): RequestBody | BodyFailure {
    // Adapters to the Fetch API refuse a stream that was ever read, and take `rawBody` instead.
    if (raw === undefined && streamed !== undefined) assign(req, 'rawBody', streamed);
    const texts = textsOf(req, [parsed ?? streamed, raw, streamed], limit);
    if ('status' in texts) return texts;
    const [main, ...others] = texts;
    const isText = isBytes(parsed ?? streamed) && main !== undefined;
    return new RequestBody(req, isText ? main : { value: parsed }, isText ? others : texts, [
      parsed,
      streamed !== undefined,
    ]);
  }

  /**
   * Replaces the body in each place where the upstream may read it.
   * @throws Error where other code has read the stream since, and left no `req.body`
   */
  replace(amended: Amended): void {
    const req = this.#req;
    if (req.rawBody !== undefined) assign(req, 'rawBody', inFormOf(req.rawBody, amended));
    const parsed = bodyNow(req, this.#parsed);
    if (parsed !== undefined) assign(req, 'body', inFormOf(parsed, amended));
    const inStream = this.#inStream && replacePutBack(req, Buffer.from(amended.text));
    if (parsed === undefined && !inStream) {
      throw new Error(
        'the request stream was consumed before the middleware could amend it: mount its reader ' +
          'behind the middlewares, or have it set req.body',
      );
    }
    if (req.headers['content-length'] !== undefined) {
      setRequestHeader(req, 'content-length', String(Buffer.byteLength(amended.text)));
    }
  }
}

/** The texts in the sources, each once. A source that is a parsed value has none. */
function textsOf(
  req: ParsedRequest,
  sources: readonly unknown[],
  limit: number,
): readonly JsonText[] | Unfit {
  const texts: JsonText[] = [];
  const seen: Bytes[] = [];
  for (const source of sources) {
    if (!isBytes(source) || seen.some((each) => isSame(each, source))) continue;
    seen.push(source);
    if (Buffer.byteLength(source) > limit) return tooLarge(limit);
    if (typeof source !== 'string' && isOtherText(req)) return otherText();
    const read = parseBody(source);
    if ('status' in read) return read;
    if (!texts.some(({ text }) => text === read.text)) texts.push(read);
  }
  return texts;
}

function isBytes(source: unknown): source is Bytes {
  return typeof source === 'string' || source instanceof Uint8Array;
}

function isSame(one: Bytes, other: Bytes): boolean {
  if (typeof one === 'string' || typeof other === 'string') return one === other;
  return one === other || Buffer.compare(one, other) === 0;
}

/** Whether the stream is still unread: a host may have set `req.body` and left the stream alone. */
function isUnread({ readableDidRead, readableEnded, destroyed }: ParsedRequest): boolean {
  return readableDidRead === false && !readableEnded && !destroyed;
}

/** Some parsers set an empty object where the body is not theirs. It is still in the stream. */
function isPlaceholder(req: ParsedRequest, parsed: unknown): boolean {
  return isEmpty(parsed) && !req.readableDidRead && !req.readableEnded;
}

/**
 * `req.body` as it is now: a parser may be mounted between two of our middlewares. A getter is not
 * called again, since it may parse again.
 */
function bodyNow(req: ParsedRequest, known: unknown): unknown {
  const own = Object.getOwnPropertyDescriptor(req, 'body');
  const now: unknown = own === undefined || own.get !== undefined ? known : own.value;
  return isEmpty(now) ? known : now;
}

function isEmpty(parsed: unknown): boolean {
  return isObject(parsed) && Object.keys(parsed).length === 0;
}

/** The body in the form of the value that it replaces: text, bytes or a parsed value. */
function inFormOf(model: unknown, amended: Amended): unknown {
  if (typeof model === 'string') return amended.text;
  return model instanceof Uint8Array ? Buffer.from(amended.text) : amended.value;
}

function assign(req: ParsedRequest, name: 'body' | 'rawBody', value: unknown): void {
  Object.defineProperty(req, name, { value, writable: true, configurable: true, enumerable: true });
}

/**
 * Reads a request's stream and puts the bytes back, with `unshift` before `end` is emitted. So the
 * next reader finds the stream unread. The rest of a stream that is too large stays where it is.
 */
function readStream(req: IncomingMessage, limit: number): MaybePromise<Buffer | BodyFailure> {
  const unfit = unfitBytes(req, limit);
  if (unfit !== undefined) return unfit;
  if (req.readableEnded) return Buffer.alloc(0);
  if (req.destroyed) return 'aborted';
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const finish = (result: Buffer | BodyFailure): void => {
      req.off('readable', onReadable).off('end', onEnd).off('error', onGone).off('close', onGone);
      resolve(result);
    };
    const onEnd = (): void => finish(Buffer.concat(chunks));
    const onGone = (): void => finish('aborted');
    const onReadable = (): void => {
      for (let bytes = takeAll(req); bytes !== undefined && size <= limit; bytes = takeAll(req)) {
        chunks.push(bytes);
        size += bytes.length;
      }
      if (size > limit) {
        // A witness lets it pass unread.
        putBack(req, Buffer.concat(chunks));
        finish(tooLarge(limit));
      } else if (hasAll(req) && size > 0) {
        // In this very tick: Node is about to emit `end`, and does not where there are bytes again.
        const bytes = Buffer.concat(chunks);
        putBack(req, bytes);
        finish(bytes);
      }
    };
    req.on('readable', onReadable).on('end', onEnd).on('error', onGone).on('close', onGone);
  });
}

/**
 * How much of a refused body is still read, and for how long. A client whose upload is cut off
 * never reads the answer; a client that uploads without end must be cut off at some time.
 */
export const REST = { ms: 1_000, bytes: 16 * 1024 * 1024 } as const;

/** Reads and drops the rest of a body. Destroys a request that exceeds {@link REST}. */
export function dropRest(req: IncomingMessage, onEnd: () => void): void {
  let left: number = REST.bytes;
  const cut = (): void => void req.destroy();
  const timer = setTimeout(cut, REST.ms);
  timer.unref();
  req.on('data', (chunk: Buffer | string) => {
    left -= chunk.length;
    if (left < 0) cut();
  });
  const finish = (): void => {
    clearTimeout(timer);
    req.off('end', finish).off('close', finish);
    onEnd();
  };
  req.on('error', () => {});
  req.once('end', finish).once('close', finish).resume();
}

/** Replaces the bytes that were put back. `false` where other code has read them since. */
function replacePutBack(req: IncomingMessage, bytes: Buffer): boolean {
  if (takeAll(req) === undefined) return false;
  putBack(req, bytes);
  return true;
}

/** Where a middleware in front has set an encoding, the stream yields text. */
function takeAll(req: IncomingMessage): Buffer | undefined {
  const taken = req.read() as Buffer | string | null;
  if (taken === null) return undefined;
  return typeof taken === 'string' ? Buffer.from(taken, req.readableEncoding ?? 'utf8') : taken;
}

/**
 * Whether no more bytes come. Hosts that fake a request may leave `complete` out, and then only the
 * stream's own state says so before `end`.
 */
function hasAll(req: IncomingMessage & { _readableState?: { ended?: unknown } }): boolean {
  return req.complete || req._readableState?.ended === true;
}

function putBack(req: IncomingMessage, bytes: Buffer): void {
  const { readableEncoding } = req;
  // serverless-express declares a request read as soon as its app returns, and parsers go by that.
  if (!req.readable && !req.destroyed) req.readable = true;
  if (readableEncoding === null) req.unshift(bytes);
  else req.unshift(bytes.toString(readableEncoding), readableEncoding);
}

/** From this length on, text with other characters than ASCII is decoded by way of UTF-16. */
const LONG = 4_096;

/**
 * What is wrong with a body's media type: it must be JSON, or not named at all. The same text may
 * be JSON and a form, and a form parser behind us would find another call in it. Two types, or a
 * list, are not JSON: one parser takes the first, another the last.
 */
export function unfitMedia(req: RequestPort): Unfit | undefined {
  const type = requestHeader(req, 'content-type');
  if (type === undefined || type === '') return undefined;
  const isMime = /^[ \t]*application\/(?:[\w!#$%&'*+.^`|~-]+\+)?json[ \t]*(?:;[^,]*)?$/i.test(type);
  // Of two of them, Node keeps only the first in `headers`.
  const { rawHeaders = [] } = req;
  let count = 0;
  for (let i = 0; i < rawHeaders.length; i += 2)
    if (rawHeaders[i]?.toLowerCase() === 'content-type') count++;
  if (isMime && count < 2) return undefined;
  return { status: 415, message: 'the request body must be application/json' };
}

/** What the headers say against bytes that were not read yet. */
export function unfitBytes(req: RequestPort, limit: number): Unfit | undefined {
  const encoding = requestHeader(req, 'content-encoding');
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    return {
      status: 415,
      message: 'the request body is encoded; send it plain, or mount a body parser in front',
    };
  }
  if (isOtherText(req)) return otherText();
  return Number(requestHeader(req, 'content-length')) > limit ? tooLarge(limit) : undefined;
}

/** The text of a body with its value, or why it is refused. */
export function parseBody(source: Uint8Array | string): JsonText | Unfit {
  const decoded = typeof source === 'string' ? source : decode(source);
  // A string with half a character is no UTF-8 either: one writer repairs it, another drops it.
  if (decoded === undefined || (typeof source === 'string' && /\p{Cs}/u.test(source)))
    return { status: 400, message: 'Parse error: the request body is not valid UTF-8' };
  try {
    return parseJson(decoded.charCodeAt(0) === 0xfeff ? decoded.slice(1) : decoded);
  } catch {
    return notJson();
  }
}

/**
 * `undefined` where the bytes are no UTF-8. We must not repair them: one reader drops a bad byte,
 * another puts U+FFFD in its place, and so they see two names.
 */
function decode(bytes: Uint8Array): string | undefined {
  if (!isUtf8(bytes)) return undefined;
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (isAscii(view)) return view.toString('latin1');
  // For 4 MB, V8's own decoder takes 20 times as long.
  return view.length < LONG
    ? view.toString()
    : transcode(view, 'utf8', 'utf16le').toString('utf16le');
}

/**
 * The same bytes are another text in UTF-7. A parser that goes by the content type would read other
 * messages than we judged. JSON is UTF-8 (RFC 8259, section 8.1).
 */
function isOtherText(req: RequestPort): boolean {
  return namesOtherCharset(requestHeader(req, 'content-type') ?? '');
}

function otherText(): Unfit {
  return { status: 415, message: 'the request body must be UTF-8' };
}

function notJson(): Unfit {
  return { status: 400, message: 'Parse error: the request body is not valid JSON' };
}

export function tooLarge(limit: number): Unfit {
  return { status: 413, message: `the request body is larger than ${limit} bytes` };
}
