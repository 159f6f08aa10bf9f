import type { IncomingMessage } from 'node:http';
import {
  isOtherText,
  notJson,
  otherText,
  parseBody,
  tooLarge,
  unfitBytes,
  unfitMedia,
} from './body-text.ts';
import { setRequestHeader } from './headers.ts';
import { isObject } from './json-rpc.ts';
import type { Amended, BodyFailure, BodyPort, BodyText } from './ports.ts';
import { readAndPutBack, replacePutBack } from './put-back.ts';
import { after, type MaybePromise } from './task-line.ts';

/** A request with what body parsers and hosts may have put on it. */
type ParsedRequest = IncomingMessage & { body?: unknown; rawBody?: unknown };

type Bytes = Uint8Array | string;

/**
 * A request's body, read once and put back for the upstream. It is what `req.body` says, where a
 * parser or the host has set that, and otherwise what came on the stream. The upstream may read
 * `req.rawBody` or the stream all the same, so whatever is there is looked at, and replaced
 * together.
 */
export class RequestBody implements BodyPort {
  readonly value: unknown;
  readonly text: string | undefined;
  readonly others: readonly BodyText[];
  readonly #req: ParsedRequest;
  /** What `req.body` was, unless that said nothing about the body. */
  readonly #parsed: unknown;
  readonly #inStream: boolean;

  private constructor(
    req: ParsedRequest,
    { value, text }: { readonly value: unknown; readonly text?: string },
    others: readonly BodyText[],
    [parsed, inStream]: readonly [parsed: unknown, inStream: boolean],
  ) {
    this.#req = req;
    this.value = value;
    this.text = text;
    this.others = others;
    this.#parsed = parsed;
    this.#inStream = inStream;
  }

  /** In the same tick, unless the stream must be read. */
  static read(req: ParsedRequest, limit: number): MaybePromise<RequestBody | BodyFailure> {
    const unfit = unfitMedia(req);
    if (unfit !== undefined) return unfit;
    let parsed: unknown;
    let raw: unknown;
    try {
      // Read once: on some hosts these are lazy getters that parse, and throw on bad JSON.
      [parsed, raw] = [req.body, req.rawBody];
    } catch {
      return notJson();
    }
    if (isPlaceholder(req, parsed)) parsed = undefined;
    if (parsed !== undefined && !isUnread(req)) return RequestBody.#of(req, parsed, raw, limit);
    return after(readStream(req, limit), (read) => {
      if (!Buffer.isBuffer(read)) return read;
      // A host may have made `req.body` up without a stream.
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
    // Adapters to the Fetch API refuse a stream that was read before, put back or not, and take
    // this instead.
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
   * Replaces what the upstream will read, in each of the places where it may look.
   * @throws if the stream was consumed in between without leaving a `req.body`.
   */
  replace(amended: Amended): void {
    const req = this.#req;
    if (req.rawBody !== undefined) assign(req, 'rawBody', inFormOf(req.rawBody, amended));
    const parsed = bodyNow(req, this.#parsed);
    if (parsed !== undefined) assign(req, 'body', inFormOf(parsed, amended));
    const inStream = this.#inStream && replacePutBack(req, Buffer.from(amended.text));
    if (parsed === undefined && !inStream) {
      throw new Error('the request stream was consumed before the middleware could amend it');
    }
    if (req.headers['content-length'] !== undefined) {
      setRequestHeader(req, 'content-length', String(Buffer.byteLength(amended.text)));
    }
  }
}

function readStream(req: ParsedRequest, limit: number): MaybePromise<Buffer | BodyFailure> {
  const unfit = unfitBytes(req, limit);
  if (unfit !== undefined) return unfit;
  return after(readAndPutBack(req, limit), (read) =>
    read === 'too-large' ? tooLarge(limit) : read,
  );
}

/**
 * What each of the sources says that is text or bytes, and not to the letter what one before it
 * says.
 */
function textsOf(
  req: ParsedRequest,
  sources: readonly unknown[],
  limit: number,
): readonly BodyText[] | Exclude<BodyFailure, string> {
  const texts: BodyText[] = [];
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

/**
 * Whether the stream is still as it came: a host may have set `req.body` and left that to be read.
 */
function isUnread({ readableDidRead, readableEnded, destroyed }: ParsedRequest): boolean {
  return readableDidRead === false && !readableEnded && !destroyed;
}

/**
 * Some parsers leave an empty object on a request that was none of theirs; the body is in the
 * stream all the same.
 */
function isPlaceholder(req: ParsedRequest, parsed: unknown): boolean {
  return isEmpty(parsed) && !req.readableDidRead && !req.readableEnded;
}

/**
 * A parser may be mounted between two of our middlewares. A getter is not asked again: it may parse
 * once more.
 */
function bodyNow(req: ParsedRequest, known: unknown): unknown {
  const own = Object.getOwnPropertyDescriptor(req, 'body');
  const now: unknown = own === undefined || own.get !== undefined ? known : own.value;
  return isEmpty(now) ? known : now;
}

function isEmpty(parsed: unknown): boolean {
  return isObject(parsed) && Object.keys(parsed).length === 0;
}

/** A reader of text or bytes is left those, and a reader of what a parser made the value. */
function inFormOf(model: unknown, amended: Amended): unknown {
  if (typeof model === 'string') return amended.text;
  return model instanceof Uint8Array ? Buffer.from(amended.text) : amended.value;
}

function assign(req: ParsedRequest, name: 'body' | 'rawBody', value: unknown): void {
  Object.defineProperty(req, name, { value, writable: true, configurable: true, enumerable: true });
}
