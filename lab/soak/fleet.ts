import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { compiled } from '../../test/helpers/program.ts';
import { freePort } from '../../test/services/ports.ts';
import { now } from '../checker/evidence.ts';
import type { Random } from '../checker/random.ts';
import { Endpoint } from '../checker/recorder.ts';

export interface GateSettings {
  readonly store: string;
  readonly upstream: string;
  readonly issuer: string;
  readonly idleMs: number;
  readonly leaseMs: number;
  readonly waitMs: number;
}

/** What the parent asks of a gate's process. */
export type Order =
  | { readonly kind: 'jump'; readonly ms: number }
  | { readonly kind: 'measure' }
  | { readonly kind: 'drain'; readonly ms: number };

/** What a gate's process holds while nothing is asked of it. */
export interface Holdings {
  /** Bytes that are in use after a collection. */
  readonly heap: number;
  /** Handles and timers that keep a process alive, by kind. */
  readonly resources: Readonly<Record<string, number>>;
  readonly listeners: number;
  /** Connections that are open, by their ports, to tell what a fault is about. */
  readonly sockets: readonly string[];
}

interface GateProcess {
  readonly child: ChildProcess;
  readonly endpoint: Endpoint;
  /** The clients' requests go elsewhere. */
  isLeaving: boolean;
}

export interface Stall {
  readonly server: string;
  readonly from: number;
  readonly to: number;
}

const GATES = 3;

/**
 * Three gates that share a store and a bus, and the one upstream behind them. The first gate is the
 * elder: it is stopped and set forward, and never ends. So it can compare what it holds at the end.
 */
export class SoakFleet {
  readonly #settings: GateSettings;
  readonly #ledger: string;
  readonly #gates: GateProcess[] = [];
  #upstream: ChildProcess | undefined;
  #upstreams = 0;
  /** Upstreams that are no more: what they had begun will never end. */
  readonly dead = new Set<string>();
  /** How processes ended that were not killed. */
  readonly crashes: string[] = [];
  /** When the gates' claims may have run out under them. */
  readonly stalls: Stall[] = [];

  private constructor(settings: GateSettings, ledger: string) {
    this.#settings = settings;
    this.#ledger = ledger;
  }

  static async start(settings: Omit<GateSettings, 'upstream'>, ledger: string): Promise<SoakFleet> {
    const upstream = `http://127.0.0.1:${await freePort()}`;
    const fleet = new SoakFleet({ ...settings, upstream }, ledger);
    await fleet.#startUpstream();
    for (let count = 0; count < GATES; count++) await fleet.#startGate();
    return fleet;
  }

  /** One of the gates that take requests. */
  endpoint(random: Random): Endpoint {
    const open = this.#gates.filter(({ isLeaving }) => !isLeaving);
    return random.pick(open).endpoint;
  }

  /** The name of the upstream that serves now. */
  get upstream(): string {
    return `upstream-${this.#upstreams}`;
  }

  /** `kill -9` of a gate, and a successor. */
  async killGate(random: Random): Promise<void> {
    const gate = this.#leave(random);
    await kill(gate.child);
    gate.endpoint.close();
    await this.#startGate();
  }

  /** A rolling deployment: a successor first, then a drain of the old one. */
  async replaceGate(random: Random, drainMs: number): Promise<void> {
    await this.#startGate();
    const gate = this.#leave(random);
    const exited = once(gate.child, 'exit');
    send(gate.child, { kind: 'drain', ms: drainMs });
    // Streams that clients hold open are ended; their connections close when they notice.
    const late = delay(drainMs + 5_000).then(() => 'late' as const);
    if ((await Promise.race([exited, late])) === 'late') {
      this.crashes.push('a gate that was drained did not come to its end');
      await kill(gate.child);
    }
    gate.endpoint.close();
  }

  /** SIGSTOP, past the lease perhaps. */
  async stopGate(random: Random, ms: number): Promise<void> {
    const { child } = random.pick(this.#gates.filter(({ isLeaving }) => !isLeaving));
    const from = now();
    child.kill('SIGSTOP');
    await delay(ms);
    // Before it goes on, so that all that it does then is later.
    const to = now();
    child.kill('SIGCONT');
    this.stalls.push({ server: this.upstream, from, to });
  }

  /** The clock of one gate's process is set. */
  jump(random: Random, ms: number): void {
    send(random.pick(this.#gates).child, { kind: 'jump', ms });
  }

  async restartUpstream(awayMs: number): Promise<void> {
    const old = this.#upstream;
    const name = this.upstream;
    if (old !== undefined) await kill(old);
    this.dead.add(name);
    await delay(awayMs);
    await this.#startUpstream();
  }

  /** What the elder holds. */
  async measure(): Promise<Holdings> {
    const elder = this.#gates[0]?.child as ChildProcess;
    const answer = once(elder, 'message');
    send(elder, { kind: 'measure' });
    const [holdings] = (await answer) as [Holdings];
    return holdings;
  }

  async stop(): Promise<void> {
    for (const { child, endpoint } of this.#gates.splice(0)) {
      endpoint.close();
      await kill(child);
    }
    if (this.#upstream !== undefined) await kill(this.#upstream);
  }

  #leave(random: Random): GateProcess {
    const [, ...others] = this.#gates;
    const gate = random.pick(others);
    gate.isLeaving = true;
    this.#gates.splice(this.#gates.indexOf(gate), 1);
    return gate;
  }

  async #startGate(): Promise<void> {
    const settings = JSON.stringify(this.#settings);
    const child = await start('gate-process.ts', [settings]);
    const [{ port }] = (await once(child, 'message')) as [{ port: number }];
    child.once('exit', (code, signal) => {
      if (signal !== 'SIGKILL' && code !== 0)
        this.crashes.push(`a gate ended by itself: ${code ?? signal}`);
    });
    const endpoint = new Endpoint(new URL(`http://127.0.0.1:${port}/mcp`));
    this.#gates.push({ child, endpoint, isLeaving: false });
  }

  async #startUpstream(): Promise<void> {
    this.#upstreams += 1;
    const { port } = new URL(this.#settings.upstream);
    const child = await start('upstream-process.ts', [this.upstream, port, this.#ledger]);
    await once(child, 'message');
    this.#upstream = child;
  }
}

async function start(file: string, args: readonly string[]): Promise<ChildProcess> {
  const path = fileURLToPath(new URL(file, import.meta.url));
  return fork(await compiled(path), args, { execArgv: ['--expose-gc'] });
}

function send(child: ChildProcess, order: Order): void {
  child.send(order);
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  // One that stands still cannot be asked.
  child.kill('SIGKILL');
  await exited;
}
