import { Agent, type IncomingHttpHeaders, request } from 'node:http';

export interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

const HEADERS = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
};

/** A server as its clients reach it, over connections that are kept. */
export class Endpoint {
  readonly #options: { readonly host: string; readonly port: number; readonly path: string };
  readonly #agent = new Agent({ keepAlive: true });
  /** Requests that are not answered yet. */
  inFlight = 0;

  constructor(port: number) {
    this.#options = { host: '127.0.0.1', port, path: '/mcp' };
  }

  /** Rejects where the connection breaks before the whole answer is there, and with a `TimeoutError` where it never comes. */
  async post(message: object, session: string | undefined, timeoutMs: number): Promise<HttpAnswer> {
    this.inFlight++;
    try {
      return await this.#send(JSON.stringify(message), session, timeoutMs);
    } finally {
      this.inFlight--;
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  #send(body: string, session: string | undefined, timeoutMs: number): Promise<HttpAnswer> {
    const own = session === undefined ? {} : { 'mcp-session-id': session };
    const headers = { ...HEADERS, ...own, 'content-length': Buffer.byteLength(body) };
    const { promise, resolve, reject } = withResolvers<HttpAnswer>();
    const options = { ...this.#options, method: 'POST', agent: this.#agent, headers };
    const sent = request(options, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('aborted', () => reject(new Error('the answer was cut off')));
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(chunks).toString(),
        }),
      );
    });
    const timer = setTimeout(
      () => sent.destroy(new DOMException(`no answer within ${timeoutMs} ms`, 'TimeoutError')),
      timeoutMs,
    );
    sent.on('error', reject);
    sent.end(body);
    return promise.finally(() => clearTimeout(timer));
  }
}

function withResolvers<T>() {
  let resolve!: (value: T) => void;
  let reject!: (reason: unknown) => void;
  const promise = new Promise<T>((res, rej) => {
    resolve = res;
    reject = rej;
  });
  return { promise, resolve, reject };
}
