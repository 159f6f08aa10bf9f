import { createServer, type Server } from 'node:net';

/** A TCP port of the loopback interface that is free at this moment. */
export async function freePort(accept: (port: number) => boolean | Promise<boolean> = () => true) {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    const server = await listen(0);
    const port = portOf(server);
    await closed(server);
    if (await accept(port)) return port;
  }
  throw new Error('no free port found on 127.0.0.1');
}

/** Whether a port is free at this moment. */
export async function isFree(port: number): Promise<boolean> {
  try {
    await closed(await listen(port));
    return true;
  } catch {
    return false;
  }
}

function listen(port: number): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => resolve(server));
  });
}

function portOf(server: Server): number {
  const address = server.address();
  if (address === null || typeof address === 'string')
    throw new Error('the server has no TCP port');
  return address.port;
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}
