import type { AddressInfo } from 'node:net';
import { connect, createServer, type Socket } from 'node:net';

export interface FlakyProxy {
  readonly port: number;
  /** Drops the next bytes that the server sends, closes their connection, and then resolves. */
  dropNextAnswer(): Promise<void>;
  /** Drops the next bytes of a client that match, leaves its connection open, and then resolves. */
  swallow(pattern: RegExp): Promise<void>;
  /** Breaks all open connections. New ones work. */
  cut(): void;
  stop(): Promise<void>;
}

/**
 * A proxy between clients and a server on the loopback interface, which breaks connections at the
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
