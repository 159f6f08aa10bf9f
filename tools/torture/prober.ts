import { setTimeout as delay } from 'node:timers/promises';
import type { Arena } from './arena.ts';
import { type Answer, callTool, openSession } from './client.ts';
import type { RunLog } from './run-log.ts';
import type { TortureServer } from './server-process.ts';
import { RULES, type ToolName } from './workflows.ts';

const PATIENCE_MS = 15_000;

/** A client of one process only, to see when that process serves. Its run has nothing under way when the store dies. */
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
    const run = await openSession(server.endpoint);
    if (run === undefined) throw new Error('no session could be started');
    const prober = new Prober(arena, server, arena.note(run, 'rally'));
    await prober.serves();
    return prober;
  }

  /**
   * While the store is away, an ungated call has to be served, and a gated one must not be. Whether the gated one was
   * refused at once; else its connection was still busy with the last words of the store.
   */
  async whileAway(): Promise<boolean> {
    const view = await this.#call('cart.view');
    if (view.kind !== 'done') this.#complain('an ungated call was not served', view);
    const gated = await this.#call(this.#tool);
    if (gated.kind === 'done') this.#complain('a gated call went through', gated);
    return gated.kind === 'refused' && gated.reason === 'unavailable';
  }

  /** Makes steps until one succeeds. Resolves to when that was, on the clock of `performance.now()`. */
  async serves(): Promise<number> {
    const deadline = performance.now() + PATIENCE_MS;
    for (;;) {
      const tool = this.#tool;
      const answer = await this.#call(tool);
      if (answer.kind === 'done') {
        this.#log.succeeded.add(answer.text);
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

  #call(tool: string): Promise<Answer> {
    return callTool(this.#server.endpoint, this.#log.run, tool, { step: this.#step, ms: 1 });
  }

  #complain(what: string, answer: Answer): void {
    this.#arena.faults.push(
      `fail-open or unserved: ${what} by ${this.#server.name}: ${JSON.stringify(answer)}`,
    );
  }
}
