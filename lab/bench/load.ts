import { Agent, type IncomingHttpHeaders, request } from 'node:http';
import type { Sent, Workload } from './setups.ts';

const HEADERS = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
};

/** The number that so large a share of them does not exceed. */
export function quantile(numbers: readonly number[], share: number): number {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0;
}

type Load = Pick<Workload, 'sdk' | 'requests' | 'isRefused' | 'isSideBySide'>;

interface Answer {
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

const STATELESS = '2026-07-28';

let lastUser = 0;

/**
 * One client: a kept-alive connection with a run of its own, and one request in flight at a time;
 * or side by side, a connection for each of its requests.
 */
export class Caller {
  readonly #url: URL;
  readonly #agent: Agent;
  readonly #requests: readonly Sent[];
  readonly #isRefused: boolean;
  readonly #isSideBySide: boolean;
  readonly #isStateless: boolean;
  #headers: Readonly<Record<string, string>>;
  #lastId = 0;
  #next = 0;

  constructor(port: number, { sdk, requests, isRefused = false, isSideBySide = false }: Load) {
    this.#url = new URL(`http://127.0.0.1:${port}/mcp`);
    this.#isStateless = sdk === 'v2';
    this.#headers = { ...HEADERS, 'x-user': `user ${++lastUser}` };
    this.#requests = requests;
    this.#isRefused = isRefused;
    this.#isSideBySide = isSideBySide;
    this.#agent = new Agent({ keepAlive: true, maxSockets: isSideBySide ? requests.length : 1 });
  }

  /** What it sends with each request, its session's id included. */
  get headers(): Readonly<Record<string, string>> {
    return this.#headers;
  }

  async open(): Promise<void> {
    if (this.#isStateless) return;
    const clientInfo = { name: 'bench', version: '1.0.0' };
    const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo };
    const { headers } = await this.#send({ method: 'initialize', params });
    const id = headers['mcp-session-id'];
    if (typeof id === 'string') this.#headers = { ...this.#headers, 'mcp-session-id': id };
  }

  /**
   * Calls once, and then again until `until`, on the clock of `performance.now()`. Gives the milliseconds that each
   * took.
   */
  async callUntil(until: number): Promise<number[]> {
    const taken: number[] = [];
    let began = performance.now();
    do {
      await this.callOnce();
      const now = performance.now();
      taken.push(now - began);
      began = now;
    } while (began < until);
    return taken;
  }

  /** The next of its requests; side by side, all of them. */
  async callOnce(): Promise<void> {
    if (this.#isSideBySide) {
      await Promise.all(this.#requests.map((each) => this.call(each, this.#isRefused)));
      return;
    }
    const [first] = this.#requests;
    const sent = this.#requests[this.#next] ?? first;
    this.#next = (this.#next + 1) % this.#requests.length;
    if (sent !== undefined) await this.call(sent, this.#isRefused);
  }

  async call(sent: Sent, isRefused = false): Promise<void> {
    const { body } = await (this.#isStateless ? this.#ask(sent) : this.#send(sent));
    if (!body.includes('"result"') || body.includes('"isError":true') !== isRefused)
      throw new Error(`a call came out otherwise than it should: ${body}`);
  }

  close(): void {
    this.#agent.destroy();
  }

  /** As a client of the stateless era asks. */
  #ask({ method, params }: Sent): Promise<Answer> {
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': STATELESS,
      'io.modelcontextprotocol/clientCapabilities': {},
    };
    const { name } = params;
    const headers = {
      'mcp-protocol-version': STATELESS,
      'mcp-method': method,
      ...(typeof name === 'string' && { 'mcp-name': name }),
    };
    return this.#send({ method, params: { ...params, _meta } }, headers);
  }

  #send(message: object, more: Record<string, string> = {}): Promise<Answer> {
    const body = JSON.stringify({ jsonrpc: '2.0', id: ++this.#lastId, ...message });
    const headers = { ...this.#headers, ...more, 'content-length': Buffer.byteLength(body) };
    return new Promise((resolve, reject) => {
      const sent = request(
        this.#url,
        { method: 'POST', agent: this.#agent, headers },
        (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk: Buffer) => chunks.push(chunk));
          response.on('error', reject);
          response.on('end', () =>
            resolve({ headers: response.headers, body: Buffer.concat(chunks).toString() }),
          );
        },
      );
      sent.on('error', reject);
      sent.end(body);
    });
  }
}
