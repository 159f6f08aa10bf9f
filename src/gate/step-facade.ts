import type { CurrentStep, HandlersStep } from '../session/current-step.ts';
import type { RunKey } from '../stores/store.ts';
import type { Position } from '../workflow/position.ts';
import type { Workflow } from '../workflow/workflow.ts';
import type { HeldCall } from './settle.ts';

/**
 * A gate's step of a call, kept for its handler. Once nothing more can come of the step it lets go
 * of the call, and goes on saying which step it was.
 */
export class FacedStep implements HandlersStep {
  readonly key: RunKey;
  readonly #workflow: Workflow;
  readonly #tool: string;
  readonly #idempotencyKey: string;
  readonly #state: string;
  #call: HeldCall | undefined;
  /** Where the run stood for the handler when the call was let go of. */
  #left: Position;
  #hasEnded = false;
  #facade: CurrentStep | undefined;

  /** `onEnd` is called when no answer of the call is waited for any more. */
  constructor(call: HeldCall, workflow: Workflow, onEnd: () => void) {
    const { step } = call;
    const from = step.moves?.from ?? step.snapshot;
    this.key = step.key;
    this.#workflow = workflow;
    this.#tool = step.tool;
    this.#idempotencyKey = step.idempotencyKey;
    this.#state = from.state;
    this.#call = call;
    this.#left = from;
    step.onForgotten = () => {
      this.#end();
      onEnd();
    };
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  get isOver(): boolean {
    return this.#open === undefined;
  }

  get facade(): CurrentStep {
    this.#facade ??= this.#make();
    return this.#facade;
  }

  /** The call, until what the step saves is settled. */
  get #open(): HeldCall | undefined {
    const call = this.#call;
    return call === undefined || call.transform !== undefined || call.step.isOver
      ? undefined
      : call;
  }

  /** An outcome that comes late is still saved, with what the handler has changed until then. */
  #end(): void {
    this.#hasEnded = true;
    if (this.#call === undefined || this.#open !== undefined) return;
    this.#left = this.#call.step.moves?.from ?? this.#left;
    this.#call = undefined;
  }

  /** Its methods may be taken off it. */
  #make(): CurrentStep {
    const data = () => this.#workflow.dataOf(this.#call?.step.moves?.from ?? this.#left);
    return {
      run: this.key.run,
      workflow: this.key.workflow,
      tool: this.#tool,
      state: this.#state,
      idempotencyKey: this.#idempotencyKey,
      get context() {
        return data();
      },
      update: (change) => {
        const call = this.#open;
        if (call === undefined)
          throw new Error('the step is over: a change of its data is not saved any more');
        if (call.step.savedByHandler)
          throw new Error('update() came after commitIn(), which has saved the data already');
        call.step.update(change);
        return data();
      },
      commitIn: async (client) => {
        const call = this.#call;
        if (call === undefined) throw notOurs('lost');
        const status = await call.step.commitIn(client);
        if (status === 'unsupported')
          throw new Error('the store has no transactions that a step could be committed in');
        if (status !== 'committed') throw notOurs(status);
      },
    };
  }
}

function notOurs(status: string): Error {
  return new Error(`the step is not this call's any more (${status}); roll back`);
}
