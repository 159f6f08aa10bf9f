/**
 * Who may claim a run next: within this process one call at a time, first come, first served. Hides
 * the queues and their limits, pauses between tries, and what `close()` waits for.
 */
import type { Clock } from '../basics/clock.ts';
import type { RunKey } from '../stores/store.ts';

const LONGEST_PAUSE_MS = 250;
const SHORTEST_PAUSE_MS = 10;
/** How many calls without a turn may wait in a process for calls before them. */
const MOST_FOLLOWERS = 1_000;

/** A call, as far as its wait is concerned. */
export interface QueuedRequest {
  /** Whether its client cancelled it, or left. */
  readonly cancelled: boolean;
  /** About how much memory it takes while it waits, in bytes. */
  readonly bytes: number;
  /** Calls back once, when it is cancelled, unless the returned function is called before. */
  onCancel(callback: () => void): () => void;
  /** It waits until the returned function is called: its client is notified, where that can be. */
  notifyOfWait?(clock: Clock): (() => void) | undefined;
}

/** How many calls of clients may wait for one run, and how many bytes they may take together. */
export interface WaitLimits {
  readonly maxWaiting: number;
  readonly maxWaitingBytes: number;
}

/** A step that has its run's turn, as `close()` names it. */
export interface RunningStep {
  readonly key: { readonly workflow: string };
  readonly description: { readonly tool: string };
  /** Whether it was let go, so that the run is where it was. */
  readonly isWithdrawn: boolean;
}

interface TurnListener {
  onEnd(queue: Queue): void;
  onOutlive(): void;
  enter(key: string, call: QueuedRequest, limits: WaitLimits | undefined): (() => void) | undefined;
}

/** The right to claim a run: in this process one call has it at a time. */
export class Turn {
  /** Set once the run is claimed. */
  step: RunningStep | undefined;
  /** As in {@link Turns.take}. */
  readonly tool: string | undefined;
  readonly #queue: Queue;
  readonly #listener: TurnListener;
  #over = false;
  #awaited = true;

  constructor(queue: Queue, tool: string | undefined, listener: TurnListener) {
    this.tool = tool;
    this.#queue = queue;
    this.#listener = listener;
    queue.turn = this;
  }

  /** Whether `close()` waits for its end. */
  get awaited(): boolean {
    return this.#awaited;
  }

  /** Gives the turn to the next call. A second call does nothing. */
  end(): void {
    if (this.#over) return;
    this.#over = true;
    this.#listener.onEnd(this.#queue);
  }

  /** The step goes on as a task, which may outlive this process: `close()` does not wait for it. */
  outlive(): void {
    this.#awaited = false;
    this.#listener.onOutlive();
  }

  /**
   * Counts its call among those that wait, because another process has the run, until the returned
   * function is called. `undefined` where too many wait already.
   */
  wait(call: QueuedRequest, limits: WaitLimits | undefined): (() => void) | undefined {
    return this.#listener.enter(this.#queue.key, call, limits);
  }
}

/** A call that waits for the turn. */
interface Waiter {
  /** As in {@link Turns.take}. */
  readonly tool: string | undefined;
  give(turn: Turn | undefined): void;
}

/** Why a call follows those before it no longer, as {@link Turns.follow} has it. */
type FollowEnd = 'moved' | 'gone' | 'time' | 'off';

/** A call without a claim whose success its run records: it may move the run. */
interface Lookup {
  readonly tool: string;
  /** The request that it came in. */
  readonly of: object;
}

const NONE: ReadonlySet<Lookup> = new Set();

/** The calls that wait for one run. */
class Queue {
  readonly key: string;
  turn: Turn | undefined;
  readonly waiters: Waiter[] = [];
  /** Answers that the call with the turn waits for itself. No other call may wait behind them. */
  readonly obstacles = new Set<object>();

  constructor(key: string) {
    this.key = key;
  }
}

/** How many calls of clients wait for one run, and the bytes that they take. */
interface Room {
  calls: number;
  bytes: number;
}

/** Names the turns of one workflow in one run. A workflow's id has no space in it. */
export function turnKey({ run, workflow }: RunKey): string {
  return `${workflow} ${run}`;
}

/**
 * The turns of all runs in this process, by key. A move from outside has no limits: it waits behind
 * any number of calls, and even while the process ends.
 */
export class Turns {
  readonly #queues = new Map<string, Queue>();
  readonly #rooms = new Map<string, Room>();
  readonly #clock: Clock;
  readonly #onClose = new Set<() => void>();
  readonly #onLess = new Set<() => void>();
  readonly #lookups = new Map<string, Set<Lookup>>();
  /** By key, the calls without a turn that wait for those in flight. */
  readonly #followers = new Map<string, Set<(end: FollowEnd) => void>>();
  #following = 0;
  readonly #listener: TurnListener = {
    onEnd: (queue) => this.#next(queue),
    onOutlive: () => callAll(this.#onLess),
    enter: (key, call, limits) => this.#enter(key, call, limits),
  };
  /** How many clients wait for the answer to a step. */
  #answers = 0;
  #closed = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether this process is ending: no call of a client begins a step any more. */
  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Takes the turn of a key, at once where it is free. Gives `undefined` if the turn does not come
   * within `waitMs`, if the call is off, or if too many wait already.
   *
   * @param tool what the call calls. `undefined` where it was refused before: then no other call
   * waits for it until its claim is granted. Two refused calls would wake each other for ever.
   */
  take(
    key: string,
    tool: string | undefined,
    waitMs: number,
    call: QueuedRequest,
    limits?: WaitLimits,
  ): Promise<Turn | undefined> | Turn | undefined {
    if (this.isOff(call, limits)) return undefined;
    const known = this.#queues.get(key);
    if (known === undefined) {
      const queue = new Queue(key);
      this.#queues.set(key, queue);
      return new Turn(queue, tool, this.#listener);
    }
    const mayWait = waitMs > 0 && known.obstacles.size === 0;
    const leave = mayWait ? this.#enter(key, call, limits) : undefined;
    return leave && this.#wait(known, tool, waitMs, { call, limits, leave });
  }

  /** Whether a call of this process has the turn, and so may move the run. */
  isTaken(key: string): boolean {
    return this.#queues.has(key);
  }

  /** A lookup runs beside others, and may move the run until the returned function is called. */
  lookUp(key: string, lookup: Lookup): () => void {
    const running = this.#lookups.get(key) ?? new Set();
    this.#lookups.set(key, running.add(lookup));
    return () => {
      if (!running.delete(lookup)) return;
      if (running.size === 0) this.#lookups.delete(key);
      this.#notifyFollowers(key, 'moved');
    };
  }

  /**
   * The tools of the calls in this process that may move the run: steps with the turn or in the
   * queue, and lookups. Leaves out steps that wait for their own client. None where the same
   * request has a lookup, which would wait for the call that asks.
   */
  inFlight(key: string, of: object): readonly string[] {
    const tools: string[] = [];
    for (const lookup of this.#lookups.get(key) ?? NONE) {
      // It goes on once all of its request is judged: two requests could wait for each other.
      if (lookup.of === of) return [];
      tools.push(lookup.tool);
    }
    const queue = this.#queues.get(key);
    if (queue === undefined || queue.obstacles.size > 0) return tools;
    const { turn, waiters } = queue;
    const running = turn?.step?.description.tool ?? turn?.tool;
    if (running !== undefined) tools.push(running);
    for (const { tool } of waiters) if (tool !== undefined) tools.push(tool);
    return tools;
  }

  /**
   * Waits, without a turn, until one of those calls is over. `moved`: the run may stand elsewhere
   * now. `gone`: it was refused, so the run is where it was. `time`: none has ended within
   * `waitMs`. `off`: the call may wait no longer, or not at all, because too many wait.
   */
  follow(key: string, waitMs: number, call: QueuedRequest, limits: WaitLimits): Promise<FollowEnd> {
    const isFull = this.#following >= MOST_FOLLOWERS;
    const mayWait = waitMs > 0 && !isFull && !this.isOff(call, limits);
    const leave = mayWait ? this.#enter(key, call, limits) : undefined;
    if (leave === undefined) return Promise.resolve('off');
    const followers = this.#followers.get(key) ?? new Set();
    this.#following++;
    return new Promise((resolve) => {
      let forget = (): void => {};
      const done = (end: FollowEnd): void => {
        stopTimer();
        forget();
        leave();
        this.#following--;
        followers.delete(done);
        if (followers.size === 0) this.#followers.delete(key);
        resolve(end);
      };
      this.#followers.set(key, followers.add(done));
      const stopTimer = this.#clock.after(waitMs, () => done('time'));
      forget = this.onOff(call, limits, () => done('off'));
    });
  }

  #notifyFollowers(key: string, end: FollowEnd): void {
    for (const done of [...(this.#followers.get(key) ?? [])]) done(end);
  }

  /** Counts a call among those that wait, until the returned function is called. */
  #enter(
    key: string,
    call: QueuedRequest,
    limits: WaitLimits | undefined,
  ): (() => void) | undefined {
    if (limits === undefined) return () => {};
    const { bytes } = call;
    const room = this.#rooms.get(key) ?? { calls: 0, bytes: 0 };
    if (room.calls >= limits.maxWaiting || room.bytes + bytes > limits.maxWaitingBytes)
      return undefined;
    this.#rooms.set(key, room);
    room.calls++;
    room.bytes += bytes;
    const stopNotifying = call.notifyOfWait?.(this.#clock);
    return () => {
      stopNotifying?.();
      room.calls--;
      room.bytes -= bytes;
      if (room.calls === 0) this.#rooms.delete(key);
    };
  }

  /** Whether a call is off: it was cancelled, or the process is ending. */
  isOff(call: Pick<QueuedRequest, 'cancelled'>, limits: WaitLimits | undefined): boolean {
    return call.cancelled || (this.#closed && limits !== undefined);
  }

  /** Calls back when the call is off, unless the returned function is called before. */
  onOff(
    call: Pick<QueuedRequest, 'onCancel'>,
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
   * Another process has the run: pauses before the store is asked again, or until the call is off.
   */
  backOff(
    attempt: number,
    remainingMs: number,
    call: QueuedRequest,
    limits: WaitLimits | undefined,
  ): Promise<void> {
    return new Promise((resolve) => {
      let forget = (): void => {};
      const done = (): void => {
        stop();
        forget();
        resolve();
      };
      const stop = this.#clock.after(pauseBefore(attempt, remainingMs), done);
      // The call may be off since the store was asked.
      if (this.isOff(call, limits)) done();
      else forget = this.onOff(call, limits, done);
    });
  }

  /**
   * A client waits for the answer of a step or lookup until the returned function is called, and
   * `close()` waits too.
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
   * Refuses each call that waits for the key, and each new one, until the turn ends or the returned
   * function is called. The call with the turn waits for its own client.
   */
  refuseOthers(key: string): () => void {
    const queue = this.#queues.get(key);
    if (queue === undefined) return () => {};
    const obstacle = {};
    queue.obstacles.add(obstacle);
    for (const { give } of queue.waiters.splice(0)) give(undefined);
    this.#notifyFollowers(key, 'off');
    return () => void queue.obstacles.delete(obstacle);
  }

  /** The process ends: from now on no call of a client takes a turn, or waits for one. */
  close(): void {
    this.#closed = true;
    callAll(this.#onClose);
  }

  /** Waits at most `ms` for running steps and their answers. Gives the steps that still run. */
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
    tool: string | undefined,
    waitMs: number,
    waiting: { call: QueuedRequest; limits: WaitLimits | undefined; leave: () => void },
  ): Promise<Turn | undefined> {
    return new Promise((resolve) => {
      const give = (turn: Turn | undefined): void => {
        stopTimer();
        forget();
        waiting.leave();
        resolve(turn);
      };
      const giveUp = (): void => {
        const at = waiters.indexOf(waiter);
        if (at === -1) return;
        waiters.splice(at, 1);
        give(undefined);
      };
      const waiter = { tool, give };
      waiters.push(waiter);
      let forget = (): void => {};
      const stopTimer = this.#clock.after(waitMs, giveUp);
      forget = this.onOff(waiting.call, waiting.limits, giveUp);
    });
  }

  #next(queue: Queue): void {
    const isMoved = queue.turn?.step?.isWithdrawn === false;
    const next = queue.waiters.shift();
    if (next === undefined) this.#queues.delete(queue.key);
    else {
      queue.obstacles.clear();
      next.give(new Turn(queue, next.tool, this.#listener));
    }
    if (this.#followers.size > 0) this.#notifyFollowers(queue.key, isMoved ? 'moved' : 'gone');
    callAll(this.#onLess);
  }
}

/**
 * How long to pause before the store is asked again, in milliseconds. Jittered, so that processes
 * do not ask at the same moments; never past the end of a lease that is over sooner.
 */
export function pauseBefore(attempt: number, remainingMs = LONGEST_PAUSE_MS): number {
  const longest = Math.min(LONGEST_PAUSE_MS, SHORTEST_PAUSE_MS * 2 ** attempt);
  const ceiling = Math.min(longest, Math.max(remainingMs, SHORTEST_PAUSE_MS));
  return ceiling / 2 + (Math.random() * ceiling) / 2;
}

/** Calls a copy of the list, because callbacks may take themselves off it. */
function callAll(callbacks: ReadonlySet<() => void>): void {
  if (callbacks.size > 0) for (const callback of [...callbacks]) callback();
}

/** For `onError`: the steps that a process did not wait for at its end. */
export function leftRunning(steps: readonly RunningStep[], drainMs: number): Error {
  const calls = steps.map(({ key, description }) => {
    return `${JSON.stringify(description.tool)} of ${JSON.stringify(key.workflow)}`;
  });
  return new Error(
    `close(): still running after ${drainMs} ms: ${calls.join(', ')}. ` +
      'Their outcomes are unknown if the process ends before they do',
  );
}
