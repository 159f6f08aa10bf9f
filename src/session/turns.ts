import type { Clock } from './clock.ts';

/** A call that may have to wait. */
export interface WaitingCall {
  /** Nobody waits for its answer any more. */
  readonly cancelled: boolean;
  /** About how much memory it takes up while it waits, in bytes. */
  readonly bytes: number;
  /** Calls back once, when the wait is called off; the returned function forgets about it. */
  onCancel(callback: () => void): () => void;
}

/** How many calls may wait for one run, and how much memory they may take up together. */
export interface WaitLimits {
  readonly maxWaiting: number;
  readonly maxWaitingBytes: number;
}

interface Waiter {
  settle(turn: Turn | undefined): void;
}

interface Queue {
  readonly waiters: Waiter[];
  /** What the call that has the turn waits for itself, so that no other may wait behind it. */
  readonly obstacles: Set<object>;
  /** Calls that wait, and their bytes: for their turn, or with it for another process. */
  calls: number;
  bytes: number;
}

/** Within this process one call at a time may claim a run: the one that has its turn. */
export class Turn {
  readonly #onEnd: () => void;
  readonly #queue: Queue;
  #over = false;

  constructor(queue: Queue, onEnd: () => void) {
    this.#queue = queue;
    this.#onEnd = onEnd;
  }

  /** Starts the next one. Calling it again does nothing. */
  end(): void {
    if (this.#over) return;
    this.#over = true;
    this.#onEnd();
  }

  /**
   * Counts its call among those that wait, since another process has the run, until what is returned
   * is called. `undefined` where too many wait already.
   */
  wait(call: WaitingCall, limits: WaitLimits | undefined): (() => void) | undefined {
    return enter(this.#queue, call, limits);
  }
}

/** First come, first served, one at a time for each key, within this process. */
export class Turns {
  readonly #queues = new Map<string, Queue>();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Waits for its turn; `undefined` where it was not had within `waitMs`, was called off, or may not
   * be waited for. Without limits a call is not counted either.
   */
  take(
    key: string,
    waitMs: number,
    call: WaitingCall,
    limits?: WaitLimits,
  ): Promise<Turn | undefined> | Turn | undefined {
    const known = this.#queues.get(key);
    if (known === undefined) {
      const queue = { waiters: [], obstacles: new Set<object>(), calls: 0, bytes: 0 };
      this.#queues.set(key, queue);
      return this.#turn(key, queue);
    }
    if (known.obstacles.size > 0) return undefined;
    const leave = enter(known, call, limits);
    return leave && this.#wait(known.waiters, waitMs, call, leave);
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
    call: WaitingCall,
    leave: () => void,
  ): Promise<Turn | undefined> {
    return new Promise((resolve) => {
      const waiter: Waiter = {
        settle(turn) {
          stopTimer();
          forget();
          leave();
          resolve(turn);
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
      forget = call.onCancel(giveUp);
    });
  }

  #turn(key: string, queue: Queue): Turn {
    return new Turn(queue, () => {
      const next = queue.waiters.shift();
      if (next === undefined) {
        this.#queues.delete(key);
        return;
      }
      queue.obstacles.clear();
      next.settle(this.#turn(key, queue));
    });
  }
}

/** Counts a call among those that wait, until what is returned is called; `undefined` where it does not fit in. */
function enter(
  queue: Queue,
  { bytes }: WaitingCall,
  limits: WaitLimits | undefined,
): (() => void) | undefined {
  if (limits === undefined) return () => {};
  if (queue.calls >= limits.maxWaiting || queue.bytes + bytes > limits.maxWaitingBytes)
    return undefined;
  queue.calls++;
  queue.bytes += bytes;
  let left = false;
  return () => {
    if (left) return;
    left = true;
    queue.calls--;
    queue.bytes -= bytes;
  };
}
