import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type AtomicStateStore, type Runs, runsOf, StoreUnavailable } from '../../src/index.ts';
import { brokenStore, type Defect } from './broken-store.ts';
import { openSession } from './client.ts';
import { Fleet, type StartServer } from './fleet.ts';
import { type Attempt, Ledger } from './ledger.ts';
import type { Random } from './random.ts';
import { faultsOf } from './replay.ts';
import type { RunLog } from './run-log.ts';
import { ServerProcess, startLocalServer, type TortureServer } from './server-process.ts';
import { type OpenStore, openStore, type StoreAddress } from './stores.ts';
import { checkoutGate, INITIAL, rallyGate, type WorkflowName } from './workflows.ts';

export interface ArenaOptions {
  readonly store: StoreAddress;
  readonly leaseMs: number;
  readonly waitMs: number;
  readonly defect?: Defect | undefined;
  /** How many servers there are: processes, unless the store lives in one. */
  readonly servers: number;
  /** Whether the store may be away, so that being told so is no fault. */
  readonly outages?: boolean;
  readonly signal: AbortSignal;
}

const PATIENCE_MS = 30_000;

/** One store, the server processes that share it, and all that is known of the runs that were made in them. */
export class Arena {
  readonly options: ArenaOptions;
  readonly fleet: Fleet;
  readonly ledger: Ledger;
  readonly logs: RunLog[] = [];
  /** Whatever contradicts the promises, in words. */
  readonly faults: string[] = [];
  /** Set when everything was done, or something failed. */
  over = false;
  readonly #runs: Record<WorkflowName, Runs>;
  readonly #store: AtomicStateStore;

  private constructor(options: ArenaOptions, ledger: Ledger, { store }: OpenStore, fleet: Fleet) {
    this.options = options;
    this.ledger = ledger;
    this.fleet = fleet;
    this.#store = store;
    this.#runs = {
      checkout: runsOf(checkoutGate(), { store }),
      rally: runsOf(rallyGate(), { store }),
    };
  }

  /** Runs `play` in a new arena, and leaves nothing behind. */
  static async with<T>(options: ArenaOptions, play: (arena: Arena) => Promise<T>): Promise<T> {
    const cleanUps: (() => unknown)[] = [];
    let arena: Arena | undefined;
    try {
      const folder = mkdtempSync(join(tmpdir(), 'interlock-torture-'));
      cleanUps.push(() => rmSync(folder, { recursive: true, force: true }));
      const ledger = new Ledger(join(folder, 'ledger'));
      const open = await openStore(options.store);
      cleanUps.push(() => open.close());
      const fleet = await Fleet.start(options.servers, starterOf(options, ledger, open));
      cleanUps.push(() => fleet.stop());
      arena = new Arena(options, ledger, open, fleet);
      return await play(arena);
    } catch (error) {
      const before = [...(arena?.faults ?? []), ...(arena?.fleet.crashes ?? [])].slice(0, 10);
      throw before.length === 0
        ? error
        : new Error(`before the end: ${before.join('\n')}`, { cause: error });
    } finally {
      for (const cleanUp of cleanUps.reverse()) await cleanUp();
    }
  }

  /** Whether the clients are to begin nothing new. */
  get isEnding(): boolean {
    return this.over || this.options.signal.aborted || this.fleet.crashes.length > 0;
  }

  /** So many of the servers that are up, in random order; fewer where fewer are. Waits for one. */
  async servers(count: number, random: Random): Promise<TortureServer[]> {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      const { ready } = this.fleet;
      if (ready.length > 0) return random.shuffled(ready).slice(0, count);
      if (Date.now() > deadline || this.options.signal.aborted)
        throw new Error(`no server came up: ${this.fleet.crashes.join('; ')}`);
      await delay(20);
    }
  }

  /** Starts a run through one of the servers. */
  async begin(workflow: WorkflowName, random: Random): Promise<RunLog> {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      const [server] = await this.servers(1, random);
      const run = server === undefined ? undefined : await openSession(server.endpoint);
      if (run !== undefined) return this.note(run, workflow);
      if (Date.now() > deadline) throw new Error('no session could be started');
      await delay(25);
    }
  }

  note(run: string, workflow: WorkflowName): RunLog {
    const state = INITIAL[workflow];
    const log: RunLog = {
      run,
      workflow,
      succeeded: new Set(),
      resolved: new Map(),
      state,
      version: 0,
    };
    this.logs.push(log);
    return log;
  }

  runsOf({ workflow }: RunLog): Runs {
    return this.#runs[workflow];
  }

  /** For how long the run's claim lives unless it is renewed, in milliseconds as its store counts; `undefined` where none does. */
  async leaseLeft({ run, workflow }: RunLog): Promise<number | undefined> {
    const result = await this.#store.claim({
      run,
      workflow,
      token: randomUUID(),
      step: { tool: '', digest: '', uncertain: 'hold' },
      // A step that no state allows takes nothing.
      states: [],
      initial: { state: '', updatedAt: 0 },
      leaseMs: 1,
      ttlMs: 60 * 60 * 1000,
    });
    return result.status === 'busy' ? result.remainingMs : undefined;
  }

  /** Asks the store; again and again where it may be away. */
  async ask<T>(question: () => Promise<T>): Promise<T> {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      try {
        return await question();
      } catch (error) {
        const mayBeAway = this.options.outages === true && error instanceof StoreUnavailable;
        if (!mayBeAway || Date.now() > deadline) throw error;
        await delay(50);
      }
    }
  }

  /** Looks at where a run is. What it was at must not come back. */
  async look(log: RunLog) {
    const view = await this.ask(() => this.runsOf(log).read(log.run));
    const { state, version = 0 } = view?.snapshot ?? { state: '', version: 0 };
    if (version < log.version) {
      this.faults.push(
        `lost: a run was at version ${log.version} and is now at ${version} (run ${log.run})`,
      );
    }
    log.state = state;
    log.version = version;
    return view;
  }

  /** Compares what handlers did, what clients were told and what the store knows, for every run there was. */
  async verify(): Promise<string[]> {
    await this.fleet.settled();
    const attemptsOf = byRun(this.ledger.refresh().attempts);
    const faults = [...this.faults, ...this.fleet.crashes.map((crash) => `crash: ${crash}`)];
    for (const log of this.logs) {
      faults.push(...(await this.#judge(log, attemptsOf.get(log.run) ?? [])));
      attemptsOf.delete(log.run);
    }
    for (const run of attemptsOf.keys())
      faults.push(`illegal execution: no client has the run ${run}`);
    return faults;
  }

  async #judge(log: RunLog, attempts: readonly Attempt[]): Promise<string[]> {
    const runs = this.runsOf(log);
    const view = await this.ask(() => runs.read(log.run));
    const history = await this.ask(() => runs.history(log.run, Number.MAX_SAFE_INTEGER));
    const now = view && { version: 0, ...view.snapshot, status: view.status };
    return faultsOf({ ...log, attempts, history, now });
  }
}

function starterOf(
  options: ArenaOptions,
  { file: ledger }: Ledger,
  { store }: OpenStore,
): StartServer {
  const { leaseMs, waitMs, defect } = options;
  const settings = { ledger, leaseMs, waitMs };
  if (options.store.name !== 'memory') {
    return (name) => ServerProcess.start({ ...settings, name, store: options.store, defect });
  }
  const used = defect === undefined ? store : brokenStore(store, defect);
  return (name) => startLocalServer({ ...settings, name }, used);
}

function byRun(attempts: readonly Attempt[]): Map<string, Attempt[]> {
  const groups = new Map<string, Attempt[]>();
  for (const attempt of attempts) {
    const group = groups.get(attempt.run);
    if (group === undefined) groups.set(attempt.run, [attempt]);
    else group.push(attempt);
  }
  return groups;
}
