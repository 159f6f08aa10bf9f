import type { TortureServer } from './server-process.ts';

/** Starts a server under a name that was never used before. */
export type StartServer = (name: string) => Promise<TortureServer>;

/** Servers that stand in for each other: a killed one is replaced at once. */
export class Fleet {
  readonly #startServer: StartServer;
  readonly #ready = new Set<TortureServer>();
  readonly #starting = new Set<Promise<unknown>>();
  #started = 0;
  #stopped = false;
  /** How servers ended that were not killed. */
  readonly crashes: string[] = [];

  private constructor(startServer: StartServer) {
    this.#startServer = startServer;
  }

  static async start(size: number, startServer: StartServer): Promise<Fleet> {
    const fleet = new Fleet(startServer);
    try {
      await Promise.all(Array.from({ length: size }, () => fleet.#launch()));
      return fleet;
    } catch (error) {
      await fleet.stop();
      throw error;
    }
  }

  /** Those that serve now. */
  get ready(): TortureServer[] {
    return [...this.#ready];
  }

  /** `kill -9` and a successor. Resolves once the server is dead; the successor comes later. */
  async kill(server: TortureServer): Promise<void> {
    this.#ready.delete(server);
    const dead = server.kill();
    void this.#launch().catch((error: unknown) => this.crashes.push(String(error)));
    await dead;
  }

  /** Resolves once everything that was started has either come up or failed. */
  async settled(): Promise<void> {
    while (this.#starting.size > 0) await Promise.allSettled(this.#starting);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.settled();
    await Promise.all(this.ready.map((server) => server.kill()));
  }

  async #launch(): Promise<void> {
    const starting = this.#startServer(`server-${++this.#started}`);
    this.#starting.add(starting);
    try {
      const server = await starting;
      this.#ready.add(server);
      void server.gone.then((crash) => {
        this.#ready.delete(server);
        if (crash !== undefined && !this.#stopped) this.crashes.push(crash);
      });
    } finally {
      this.#starting.delete(starting);
    }
  }
}
