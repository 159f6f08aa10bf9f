import { Agent, type ClientRequest, type IncomingMessage, request } from 'node:http';
import { createParser } from 'eventsource-parser';
import {
  CALL,
  type Exchange,
  type Listening,
  now,
  type OutsideCall,
  type SwitchCall,
} from './evidence.ts';

/** Everything that clients sent and got, and what was asked of the public API. */
export class WireLog {
  readonly exchanges: Exchange[] = [];
  readonly streams: Listening[] = [];
  readonly outside: OutsideCall[] = [];
  readonly switches: SwitchCall[] = [];
  #calls = 0;

  /** A name for the next exchange, and its JSON-RPC id. */
  nextCall(): { readonly call: string; readonly id: number } {
    this.#calls += 1;
    return { call: `call-${this.#calls}`, id: this.#calls };
  }

  /**
   * Asks the public API, and notes what it was asked and what it answered. Rejects as the API does;
   * then the answer is open.
   */
  async ask<T>(
    about: Pick<OutsideCall, 'run' | 'machine' | 'does'>,
    question: () => Promise<T>,
    did: (answer: T) => boolean,
  ): Promise<T> {
    const call: OutsideCall = { ...about, asked: now() };
    this.outside.push(call);
    const answer = await question();
    call.did = did(answer);
    call.answered = now();
    return answer;
  }

  /**
   * Stops a run, or lets it go on, and notes it. `question` answers `true` where that changed the
   * run, else the reason why not.
   */
  async freeze(
    { kind, ...about }: Pick<OutsideCall, 'run' | 'machine'> & { kind: 'freeze' | 'unfreeze' },
    question: () => Promise<true | string>,
  ): Promise<void> {
    const does: { readonly kind: 'freeze' | 'unfreeze'; isNew?: boolean } = { kind };
    await this.ask({ ...about, does }, question, (answer) => {
      does.isNew = answer === true;
      return answer !== 'unknown-run';
    });
  }

  /** Throws a workflow's switch, and notes when. Rejects as the API does. */
  async throwSwitch<T>(about: Omit<SwitchCall, 'asked'>, question: () => Promise<T>): Promise<T> {
    const call: SwitchCall = { ...about, asked: now() };
    this.switches.push(call);
    const answer = await question();
    call.answered = now();
    return answer;
  }
}

/** Who calls, and for which run. */
export interface Caller {
  /** The name of the caller's run in the log: the session's id, or the principal's name. */
  readonly run: string;
  readonly era: 'session' | 'stateless';
  readonly headers: Readonly<Record<string, string>>;
}

/** The revision of the protocol that sessions speak here. */
export const SESSION_PROTOCOL = '2025-11-25';
export const STATELESS_PROTOCOL = '2026-07-28';
const HANGS_AFTER_MS = 30_000;
const ACCEPT = 'application/json, text/event-stream';
const META = 'io.modelcontextprotocol';

/** A server as its clients reach it, over connections that are kept. */
export class Endpoint {
  readonly url: URL;
  readonly agent = new Agent({ keepAlive: true });
  /** Requests that are not answered yet; streams do not count. */
  inFlight = 0;

  constructor(url: URL) {
    this.url = url;
  }

  close(): void {
    this.agent.destroy();
  }
}

export interface SendOptions {
  /** Hangs up when it is aborted. */
  readonly signal?: AbortSignal;
  /** After it the client gives up, which is a fault. Default 30 s. */
  readonly timeoutMs?: number;
}

/** Clients that write down what they send and get. */
export class Recorder {
  readonly log: WireLog;

  constructor(log: WireLog) {
    this.log = log;
  }

  /** Starts a session. `undefined` where the server, or its store, was not there to do so. */
  async openSession(
    endpoint: Endpoint,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Caller | undefined> {
    const clientInfo = { name: 'recorder', version: '1.0.0' };
    const params = { protocolVersion: SESSION_PROTOCOL, capabilities: {}, clientInfo };
    const nobody: Caller = { run: '', era: 'session', headers };
    let session: string | undefined;
    const { status } = await this.send(endpoint, nobody, 'initialize', params, {
      onHead: (response) => {
        session = response.headers['mcp-session-id'] as string | undefined;
      },
    });
    if (status !== 200 || session === undefined) return undefined;
    const own = { 'mcp-session-id': session, 'mcp-protocol-version': SESSION_PROTOCOL };
    return { run: session, era: 'session', headers: { ...headers, ...own } };
  }

  /** Ends a session, as a client does that shuts down. The answer's status; 0 where none came. */
  async endSession({ url, agent }: Endpoint, { headers }: Caller): Promise<number> {
    const sent = request(url, { method: 'DELETE', agent, headers }).on('error', () => {});
    const response = await headOf(sent.end()).catch(() => undefined);
    response?.resume();
    return response?.statusCode ?? 0;
  }

  /** A caller without sessions; the headers say who. */
  principal(run: string, headers: Readonly<Record<string, string>>): Caller {
    return { run, era: 'stateless', headers };
  }

  call(
    endpoint: Endpoint,
    caller: Caller,
    tool: string,
    args: unknown,
    options?: SendOptions,
  ): Promise<Exchange> {
    return this.send(endpoint, caller, 'tools/call', { name: tool, arguments: args }, options);
  }

  list(endpoint: Endpoint, caller: Caller): Promise<Exchange> {
    return this.send(endpoint, caller, 'tools/list', {});
  }

  /**
   * Sends one request, and reads what comes to its end. Never rejects: a connection that breaks
   * stands in the log.
   */
  async send(
    endpoint: Endpoint,
    caller: Caller,
    method: string,
    params: Record<string, unknown>,
    options: SendOptions & HeadListener = {},
  ): Promise<Exchange> {
    const exchange = this.#begin(caller, method, params);
    await this.#exchange(endpoint, caller, [exchange], exchange.request, options);
    return exchange;
  }

  /** Sends several requests in one body; each has an exchange of its own. */
  async batch(
    endpoint: Endpoint,
    caller: Caller,
    requests: readonly { readonly method: string; readonly params: Record<string, unknown> }[],
  ): Promise<Exchange[]> {
    const exchanges = requests.map(({ method, params }) => this.#begin(caller, method, params));
    const body = exchanges.map(({ request }) => request);
    await this.#exchange(endpoint, caller, exchanges, body);
    return exchanges;
  }

  #begin(caller: Caller, method: string, params: Record<string, unknown>): Exchange {
    const { call, id } = this.log.nextCall();
    const message = messageOf(caller, id, method, params, call);
    const { run } = caller;
    const exchange: Exchange = { call, run, sent: now(), request: message, messages: [] };
    this.log.exchanges.push(exchange);
    return exchange;
  }

  async #exchange(
    endpoint: Endpoint,
    caller: Caller,
    exchanges: readonly Exchange[],
    body: unknown,
    { signal, timeoutMs = HANGS_AFTER_MS, onHead }: SendOptions & HeadListener = {},
  ): Promise<void> {
    const note = (what: Partial<Exchange>): void => {
      for (const exchange of exchanges) Object.assign(exchange, what);
    };
    endpoint.inFlight++;
    const sent = post(endpoint, caller, body);
    const hangUp = (): void => void sent.destroy();
    signal?.addEventListener('abort', hangUp);
    const timer = setTimeout(() => {
      note({ hung: true });
      sent.destroy();
    }, timeoutMs);
    try {
      const response = await headOf(sent);
      onHead?.(response);
      note({ status: response.statusCode ?? 0, isStream: isEventStream(response) });
      await readAll(response, (message) => {
        for (const { messages } of exchanges) messages.push({ at: now(), message });
      });
    } catch {
      note({ broke: true });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', hangUp);
      note({ ended: now() });
      endpoint.inFlight--;
    }
  }

  /**
   * Opens the caller's own stream: a GET of its session, or `subscriptions/listen`. Resolves once
   * it is open; what is returned hangs up. `undefined` where the server has no such stream.
   */
  async listen(endpoint: Endpoint, caller: Caller): Promise<{ close(): void } | undefined> {
    return caller.era === 'session'
      ? this.#follow(caller, 'session', get(endpoint, caller), () => true)
      : this.#subscribe(endpoint, caller);
  }

  #subscribe(endpoint: Endpoint, caller: Caller): Promise<{ close(): void } | undefined> {
    const { call, id } = this.log.nextCall();
    const params = { notifications: { toolsListChanged: true } };
    const message = messageOf(caller, id, 'subscriptions/listen', params, call);
    return this.#follow(
      caller,
      'subscription',
      post(endpoint, caller, message, false),
      // biome-ignore lint/suspicious/noExplicitAny: what came over the wire may be anything
      (each: any) => each?.method === 'notifications/subscriptions/acknowledged',
    );
  }

  async #follow(
    { run }: Caller,
    kind: Listening['kind'],
    sent: ClientRequest,
    isOpen: (message: unknown) => boolean,
  ): Promise<{ close(): void } | undefined> {
    const response = await headOf(sent).catch(() => undefined);
    if (response?.statusCode !== 200 || !isEventStream(response)) {
      sent.destroy();
      return undefined;
    }
    const open = (): Listening => {
      const stream: Listening = { run, kind, opened: now(), messages: [] };
      this.log.streams.push(stream);
      return stream;
    };
    let stream = kind === 'session' ? open() : undefined;
    const opened = new Promise<void>((resolve) => {
      if (stream !== undefined) resolve();
      const reading = readAll(response, (message) => {
        if (stream === undefined && isOpen(message)) {
          stream = open();
          resolve();
        }
        stream?.messages.push({ at: now(), message });
      });
      const ended = (): void => {
        if (stream !== undefined) stream.closed ??= now();
        resolve();
      };
      reading.then(ended, ended);
    });
    await opened;
    return {
      close: () => {
        // From here on nothing is due on it.
        if (stream !== undefined) stream.closed ??= now();
        sent.destroy();
      },
    };
  }
}

interface HeadListener {
  readonly onHead?: (response: IncomingMessage) => void;
}

function messageOf(
  { era }: Caller,
  id: number,
  method: string,
  params: Record<string, unknown>,
  call: string,
) {
  const claim = {
    [`${META}/protocolVersion`]: STATELESS_PROTOCOL,
    [`${META}/clientCapabilities`]: {},
  };
  const _meta = { [CALL]: call, ...(era === 'stateless' && claim) };
  return { jsonrpc: '2.0', id, method, params: { ...params, _meta } };
}

function post(
  { url, agent }: Endpoint,
  { era, headers }: Caller,
  // biome-ignore lint/suspicious/noExplicitAny: made above
  message: any,
  isKept = true,
): ClientRequest {
  const { method, params } = Array.isArray(message) ? { method: '', params: {} } : message;
  const name = params.name ?? params.uri;
  const routing = {
    'mcp-protocol-version': STATELESS_PROTOCOL,
    'mcp-method': method,
    ...(typeof name === 'string' && { 'mcp-name': name }),
  };
  const body = JSON.stringify(message);
  const sent = request(url, {
    method: 'POST',
    agent: isKept ? agent : false,
    headers: {
      accept: ACCEPT,
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
      ...headers,
      ...(era === 'stateless' && routing),
    },
  });
  return sent.on('error', () => {}).end(body);
}

function get({ url }: Endpoint, { headers }: Caller): ClientRequest {
  const sent = request(url, { agent: false, headers: { ...headers, accept: 'text/event-stream' } });
  return sent.on('error', () => {}).end();
}

function headOf(sent: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    sent.on('response', resolve);
    sent.on('error', reject);
    sent.on('close', () => reject(new Error('the connection broke')));
  });
}

function isEventStream({ headers }: IncomingMessage): boolean {
  return headers['content-type']?.startsWith('text/event-stream') === true;
}

/** Rejects where the connection breaks before the end. */
async function readAll(
  response: IncomingMessage,
  onMessage: (message: unknown) => void,
): Promise<void> {
  response.setEncoding('utf8');
  if (isEventStream(response)) {
    const parser = createParser({
      onEvent: ({ data }) => void (data !== '' && onMessage(JSON.parse(data))),
    });
    for await (const chunk of response) parser.feed(chunk as string);
    return;
  }
  let text = '';
  for await (const chunk of response) text += chunk;
  if (text !== '') for (const message of [JSON.parse(text)].flat()) onMessage(message);
}
