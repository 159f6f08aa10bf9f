import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { AtomicStateStore } from '../../src/stores/index.ts';
import { compiled } from '../../test/helpers/program.ts';
import { Endpoint } from '../checker/recorder.ts';
import { type AppSettings, startApp } from './app.ts';
import type { Defect } from './broken-store.ts';
import type { StoreAddress } from './stores.ts';

/** One of the servers that share a store. */
export interface TortureServer {
  readonly name: string;
  readonly endpoint: Endpoint;
  /**
   * Resolves once the server is gone: to `undefined` where that was ordered, else to how it ended.
   */
  readonly gone: Promise<string | undefined>;
  /** `kill -9`, where it is a process. Resolves once it is gone. */
  kill(): Promise<void>;
}

export interface ProcessSettings extends AppSettings {
  readonly store: StoreAddress;
  readonly defect?: Defect | undefined;
}

/** A server in a process of its own. */
export class ServerProcess implements TortureServer {
  readonly name: string;
  readonly endpoint: Endpoint;
  readonly gone: Promise<string | undefined>;
  readonly #child: ChildProcess;
  #ordered = false;

  private constructor(name: string, child: ChildProcess, port: number, errors: () => string) {
    this.name = name;
    this.endpoint = endpointOf(port);
    this.#child = child;
    this.gone = once(child, 'exit').then(([code, signal]) => {
      this.endpoint.close();
      return this.#ordered ? undefined : `${name} ended by itself (${signal ?? code}): ${errors()}`;
    });
  }

  static async start(settings: ProcessSettings): Promise<ServerProcess> {
    const child = fork(
      await compiled(fileURLToPath(new URL('server.ts', import.meta.url))),
      [JSON.stringify(settings)],
      {
        stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
        // Out of reach of a Ctrl-C in the terminal; it ends when its channel to this process does.
        detached: true,
      },
    );
    let errors = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      errors = (errors + text).slice(-4000);
    });
    const ended = once(child, 'exit').then(() => {
      throw new Error(`${settings.name} did not start:\n${errors}`);
    });
    const [port] = (await Promise.race([once(child, 'message'), ended])) as [number];
    return new ServerProcess(settings.name, child, port, () => errors);
  }

  async kill(): Promise<void> {
    this.#ordered = true;
    this.#child.kill('SIGKILL');
    await this.gone;
  }
}

/** A server in this process, for a store that lives in it. */
export async function startLocalServer(
  settings: AppSettings,
  store: AtomicStateStore,
): Promise<TortureServer> {
  const { port, http } = await startApp(settings, store);
  const endpoint = endpointOf(port);
  return {
    name: settings.name,
    endpoint,
    gone: once(http, 'close').then(() => undefined),
    async kill() {
      endpoint.close();
      http.close();
      http.closeAllConnections();
    },
  };
}

function endpointOf(port: number): Endpoint {
  return new Endpoint(new URL(`http://127.0.0.1:${port}/mcp`));
}
