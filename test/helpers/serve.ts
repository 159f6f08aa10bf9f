import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

/** A server on a free port of the loopback interface. */
export interface Served {
  /** Its MCP route. */
  readonly url: URL;
  readonly server: Server;
  /** Closes it, and every connection to it. */
  close(): Promise<void>;
}

/** Serves an app or a listener, by default on a free port. The caller closes it. */
export async function listen(listener: RequestListener, at = 0): Promise<Served> {
  const server = createServer(listener).listen(at, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: new URL(`http://127.0.0.1:${port}/mcp`),
    server,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** As `serve()`, until the end of the test. */
export async function serve(listener: RequestListener): Promise<Served> {
  const served = await listen(listener);
  onTestFinished(() => served.close());
  return served;
}
