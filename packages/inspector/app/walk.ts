/** A walk through the machine that touches no run: where it has come to, and each step so far. */
import { signal } from '@preact/signals';
import type { WhatIf, WhatIfMove, WhatIfRequest } from '../src/api.ts';
import type { Line } from './chart.ts';
import { type Server, wordsOf } from './server.ts';

export interface WalkStep {
  /** What was done; the first step has done nothing yet. */
  readonly move: WhatIfMove | undefined;
  readonly reached: WhatIf;
}

export class WhatIfWalk {
  readonly #server: Server;
  #path = '';
  #asked = 0;

  readonly steps = signal<readonly WalkStep[]>([]);
  /** What the last move came to, where it went nowhere. */
  readonly answer = signal<{ readonly move: WhatIfMove; readonly came: WhatIf } | undefined>(
    undefined,
  );
  readonly error = signal<string | undefined>(undefined);

  constructor(server: Server) {
    this.#server = server;
  }

  /** Begins anew, where every run begins or where a run stands. */
  async begin(workflow: string, run?: string): Promise<void> {
    this.#path = `workflows/${workflow}/what-if`;
    this.steps.value = [];
    await this.#ask(run === undefined ? {} : { from: { run } });
  }

  async move(move: WhatIfMove): Promise<void> {
    const last = this.steps.value.at(-1);
    if (last !== undefined) await this.#ask({ from: { at: last.reached.at }, move });
  }

  /** Takes a way of the diagram. */
  async take({ cause, tool, event }: Line): Promise<void> {
    if (tool !== undefined)
      await this.move({ tool, outcome: cause === 'failure' ? 'failed' : 'succeeded' });
    else if (event !== undefined) await this.move({ event });
    else await this.move({ deadline: true });
  }

  async #ask(request: WhatIfRequest): Promise<void> {
    const asked = ++this.#asked;
    const { move } = request;
    try {
      const came = await this.#server.post<WhatIf>(this.#path, request);
      if (asked !== this.#asked) return;
      this.error.value = undefined;
      const isStep = move === undefined || came.result === 'moved' || came.result === 'stayed';
      this.answer.value =
        move === undefined || came.result === 'moved' ? undefined : { move, came };
      if (isStep) this.steps.value = [...this.steps.value, { move, reached: came }];
    } catch (error) {
      if (asked === this.#asked) this.error.value = wordsOf(error);
    }
  }

  /** Back to one of its steps. */
  backTo(index: number): void {
    this.#asked++;
    this.steps.value = this.steps.value.slice(0, index + 1);
    this.answer.value = undefined;
    this.error.value = undefined;
  }

  leave(): void {
    this.backTo(-1);
  }
}
