import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** The process of one request. */
export interface Instance {
  readonly pid: number;
  /** Resolves once the process has ended or was killed. */
  readonly ended: Promise<{ readonly code: number | null; readonly lingeredMs: number }>;
}

/** Stands for a serverless platform: it starts a process for each request. */
export interface FunctionHost {
  readonly url: URL;
  readonly instances: readonly Instance[];
  /** The standard error of all processes. */
  readonly errors: string;
  /** Kills the processes that still run. */
  stop(): Promise<void>;
}

export interface FunctionHostOptions {
  /** An instance of the function. */
  readonly program: string;
  readonly path: string;
  readonly env: NodeJS.ProcessEnv;
}

export async function startFunctionHost(options: FunctionHostOptions): Promise<FunctionHost> {
  const instances: Instance[] = [];
  const children: ChildProcess[] = [];
  let errors = '';

  async function serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const { program, env } = options;
    const child = fork(program, [], {
      env: { ...process.env, ...env },
      execArgv: [],
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      errors += text;
    });
    children.push(child);
    const answered = once(res, 'close').then(() => Date.now());
    const ended = once(child, 'exit').then(async ([code]) => ({
      code: code as number | null,
      lingeredMs: Date.now() - (await answered),
    }));
    instances.push({ pid: child.pid ?? 0, ended });
    const [port] = (await Promise.race([once(child, 'message'), once(child, 'exit')])) as [number];
    await passOn(req, res, port);
  }

  const server = createServer((req, res) => void serve(req, res).catch(() => res.destroy()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: new URL(options.path, `http://127.0.0.1:${(server.address() as AddressInfo).port}`),
    instances,
    get errors() {
      return errors;
    },
    async stop() {
      server.close();
      server.closeAllConnections();
      for (const child of children) child.kill('SIGKILL');
      await Promise.all(instances.map(({ ended }) => ended));
    },
  };
}

async function passOn(req: IncomingMessage, res: ServerResponse, port: number): Promise<void> {
  const { method, url: path, headers } = req;
  const sent = request({ host: '127.0.0.1', port, method, path, headers, agent: false });
  req.pipe(sent);
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  res.writeHead(answer.statusCode ?? 500, answer.headers);
  answer.pipe(res);
  answer.once('close', () => void (answer.complete || res.destroy()));
}
