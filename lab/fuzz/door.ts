/**
 * A gate in front of an upstream of ours, in this process and without sockets, so that a whole
 * session costs a few milliseconds. Hides how a client speaks to it in either era.
 */
import { gateFetch } from '../../src/doors/fetch.ts';
import {
  type FsmGateOptions,
  fsmGate,
  type SessionStoreOptions,
  type StateMachineGate,
  sessionStore,
} from '../../src/index.ts';
import { broken } from './target.ts';

export const STATELESS = '2026-07-28';
const SESSION_ERA = '2025-11-25';

/** One JSON-RPC message. */
// biome-ignore lint/suspicious/noExplicitAny: an answer may be anything
export type Wire = any;

/** What the upstream gets, and what it answers. */
export interface Asked {
  readonly message: Wire;
  readonly request: Request;
  /** Of the answer: an upstream may add some, or take some away. */
  readonly headers: Headers;
}

export interface DoorOptions {
  readonly gate: StateMachineGate<string, string>;
  readonly gateOptions?: FsmGateOptions;
  readonly sessions?: SessionStoreOptions;
  readonly auth?: (request: Request) => { readonly extra: Record<string, unknown> } | undefined;
  /** The `result` of each request that is no `initialize`. */
  readonly answer: (asked: Asked) => object;
}

export interface Answered {
  readonly status: number;
  readonly text: string;
  readonly message: Wire;
}

export class Door {
  /** The tools whose calls reached the upstream, with their arguments. */
  readonly ran: { readonly tool: string; readonly args: Wire }[] = [];
  readonly #errors: unknown[] = [];
  readonly #handle: (request: Request) => Promise<Response>;
  #id = 0;

  constructor({ gate, gateOptions, sessions, auth, answer }: DoorOptions) {
    const observers = {
      onError: (error: unknown) => void this.#errors.push(error),
      onWarning: () => {},
    };
    const upstream = async (request: Request): Promise<Response> => {
      const text = await request.text();
      if (text === '') return new Response(null, { status: 200 });
      const message: Wire = JSON.parse(text);
      if (message.id === undefined) return new Response(null, { status: 202 });
      const headers = new Headers({ 'content-type': 'application/json' });
      if (message.method === 'tools/call')
        this.ran.push({ tool: message.params.name, args: message.params.arguments });
      const result =
        message.method === 'initialize'
          ? { ...BEGUN, ...answer({ message, request, headers }) }
          : answer({ message, request, headers });
      const body = JSON.stringify({ jsonrpc: '2.0', id: message.id, result });
      return new Response(body, { headers });
    };
    this.#handle = gateFetch(
      upstream,
      [
        sessionStore({ ...observers, ...sessions }),
        fsmGate(gate, { ...observers, ...gateOptions }),
      ],
      auth && { auth },
    );
  }

  /** Begins a session; returns the headers that name it. */
  async begin(headers: Readonly<Record<string, string>> = {}, info: object = CLIENT) {
    const params = { protocolVersion: SESSION_ERA, capabilities: {}, clientInfo: info };
    const body = JSON.stringify({ jsonrpc: '2.0', id: 0, method: 'initialize', params });
    const response = await this.#send('POST', headers, body);
    await response.text();
    const session = response.headers.get('mcp-session-id');
    if (session === null) return broken('the gate gave no session');
    return { ...headers, 'mcp-session-id': session, 'mcp-protocol-version': SESSION_ERA };
  }

  /** Sends a body as it is. Breaks where the answer is none that a client may get. */
  async post(
    text: string,
    headers: Readonly<Record<string, string>>,
    path = '/mcp',
  ): Promise<Answered> {
    const response = await this.#send('POST', headers, text, path);
    const { status } = response;
    const answer = await response.text();
    if (status >= 500) broken(`the gate answered ${status}`, answer);
    const [error] = this.#errors.splice(0);
    if (error !== undefined) broken(`onError was told: ${error}`);
    return { status, text: answer, message: answer === '' ? undefined : JSON.parse(answer) };
  }

  /** One request in the client's era, with `params` as JSON text. */
  async ask(
    method: string,
    params: string,
    headers: Readonly<Record<string, string>>,
  ): Promise<Answered> {
    this.#id++;
    const text = `{"jsonrpc":"2.0","id":${this.#id},"method":"${method}","params":${params}}`;
    return this.post(text, headers);
  }

  async end(headers: Readonly<Record<string, string>>): Promise<void> {
    await (await this.#send('DELETE', headers, null)).text();
  }

  #send(
    method: string,
    headers: Readonly<Record<string, string>>,
    body: string | null,
    path = '/mcp',
  ): Promise<Response> {
    const own = { 'content-type': 'application/json', accept: BOTH, ...headers };
    return this.#handle(new Request(`http://shop.example${path}`, { method, headers: own, body }));
  }
}

const BOTH = 'application/json, text/event-stream';
const CLIENT = { name: 'fuzz', version: '1' };
const BEGUN = {
  protocolVersion: SESSION_ERA,
  capabilities: { tools: {} },
  serverInfo: { name: 'fuzz', version: '1' },
};

/** What a client of the stateless era says of itself in each request. */
export function saysOfItself(info: object = CLIENT): object {
  return {
    'io.modelcontextprotocol/protocolVersion': STATELESS,
    'io.modelcontextprotocol/clientInfo': info,
    'io.modelcontextprotocol/clientCapabilities': {},
  };
}

/** The reason of a refusal; `undefined` where the answer is none. */
export function refusalIn({ message }: Answered): string | undefined {
  const meta = message?.result?._meta ?? message?.error?.data;
  return meta?.['mcp-interlock/refusal']?.reason;
}
