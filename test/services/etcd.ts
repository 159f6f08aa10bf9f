import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { binary } from './binaries.ts';
import { freePort } from './ports.ts';
import { type Service, startServer } from './server-process.ts';

/** Starts a private etcd of one member on free ports of the loopback interface. */
export async function startEtcd(): Promise<Service & { readonly port: number }> {
  const command = binary('etcd', 'etcd');
  const folder = await mkdtemp(join(tmpdir(), 'interlock-etcd-'));
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const peers = `http://127.0.0.1:${await freePort((each) => each !== port)}`;
  const settings: Record<string, string> = {
    name: 'tests',
    'data-dir': join(folder, 'data'),
    'listen-client-urls': url,
    'advertise-client-urls': url,
    'listen-peer-urls': peers,
    'initial-advertise-peer-urls': peers,
    'initial-cluster': `tests=${peers}`,
    'log-level': 'warn',
    logger: 'zap',
  };
  const service = await startServer(url, {
    command,
    args: Object.entries(settings).map(([name, value]) => `--${name}=${value}`),
    folder,
    stopSignal: 'SIGTERM',
    abortSignal: 'SIGKILL',
    probe: () => readsAKey(url),
  });
  return { ...service, port };
}

/** Rejects while the server does not answer, or has no leader. */
async function readsAKey(url: string): Promise<void> {
  const response = await fetch(`${url}/v3/kv/range`, {
    method: 'POST',
    body: JSON.stringify({ key: Buffer.from('key').toString('base64') }),
    signal: AbortSignal.timeout(2_000),
  });
  if (!response.ok) throw new Error(await response.text());
}
