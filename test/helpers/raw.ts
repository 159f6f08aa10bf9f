import { once } from 'node:events';
import {
  type ClientRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
} from 'node:http';
import { createParser } from 'eventsource-parser';

/** A JSON-RPC message as it came over the wire. */
// biome-ignore lint/suspicious/noExplicitAny: tests assert the shape of these messages
export type WireMessage = Record<string, any>;

export interface RawRequest {
  readonly method?: string;
  /** The request's target, where it is not the URL's path. */
  readonly target?: string;
  readonly headers?: Record<string, string>;
  /** A string is sent as it is, any other value as JSON. */
  readonly body?: unknown;
}

/** A whole response. */
export interface RawResponse {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** The messages of a JSON body, a JSON batch or an event stream. */
  readonly messages: WireMessage[];
}

/** A response that has not ended. */
export interface RawStream {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** The bytes that have come so far. */
  readonly text: string;
  readonly messages: WireMessage[];
  /** The last event id that came. */
  readonly lastEventId: string | undefined;
  /** Whether the server ended it. */
  readonly ended: boolean;
  /** Closes the connection. */
  cut(): void;
}

const BOTH = 'application/json, text/event-stream';

/** Sends a request on its own connection, and reads the response to its end. */
export async function send(url: URL, options: RawRequest = {}): Promise<RawResponse> {
  const { response } = await begin(url, options);
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString();
  const { statusCode: status = 0, headers } = response;
  return { status, headers, text, messages: messagesIn(text, headers) };
}

/** Sends a request, and resolves to the response as soon as its headers have come. */
export async function stream(url: URL, options: RawRequest = {}): Promise<RawStream> {
  const { response, sent } = await begin(url, options);
  const { statusCode: status = 0, headers } = response;
  let text = '';
  let ended = false;
  let lastEventId: string | undefined;
  const messages: WireMessage[] = [];
  const parser = createParser({
    onEvent({ id, data }) {
      lastEventId = id ?? lastEventId;
      if (data !== '') messages.push(JSON.parse(data) as WireMessage);
    },
  });
  response.setEncoding('utf8');
  response.on('data', (chunk: string) => {
    text += chunk;
    parser.feed(chunk);
  });
  response.on('end', () => {
    ended = true;
  });
  response.on('error', () => {});
  return {
    status,
    headers,
    messages,
    cut: () => void sent.destroy(),
    get text() {
      return text;
    },
    get ended() {
      return ended;
    },
    get lastEventId() {
      return lastEventId;
    },
  };
}

/** Sends a request and waits for no answer. The function that it returns hangs up. */
export function sendAndHold(url: URL, options: RawRequest = {}): { cut(): void } {
  const sent = start(url, options);
  sent.on('error', () => {});
  sent.on('response', (response) => response.on('error', () => {}).resume());
  return { cut: () => void sent.destroy() };
}

async function begin(
  url: URL,
  options: RawRequest,
): Promise<{ response: IncomingMessage; sent: ClientRequest }> {
  const sent = start(url, options);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  sent.on('error', () => {});
  return { response, sent };
}

function start(url: URL, options: RawRequest): ClientRequest {
  const { method = 'POST', target, headers = {}, body } = options;
  const type: Record<string, string> =
    body === undefined ? {} : { 'content-type': 'application/json' };
  const sent = request(url, {
    method,
    agent: false,
    headers: { accept: BOTH, ...type, ...headers },
    ...(target !== undefined && { path: target }),
  });
  sent.end(
    body === undefined || typeof body === 'string' || Buffer.isBuffer(body)
      ? body
      : JSON.stringify(body),
  );
  return sent;
}

function messagesIn(text: string, headers: IncomingHttpHeaders): WireMessage[] {
  const type = headers['content-type'] ?? '';
  if (text === '') return [];
  if (type.startsWith('application/json')) {
    const value = JSON.parse(text) as WireMessage | WireMessage[];
    return Array.isArray(value) ? value : [value];
  }
  const messages: WireMessage[] = [];
  if (!type.startsWith('text/event-stream')) return messages;
  const parser = createParser({
    onEvent: ({ data }) => void (data !== '' && messages.push(JSON.parse(data) as WireMessage)),
  });
  parser.feed(text);
  return messages;
}

export const PROTOCOL = '2025-11-25';

export const INITIALIZE: WireMessage = {
  jsonrpc: '2.0',
  id: 'init',
  method: 'initialize',
  params: {
    protocolVersion: PROTOCOL,
    capabilities: { elicitation: {} },
    clientInfo: { name: 'raw', version: '1' },
  },
};

/** A session, driven message by message. */
export class RawSession {
  readonly url: URL;
  readonly id: string;
  readonly headers: Record<string, string>;
  #nextId = 1;

  private constructor(url: URL, id: string, headers: Record<string, string>) {
    this.url = url;
    this.id = id;
    this.headers = { ...headers, 'mcp-session-id': id, 'mcp-protocol-version': PROTOCOL };
  }

  /** Initializes the session as a client does. */
  static async begin(url: URL, headers: Record<string, string> = {}): Promise<RawSession> {
    const { headers: answer } = await send(url, { headers, body: INITIALIZE });
    const session = new RawSession(url, String(answer['mcp-session-id']), headers);
    await session.post({ jsonrpc: '2.0', method: 'notifications/initialized' });
    return session;
  }

  /** A session that another process began. */
  static resume(url: URL, id: string, headers: Record<string, string> = {}): RawSession {
    return new RawSession(url, id, headers);
  }

  post(body: unknown, headers: Record<string, string> = {}): Promise<RawResponse> {
    return send(this.url, { headers: { ...this.headers, ...headers }, body });
  }

  /** Sends one request and resolves to its response, without earlier messages. */
  async ask(method: string, params: unknown = {}): Promise<WireMessage> {
    const id = this.#nextId++;
    const { messages } = await this.post({ jsonrpc: '2.0', id, method, params });
    return messages.find((message) => message.id === id) ?? {};
  }

  call(name: unknown, args: unknown = {}): Promise<WireMessage> {
    return this.ask('tools/call', { name, arguments: args });
  }

  /** The names of the tools that the client is shown. */
  async tools(): Promise<string[]> {
    const { result } = await this.ask('tools/list');
    return (result.tools as WireMessage[]).map((tool) => String(tool.name));
  }

  /** A POST whose response the test reads as it comes. */
  stream(body: unknown): Promise<RawStream> {
    return stream(this.url, { headers: this.headers, body });
  }

  /** The session's GET stream, or with `lastEventId` the rest of another stream. */
  listen(lastEventId?: string): Promise<RawStream> {
    const resume: Record<string, string> =
      lastEventId === undefined ? {} : { 'last-event-id': lastEventId };
    return stream(this.url, {
      method: 'GET',
      headers: { ...this.headers, ...resume, accept: 'text/event-stream' },
    });
  }

  end(): Promise<RawResponse> {
    return send(this.url, { method: 'DELETE', headers: this.headers });
  }
}

/** A `tools/call` as it goes over the wire. */
export function callOf(id: unknown, name: unknown, args: unknown = {}): WireMessage {
  return { jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args } };
}

/** The code that tells a program why a call was refused. */
export function reasonOf(message: WireMessage | undefined): unknown {
  return message?.result?._meta?.['mcp-interlock/refusal']?.reason;
}
