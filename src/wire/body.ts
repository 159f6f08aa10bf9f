import type { IncomingMessage } from 'node:http';
import { requestHeader, setRequestHeader } from './headers.ts';

/** Why a body could not be had, as an HTTP status; `aborted` means that there is nobody left to answer. */
export type BodyFailure = 'aborted' | { readonly status: 400 | 413 | 415; readonly message: string };

/** A request with what body parsers and hosts may have put on it. */
type ParsedRequest = IncomingMessage & { body?: unknown; rawBody?: unknown };

/**
 * A request's body, read once and put back for the upstream.
 *
 * Where a parser or the host has set `req.body`, that is used. Otherwise the stream is read on `readable`
 * and put back with `unshift` before `end` was emitted, so that the upstream reads it as if nobody had.
 */
export class RequestBody {
  readonly value: unknown;
  /** The bytes' text; absent where only a parsed value was there. */
  readonly text: string | undefined;
  readonly #req: ParsedRequest;
  readonly #streamed: boolean;

  private constructor(req: ParsedRequest, value: unknown, text: string | undefined, streamed: boolean) {
    this.#req = req;
    this.value = value;
    this.text = text;
    this.#streamed = streamed;
  }

  static async read(request: IncomingMessage, limit: number): Promise<RequestBody | BodyFailure> {
    const req: ParsedRequest = request;
    let parsed: unknown;
    try {
      // Read once: on some hosts this is a lazy getter that parses, and throws on bad JSON.
      parsed = req.body;
    } catch {
      return notJson();
    }
    if (parsed === undefined) return RequestBody.#fromStream(req, limit);
    if (typeof parsed === 'string' || Buffer.isBuffer(parsed)) {
      if (Buffer.byteLength(parsed) > limit) return tooLarge(limit);
      return RequestBody.#fromText(req, parsed.toString(), false);
    }
    return new RequestBody(req, parsed, undefined, false);
  }

  static async #fromStream(req: ParsedRequest, limit: number): Promise<RequestBody | BodyFailure> {
    const encoding = requestHeader(req, 'content-encoding');
    if (encoding !== undefined && encoding !== 'identity') {
      return {
        status: 415,
        message: 'the request body is encoded; send it plain, or mount a body parser in front',
      };
    }
    if (Number(requestHeader(req, 'content-length')) > limit) return tooLarge(limit);
    const bytes = await readAndPutBack(req, limit);
    if (bytes === 'too-large') return tooLarge(limit);
    if (bytes === 'aborted') return 'aborted';
    return RequestBody.#fromText(req, bytes.toString(), true);
  }

  static #fromText(req: ParsedRequest, text: string, streamed: boolean): RequestBody | BodyFailure {
    try {
      const plain = text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
      return new RequestBody(req, JSON.parse(plain), plain, streamed);
    } catch {
      return notJson();
    }
  }

  /**
   * Replaces what the upstream will read, in each of the places where it may look.
   * @throws if the stream was consumed in between without leaving a `req.body`.
   */
  replace(text: string): void {
    const req = this.#req;
    const bytes = Buffer.from(text);
    if (req.rawBody !== undefined) assign(req, 'rawBody', typeof req.rawBody === 'string' ? text : bytes);
    if (!this.#streamed || req.body !== undefined) {
      const kind = this.#streamed ? 'object' : this.text === undefined ? 'object' : typeof req.body;
      assign(req, 'body', kind === 'string' ? text : Buffer.isBuffer(req.body) ? bytes : JSON.parse(text));
      return;
    }
    const unread = req.read();
    if (unread === null)
      throw new Error('the request stream was consumed before the middleware could amend it');
    req.unshift(bytes);
    if (req.headers['content-length'] !== undefined) {
      setRequestHeader(req, 'content-length', String(bytes.length));
    }
  }
}

function assign(req: ParsedRequest, name: 'body' | 'rawBody', value: unknown): void {
  Object.defineProperty(req, name, { value, writable: true, configurable: true, enumerable: true });
}

function readAndPutBack(req: IncomingMessage, limit: number): Promise<Buffer | 'too-large' | 'aborted'> {
  if (req.readableEnded) return Promise.resolve(Buffer.alloc(0));
  if (req.destroyed) return Promise.resolve('aborted');
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const finish = (result: Buffer | 'too-large' | 'aborted'): void => {
      req.off('readable', onReadable).off('end', onEnd).off('error', onGone).off('close', onGone);
      resolve(result);
    };
    const onEnd = (): void => finish(Buffer.concat(chunks));
    const onGone = (): void => finish('aborted');
    const onReadable = (): void => {
      for (let chunk: Buffer | null = req.read(); chunk !== null; chunk = req.read()) {
        chunks.push(chunk);
        size += chunk.length;
        if (size > limit) break;
      }
      if (size > limit) finish('too-large');
      if (size > limit || !req.complete || size === 0) return;
      const bytes = Buffer.concat(chunks);
      // In this very tick: `end` is already on its way, and is called off by there being bytes again.
      req.unshift(bytes);
      finish(bytes);
    };
    req.on('readable', onReadable).on('end', onEnd).on('error', onGone).on('close', onGone);
  });
}

function notJson(): BodyFailure {
  return { status: 400, message: 'Parse error: the request body is not valid JSON' };
}

function tooLarge(limit: number): BodyFailure {
  return { status: 413, message: `the request body is larger than ${limit} bytes` };
}
