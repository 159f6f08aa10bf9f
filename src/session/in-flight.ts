import type { WaitingCall } from '../step/turns.ts';

/** The HTTP request that a call came in, as far as its wait depends on it. */
export interface CallersRequest {
  /** Whether the client's connection has ended. */
  readonly isGone: boolean;
  /** Of the body, in bytes. */
  readonly size: number;
}

/**
 * A request of the session that is not answered yet. Once it is cancelled it is not forwarded, if
 * it has not been.
 */
export class InFlight implements WaitingCall {
  readonly #request: CallersRequest | undefined;
  #onOver: () => void;
  #ended = false;
  #steps = 0;
  #uncertain = 0;
  #cancelled = false;
  readonly #onCancel = new Set<() => void>();
  readonly #onNotice = new Set<() => void>();

  /** `onOver` is called once, when its id is free again. */
  constructor(onOver: () => void = () => {}, request?: CallersRequest) {
    this.#onOver = onOver;
    this.#request = request;
  }

  get cancelled(): boolean {
    return this.#cancelled || this.#request?.isGone === true;
  }

  get bytes(): number {
    return this.#request?.size ?? 0;
  }

  /**
   * Its response has ended, or its connection has. A step that is still under way may have its
   * result come elsewhere.
   */
  end(): void {
    this.#ended = true;
    if (this.#steps > 0) return;
    this.#onOver();
    this.#onOver = () => {};
  }

  /**
   * It runs as a step until the returned function is called. `mustEnd` where nobody may find out
   * later, by trying it again, what an interrupted one came to.
   */
  beginStep(mustEnd: boolean): () => void {
    this.#steps++;
    if (mustEnd) this.#uncertain++;
    let over = false;
    return () => {
      if (over) return;
      over = true;
      this.#steps--;
      if (mustEnd) this.#uncertain--;
      if (this.#ended) this.end();
    };
  }

  /** Whether it runs as a step that must not be interrupted. */
  get mustEnd(): boolean {
    return this.#uncertain > 0;
  }

  onCancel(callback: () => void): () => void {
    if (this.#cancelled) callback();
    else this.#onCancel.add(callback);
    return () => this.#onCancel.delete(callback);
  }

  /**
   * Calls back when the client says that it cancels, and not when it goes away: that does not cut a
   * step off.
   */
  onNotice(callback: () => void): void {
    this.#onNotice.add(callback);
  }

  /** The client said so. */
  cancel(): void {
    this.leave();
    callOnce(this.#onNotice);
  }

  /** The client is gone. */
  leave(): void {
    this.#cancelled = true;
    callOnce(this.#onCancel);
  }
}

function callOnce(callbacks: Set<() => void>): void {
  const called = [...callbacks];
  callbacks.clear();
  for (const callback of called) callback();
}
