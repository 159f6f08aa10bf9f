import { existsSync, readdirSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** The servers of the tests: their Debian packages, and the variables that name other servers. */
export const SERVICES = {
  redis: {
    title: 'Redis',
    binaries: ['redis-server', 'redis-cli'],
    packages: ['redis-server'],
    url: 'REDIS_URL',
    isWhat: 'a server that the tests may write to',
  },
  postgres: {
    title: 'PostgreSQL',
    binaries: ['postgres', 'initdb'],
    packages: ['postgresql'],
    url: 'DATABASE_URL',
    isWhat: 'a server that the tests may write to',
  },
  mariadb: {
    title: 'MariaDB',
    binaries: ['mariadbd', 'mariadb-install-db'],
    packages: ['mariadb-server'],
    url: 'MARIADB_URL',
    isWhat: 'a server that the tests may write to',
  },
  etcd: {
    title: 'etcd',
    binaries: ['etcd'],
    packages: ['etcd-server'],
    url: 'ETCD_URL',
    isWhat: 'a server that the tests may write to',
  },
  pgbouncer: {
    title: 'PgBouncer',
    binaries: ['pgbouncer'],
    packages: ['pgbouncer'],
    url: 'PGBOUNCER_PATH',
    isWhat: 'the file of a PgBouncer',
  },
  chromium: {
    title: 'Chromium',
    binaries: ['chromium'],
    packages: ['chromium'],
    url: 'CHROMIUM_PATH',
    isWhat: 'the file of a Chromium or Chrome',
  },
} as const;

export type ServiceName = keyof typeof SERVICES;

/** Where an executable is, or `undefined` where it is not installed. */
export function findBinary(name: string): string | undefined {
  return searchPath()
    .map((folder) => join(folder, name))
    .find((file) => existsSync(file));
}

/** Where an executable is; the error says what to install and which variable would do instead. */
export function binary(service: ServiceName, name: string): string {
  const found = findBinary(name);
  if (found === undefined) throw new Error(missingMessage(service));
  return found;
}

export function missingMessage(service: ServiceName): string {
  const { title, binaries, packages, url, isWhat } = SERVICES[service];
  return (
    `The tests start a private ${title} and found no ${binaries.join(' and ')}: ` +
    `install it (Debian: apt-get install ${packages.join(' ')}), or set ${url} to ${isWhat}.`
  );
}

/**
 * Debian keeps PostgreSQL's servers out of the PATH, one folder for each version, and PgBouncer out
 * of the PATH of all users but root.
 */
function searchPath(): string[] {
  const path = (process.env.PATH ?? '').split(delimiter).filter((folder) => folder !== '');
  const debian = '/usr/lib/postgresql';
  const versions = existsSync(debian) ? readdirSync(debian) : [];
  const newestFirst = versions.sort((a, b) => Number(b) - Number(a));
  return [...newestFirst.map((version) => join(debian, version, 'bin')), ...path, '/usr/sbin'];
}
