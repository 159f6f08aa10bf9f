import { ServerProcess, type ServerSettings } from './server-process.ts';

/** Server processes that stand in for each other: a killed one is replaced at once. */
export class Fleet {
  readonly #settings: Omit<ServerSettings, 'name'>;
  readonly #ready = new Set<ServerProcess>();
  readonly #starting = new Set<Promise<unknown>>();
  #started = 0;
  #stopped = false;
  /** How processes ended that nobody had killed. */
  readonly crashes: string[] = [];

  private constructor(settings: Omit<ServerSettings, 'name'>) {
    this.#settings = settings;
  }

  static async start(size: number, settings: Omit<ServerSettings, 'name'>): Promise<Fleet> {
    const fleet = new Fleet(settings);
    try {
      await Promise.all(Array.from({ length: size }, () => fleet.#launch()));
      return fleet;
    } catch (error) {
      await fleet.stop();
      throw error;
    }
  }

  /** Those that serve now. */
  get ready(): ServerProcess[] {
    return [...this.#ready];
  }

  /** `kill -9` and a successor. Resolves once the process is dead; the successor comes later. */
  async kill(server: ServerProcess): Promise<void> {
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
    const starting = ServerProcess.start({ ...this.#settings, name: `server-${++this.#started}` });
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
