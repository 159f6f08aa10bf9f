import { execFile } from 'node:child_process';
import { chown, mkdtemp, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { binary } from './binaries.ts';
import { freePort } from './ports.ts';
import { type Service, startServer } from './server-process.ts';

const run = promisify(execFile);

export interface PostgresOptions {
  /** Further settings, as `postgresql.conf` takes them: `{ max_connections: '200' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

/** Starts a private PostgreSQL on a free port of the loopback interface, with full durability. */
export function startPostgres(
  options: PostgresOptions = {},
): Promise<Service & { readonly port: number }> {
  return start(options, (owner, data) =>
    run(binary('postgres', 'initdb'), ['-D', data, ...INITDB], owner),
  );
}

/** Starts a hot standby of the server at `primary`, a port of the loopback interface. */
export function startStandby(
  primary: number,
  options: PostgresOptions = {},
): Promise<Service & { readonly port: number }> {
  const from = ['-h', '127.0.0.1', '-p', String(primary), '-U', 'postgres'];
  // `-R` saves the address of the primary, `-c fast` does not wait for a checkpoint.
  const how = ['-R', '-c', 'fast', '--no-sync'];
  return start(options, (owner, data) =>
    run(binary('postgres', 'pg_basebackup'), ['-D', data, ...from, ...how], owner),
  );
}

const INITDB = ['-U', 'postgres', '--auth=trust', '--encoding=UTF8', '--no-locale', '--no-sync'];

type Owner = { readonly cwd: string; readonly uid?: number; readonly gid?: number };

async function start(
  options: PostgresOptions,
  makeData: (owner: Owner, data: string) => Promise<unknown>,
): Promise<Service & { readonly port: number }> {
  const owner = await unprivilegedOwner();
  const folder = await mkdtemp(join(tmpdir(), 'interlock-postgres-'));
  if (owner) await chown(folder, owner.uid, owner.gid);
  const data = join(folder, 'data');
  await makeData({ cwd: folder, ...owner }, data);
  const port = await freePort();
  const url = `postgresql://postgres@127.0.0.1:${port}/postgres`;
  const settings: Record<string, string> = {
    port: String(port),
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    ...options.settings,
  };
  const service = await startServer(url, {
    command: binary('postgres', 'postgres'),
    args: [
      '-D',
      data,
      ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
    ],
    folder,
    owner,
    stopSignal: 'SIGINT',
    abortSignal: 'SIGQUIT',
    probe: () => select1(url),
  });
  return { ...service, port };
}

/**
 * The user for the programs that refuse to run as root: the one that PostgreSQL's package has made.
 */
export async function unprivilegedOwner(): Promise<{ uid: number; gid: number } | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const line = /^postgres:[^:]*:(\d+):(\d+):/m.exec(await readFile('/etc/passwd', 'utf8'));
  if (!line)
    throw new Error('PostgreSQL does not run as root, and this machine has no user "postgres"');
  return { uid: Number(line[1]), gid: Number(line[2]) };
}

/** Rejects while a server does not answer. */
export async function select1(url: string): Promise<void> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 2000 });
  client.on('error', () => {});
  try {
    await client.connect();
    await client.query('select 1');
  } finally {
    await client.end().catch(() => {});
  }
}
