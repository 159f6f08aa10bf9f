import { execFile } from 'node:child_process';
import { mkdtemp } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { binary } from './binaries.ts';
import { freePort } from './ports.ts';
import { type Service, startServer } from './server-process.ts';

const run = promisify(execFile);

export interface RedisOptions {
  /** Keeps the data in an append-only file, so that it outlives `kill9()`. Default: no file. */
  readonly appendfsync?: 'always' | 'everysec' | 'no';
  /** Further settings, as `redis-server` takes them: `{ 'cluster-enabled': 'yes' }`. */
  readonly settings?: Readonly<Record<string, string>>;
  readonly port?: number;
}

/** Starts a private Redis on a free port of the loopback interface. */
export async function startRedis(
  options: RedisOptions = {},
): Promise<Service & { readonly port: number }> {
  const command = binary('redis', 'redis-server');
  const port = options.port ?? (await freePort());
  const folder = await mkdtemp(join(tmpdir(), 'interlock-redis-'));
  const settings: Record<string, string> = {
    port: String(port),
    bind: '127.0.0.1',
    dir: folder,
    save: '',
    // A primary does not wait for its replicas when it ends.
    'shutdown-timeout': '0',
    daemonize: 'no',
    appendonly: options.appendfsync === undefined ? 'no' : 'yes',
    appendfsync: options.appendfsync ?? 'no',
    ...options.settings,
  };
  const service = await startServer(`redis://127.0.0.1:${port}`, {
    command,
    args: Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]),
    folder,
    stopSignal: 'SIGTERM',
    abortSignal: 'SIGKILL',
    probe: () => ping(port),
  });
  return { ...service, port };
}

/** Rejects while the server refuses connections or still loads its data. */
function ping(port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    socket.setTimeout(1000, () => socket.destroy(new Error('no answer')));
    socket.once('error', reject);
    socket.once('connect', () => socket.write('PING\r\n'));
    socket.once('data', (data) => {
      socket.destroy();
      if (data.toString().startsWith('+PONG')) resolve();
      else reject(new Error(data.toString()));
    });
  });
}

/** What `redis-cli` prints. */
export async function redisCli(args: readonly string[]): Promise<string> {
  const { stdout } = await run(binary('redis', 'redis-cli'), args);
  return stdout;
}
