import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';

/** A message of PostgreSQL's protocol: its type, its length, its content. */
function message(type: string, content: Buffer): Buffer {
  const head = Buffer.alloc(5, type);
  head.writeInt32BE(content.length + 4, 1);
  return Buffer.concat([head, content]);
}

const FATAL = 'SFATAL\0C57P01\0Mterminating connection due to unexpected postmaster exit\0\0';
const WELCOME_AND_END = Buffer.concat([
  message('R', Buffer.alloc(4)),
  message('Z', Buffer.from('I')),
  message('E', Buffer.from(FATAL)),
]);

/**
 * Answers as a PostgreSQL server that is killed while it lets a client in: it welcomes the client
 * and ends the connection in one packet. A real server does so about once in 400 kills.
 */
export async function startDyingServer(): Promise<{
  readonly url: string;
  /** How many clients it has let in. */
  clients(): number;
  stop(): Promise<unknown>;
}> {
  let clients = 0;
  const server = createServer((socket: Socket) => {
    clients++;
    socket.on('error', () => {});
    socket.once('data', () => socket.end(WELCOME_AND_END));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `postgresql://postgres@127.0.0.1:${port}/postgres`,
    clients: () => clients,
    async stop() {
      server.close();
      await once(server, 'close');
    },
  };
}
