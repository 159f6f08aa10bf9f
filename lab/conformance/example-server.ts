import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { compiled } from '../../test/helpers/program.ts';
import { send, type WireMessage } from '../../test/helpers/raw.ts';
import type { ServerName } from './plan.ts';
import type { Column } from './servers/mounts.ts';
import { NEVER_CALLED } from './servers/tools.ts';

const START_MS = 30_000;

/** What shows whether middlewares stand in the way of a server. */
export interface Evidence {
  /** How often they asked their store. */
  readonly storeCalls: number;
  /** The tools that a session is shown. */
  readonly tools: readonly string[];
}

/** A server in one column, in a process of its own. */
export class ExampleServer {
  readonly url: URL;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, port: number) {
    this.#child = child;
    this.url = new URL(`http://localhost:${port}/mcp`);
  }

  /** @throws Error with what the process printed, where it does not come up. */
  static async start(
    server: ServerName,
    column: Column,
    signal: AbortSignal,
  ): Promise<ExampleServer> {
    const child = fork(
      await compiled(fileURLToPath(new URL('servers/server.ts', import.meta.url))),
      [server, column],
      {
        stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
        signal,
        killSignal: 'SIGKILL',
      },
    );
    let errors = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      errors = (errors + text).slice(-2000);
    });
    child.on('error', (error) => {
      errors += error.message;
    });
    const late = setTimeout(() => child.kill('SIGKILL'), START_MS);
    const ended = once(child, 'close').then(() =>
      Promise.reject(new Error(`it did not come up:\n${errors}`)),
    );
    // Once the server is up, this promise has no reader.
    ended.catch(() => undefined);
    try {
      const [port] = (await Promise.race([once(child, 'message'), ended])) as [number];
      return new ExampleServer(child, port);
    } finally {
      clearTimeout(late);
    }
  }

  /** Plays a short session, which every server has. */
  async evidence(): Promise<Evidence> {
    const clientInfo = { name: 'evidence', version: '1.0.0' };
    const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo };
    const { headers } = await this.#post({ id: 0, method: 'initialize', params });
    const session = { 'mcp-session-id': String(headers['mcp-session-id']) };
    await this.#post({ method: 'notifications/initialized' }, session);
    const { messages } = await this.#post({ id: 1, method: 'tools/list' }, session);
    const listed: { name: string }[] = messages.find(({ id }) => id === 1)?.result?.tools ?? [];
    await send(this.url, { method: 'DELETE', headers: session });
    const { text } = await send(new URL('/store-calls', this.url), { method: 'GET' });
    return { storeCalls: Number(text), tools: listed.map(({ name }) => name) };
  }

  /** Resolves once the process is gone. */
  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exited;
  }

  #post(message: WireMessage, headers: Record<string, string> = {}) {
    return send(this.url, { method: 'POST', headers, body: { jsonrpc: '2.0', ...message } });
  }
}

/** Whether a server is what its column says; otherwise equal results would say nothing. */
export function mountFaults(column: Column, { storeCalls, tools }: Evidence): string[] {
  const faults: string[] = [];
  const isShown = tools.includes(NEVER_CALLED);
  if (tools.length === 0) faults.push('a session is shown no tools');
  else if (isShown !== (column !== 'idle'))
    faults.push(`${NEVER_CALLED} is ${isShown ? '' : 'not '}shown`);
  if (storeCalls > 0 !== (column !== 'bare'))
    faults.push(`the middlewares asked their store ${storeCalls} times`);
  return faults;
}
