import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Caller } from './load.ts';
import type { Setup, Workload } from './setups.ts';

/** What one turn under load came to. */
export interface Turn {
  /** Requests answered in a second. */
  readonly throughput: number;
  /** Microseconds of the server's CPU for each request. */
  readonly cpu: number;
}

/** A server in a process of its own, so that the load does not take its CPU, and the clients that call it. */
export class ServerProcess {
  readonly #child: ChildProcess;
  readonly #callers: readonly Caller[];

  private constructor(child: ChildProcess, callers: readonly Caller[]) {
    this.#child = child;
    this.#callers = callers;
  }

  static async start(
    variant: Setup['variant'],
    workload: Workload,
    options: StartOptions,
  ): Promise<ServerProcess> {
    const { mode, answers, tools } = workload;
    const setup: Setup = { variant, mode, answers, tools };
    const child = fork(
      fileURLToPath(new URL('server.ts', import.meta.url)),
      [JSON.stringify(setup)],
      {
        execArgv: ['--import', 'tsx', ...options.nodeArguments],
      },
    );
    const [port] = (await once(child, 'message')) as [number];
    const callers = Array.from({ length: options.connections }, () => new Caller(port, workload));
    await Promise.all(callers.map((caller) => caller.open()));
    return new ServerProcess(child, callers);
  }

  async turn(ms: number): Promise<Turn> {
    const cpuBefore = await this.#cpuTime();
    const start = performance.now();
    const counts = await Promise.all(this.#callers.map((caller) => caller.callUntil(start + ms)));
    const seconds = (performance.now() - start) / 1000;
    const count = counts.reduce((sum, each) => sum + each, 0);
    return { throughput: count / seconds, cpu: ((await this.#cpuTime()) - cpuBefore) / count };
  }

  async stop(): Promise<void> {
    for (const caller of this.#callers) caller.close();
    const exited = once(this.#child, 'exit');
    this.#child.disconnect();
    await exited;
  }

  async #cpuTime(): Promise<number> {
    const answered = once(this.#child, 'message') as Promise<[number]>;
    this.#child.send('cpu');
    const [microseconds] = await answered;
    return microseconds;
  }
}

export interface StartOptions {
  readonly connections: number;
  readonly nodeArguments: readonly string[];
}
