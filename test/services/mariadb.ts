import { execFile } from 'node:child_process';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createConnection } from 'mariadb';
import { binary } from './binaries.ts';
import { freePort } from './ports.ts';
import { type Service, startServer } from './server-process.ts';

const run = promisify(execFile);

export interface MariadbOptions {
  /** Further settings, as `mariadbd` takes them: `{ max_connections: '200' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

const INSTALL = ['--auth-root-authentication-method=normal', '--skip-test-db'];

/** Runs at each start. Without a name for the client's host no DNS is asked. */
const INIT = `
CREATE DATABASE IF NOT EXISTS tests;
CREATE USER IF NOT EXISTS tests@'127.0.0.1';
GRANT ALL ON *.* TO tests@'127.0.0.1';
`;

/** Starts a private MariaDB on a free port of the loopback interface, with full durability. */
export async function startMariadb(
  options: MariadbOptions = {},
): Promise<Service & { readonly port: number }> {
  const folder = await mkdtemp(join(tmpdir(), 'interlock-mariadb-'));
  const data = join(folder, 'data');
  const init = join(folder, 'init.sql');
  await writeFile(init, INIT);
  // Without the machine's own settings, and as root only where that is said.
  const common = ['--no-defaults', `--datadir=${data}`];
  if (process.getuid?.() === 0) common.push('--user=root');
  await run(binary('mariadb', 'mariadb-install-db'), [...common, ...INSTALL]);
  const port = await freePort();
  const url = `mariadb://tests@127.0.0.1:${port}/tests`;
  const settings: Record<string, string> = {
    port: String(port),
    bind_address: '127.0.0.1',
    skip_name_resolve: 'ON',
    socket: join(folder, 'socket'),
    pid_file: join(folder, 'pid'),
    init_file: init,
    ...options.settings,
  };
  const service = await startServer(url, {
    command: binary('mariadb', 'mariadbd'),
    args: [...common, ...Object.entries(settings).map(([name, value]) => `--${name}=${value}`)],
    folder,
    stopSignal: 'SIGTERM',
    abortSignal: 'SIGKILL',
    probe: () => select1(url),
  });
  return { ...service, port };
}

/** Rejects while the server does not answer. */
async function select1(url: string): Promise<void> {
  const connection = await createConnection(`${url}?connectTimeout=2000`);
  try {
    await connection.query('SELECT 1');
  } finally {
    await connection.end().catch(() => {});
  }
}
