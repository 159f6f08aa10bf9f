/**
 * The world around a played case. Hides that time, chance and failures are the case's own, so that
 * both sides meet the same ones.
 */
import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import type { AtomicStateStore } from '../../src/stores/index.ts';

/** Every third byte of what is drawn here begins so; in base64 it is `qqZZ`, in hex `aaa659`. */
const MARK = Buffer.from('qqZZ', 'base64');
/** What is drawn, and the digests of runs, whose keys may be drawn. */
const DRAWN =
  /(?:qqZZ[\w-]{4})+|(?:aaa659[\da-f]{6})+|00000000-0000-4000-8000-[\da-f]{12}|\b[\da-f]{16}\b/g;

let drawn = 0;
let time = 0;

/**
 * From now on this process draws no random number, and its time stands still: {@link World} moves
 * it. Import the sides after that.
 */
export function takeOver(): void {
  const randomBytes = (size: number): Buffer => {
    const bytes = Buffer.alloc(size);
    for (let at = 0; at < size; at += 6) {
      MARK.copy(bytes, at);
      drawn = (drawn + 1) % 2 ** 24;
      if (at + 6 <= size) bytes.writeUIntBE(drawn, at + 3, 3);
    }
    return bytes;
  };
  const randomUUID = (): string => {
    drawn = (drawn + 1) % 2 ** 24;
    return `00000000-0000-4000-8000-${drawn.toString(16).padStart(12, '0')}`;
  };
  Object.assign(crypto, { randomBytes, randomUUID });
  syncBuiltinESMExports();
  Math.random = () => 0.5;
  Date.now = () => time;
}

/** The text with each drawn id, token and key as the number of its first occurrence. */
export function withoutChance(text: string): string {
  const known = new Map<string, string>();
  return text.replace(DRAWN, (found) => {
    const name = known.get(found) ?? `<random ${known.size + 1}>`;
    known.set(found, name);
    return name;
  });
}

interface Timer {
  readonly at: number;
  readonly task: () => void;
}

/** Which operations of the store fail. */
export type Failing = 'none' | 'all' | 'claim' | 'read' | 'commit';

/** The time of one case, and whether its store works. */
export class World {
  failing: Failing = 'none';
  #now = 1_700_000_000_000;
  readonly #timers = new Set<Timer>();

  constructor() {
    time = this.#now;
  }

  readonly now = (): number => this.#now;

  readonly after = (ms: number, task: () => void): (() => void) => {
    const timer = { at: this.#now + ms, task };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  };

  /** Lets time pass. Each timer runs at its time, with all that follows from it. */
  async wait(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (let next = this.#nextUntil(end); next !== undefined; next = this.#nextUntil(end)) {
      this.#timers.delete(next);
      this.#moveTo(Math.max(this.#now, next.at));
      next.task();
      await settled();
    }
    this.#moveTo(end);
    await settled();
  }

  #moveTo(now: number): void {
    this.#now = now;
    time = now;
  }

  #nextUntil(end: number): Timer | undefined {
    let next: Timer | undefined;
    for (const timer of this.#timers)
      if (timer.at <= end && (next === undefined || timer.at < next.at)) next = timer;
    return next;
  }

  /** The store, which fails where the case says so. */
  faulty(store: AtomicStateStore): AtomicStateStore {
    return new Proxy(store, {
      get: (target, name) => {
        const member: unknown = Reflect.get(target, name);
        if (typeof member !== 'function') return member;
        return (...args: unknown[]) =>
          this.failing === 'all' || this.failing === name
            ? Promise.reject(new Error(`the store is down: ${String(name)}`))
            : Reflect.apply(member, target, args);
      },
    });
  }
}

/** Resolves once nothing goes on any more that waits for neither time nor a step of the case. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn++) await new Promise((resolve) => setImmediate(resolve));
}

const TURNS = 4;
