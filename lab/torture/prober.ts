import { setTimeout as delay } from 'node:timers/promises';
import { answerOf, type Told } from '../checker/reading.ts';
import type { Arena } from './arena.ts';
import type { RunLog } from './run-log.ts';
import type { TortureServer } from './server-process.ts';
import { RULES, type ToolName } from './workflows.ts';

const PATIENCE_MS = 15_000;

/**
 * A client of one process only, to see when that process serves. Its run has nothing under way when
 * the store dies.
 */
export class Prober {
  readonly #arena: Arena;
  readonly #server: TortureServer;
  readonly #log: RunLog;
  #step = 0;

  private constructor(arena: Arena, server: TortureServer, log: RunLog) {
    this.#arena = arena;
    this.#server = server;
    this.#log = log;
  }

  static async start(arena: Arena, server: TortureServer): Promise<Prober> {
    const caller = await arena.recorder.openSession(server.endpoint);
    if (caller === undefined) throw new Error('no session could be started');
    const prober = new Prober(arena, server, arena.note(caller, 'rally'));
    await prober.serves();
    return prober;
  }

  /**
   * While the store is away, an ungated call has to be served, and a gated one must not be. Whether
   * the gated one was refused at once; else its connection was still busy with the last words of
   * the store.
   */
  async whileAway(): Promise<boolean> {
    const view = await this.#call('cart.view');
    if (view.kind !== 'done') this.#complain('an ungated call was not served', view);
    const gated = await this.#call(this.#tool);
    if (gated.kind === 'done') this.#complain('a gated call went through', gated);
    return gated.kind === 'unavailable';
  }

  /**
   * Makes steps until one succeeds. Resolves to when that was, on the clock of `performance.now()`.
   */
  async serves(): Promise<number> {
    const deadline = performance.now() + PATIENCE_MS;
    for (;;) {
      const tool = this.#tool;
      const answer = await this.#call(tool);
      if (answer.kind === 'done') {
        this.#log.state = RULES[tool].to;
        this.#step++;
        return performance.now();
      }
      if (answer.kind === 'wrong' || performance.now() > deadline) {
        this.#complain("nothing was served after the store's return", answer);
        return performance.now();
      }
      await delay(10);
    }
  }

  get #tool(): ToolName {
    return this.#log.state === 'left' ? 'rally.ping' : 'rally.pong';
  }

  async #call(tool: string): Promise<Told> {
    const { endpoint } = this.#server;
    const args = { step: this.#step, ms: 1 };
    return answerOf(await this.#arena.recorder.call(endpoint, this.#log.caller, tool, args)).told;
  }

  #complain(what: string, answer: Told): void {
    this.#arena.faults.push(
      `fail-open or unserved: ${what} by ${this.#server.name}: ${JSON.stringify(answer)}`,
    );
  }
}
