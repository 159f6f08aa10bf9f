import { inject } from 'vitest';
import { SERVICES, type ServiceName } from './binaries.ts';

/**
 * The address of the Redis that all tests of this run share. The first call starts it. Each test
 * uses its own keys. `REDIS_URL` names another server.
 */
export const sharedRedis = (): Promise<string> => shared('redis');

/**
 * The address of the PostgreSQL that all tests of this run share. The first call starts it. Each
 * test uses its own schema. `DATABASE_URL` names another server.
 */
export const sharedPostgres = (): Promise<string> => shared('postgres');

/** As `sharedPostgres`, for MariaDB; each test uses its own keys. `MARIADB_URL` names another. */
export const sharedMariadb = (): Promise<string> => shared('mariadb');

/** As `sharedRedis`, for etcd. `ETCD_URL` names another server. */
export const sharedEtcd = (): Promise<string> => shared('etcd');

/** The path of the packed package, which all tests of this run share. */
export const sharedTarball = (): Promise<string> => madeOnce('tarball');

/** As `sharedTarball`, for the packages of a developer's machine. */
export const sharedTarballsOfDevelopers = (): Promise<readonly string[]> =>
  Promise.all(['tarball-of-check', 'tarball-of-testing'].map(madeOnce));

/** As `sharedTarball`, for the command and what it brings along. */
export const sharedTarballsOfCommand = (): Promise<readonly string[]> =>
  Promise.all(['tarball-of-check', 'tarball-of-command'].map(madeOnce));

/** The path of a project in which both are installed. Copy it: other tests do too. */
export const sharedCommand = (): Promise<string> => madeOnce('command');

async function shared(name: ServiceName): Promise<string> {
  const own = process.env[SERVICES[name].url];
  return own || madeOnce(name);
}

async function madeOnce(name: string): Promise<string> {
  // A connection that was kept may be closed while the request is on its way.
  const headers = { connection: 'close' };
  const response = await fetch(`${inject('services')}/${name}`, { headers });
  const text = await response.text();
  if (!response.ok) throw new Error(text);
  return text;
}
