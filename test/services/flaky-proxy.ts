import type { AddressInfo } from 'node:net';
import { connect, createServer, type Socket } from 'node:net';

export interface FlakyProxy {
  readonly port: number;
  /**
   * The next bytes that the server sends are thrown away, and their connection with them. Resolves
   * once that happened.
   */
  dropNextAnswer(): Promise<void>;
  /**
   * The next bytes of a client that match are thrown away, and its connection is left open.
   * Resolves once that happened.
   */
  swallow(pattern: RegExp): Promise<void>;
  /** Breaks the connections that are open. New ones work. */
  cut(): void;
  stop(): Promise<void>;
}

/**
 * Stands between a client and a server on the loopback interface and breaks connections at the
 * worst moment.
 */
export async function startFlakyProxy(target: number): Promise<FlakyProxy> {
  const sockets = new Set<Socket>();
  let dropped: (() => void) | undefined;
  let swallowing: { readonly pattern: RegExp; resolve(): void } | undefined;

  const server = createServer((client) => {
    const upstream = connect(target, '127.0.0.1');
    for (const socket of [client, upstream]) {
      sockets.add(socket.on('error', () => {}));
      socket.on('close', () => {
        client.destroy();
        upstream.destroy();
        sockets.delete(socket);
      });
    }
    client.on('data', (data) => {
      if (!swallowing?.pattern.test(data.toString())) return void upstream.write(data);
      swallowing.resolve();
      swallowing = undefined;
    });
    upstream.on('data', (data) => {
      if (!dropped) return void client.write(data);
      client.destroy();
      dropped();
      dropped = undefined;
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    dropNextAnswer: () =>
      new Promise((resolve) => {
        dropped = resolve;
      }),
    swallow: (pattern) =>
      new Promise((resolve) => {
        swallowing = { pattern, resolve };
      }),
    cut() {
      for (const socket of sockets) socket.destroy();
    },
    async stop() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
