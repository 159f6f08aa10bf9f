import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export interface SilentProxy {
  readonly port: number;
  /** From now on nothing passes on the open connections, which stay open. New ones work. */
  fallSilent(): void;
  stop(): Promise<void>;
}

/** A proxy that forgets connections as a router does: neither side is told. */
export async function startSilentProxy(target: number): Promise<SilentProxy> {
  const pairs = new Set<readonly [Socket, Socket]>();
  const server = createServer((client) => {
    const pair = [client, connect(target, '127.0.0.1')] as const;
    const [, upstream] = pair;
    pairs.add(pair);
    client.pipe(upstream).pipe(client);
    for (const socket of pair) socket.on('error', () => socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    fallSilent() {
      for (const [client, upstream] of pairs) {
        client.unpipe(upstream);
        upstream.unpipe(client);
      }
    },
    async stop() {
      for (const socket of [...pairs].flat()) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
