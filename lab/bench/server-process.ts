import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Caller, quantile } from './load.ts';
import type { Sent, Setup, Workload } from './setups.ts';

/** What one turn under load came to. */
export interface Turn {
  /** How long it was. */
  readonly seconds: number;
  /**
   * Microseconds of the server's CPU since its last turn, as the operating system counts them. What
   * its collector does while the other servers take their turns is included.
   */
  readonly cpu: number;
  /** Milliseconds that each request took, or all of a client's that run side by side. */
  readonly times: readonly number[];
}

/** What a server allocated: garbage too, and in all or for each request. */
export interface Allocated {
  readonly bytes: number;
  /** The bytes of each function of ours, by its place in `src/`. */
  readonly functions: Readonly<Record<string, number>>;
}

type Question = 'cpu' | 'memory' | 'count' | 'counted' | 'sample' | 'sampled' | 'walk' | 'walked';

/** What a server process is told of itself. */
export interface ServerSetup extends Setup {
  /** Of its store: a server's address, or a file's path. */
  readonly address?: string | undefined;
  /** As {@link StartOptions.isWalked}. */
  readonly isWalked: boolean;
}

export interface StartOptions {
  readonly connections: number;
  readonly nodeArguments?: readonly string[];
  /** The server as JavaScript. Else a loader translates its TypeScript while it starts. */
  readonly built?: string;
  /** Whether each function of ours notes that it was entered. That is slow. */
  readonly isWalked?: boolean;
  /** Another version of Node for the server. */
  readonly node?: string | undefined;
  /** The core that the server must stay on. */
  readonly core?: number | undefined;
  /** Where the workload's store is. */
  readonly address?: string | undefined;
}

/**
 * A server in a process of its own, so that the load does not take its CPU, and the clients that
 * call it.
 */
export class ServerProcess {
  readonly port: number;
  readonly #child: ChildProcess;
  readonly #callers: readonly Caller[];
  /** Microseconds of its CPU that were counted for a turn, or for its start. */
  #counted = 0;

  private constructor(child: ChildProcess, port: number, callers: readonly Caller[]) {
    this.#child = child;
    this.port = port;
    this.#callers = callers;
  }

  static async start(
    variant: Setup['variant'],
    {
      name,
      requests,
      before = [],
      isRefused = false,
      isSideBySide = false,
      onNode24,
      ...kind
    }: Workload,
    { connections, nodeArguments = [], built, isWalked = false, node, core, address }: StartOptions,
  ): Promise<ServerProcess> {
    const setup: ServerSetup = { ...kind, variant, address, isWalked };
    const file = built ?? fileURLToPath(new URL('server.ts', import.meta.url));
    const loader = new URL('way-loader.ts', import.meta.url).href;
    const registering = `import { register } from 'node:module'; register('${loader}');`;
    const hooks = isWalked ? ['--import', `data:text/javascript,${registering}`] : [];
    const child = fork(file, [JSON.stringify(setup)], {
      execArgv: [...(built === undefined ? ['--import', 'tsx'] : []), ...hooks, ...nodeArguments],
      ...(node !== undefined && { execPath: node }),
    });
    if (core !== undefined) stayOn([core], child.pid);
    const [port] = await Promise.race([
      once(child, 'message') as Promise<[number]>,
      once(child, 'exit').then(() => Promise.reject(new Error(`${name}: its server ended`))),
    ]);
    const { sdk } = kind;
    const load = { sdk, requests, isSideBySide, isRefused: isRefused && variant !== 'bare' };
    const length = isSideBySide ? 1 : connections;
    const callers = Array.from({ length }, () => new Caller(port, load));
    for (const [at, caller] of callers.entries()) await begin(caller, at === 0 ? before : []);
    const server = new ServerProcess(child, port, callers);
    server.#counted = await server.ask('cpu');
    return server;
  }

  async turn(ms: number): Promise<Turn> {
    const start = performance.now();
    const taken = await Promise.all(this.#callers.map((caller) => caller.callUntil(start + ms)));
    const seconds = (performance.now() - start) / 1000;
    const counted = this.#counted;
    this.#counted = await this.ask('cpu');
    return { seconds, cpu: this.#counted - counted, times: taken.flat() };
  }

  /** What each request of a turn allocates. */
  async sample(ms: number): Promise<Allocated> {
    await this.#ask('sample');
    const { times } = await this.turn(ms);
    const { bytes, functions } = await this.#ask<Allocated>('sampled');
    const each = Object.entries(functions).map(([at, sum]) => [at, sum / times.length]);
    return { bytes: bytes / times.length, functions: Object.fromEntries(each) };
  }

  /** The promises that each of so many requests makes, one after the other. */
  async countPromises(requests: number): Promise<number> {
    const [caller] = this.#callers;
    await this.#ask('count');
    for (let each = 0; each < requests; each++) await caller?.callOnce();
    return (await this.#ask<number>('counted')) / requests;
  }

  /**
   * The functions of ours that each request of a workload enters, sent by a client of its own. The
   * first rounds fill caches, and each later one must go the same way again. The server must have
   * been started for it.
   */
  async ways(
    { sdk, requests, before = [], isRefused = false }: Workload,
    warmUps: number,
  ): Promise<readonly (readonly string[])[]> {
    const caller = new Caller(this.port, { sdk, requests, isRefused });
    const round = async (): Promise<readonly (readonly string[])[]> => {
      const taken: (readonly string[])[] = [];
      for (const _ of requests) {
        await this.#ask('walk');
        await caller.callOnce();
        taken.push(await this.#ask<readonly string[]>('walked'));
      }
      return taken;
    };
    try {
      await begin(caller, before);
      for (let each = 0; each < warmUps; each++) await round();
      const ways = await round();
      for (let each = 0; each < 3; each++) assert.deepEqual(await round(), ways);
      return ways;
    } finally {
      caller.close();
    }
  }

  /** Microseconds of its CPU so far, or the bytes that it keeps. */
  ask(question: 'cpu' | 'memory'): Promise<number> {
    return this.#ask<number>(question);
  }

  /** From now on it runs on these cores alone. */
  stayOn(cores: readonly number[]): void {
    stayOn(cores, this.#child.pid);
  }

  async stop(): Promise<void> {
    for (const caller of this.#callers) caller.close();
    const exited = once(this.#child, 'exit');
    this.#child.disconnect();
    await exited;
  }

  async #ask<T>(question: Question): Promise<T> {
    const answered = once(this.#child, 'message') as Promise<[T]>;
    this.#child.send(question);
    const [answer] = await answered;
    return answer;
  }
}

async function begin(caller: Caller, before: readonly Sent[]): Promise<void> {
  await caller.open();
  for (let round = 0; round < 100; round++) for (const sent of before) await caller.call(sent);
}

/** Microseconds of CPU for a request, over all of these turns. */
export function cpuOfRequest(turns: readonly Turn[]): number {
  let cpu = 0;
  let requests = 0;
  for (const turn of turns) {
    cpu += turn.cpu;
    requests += turn.times.length;
  }
  return cpu / requests;
}

/** Microseconds until all that run side by side are answered: the median, as machines are noisy. */
export function clockOfRequests(turns: readonly Turn[]): number {
  return (
    quantile(
      turns.flatMap((turn) => turn.times),
      0.5,
    ) * 1000
  );
}

export const ALL_CORES: readonly number[] = Array.from(
  { length: availableParallelism() },
  (_, core) => core,
);

/** Has a process run on these cores alone; all of its threads that begin later do too. */
export function stayOn(cores: readonly number[], pid: number | undefined): void {
  execFileSync('taskset', ['--all-tasks', '--cpu-list', '--pid', cores.join(','), String(pid)], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
}
