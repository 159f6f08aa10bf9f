import type { Clock } from './clock.ts';

/** Ends a turn and starts the next one. Calling it again does nothing. */
export type EndTurn = () => void;

/** A wait that its caller can call off. */
export interface Cancellation {
  readonly cancelled: boolean;
  /** Calls back once, when the wait is called off; the returned function forgets about it. */
  onCancel(callback: () => void): () => void;
}

interface Waiter {
  settle(end: EndTurn | undefined): void;
}

interface Queue {
  readonly waiters: Waiter[];
  /** What whoever holds the turn waits for itself, so that nobody else may wait behind it. */
  readonly obstacles: Set<object>;
}

/** First come, first served, one at a time for each key, within this process. */
export class Turns {
  readonly #queues = new Map<string, Queue>();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Waits for its turn; `undefined` where it was not had within `waitMs`, was called off, or nobody may wait. */
  take(
    key: string,
    waitMs: number,
    cancellation: Cancellation,
  ): Promise<EndTurn | undefined> | EndTurn | undefined {
    const queue = this.#queues.get(key);
    if (queue === undefined) {
      this.#queues.set(key, { waiters: [], obstacles: new Set() });
      return this.#turn(key);
    }
    return queue.obstacles.size > 0 ? undefined : this.#wait(queue.waiters, waitMs, cancellation);
  }

  /** Turns away everybody who waits, and who comes before what is returned is called or the turn ends. */
  refuseOthers(key: string): () => void {
    const queue = this.#queues.get(key);
    if (queue === undefined) return () => {};
    const obstacle = {};
    queue.obstacles.add(obstacle);
    for (const waiter of queue.waiters.splice(0)) waiter.settle(undefined);
    return () => void queue.obstacles.delete(obstacle);
  }

  #wait(
    waiters: Waiter[],
    waitMs: number,
    cancellation: Cancellation,
  ): Promise<EndTurn | undefined> {
    return new Promise((resolve) => {
      const waiter: Waiter = {
        settle(end) {
          stopTimer();
          forget();
          resolve(end);
        },
      };
      const giveUp = (): void => {
        const at = waiters.indexOf(waiter);
        if (at !== -1) waiters.splice(at, 1);
        waiter.settle(undefined);
      };
      waiters.push(waiter);
      let forget = (): void => {};
      const stopTimer = this.#clock.after(waitMs, giveUp);
      forget = cancellation.onCancel(giveUp);
    });
  }

  #turn(key: string): EndTurn {
    let over = false;
    return () => {
      if (over) return;
      over = true;
      const queue = this.#queues.get(key);
      const next = queue?.waiters.shift();
      if (queue === undefined || next === undefined) {
        this.#queues.delete(key);
        return;
      }
      queue.obstacles.clear();
      next.settle(this.#turn(key));
    };
  }
}
