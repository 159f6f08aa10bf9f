import { chown, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { binary } from './binaries.ts';
import { freePort } from './ports.ts';
import { select1, unprivilegedOwner } from './postgres.ts';
import { type Service, startServer } from './server-process.ts';

/**
 * Starts a private PgBouncer in front of the server at `target`, on a free port of the loopback
 * interface.
 *
 * @param mode when a server's connection goes back: `session` with the client's, `transaction` after
 * each transaction
 */
export async function startPgBouncer(
  target: string,
  mode: 'session' | 'transaction',
): Promise<Service & { readonly port: number }> {
  const owner = await unprivilegedOwner();
  const folder = await mkdtemp(join(tmpdir(), 'interlock-pgbouncer-'));
  const port = await freePort();
  const { hostname, port: targetPort, username, password, pathname } = new URL(target);
  const server = [`host=${hostname}`, `port=${targetPort || 5432}`, `dbname=${pathname.slice(1)}`];
  // `auth_type = any` lets each client in, as the user that is named here.
  const user = [`user=${decodeURIComponent(username)}`];
  if (password !== '') user.push(`password=${decodeURIComponent(password)}`);
  const lines = [
    '[databases]',
    `pooled = ${[...server, ...user].join(' ')}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = any',
    `pool_mode = ${mode}`,
  ];
  const file = join(folder, 'pgbouncer.ini');
  await writeFile(file, `${lines.join('\n')}\n`);
  if (owner) await Promise.all([folder, file].map((path) => chown(path, owner.uid, owner.gid)));
  const url = `postgresql://postgres@127.0.0.1:${port}/pooled`;
  const service = await startServer(url, {
    command: process.env.PGBOUNCER_PATH ?? binary('pgbouncer', 'pgbouncer'),
    args: [file],
    folder,
    owner,
    stopSignal: 'SIGINT',
    abortSignal: 'SIGKILL',
    probe: () => select1(url),
  });
  return { ...service, port };
}
