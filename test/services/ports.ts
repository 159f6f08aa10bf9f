import { randomInt } from 'node:crypto';
import { createServer, type Server } from 'node:net';

/**
 * Systems give a connection that goes out a port from 32768 on (Linux) or 49152 on (RFC 6335). A
 * server that was killed finds its own port taken where it stands among these. The bus of a Redis
 * Cluster listens 10,000 above its node: below 32768 too, and beside every other server.
 */
const [LOWEST, HIGHEST] = [10_000, 20_000];

/** A TCP port of the loopback interface that is free at this moment, also for a later restart. */
export async function freePort(accept: (port: number) => boolean | Promise<boolean> = () => true) {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    const port = randomInt(LOWEST, HIGHEST);
    if ((await isFree(port)) && (await accept(port))) return port;
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

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}
