import type { Clock } from '../clock.ts';

const LONGEST_PAUSE_MS = 250;
const SHORTEST_PAUSE_MS = 10;

/** A call that may have to wait. */
export interface WaitingCall {
  /** Its client cancelled it, or left. */
  readonly cancelled: boolean;
  /** About how much memory it takes up while it waits, in bytes. */
  readonly bytes: number;
  /** Calls back once, when it is cancelled; the returned function forgets about it. */
  onCancel(callback: () => void): () => void;
}

/**
 * How many calls of clients may wait for one run, and how much memory they may take up together.
 */
export interface WaitLimits {
  readonly maxWaiting: number;
  readonly maxWaitingBytes: number;
}

/** A step that has its run's turn, as far as `close()` tells of it. */
export interface RunningStep {
  readonly key: { readonly workflow: string };
  readonly description: { readonly tool: string };
}

interface TurnListener {
  onEnd(queue: Queue): void;
  onOutlive(): void;
}

/** Within this process one call at a time may claim a run: the one that has its turn. */
export class Turn {
  /** Set once the run was claimed. */
  step: RunningStep | undefined;
  readonly #queue: Queue;
  readonly #listener: TurnListener;
  #over = false;
  #awaited = true;

  constructor(queue: Queue, listener: TurnListener) {
    this.#queue = queue;
    this.#listener = listener;
    queue.turn = this;
  }

  /** Whether `close()` waits for its end. */
  get awaited(): boolean {
    return this.#awaited;
  }

  /** Starts the next one. Calling it again does nothing. */
  end(): void {
    if (this.#over) return;
    this.#over = true;
    this.#listener.onEnd(this.#queue);
  }

  /** A task carries its step, which may outlive this process: `close()` does not wait for it. */
  outlive(): void {
    this.#awaited = false;
    this.#listener.onOutlive();
  }

  /**
   * Counts its call among those that wait, since another process has the run, until what is
   * returned is called. `undefined` where too many wait already.
   */
  wait(call: WaitingCall, limits: WaitLimits | undefined): (() => void) | undefined {
    return this.#queue.enter(call, limits);
  }
}

/** The calls of one run that have to do with its turn. */
class Queue {
  readonly key: string;
  turn: Turn | undefined;
  readonly waiters: ((turn: Turn | undefined) => void)[] = [];
  /** What the call that has the turn waits for itself, so that no other may wait behind it. */
  readonly obstacles = new Set<object>();
  #calls = 0;
  #bytes = 0;

  constructor(key: string) {
    this.key = key;
  }

  enter({ bytes }: WaitingCall, limits: WaitLimits | undefined): (() => void) | undefined {
    if (limits === undefined) return () => {};
    const { maxWaiting, maxWaitingBytes } = limits;
    if (this.#calls >= maxWaiting || this.#bytes + bytes > maxWaitingBytes) return undefined;
    this.#calls++;
    this.#bytes += bytes;
    return () => {
      this.#calls--;
      this.#bytes -= bytes;
    };
  }
}

/**
 * First come, first served, one at a time for each key, within this process. What has no limits
 * comes from no client: it waits however many others do, and while the process ends.
 */
export class Turns {
  readonly #queues = new Map<string, Queue>();
  readonly #clock: Clock;
  readonly #onClose = new Set<() => void>();
  readonly #onLess = new Set<() => void>();
  readonly #listener: TurnListener = {
    onEnd: (queue) => this.#next(queue),
    onOutlive: () => callAll(this.#onLess),
  };
  /** Clients that wait for the answer to a step. */
  #answers = 0;
  #closed = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether this process ends: no call of a client begins a step any more. */
  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Waits for its turn. `undefined`: not had within `waitMs`, called off, or too many wait already.
   */
  take(
    key: string,
    waitMs: number,
    call: WaitingCall,
    limits?: WaitLimits,
  ): Promise<Turn | undefined> | Turn | undefined {
    if (this.isOff(call, limits)) return undefined;
    const known = this.#queues.get(key);
    if (known === undefined) {
      const queue = new Queue(key);
      this.#queues.set(key, queue);
      return new Turn(queue, this.#listener);
    }
    const mayWait = waitMs > 0 && known.obstacles.size === 0;
    const leave = mayWait ? known.enter(call, limits) : undefined;
    return leave && this.#wait(known, waitMs, { call, limits, leave });
  }

  /** Whether a call has the turn in this process: it may move the run. */
  isTaken(key: string): boolean {
    return this.#queues.has(key);
  }

  /** Whether a call need not wait any longer: it was cancelled, or the process ends. */
  isOff(call: Pick<WaitingCall, 'cancelled'>, limits: WaitLimits | undefined): boolean {
    return call.cancelled || (this.#closed && limits !== undefined);
  }

  /** Calls back once that is so; the returned function forgets about it. */
  onOff(
    call: Pick<WaitingCall, 'onCancel'>,
    limits: WaitLimits | undefined,
    callback: () => void,
  ): () => void {
    if (limits !== undefined) this.#onClose.add(callback);
    const forget = call.onCancel(callback);
    return () => {
      this.#onClose.delete(callback);
      forget();
    };
  }

  /**
   * Pauses a call whose run another process has, before the store is asked again. Ends early where
   * the call is off. Jittered, so that processes do not ask at the same moments; never past the end
   * of the other claim's lease.
   */
  backOff(
    attempt: number,
    remainingMs: number,
    call: WaitingCall,
    limits: WaitLimits | undefined,
  ): Promise<void> {
    const ceiling = Math.min(
      LONGEST_PAUSE_MS,
      SHORTEST_PAUSE_MS * 2 ** attempt,
      Math.max(remainingMs, SHORTEST_PAUSE_MS),
    );
    return new Promise((resolve) => {
      let forget = (): void => {};
      const done = (): void => {
        stop();
        forget();
        resolve();
      };
      const stop = this.#clock.after(ceiling / 2 + (Math.random() * ceiling) / 2, done);
      // It may have been called off while the store was asked.
      if (this.isOff(call, limits)) done();
      else forget = this.onOff(call, limits, done);
    });
  }

  /**
   * A client waits for a step's answer, and so does `close()`, until the returned function is
   * called.
   */
  answering(): () => void {
    this.#answers++;
    let over = false;
    return () => {
      if (over) return;
      over = true;
      this.#answers--;
      callAll(this.#onLess);
    };
  }

  /**
   * Refuses all calls that wait, and each new one until the turn ends or the returned function is
   * called.
   */
  refuseOthers(key: string): () => void {
    const queue = this.#queues.get(key);
    if (queue === undefined) return () => {};
    const obstacle = {};
    queue.obstacles.add(obstacle);
    for (const settle of queue.waiters.splice(0)) settle(undefined);
    return () => void queue.obstacles.delete(obstacle);
  }

  /** From now on no call of a client has a turn, and none waits for one. */
  close(): void {
    this.#closed = true;
    callAll(this.#onClose);
  }

  /** Waits for so long for the steps that run and their answers, and gives those that still run. */
  async drain(ms: number): Promise<RunningStep[]> {
    const isDone = (): boolean => this.#answers === 0 && this.#awaited.length === 0;
    if (ms > 0 && !isDone()) {
      await new Promise<void>((resolve) => {
        const done = (): void => {
          stop();
          this.#onLess.delete(look);
          resolve();
        };
        const look = (): void => {
          if (isDone()) done();
        };
        const stop = this.#clock.after(ms, done);
        this.#onLess.add(look);
      });
    }
    return this.#awaited.flatMap(({ step }) => step ?? []);
  }

  get #awaited(): Turn[] {
    return [...this.#queues.values()].flatMap(({ turn }) => (turn?.awaited === true ? turn : []));
  }

  #wait(
    { waiters }: Queue,
    waitMs: number,
    waiting: { call: WaitingCall; limits: WaitLimits | undefined; leave: () => void },
  ): Promise<Turn | undefined> {
    return new Promise((resolve) => {
      const settle = (turn: Turn | undefined): void => {
        stopTimer();
        forget();
        waiting.leave();
        resolve(turn);
      };
      const giveUp = (): void => {
        const at = waiters.indexOf(settle);
        if (at === -1) return;
        waiters.splice(at, 1);
        settle(undefined);
      };
      waiters.push(settle);
      let forget = (): void => {};
      const stopTimer = this.#clock.after(waitMs, giveUp);
      forget = this.onOff(waiting.call, waiting.limits, giveUp);
    });
  }

  #next(queue: Queue): void {
    const settle = queue.waiters.shift();
    if (settle === undefined) this.#queues.delete(queue.key);
    else {
      queue.obstacles.clear();
      settle(new Turn(queue, this.#listener));
    }
    callAll(this.#onLess);
  }
}

/** Callbacks that may take themselves off the list. */
function callAll(callbacks: ReadonlySet<() => void>): void {
  if (callbacks.size > 0) for (const callback of [...callbacks]) callback();
}

/** What is said of steps that a process had to leave behind. */
export function leftRunning(steps: readonly RunningStep[], drainMs: number): Error {
  const calls = steps.map(({ key, description }) => {
    return `${JSON.stringify(description.tool)} of ${JSON.stringify(key.workflow)}`;
  });
  return new Error(
    `close(): still running after ${drainMs} ms: ${calls.join(', ')}. ` +
      'Their outcomes are unknown if the process ends before they do',
  );
}
