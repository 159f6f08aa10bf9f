import { createHook } from 'node:async_hooks';

/** Counts the promises that requests make in this process. */
export class Counting {
  readonly #hook = createHook({
    init: (_id, type) => {
      if (type === 'PROMISE') this.#promises++;
    },
  });
  #promises = 0;

  begin(): void {
    this.#promises = 0;
    this.#hook.enable();
  }

  end(): number {
    this.#hook.disable();
    return this.#promises;
  }
}
