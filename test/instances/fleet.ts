import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, request as httpRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import { compiled } from '../helpers/program.ts';

/**
 * Several instances behind a proxy that sends each request to a random one of them, as a load
 * balancer without sticky sessions does.
 */
export interface Fleet {
  readonly url: URL;
  /** How many requests each instance got. */
  readonly served: number[];
  close(): Promise<void>;
}

const INSTANCE = new URL('./instance.ts', import.meta.url).pathname;

export async function startFleet(
  size: number,
  kind: 'redis' | 'postgres',
  url: string,
  name: string,
): Promise<Fleet> {
  const program = await compiled(INSTANCE);
  const children = Array.from({ length: size }, () =>
    spawn(process.execPath, [program, kind, url, name], {
      stdio: ['ignore', 'pipe', 'inherit'],
    }),
  );
  const targets = await Promise.all(children.map(addressOf));
  const served = targets.map(() => 0);
  const proxy = createServer((req, res) => {
    const at = Math.floor(Math.random() * targets.length);
    served[at] = (served[at] ?? 0) + 1;
    const { hostname, port } = new URL(targets[at] ?? '');
    const forwarded = httpRequest(
      { hostname, port, path: req.url, method: req.method, headers: req.headers },
      (answer) => {
        res.writeHead(answer.statusCode ?? 502, answer.headers);
        res.flushHeaders();
        answer.pipe(res);
      },
    );
    forwarded.on('error', () => res.destroy());
    res.on('close', () => forwarded.destroy());
    req.pipe(forwarded);
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const { port } = proxy.address() as AddressInfo;
  return {
    url: new URL(`http://127.0.0.1:${port}/mcp`),
    served,
    close: () => closeAll(proxy, children),
  };
}

async function addressOf(child: ChildProcess): Promise<string> {
  if (child.stdout === null) throw new Error('the instance has no output');
  const line = await Promise.race([
    once(createInterface(child.stdout), 'line'),
    once(child, 'exit').then(([code]) =>
      Promise.reject(new Error(`an instance ended with ${code}`)),
    ),
  ]);
  return String(line[0]);
}

async function closeAll(proxy: Server, children: ChildProcess[]): Promise<void> {
  proxy.closeAllConnections();
  await new Promise((resolve) => proxy.close(resolve));
  for (const child of children) {
    if (child.exitCode !== null) throw new Error(`an instance had ended with ${child.exitCode}`);
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
}
