import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { compiled } from '../../test/helpers/program.ts';
import { freePort } from '../../test/services/ports.ts';

/**
 * The REST service in front of a Redis, in a process that can be killed and started again on its
 * port.
 */
export class RestProcess {
  readonly url: string;
  readonly #args: readonly string[];
  #child: ChildProcess | undefined;
  token = '';

  private constructor(redisUrl: string, port: number) {
    this.url = `http://127.0.0.1:${port}`;
    this.#args = [redisUrl, String(port)];
  }

  static async start(redisUrl: string): Promise<RestProcess> {
    const rest = new RestProcess(redisUrl, await freePort());
    await rest.restart();
    return rest;
  }

  /** Resolves once it serves. Its Redis must be there. */
  async restart(): Promise<void> {
    await this.kill9();
    const program = await compiled(fileURLToPath(new URL('rest-server.ts', import.meta.url)));
    const child = fork(program, this.#args, {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      // Out of reach of a Ctrl-C in the terminal; it ends when its channel to this process does.
      detached: true,
    });
    this.#child = child;
    const ended = once(child, 'exit').then(() => {
      throw new Error('the REST service did not start');
    });
    const [token] = (await Promise.race([once(child, 'message'), ended])) as [string];
    this.token = token;
  }

  /** Resolves once it has reached its Redis. */
  async answers(): Promise<void> {
    const ping = {
      method: 'POST',
      headers: { authorization: `Bearer ${this.token}` },
      body: '["PING"]',
    };
    while (!(await fetch(this.url, ping)).ok) await delay(20);
  }

  async kill9(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }
}
