import type { IncomingMessage } from 'node:http';
import { namesOtherCharset, requestHeader, setRequestHeader } from './headers.ts';
import { isObject } from './json-rpc.ts';
import { parseJson } from './json-text.ts';
import type { BodyFailure, BodyPort, RequestPort } from './ports.ts';
import { readAndPutBack, replacePutBack } from './put-back.ts';

/** A request with what body parsers and hosts may have put on it. */
type ParsedRequest = IncomingMessage & { body?: unknown; rawBody?: unknown };

/** Where a body was found: on `req.body`, in the stream that it was put back into, or in both. */
interface Found {
  readonly value: unknown;
  /** The bytes' text; absent where only a parsed value was there. */
  readonly text: string | undefined;
  /** What `req.body` was, unless that says nothing about the body. */
  readonly parsed: unknown;
  readonly inStream: boolean;
}

/**
 * A request's body, read once and put back for the upstream. Where a parser or the host has set `req.body`, that is used, and otherwise
 * the stream.
 */
export class RequestBody implements BodyPort {
  readonly value: unknown;
  /** The bytes' text; absent where only a parsed value was there. */
  readonly text: string | undefined;
  readonly #req: ParsedRequest;
  readonly #parsed: unknown;
  readonly #inStream: boolean;

  private constructor(req: ParsedRequest, found: Found) {
    this.#req = req;
    this.value = found.value;
    this.text = found.text;
    this.#parsed = found.parsed;
    this.#inStream = found.inStream;
  }

  static async read(req: ParsedRequest, limit: number): Promise<RequestBody | BodyFailure> {
    let parsed: unknown;
    try {
      // Read once: on some hosts this is a lazy getter that parses, and throws on bad JSON.
      parsed = req.body;
    } catch {
      return notJson();
    }
    if (parsed === undefined || isPlaceholder(req, parsed))
      return RequestBody.#fromStream(req, limit);
    if (typeof parsed !== 'string' && !(parsed instanceof Uint8Array)) {
      return new RequestBody(req, { value: parsed, text: undefined, parsed, inStream: false });
    }
    if (Buffer.byteLength(parsed) > limit) return tooLarge(limit);
    if (typeof parsed !== 'string' && isOtherText(req)) return otherText();
    return RequestBody.#fromText(req, Buffer.from(parsed).toString(), { parsed, inStream: false });
  }

  static async #fromStream(req: ParsedRequest, limit: number): Promise<RequestBody | BodyFailure> {
    const unfit = unfitBody(req, limit);
    if (unfit?.status === 413) req.resume();
    if (unfit !== undefined) return unfit;
    const bytes = await readAndPutBack(req, limit);
    if (bytes === 'too-large') return tooLarge(limit);
    if (bytes === 'aborted') return 'aborted';
    // Adapters to the Fetch API refuse a stream that was read before, put back or not, and take this instead.
    if (req.rawBody === undefined) assign(req, 'rawBody', bytes);
    return RequestBody.#fromText(req, bytes.toString(), { parsed: undefined, inStream: true });
  }

  static #fromText(
    req: ParsedRequest,
    text: string,
    found: Pick<Found, 'parsed' | 'inStream'>,
  ): RequestBody | BodyFailure {
    const parsed = parseBody(text);
    return 'status' in parsed ? parsed : new RequestBody(req, { ...found, ...parsed });
  }

  /**
   * Replaces what the upstream will read, in each of the places where it may look.
   * @throws if the stream was consumed in between without leaving a `req.body`.
   */
  replace(text: string): void {
    const req = this.#req;
    if (req.rawBody !== undefined) assign(req, 'rawBody', inFormOf(req.rawBody, text));
    // A parser may be mounted between two of our middlewares.
    const parsed = this.#inStream ? parsedSince(req) : this.#parsed;
    if (parsed !== undefined) assign(req, 'body', inFormOf(parsed, text));
    const inStream = this.#inStream && replacePutBack(req, Buffer.from(text));
    if (parsed === undefined && !inStream) {
      throw new Error('the request stream was consumed before the middleware could amend it');
    }
    if (req.headers['content-length'] !== undefined) {
      setRequestHeader(req, 'content-length', String(Buffer.byteLength(text)));
    }
  }
}

type Unfit = Exclude<BodyFailure, string>;

/** What the headers say against a body, before a byte of it is read. */
export function unfitBody(req: RequestPort, limit: number): Unfit | undefined {
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

/** A body's text without its byte order mark, and what it says. */
export function parseBody(
  text: string,
): { readonly value: unknown; readonly text: string } | Unfit {
  const plain = text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  try {
    return { value: parseJson(plain), text: plain };
  } catch {
    return notJson();
  }
}

/** Some parsers leave an empty object on a request that was none of theirs; the body is in the stream all the same. */
function isPlaceholder(req: ParsedRequest, parsed: unknown): boolean {
  return (
    isObject(parsed) &&
    Object.keys(parsed).length === 0 &&
    !req.readableDidRead &&
    !req.readableEnded
  );
}

function parsedSince(req: ParsedRequest): unknown {
  const { body } = req;
  return isObject(body) && Object.keys(body).length === 0 ? undefined : body;
}

function inFormOf(model: unknown, text: string): unknown {
  if (typeof model === 'string') return text;
  return model instanceof Uint8Array ? Buffer.from(text) : parseJson(text);
}

function assign(req: ParsedRequest, name: 'body' | 'rawBody', value: unknown): void {
  Object.defineProperty(req, name, { value, writable: true, configurable: true, enumerable: true });
}

/**
 * In UTF-7 the same bytes are other text, so that a parser which heeds the content type would see other messages than were judged. JSON is
 * UTF-8 (RFC 8259, section 8.1).
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
