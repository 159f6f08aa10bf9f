import { Agent, type IncomingHttpHeaders, request } from 'node:http';
import type { Workload } from './setups.ts';

const HEADERS = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
};

/** One client: a kept-alive connection with a session of its own, and one request in flight at a time. */
export class Caller {
  readonly #url: URL;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  readonly #request: Pick<Workload, 'method' | 'params'>;
  #session: Record<string, string> = {};
  #lastId = 0;

  constructor(port: number, workload: Workload) {
    this.#url = new URL(`http://127.0.0.1:${port}/mcp`);
    this.#request = { method: workload.method, params: workload.params };
  }

  async open(): Promise<void> {
    const clientInfo = { name: 'bench', version: '1.0.0' };
    const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo };
    const { headers } = await this.#send({ method: 'initialize', params });
    const id = headers['mcp-session-id'];
    if (typeof id === 'string') this.#session = { 'mcp-session-id': id };
  }

  /** Calls until `until`, on the clock of `performance.now()`. Resolves to how many were answered. */
  async callUntil(until: number): Promise<number> {
    let count = 0;
    while (performance.now() < until) {
      await this.callOnce();
      count++;
    }
    return count;
  }

  async callOnce(): Promise<void> {
    const { body } = await this.#send(this.#request);
    if (!body.includes('"result"') || body.includes('"isError":true'))
      throw new Error(`a call failed: ${body}`);
  }

  close(): void {
    this.#agent.destroy();
  }

  #send(message: object): Promise<{ headers: IncomingHttpHeaders; body: string }> {
    const body = JSON.stringify({ jsonrpc: '2.0', id: ++this.#lastId, ...message });
    const headers = { ...HEADERS, ...this.#session, 'content-length': Buffer.byteLength(body) };
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
