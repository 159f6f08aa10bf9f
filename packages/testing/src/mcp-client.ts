/**
 * An MCP client of plain requests and responses. Hides how each era begins, what its requests
 * carry, and whether a server answers by JSON or by a stream.
 */
import {
  isObject,
  type JsonObject,
  META_CLAIM,
  META_CLIENT,
  parseSseEvent,
  SESSION_HEADER,
  SseSplitter,
} from '../../../src/internal.ts';

/** Takes a request, as `fetch` does. */
export type Send = (request: Request) => Promise<Response>;

/** Where the era of a client begins: MCP 2025-03-26 to 2025-11-25, or since 2026-07-28. */
export type ClientEra = 'session' | 'stateless';

/** What the server said of one request. */
export interface Reply {
  readonly status: number;
  /** Of a result; else neither it nor `error` is there where no answer came. */
  readonly result?: JsonObject;
  readonly error?: RpcError;
  /** The body as it came. */
  readonly body: string;
}

/** Whether it is one, and no list that was asked for. */
export function isReply(value: Reply | readonly JsonObject[]): value is Reply {
  return !Array.isArray(value);
}

/** A JSON-RPC error. */
export interface RpcError {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
}

/** The version that each kind of client speaks. */
const VERSIONS = { session: '2025-11-25', stateless: '2026-07-28' } as const;
const CLIENT = { name: 'mcp-interlock-testing', version: '1' };
const META_CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities';
/** So many pages of a list are asked for; a server that gives more goes round in a circle. */
const MOST_PAGES = 1_000;

/** One client of one server. */
export class McpClient {
  readonly era: ClientEra;
  readonly #send: Send;
  readonly #url: string;
  readonly #headers: Headers;
  #ids = 0;
  #session: string | undefined;

  constructor(send: Send, url: string, era: ClientEra, headers?: Record<string, string>) {
    this.#send = send;
    this.#url = url;
    this.era = era;
    this.#headers = new Headers(headers);
  }

  /** Of the session that the server has opened. */
  get sessionId(): string | undefined {
    return this.#session;
  }

  /** Opens a session, or in the stateless era asks what the server is. */
  async begin(): Promise<Reply> {
    if (this.era === 'stateless') return this.request('server/discover');
    const began = await this.request('initialize', {
      protocolVersion: VERSIONS.session,
      capabilities: {},
      clientInfo: CLIENT,
    });
    if (began.result !== undefined) await this.#post({ method: 'notifications/initialized' });
    return began;
  }

  /** Every tool, page after page; or the reply that was no list. */
  async tools(): Promise<readonly JsonObject[] | Reply> {
    const tools: JsonObject[] = [];
    let cursor: unknown;
    for (let page = 0; page < MOST_PAGES; page++) {
      const reply = await this.request('tools/list', cursor === undefined ? {} : { cursor });
      const listed = reply.result?.tools;
      if (!Array.isArray(listed)) return reply;
      tools.push(...listed.filter(isObject));
      cursor = reply.result?.nextCursor;
      if (cursor === undefined) break;
    }
    return tools;
  }

  /** @param id by default the next number */
  async request(method: string, params: JsonObject = {}, id = this.nextId()): Promise<Reply> {
    const response = await this.#post({ id, method, params: this.#claimed(params) }, params);
    this.#session ??= response.headers.get(SESSION_HEADER) ?? undefined;
    const body = await response.text();
    const { status } = response;
    const answer = messagesIn(body, response.headers).find((each) => each.id === id);
    if (isObject(answer?.result)) return { status, body, result: answer.result };
    return isRpcError(answer?.error) ? { status, body, error: answer.error } : { status, body };
  }

  nextId(): number {
    this.#ids += 1;
    return this.#ids;
  }

  /** Ends the session, where there is one. */
  async end(): Promise<void> {
    if (this.#session === undefined) return;
    const headers = this.#headersOf({ method: '' }, {});
    this.#session = undefined;
    const response = await this.#send(new Request(this.#url, { method: 'DELETE', headers }));
    await response.body?.cancel();
  }

  #post(message: JsonObject & { readonly method: string }, params: JsonObject = {}) {
    const body = JSON.stringify({ jsonrpc: '2.0', ...message });
    const headers = this.#headersOf(message, params);
    return this.#send(new Request(this.#url, { method: 'POST', headers, body }));
  }

  #headersOf({ method }: { readonly method: string }, { name }: JsonObject): Headers {
    const headers = new Headers(this.#headers);
    headers.set('content-type', 'application/json');
    headers.set('accept', 'application/json, text/event-stream');
    if (method !== 'initialize') headers.set('mcp-protocol-version', VERSIONS[this.era]);
    if (this.#session !== undefined) headers.set(SESSION_HEADER, this.#session);
    if (this.era === 'stateless') {
      headers.set('mcp-method', method);
      if (typeof name === 'string') headers.set('mcp-name', headerText(name));
    }
    return headers;
  }

  #claimed(params: JsonObject): JsonObject {
    if (this.era === 'session') return params;
    const _meta = {
      [META_CLAIM]: VERSIONS.stateless,
      [META_CLIENT]: CLIENT,
      [META_CAPABILITIES]: {},
    };
    return { ...params, _meta };
  }
}

/** As MCP 2026-07-28, "Value Encoding", has what is not plain ASCII. */
function headerText(value: string): string {
  if (/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !value.startsWith('=?'))
    return value;
  return `=?base64?${Buffer.from(value).toString('base64')}?=`;
}

function messagesIn(body: string, headers: Headers): readonly JsonObject[] {
  const isStream = headers.get('content-type')?.startsWith('text/event-stream') === true;
  const texts = isStream
    ? new SseSplitter()
        .push(Buffer.from(body))
        .map((block) => parseSseEvent(String(block)).data ?? '')
    : [body];
  return texts.flatMap((text): unknown => parsed(text)).filter(isObject);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isRpcError(value: unknown): value is RpcError {
  return isObject(value) && typeof value.code === 'number' && typeof value.message === 'string';
}
