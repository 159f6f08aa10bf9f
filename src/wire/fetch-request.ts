import { parseBody, REST, tooLarge, unfitBytes, unfitMedia } from './body.ts';
import type { Amended, BodyFailure, BodyPort, BodyText, RequestPort } from './ports.ts';

type StreamBytes = Uint8Array<ArrayBuffer>;
type StreamReader = ReadableStreamDefaultReader<Uint8Array>;

/** A `Request`'s body, read once. The handler is given another request, with these bytes. */
export class FetchBody implements BodyPort {
  readonly value: unknown;
  readonly text: string;
  readonly others: readonly BodyText[] = [];
  #bytes: StreamBytes;

  private constructor({ value, text }: BodyText, bytes: StreamBytes) {
    this.value = value;
    this.text = text;
    this.#bytes = bytes;
  }

  /** @throws TypeError where somebody has read the body before. */
  static async read(
    request: Request,
    port: RequestPort,
    limit: number,
  ): Promise<FetchBody | BodyFailure> {
    if (request.bodyUsed || request.body?.locked) {
      throw new TypeError('the body of a request was read before gateFetch() was given it');
    }
    const unfit = unfitMedia(port) ?? unfitBytes(port, limit);
    if (unfit !== undefined) {
      if (request.body !== null) dropRest(request.body.getReader());
      return unfit;
    }
    const bytes = await readAll(request, limit);
    if (bytes === 'aborted') return bytes;
    if (bytes === 'too-large') return tooLarge(limit);
    const parsed = parseBody(bytes);
    return 'status' in parsed ? parsed : new FetchBody(parsed, bytes);
  }

  get bytes(): StreamBytes {
    return this.#bytes;
  }

  replace({ text }: Amended): void {
    this.#bytes = new TextEncoder().encode(text);
  }
}

async function readAll(
  { body }: Request,
  limit: number,
): Promise<StreamBytes | 'too-large' | 'aborted'> {
  if (body === null) return new Uint8Array(0);
  const chunks: Uint8Array[] = [];
  let size = 0;
  const reader = body.getReader();
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      size += read.value.length;
      if (size > limit) {
        dropRest(reader);
        return 'too-large';
      }
      chunks.push(read.value);
    }
  } catch {
    return 'aborted';
  }
  return joined(chunks, size);
}

/** Reads on beside the answer, for a while: as {@link REST} says. */
function dropRest(reader: StreamReader): void {
  const drop = async (): Promise<void> => {
    let left = REST.bytes;
    for (let read = await reader.read(); !read.done && left > 0; read = await reader.read())
      left -= read.value.length;
    await stop();
  };
  const stop = (): Promise<void> => {
    clearTimeout(timer);
    return reader.cancel();
  };
  const ignore = (): void => {};
  const timer = setTimeout(() => void stop().catch(ignore), REST.ms);
  timer.unref();
  void drop().catch(() => clearTimeout(timer));
}

function joined(chunks: readonly Uint8Array[], size: number): StreamBytes {
  const all = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

/** What the pipeline sees of a `Request`, and what it makes of its headers. */
export function requestPort(request: Request, auth: unknown): RequestPort {
  const headers: Record<string, string> = Object.create(null);
  for (const [name, value] of request.headers) headers[name] = value;
  return { method: request.method, url: request.url, headers, auth };
}

/**
 * The request that the handler is given: the client's, with the headers and the body that the
 * pipeline left.
 */
export function handlersRequest(
  request: Request,
  port: RequestPort,
  body: FetchBody | undefined,
  signal: AbortSignal,
): Request {
  const { method, url } = request;
  const headers = headersOf(port);
  if (body !== undefined && headers.has('content-length')) {
    headers.set('content-length', String(body.bytes.length));
  }
  const init = { method, headers, signal };
  const made = new Request(
    url,
    body === undefined ? { ...init, ...unreadBody(request) } : { ...init, body: body.bytes },
  );
  // Where `withMcpAuth()` of `mcp-handler` puts it, and looks for it.
  if (port.auth !== undefined) Object.assign(made, { auth: port.auth });
  return made;
}

/**
 * Only a POST carries messages (MCP 2025-11-25, Transports): a body that nobody looked at must not
 * reach the MCP server in another way.
 */
function unreadBody({ method, body }: Request): RequestInit {
  if (body === null || ['GET', 'HEAD', 'DELETE'].includes(method)) return {};
  return { body, duplex: 'half' };
}

function headersOf({ headers }: RequestPort): Headers {
  const made = new Headers();
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined) made.set(name, String(value));
  return made;
}
