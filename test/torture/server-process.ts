import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Defect } from './broken-store.ts';
import { Endpoint } from './endpoint.ts';
import type { StoreAddress } from './stores.ts';

export interface ServerSettings {
  /** Names the process in the ledger; never used again. */
  readonly name: string;
  readonly store: StoreAddress;
  /** The ledger's file. */
  readonly ledger: string;
  readonly leaseMs: number;
  readonly waitMs: number;
  readonly defect?: Defect | undefined;
}

/** A server in a process of its own. */
export class ServerProcess {
  readonly name: string;
  readonly endpoint: Endpoint;
  /** Resolves once the process is gone: to `undefined` where that was ordered, else to how it ended. */
  readonly gone: Promise<string | undefined>;
  readonly #child: ChildProcess;
  #ordered = false;

  private constructor(name: string, child: ChildProcess, port: number, errors: () => string) {
    this.name = name;
    this.endpoint = new Endpoint(port);
    this.#child = child;
    this.gone = once(child, 'exit').then(([code, signal]) => {
      this.endpoint.close();
      return this.#ordered ? undefined : `${name} ended by itself (${signal ?? code}): ${errors()}`;
    });
  }

  static async start(settings: ServerSettings): Promise<ServerProcess> {
    const child = fork(fileURLToPath(new URL('server.ts', import.meta.url)), [JSON.stringify(settings)], {
      execArgv: ['--import', 'tsx'],
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    let errors = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      errors = (errors + text).slice(-4000);
    });
    const ended = once(child, 'exit').then(() => {
      throw new Error(`the server ${settings.name} did not start:\n${errors}`);
    });
    const [port] = (await Promise.race([once(child, 'message'), ended])) as [number];
    return new ServerProcess(settings.name, child, port, () => errors);
  }

  /** `kill -9`. Resolves once the process is gone. */
  async kill(): Promise<void> {
    this.#ordered = true;
    this.#child.kill('SIGKILL');
    await this.gone;
  }
}
