import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestProject } from 'vitest/node';
import { startEtcd } from './etcd.ts';
import { startMariadb } from './mariadb.ts';
import { type Made, startInstall, startTarball } from './packages.ts';
import { startPostgres } from './postgres.ts';
import { startRedis } from './redis.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The address at which a test file asks for a shared server. */
    services: string;
  }
}

const starters = new Map<string, () => Promise<Made>>([
  // It names a snapshot, which no test comes to: each store would warn of a Redis without one.
  ['/redis', () => startRedis({ settings: { save: '86400 100000000' } })],
  ['/postgres', startPostgres],
  ['/mariadb', startMariadb],
  ['/etcd', startEtcd],
  ['/tarball', () => startTarball('.')],
  ['/tarball-of-command', () => startTarball('packages/cli')],
  ['/tarball-of-check', () => startTarball('packages/check')],
  ['/tarball-of-testing', () => startTarball('packages/testing')],
  [
    '/command',
    () =>
      startInstall(
        ...['/tarball', '/tarball-of-check', '/tarball-of-command'].map((path) => serviceAt(path)),
      ),
  ],
]);
const started = new Map<string, Promise<Made>>();
let control: Server | undefined;

/**
 * One server of each kind for the whole run. Test files run in several processes and ask
 * for them over HTTP, so a run that needs no server starts none.
 */
export async function setup({ provide }: TestProject): Promise<void> {
  const server = createServer((request, response) => {
    serviceAt(request.url ?? '').then(
      ({ url }) => response.end(url),
      (error: unknown) => response.writeHead(500).end(String(error)),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  control = server;
  provide('services', `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

export async function teardown(): Promise<void> {
  control?.closeAllConnections();
  control?.close();
  const services = await Promise.allSettled(started.values());
  await Promise.all(
    services.map((result) => (result.status === 'fulfilled' ? result.value.stop() : undefined)),
  );
}

async function serviceAt(path: string): Promise<Made> {
  const start = starters.get(path);
  if (!start) throw new Error(`no such service: ${path}`);
  const service = started.get(path) ?? start();
  started.set(path, service);
  return service;
}
