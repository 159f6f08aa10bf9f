import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { replayTrail } from '../../packages/check/src/index.ts';
import { type StateMachineGate, StoreUnavailable } from '../../src/index.ts';
import { type Runs, type RunView, runsOf } from '../../src/runs/index.ts';
import type { AtomicStateStore, TrailEntry } from '../../src/stores/index.ts';
import { check } from '../checker/check.ts';
import { readTrail, type Span, type Trail } from '../checker/evidence.ts';
import { Ledger } from '../checker/ledger.ts';
import { gateOf } from '../checker/machines.ts';
import type { Random } from '../checker/random.ts';
import { groupBy } from '../checker/reading.ts';
import { type Caller, Recorder, WireLog } from '../checker/recorder.ts';
import { type AppSettings, SERVED } from './app.ts';
import { brokenStore, type Defect } from './broken-store.ts';
import { Fleet, type StartServer } from './fleet.ts';
import { compareObserved, type ObservedTally } from './observed.ts';
import type { RunLog } from './run-log.ts';
import { ServerProcess, startLocalServer, type TortureServer } from './server-process.ts';
import { type OpenStore, openStore, type StoreAddress } from './stores.ts';
import { INITIAL, MACHINES, type WorkflowName } from './workflows.ts';

export interface ArenaOptions {
  readonly store: StoreAddress;
  readonly leaseMs: number;
  readonly waitMs: number;
  readonly defect?: Defect | undefined;
  /** How many servers there are: processes, unless the store lives in one. */
  readonly servers: number;
  /** As in {@link AppSettings}. */
  readonly binds?: AppSettings['binds'];
  /** Whether the store may be away, so that being told so is no fault. */
  readonly outages?: boolean;
  readonly signal: AbortSignal;
}

const PATIENCE_MS = 30_000;

/**
 * One store, the server processes that share it, and all that is known of the runs that were made
 * in them.
 */
export class Arena {
  readonly options: ArenaOptions;
  readonly fleet: Fleet;
  readonly ledger: Ledger;
  /** What an observing gate would have said, once the arena has verified all. */
  readonly observed: ObservedTally = { runs: 0, calls: 0, refused: 0, faults: [] };
  readonly log = new WireLog();
  readonly recorder = new Recorder(this.log);
  readonly logs: RunLog[] = [];
  /** All that contradicts the promises, in words. */
  readonly faults: string[] = [];
  /** When the store was away, so that processes could not read a switch. */
  readonly away: Span[] = [];
  /** Set when everything was done, or something failed. */
  over = false;
  readonly #runs: Record<WorkflowName, Runs>;
  readonly store: AtomicStateStore;

  private constructor(options: ArenaOptions, ledger: Ledger, { store }: OpenStore, fleet: Fleet) {
    this.options = options;
    this.ledger = ledger;
    this.fleet = fleet;
    this.store = store;
    this.#runs = {
      // Unknown outcomes are what is played for; the report counts them.
      checkout: runsOf(gateOf(MACHINES.checkout), { store, onError() {} }),
      rally: runsOf(gateOf(MACHINES.rally), { store, onError() {} }),
      till: runsOf(gateOf(MACHINES.till), { store, onError() {} }),
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
    return this.note(await this.openSession(random), workflow);
  }

  /** Starts a session through one of the servers. */
  async openSession(random: Random): Promise<Caller> {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      const [server] = await this.servers(1, random);
      const caller = server && (await this.recorder.openSession(server.endpoint));
      if (caller !== undefined) return caller;
      if (Date.now() > deadline) throw new Error('no session could be started');
      await delay(25);
    }
  }

  note(caller: Caller, workflow: WorkflowName): RunLog {
    const state = INITIAL[workflow];
    const log: RunLog = {
      run: caller.run,
      caller,
      workflow,
      state,
      version: 0,
    };
    this.logs.push(log);
    return log;
  }

  runsOf({ workflow }: Pick<RunLog, 'workflow'>): Runs {
    return this.#runs[workflow];
  }

  /**
   * For how long the run's claim lives unless it is renewed, in milliseconds as its store counts;
   * `undefined` where none does.
   */
  async leaseLeft({ run, workflow }: RunLog): Promise<number | undefined> {
    const result = await this.store.claim({
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

  /** A server that stood still for longer than its lease may yet go on. */
  isAtWork(key: string): boolean {
    const open = this.ledger.open.filter((line) => line.key === key);
    return this.fleet.ready.some(({ name }) => open.some(({ server }) => server === name));
  }

  /**
   * What an operator does about a held run: looks whether the step has had its effect. Whether the
   * run is not held any more.
   */
  decide(log: RunLog): Promise<boolean> {
    const runs = this.runsOf(log);
    return this.ask(async () => {
      const view = await runs.read(log.run);
      if (view?.status !== 'held' || view.claim === undefined) return true;
      const { idempotencyKey, tool } = view.claim;
      if (this.isAtWork(idempotencyKey)) return false;
      const outcome = this.ledger.hasEffect(idempotencyKey) ? 'succeeded' : 'failed';
      const does = { kind: 'resolve', key: idempotencyKey, tool, outcome } as const;
      await this.log.ask(
        { run: log.run, machine: log.workflow, does },
        () => runs.resolve(log.run, outcome, { actor: 'operator' }),
        // Where not, the step's own late commit came first.
        ({ resolved }) => resolved,
      );
      return true;
    });
  }

  /**
   * The client of a held run ends its session. Whether a server took that. Where the server dies
   * meanwhile, the client cannot know and asks again; then 404 says that the session is over.
   */
  async leave(log: RunLog, random: Random): Promise<boolean> {
    const { status, claim } = (await this.runsOf(log).read(log.run)) ?? {};
    // A holder that goes on could settle the step first. Then the run would go with its session.
    if (status !== 'held' || claim === undefined || this.isAtWork(claim.idempotencyKey))
      return false;
    for (let isRepeated = false; ; isRepeated = true) {
      const [server] = await this.servers(1, random);
      const answer = server ? await this.recorder.endSession(server.endpoint, log.caller) : 0;
      log.isLeft = answer === 200 || (isRepeated && answer === 404);
      if (answer !== 0) return log.isLeft;
    }
  }

  /** Held runs whose sessions ended are still there, and a person decides some of them. */
  async #visitLeft(): Promise<void> {
    for (const [index, log] of this.logs.filter(({ isLeft }) => isLeft).entries()) {
      const view = await this.look(log);
      if (view === undefined) this.faults.push(`lost: a held run is gone (run ${log.run})`);
      else if (!view.sessionEnded)
        this.faults.push(`pin: the session of a held run goes on (run ${log.run})`);
      if (index % 2 === 0) await this.decide(log);
    }
  }

  /** Has the checker judge all that handlers did, clients were told and the store knows. */
  async verify(): Promise<string[]> {
    await this.fleet.settled();
    await this.#visitLeft();
    const { exchanges, streams, outside, switches } = this.log;
    const found = check({
      machines: Object.values(MACHINES),
      tools: SERVED,
      runs: this.logs.map(({ run }) => ({ run, lists: 'hide' })),
      exchanges,
      streams,
      outside,
      ledger: this.ledger.refresh().lines,
      trails: await this.#trails(),
      outages: this.options.outages ? [{ from: 0, to: Number.POSITIVE_INFINITY }] : [],
      switches,
      unread: this.away,
    });
    await this.#observe();
    return [
      ...this.faults,
      ...this.observed.faults,
      ...this.fleet.crashes.map((crash) => `crash: ${crash}`),
      ...found.map(({ kind, text, run }) => `${kind}: ${text} (run ${run})`),
    ];
  }

  /** A gate that only observes would have said the same of the runs. */
  async #observe(): Promise<void> {
    const exchanges = groupBy(this.log.exchanges, ({ run }) => run);
    const outside = groupBy(this.log.outside, ({ run }) => run);
    for (const { run, workflow } of this.logs) {
      const touched = Math.min(...(outside.get(run) ?? []).map(({ asked }) => asked));
      const gate = gateOf(MACHINES[workflow]);
      const evidence = { run, gate, touched, exchanges: exchanges.get(run) ?? [] };
      await compareObserved(evidence, this.observed);
    }
  }

  async #trails(): Promise<Trail[]> {
    const trails: Trail[] = [];
    for (const { run, workflow } of this.logs) {
      const runs = this.#runs[workflow];
      const view = await this.ask(() => runs.read(run));
      const entries = await this.ask(() => runs.history(run, Number.MAX_SAFE_INTEGER));
      const { state = '', version = 0 } = view?.snapshot ?? {};
      const isFrozen = view?.frozen !== undefined;
      const claimed = view?.claim?.tool;
      const now = view && { state, version, status: view.status, claimed, isFrozen };
      trails.push({ run, machine: workflow, ...readTrail(entries), now });
      this.faults.push(...replayFaults(run, gateOf(MACHINES[workflow]), entries, view));
    }
    return trails;
  }
}

/** The trail alone leads to where the run stands. */
function replayFaults(
  run: string,
  gate: StateMachineGate,
  entries: readonly TrailEntry[],
  view: RunView | undefined,
): string[] {
  if (view === undefined || entries.length === 0) return [];
  const { state, version, faults } = replayTrail(gate, entries);
  const told = faults.map(({ seq, fault }) => `replay: entry ${seq} is "${fault}" (run ${run})`);
  const { snapshot } = view;
  if (state === snapshot.state && version === snapshot.version) return told;
  const stands = `"${snapshot.state}" at version ${snapshot.version}`;
  return [...told, `replay: leads to "${state}" at version ${version}, not ${stands} (run ${run})`];
}

function starterOf(
  options: ArenaOptions,
  { file: ledger }: Ledger,
  { store }: OpenStore,
): StartServer {
  const { leaseMs, waitMs, binds, defect } = options;
  const settings = { ledger, leaseMs, waitMs, binds };
  if (options.store.name !== 'memory') {
    return async (name) => {
      const deadline = Date.now() + PATIENCE_MS;
      for (let tries = 1; ; tries++) {
        const own = { ...settings, name: tries === 1 ? name : `${name}, try ${tries}` };
        try {
          return await ServerProcess.start({ ...own, store: options.store, defect });
        } catch (error) {
          // It cannot start while the store is away.
          if (options.outages !== true || Date.now() > deadline || options.signal.aborted)
            throw error;
        }
      }
    };
  }
  const used = defect === undefined ? store : brokenStore(store, defect);
  return (name) => startLocalServer({ ...settings, name }, used);
}
