import { chown, mkdtemp, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { findBinary } from './binaries.ts';
import { freePort } from './ports.ts';
import { type Service, startServer } from './server-process.ts';

/** Starts a private PgBouncer in front of the PostgreSQL at `target`, in transaction mode. */
export async function startTransactionPool(
  target: string,
  settings: Readonly<Record<string, string>> = {},
): Promise<Service> {
  const command = findBinary('pgbouncer');
  if (command === undefined)
    throw new Error('The tests found no pgbouncer: install it (Debian: apt-get install pgbouncer)');
  const folder = await mkdtemp(join(tmpdir(), 'interlock-pgbouncer-'));
  const port = await freePort();
  const { hostname, port: targetPort, pathname, username } = new URL(target);
  const lines = {
    listen_addr: '127.0.0.1',
    listen_port: String(port),
    unix_socket_dir: '',
    // Each client comes in, as the user that the line of the database names.
    auth_type: 'any',
    pool_mode: 'transaction',
    default_pool_size: '2',
    ...settings,
  };
  const database = `host=${hostname} port=${targetPort} dbname=${pathname.slice(1)}`;
  const file = join(folder, 'pgbouncer.ini');
  const text = Object.entries(lines).map(([name, value]) => `${name} = ${value}`);
  await writeFile(
    file,
    ['[databases]', `pooled = ${database} user=${username}`, '[pgbouncer]', ...text, ''].join('\n'),
  );
  const url = `postgresql://postgres@127.0.0.1:${port}/pooled`;
  const owner = await ownerOf('/var/lib/postgresql', folder, file);
  return startServer(url, {
    command,
    args: [file],
    folder,
    owner,
    stopSignal: 'SIGINT',
    abortSignal: 'SIGKILL',
    probe: () => select1(url),
  });
}

/** PgBouncer does not run as root: gives the files to the user whose folder PostgreSQL has made. */
async function ownerOf(
  home: string,
  ...paths: readonly string[]
): Promise<{ uid: number; gid: number } | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const { uid, gid } = await stat(home);
  await Promise.all(paths.map((path) => chown(path, uid, gid)));
  return { uid, gid };
}

async function select1(url: string): Promise<void> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 2000 });
  client.on('error', () => {});
  try {
    await client.connect();
    await client.query('select 1');
  } finally {
    await client.end().catch(() => {});
  }
}
