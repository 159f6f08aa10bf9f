import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** The example's server in a process of its own, with its files in one folder. */
export class AppProcess {
  readonly url: URL;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, url: URL) {
    this.#child = child;
    this.url = url;
    process.once('exit', () => child.kill('SIGKILL'));
  }

  static async start(folder: string, port = '0'): Promise<AppProcess> {
    const script = fileURLToPath(new URL('server.ts', import.meta.url));
    const child = spawn(process.execPath, ['--import', 'tsx', script], {
      env: {
        ...process.env,
        PORT: port,
        RUNS_DB: `${folder}/runs.db`,
        SHOP_DB: `${folder}/shop.db`,
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    for await (const line of createInterface({ input: child.stdout })) {
      const url = /^Listening on (.+)$/.exec(line)?.[1];
      if (url !== undefined) return new AppProcess(child, new URL(url));
    }
    throw new Error('the server ended before it listened');
  }

  /** SIGKILL: nothing in the process gets a chance to save anything. */
  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exited;
  }
}
